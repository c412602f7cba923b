"""Let runs take turns with what a process has only once, and import each project's modules fresh.

The program runs in the engine's process. The language host calls this module, and so do deletes and
refreshes that load providers from the project.
"""

import gc
import importlib
import locale
import logging
import os
import random
import socket
import sys
import sysconfig
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.providers.errors import Cancelled
from gpuform.schemas.errors import EngineError

_PAUSE_S = 0.2
"""How often a waiting run looks whether somebody has cancelled it."""

_belongs_to_run: ContextVar[bool] = ContextVar("gpuform_belongs_to_run", default=False)


@contextmanager
def mark_as_run() -> Iterator[None]:
    """Mark the code of the context as part of a run, so as never to wait for the end of the run."""
    token = _belongs_to_run.set(True)
    try:
        yield
    finally:
        _belongs_to_run.reset(token)


def restore_environ(before: Mapping[str, str]) -> None:
    """Set the environment variables to `before`, and the C library's time zone if TZ changed."""
    zone = os.environ.get("TZ")
    for name in [name for name in os.environ if name not in before]:
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    if os.environ.get("TZ") != zone and hasattr(time, "tzset"):
        # The C library reads TZ again only when it is told to.
        time.tzset()


class _ProcessUse:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._own_environ: Mapping[str, str] | None = None
        self._own_folder = Path()
        self._shared_folder: Path | None = None
        self._sharing = 0

    def read_environ(self) -> Mapping[str, str]:
        """Return the variables of this process, without changes by a run which owns the process."""
        with self._changed:
            return dict(os.environ) if self._own_environ is None else self._own_environ

    @contextmanager
    def own(self, environ: Mapping[str, str], is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Own the process with `environ` as its environment, once no other run uses it.

        Raises:
            EngineError: a run that uses the process waits for this code.
            Cancelled: `is_cancelled` returned True before that.
        """
        with self._changed:
            self._wait_for(lambda: self._own_environ is None and not self._sharing, is_cancelled)
            own_environ = self._own_environ = dict(os.environ)
        try:
            # Inside: after an error here, the process must be free for other runs.
            restore_environ(environ)
            with mark_as_run():
                yield
        finally:
            with self._changed:
                restore_environ(own_environ)
                self._own_environ = None
                self._changed.notify_all()

    @contextmanager
    def share(self, folder: Path, is_cancelled: Callable[[], bool]) -> Iterator[bool]:
        """Share the process, with `folder` as working folder; yield True for the first run there.

        The runs must not execute code of a project. Errors are those of `own`.
        """
        with self._changed:
            self._wait_for(
                lambda: self._own_environ is None and self._shared_folder in (None, folder),
                is_cancelled,
            )
            is_first = self._shared_folder is None
            if is_first:
                own_folder = Path.cwd()
                os.chdir(folder)
                # Only now: after an error above, the process must be free for other runs.
                self._own_folder, self._shared_folder = own_folder, folder
            self._sharing += 1
        try:
            with mark_as_run():
                yield is_first
        finally:
            with self._changed:
                self._sharing -= 1
                if not self._sharing:
                    self._shared_folder = None
                    self._changed.notify_all()
                    os.chdir(self._own_folder)

    def _wait_for(self, is_possible: Callable[[], bool], is_cancelled: Callable[[], bool]) -> None:
        if not is_possible() and _belongs_to_run.get():
            raise EngineError(
                "another operation is running in this process",
                hint="A program, and a function that receives its events, cannot run an operation: "
                "wait until the other operation has ended, or use another process.",
            )
        while not self._changed.wait_for(is_possible, _PAUSE_S):
            if is_cancelled():
                raise Cancelled


PROCESS_USE = _ProcessUse()


@contextmanager
def restore_process() -> Iterator[None]:
    """Restore all parts of the process changed in the context.

    These are the working folder, variables, import paths, arguments, warnings, logging, hooks for
    exceptions and the interpreter's own settings; signal handlers belong to the main thread, and
    programs do not run there.
    """
    with ExitStack() as undo:
        undo.enter_context(warnings.catch_warnings())
        undo.callback(restore_environ, dict(os.environ))
        undo.enter_context(_restore_logging())
        for owner, name in _ATTRIBUTES:
            undo.callback(setattr, owner, name, getattr(owner, name))
        for items in (sys.path, sys.argv, sys.meta_path, sys.path_hooks):
            undo.callback(_replace_items, items, list(items))
        for read, write in _SETTINGS:
            undo.callback(_restore_setting, read, write, read())
        yield


def _replace_items(items: list[Any], before: list[Any]) -> None:
    """Replace the items of a list in place by the items from before."""
    items[:] = before


def _read_umask() -> int:
    """Return the umask. Reading means setting it: meanwhile new files are the owner's alone."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_ATTRIBUTES = (
    (sys, "path"),
    (sys, "argv"),
    (sys, "meta_path"),
    (sys, "path_hooks"),
    (sys, "excepthook"),
    (threading, "excepthook"),
)
_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (os.getcwd, os.chdir),
    (_read_umask, os.umask),
    (lambda: locale.setlocale(locale.LC_ALL), lambda value: locale.setlocale(locale.LC_ALL, value)),
    (random.getstate, random.setstate),
    (socket.getdefaulttimeout, socket.setdefaulttimeout),
    (sys.getrecursionlimit, sys.setrecursionlimit),
    (gc.isenabled, lambda wanted: gc.enable() if wanted else gc.disable()),
    (lambda: logging.root.manager.disable, logging.disable),
    (logging.getLoggerClass, logging.setLoggerClass),
    (logging.getLogRecordFactory, logging.setLogRecordFactory),
)


def _restore_setting(read: Callable[[], Any], write: Callable[[Any], object], before: Any) -> None:
    """Write `before` back if the setting has changed; a failing read or write is ignored."""
    now = None
    # The program may have removed its working folder.
    with suppress(OSError):
        now = read()
    with suppress(OSError):
        if now != before:
            write(before)


@dataclass(frozen=True, slots=True)
class _LoggerState:
    level: int = logging.NOTSET
    propagate: bool = True
    disabled: bool = False
    handlers: tuple[logging.Handler, ...] = ()
    filters: tuple[Any, ...] = ()

    @classmethod
    def from_logger(cls, logger: logging.Logger) -> "_LoggerState":
        """Return the present settings, handlers and filters of a logger."""
        handlers, filters = tuple(logger.handlers), tuple(logger.filters)
        return cls(logger.level, logger.propagate, logger.disabled, handlers, filters)

    @classmethod
    def from_new_logger(cls, logger: logging.Logger) -> "_LoggerState":
        """Return the state for a library's new logger: the defaults, plus any null handlers.

        The library's module is not imported again and would not silence the logger a second time.
        """
        silent = (h for h in logger.handlers if isinstance(h, logging.NullHandler))
        return cls(handlers=tuple(silent))

    def apply_to(self, logger: logging.Logger) -> None:
        """Restore the settings, handlers and filters of a logger after a run, if changed."""
        if _LoggerState.from_logger(logger) != self:
            logger.setLevel(self.level)
            logger.propagate, logger.disabled = self.propagate, self.disabled
            logger.handlers[:], logger.filters[:] = self.handlers, self.filters


def _list_loggers() -> list[logging.Logger]:
    """Return the root logger and all existing named loggers."""
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(entry for entry in named if isinstance(entry, logging.Logger))]


@contextmanager
def _restore_logging() -> Iterator[None]:
    """Restore all loggers after the context; loggers created in the context are reset."""
    before = {logger: _LoggerState.from_logger(logger) for logger in _list_loggers()}
    try:
        yield
    finally:
        for logger in _list_loggers():
            before.get(logger, _LoggerState.from_new_logger(logger)).apply_to(logger)


# Imported once for all programs: the engine uses the same SDK as the program.
_SHARED_PACKAGES = ("gpuform", "pulumi")
_INSTALLED = ("site-packages", "dist-packages")


@contextmanager
def import_project_modules(
    program: Path, environ: Mapping[str, str], is_cancelled: Callable[[], bool] = lambda: False
) -> Iterator[None]:
    """Prepare the process for a program's folder or file, as the Pulumi CLI does.

    The program's folder becomes the working folder and the first import path, and `environ` the
    environment; all changes are undone afterwards. A process has one working folder and one set of
    modules, so the run of another thread waits until this one ends.

    Raises:
        EngineError: the folder does not exist, or the run that would have to end has called this
            code.
        Cancelled: `is_cancelled` returned True before the other run has ended.
    """
    folder, entry = get_folder_and_entry(program)
    own = PROCESS_USE.own(environ, is_cancelled)
    with own, restore_process(), _isolate_modules(folder):
        sys.path.insert(0, str(folder))
        sys.argv = [entry]
        os.chdir(folder)
        yield


def get_folder_and_entry(program: Path) -> tuple[Path, str]:
    """Return a program's folder and entry: `.` for a folder, else the name of the file.

    The entry is the program's `sys.argv[0]` under the Pulumi CLI.

    Raises:
        EngineError: the program does not exist.
    """
    program = Path(os.path.abspath(program))  # noqa: PTH100 - Path.resolve would follow links
    if program.is_dir():
        return program, "."
    if program.is_file():
        return program.parent, program.name
    raise EngineError(
        f"the program {program} does not exist",
        hint="`main` in Pulumi.yaml is the program's folder or file, relative to Pulumi.yaml",
    )


@contextmanager
def _isolate_modules(folder: Path) -> Iterator[None]:
    """Import the program's own modules again in this context, and remove the modules afterwards.

    Installed packages stay: many cannot be imported twice in one process.
    """
    # Files may have been written after Python listed their folder.
    importlib.invalidate_caches()
    before = dict(sys.modules)
    libraries = [path for path in sys.path if path and Path(path) != folder]
    libraries += map(sysconfig.get_path, ("stdlib", "platstdlib"))
    own, others = _to_prefixes([str(folder)]), _to_prefixes(libraries)

    def may_be_own_folder(path: str) -> bool:
        is_relative = not os.path.isabs(path)  # noqa: PTH117 - a Path takes 20 times as long
        return is_relative or f"{path}{os.sep}".startswith(own)

    def is_in_folder(path: str) -> bool:
        return path.startswith(own) and not _is_installed(path)

    def is_program_module(path: str) -> bool:
        library = path.startswith(others) or _is_installed(path)
        return is_in_folder(path) or not library

    known_folders = set(sys.path_importer_cache)
    _remove_modules(
        name
        for name in before
        if any(map(is_in_folder, _find_module_paths(name))) and not _is_shared(name)
    )
    try:
        yield
    finally:
        new = [name for name in list(sys.modules) if name not in before and not _is_shared(name)]
        _remove_modules(
            name for name in new if any(map(is_program_module, _find_module_paths(name)))
        )
        # Code imported before the context keeps the modules that it knows.
        sys.modules.update(before)
        for path in filter(may_be_own_folder, set(sys.path_importer_cache) - known_folders):
            sys.path_importer_cache.pop(path, None)


def _remove_modules(names: Iterable[str]) -> None:
    """Remove modules from `sys.modules`, to be run again by the next import."""
    for name in list(names):
        del sys.modules[name]


def _is_shared(name: str) -> bool:
    """Return True for a module of the SDK or of gpuform, imported once for all programs."""
    return name.partition(".")[0] in _SHARED_PACKAGES


def _find_module_paths(name: str) -> list[str]:
    """Return the path of a module's file, or the folders of a namespace package.

    Imports nothing: `name` must be in `sys.modules`. The list is empty for a built-in module. For a
    module that code has created without an import it is `[""]`.
    """
    # Other attributes of a lazy module would load it.
    module_globals = getattr(sys.modules[name], "__dict__", {})
    file: str | None = module_globals.get("__file__")
    if file:
        return [file]
    path = module_globals.get("__path__")
    # Iterating over a namespace package's path searches all folders of sys.path, which takes
    # milliseconds for each package; `_path` is the list without the search.
    folders: list[str] = list(getattr(path, "_path", path) or ())
    if folders:
        return folders
    return [] if module_globals.get("__spec__") else [""]


def _is_installed(path: str) -> bool:
    """Return True for a path inside of a folder of installed packages."""
    return any(f"{os.sep}{name}{os.sep}" in path for name in _INSTALLED)


def _to_prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    """Return for each folder the common prefix of all paths inside the folder."""
    return tuple(folder.rstrip(os.sep) + os.sep for folder in folders)
