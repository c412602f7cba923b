"""Import a project's modules fresh for each run, and restore the process after a program.

The program runs in the engine's process. Called by the language host, and by deletes and refreshes
that load providers from the project.
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.stacks.engine.errors import EngineError


@contextmanager
def restore_process() -> Iterator[None]:
    """Restore everything of the process that the context has changed.

    These are the working folder, variables, import paths, arguments, warnings, logging, hooks for
    exceptions and the interpreter's own settings; signal handlers belong to the main thread, and
    programs do not run there.
    """
    with ExitStack() as undo:
        undo.enter_context(warnings.catch_warnings())
        undo.callback(_restore_environ, dict(os.environ))
        undo.enter_context(_restore_logging())
        for owner, name in _ATTRIBUTES:
            undo.callback(setattr, owner, name, getattr(owner, name))
        for items in (sys.path, sys.argv, sys.meta_path, sys.path_hooks):
            undo.callback(_replace_items, items, list(items))
        for read, write in _SETTINGS:
            undo.callback(_restore_setting, read, write, read())
        yield


def _replace_items(items: list[Any], before: list[Any]) -> None:
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
    now = None
    with suppress(OSError):  # a working folder that the program removed
        now = read()
    with suppress(OSError):
        if now != before:
            write(before)


def _restore_environ(before: dict[str, str]) -> None:
    zone = os.environ.get("TZ")
    for name in [name for name in os.environ if name not in before]:
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    if os.environ.get("TZ") != zone and hasattr(time, "tzset"):
        time.tzset()


@dataclass(frozen=True, slots=True)
class _LoggerState:
    level: int = logging.NOTSET
    propagate: bool = True
    disabled: bool = False
    handlers: tuple[logging.Handler, ...] = ()
    filters: tuple[Any, ...] = ()

    @classmethod
    def of(cls, logger: logging.Logger) -> "_LoggerState":
        handlers, filters = tuple(logger.handlers), tuple(logger.filters)
        return cls(logger.level, logger.propagate, logger.disabled, handlers, filters)

    @classmethod
    def of_new(cls, logger: logging.Logger) -> "_LoggerState":
        """Return the state for a library's new logger, which keeps its null handlers.

        The library's module is not imported again and would not silence the logger a second time.
        """
        silent = (h for h in logger.handlers if isinstance(h, logging.NullHandler))
        return cls(handlers=tuple(silent))

    def apply_to(self, logger: logging.Logger) -> None:
        if _LoggerState.of(logger) != self:
            logger.setLevel(self.level)
            logger.propagate, logger.disabled = self.propagate, self.disabled
            logger.handlers[:], logger.filters[:] = self.handlers, self.filters


def _list_loggers() -> list[logging.Logger]:
    named = list(logging.root.manager.loggerDict.values())
    return [logging.root, *(entry for entry in named if isinstance(entry, logging.Logger))]


@contextmanager
def _restore_logging() -> Iterator[None]:
    before = {logger: _LoggerState.of(logger) for logger in _list_loggers()}
    try:
        yield
    finally:
        for logger in _list_loggers():
            before.get(logger, _LoggerState.of_new(logger)).apply_to(logger)


_RUN_LOCK = threading.Lock()
_KEPT_PACKAGES = ("gpuform", "pulumi")
_INSTALLED = ("site-packages", "dist-packages")


@contextmanager
def import_project_modules(program: Path) -> Iterator[None]:
    """Prepare the process as the Pulumi CLI does for a program, given its folder or its file.

    The program's folder becomes the working folder and the first import path; all changes are
    undone afterwards. A process has one working folder and one set of modules, so the run of
    another thread waits until this one ends.

    Raises:
        EngineError: the folder does not exist.
    """
    folder, entry = get_folder_and_entry(program)
    with _RUN_LOCK, restore_process(), _isolate_modules(folder):
        sys.path.insert(0, str(folder))
        sys.argv = [entry]
        os.chdir(folder)
        yield


def get_folder_and_entry(program: Path) -> tuple[Path, str]:
    """Return a program's folder, and what the Pulumi CLI runs there: `.` or the name of a file."""
    program = Path(os.path.abspath(program))  # noqa: PTH100 - Path.resolve would follow links
    if program.is_dir():
        return program, "."
    if program.is_file():
        return program.parent, program.name
    raise EngineError(
        f"the program {program} does not exist",
        hint="`main` in Pulumi.yaml names the program's folder or file, from where Pulumi.yaml is",
    )


@contextmanager
def _isolate_modules(folder: Path) -> Iterator[None]:
    """Import the program's own modules again in this context, and remove them afterwards.

    Installed packages stay: many cannot be imported twice in one process.
    """
    importlib.invalidate_caches()
    before = dict(sys.modules)
    libraries = [path for path in sys.path if path and Path(path) != folder]
    libraries += map(sysconfig.get_path, ("stdlib", "platstdlib"))
    own, others = _to_prefixes([str(folder)]), _to_prefixes(libraries)

    def is_in_folder(path: str) -> bool:
        return path.startswith(own) and not _is_installed(path)

    def is_program_module(path: str) -> bool:
        library = path.startswith(others) or _is_installed(path)
        return is_in_folder(path) or not library

    _remove_modules(
        name
        for name in before
        if any(map(is_in_folder, _find_module_paths(name))) and not _is_kept(name)
    )
    try:
        yield
    finally:
        new = [name for name in list(sys.modules) if name not in before and not _is_kept(name)]
        _remove_modules(
            name for name in new if any(map(is_program_module, _find_module_paths(name)))
        )
        sys.modules.update(before)


def _remove_modules(names: Iterable[str]) -> None:
    for name in list(names):
        del sys.modules[name]


def _is_kept(name: str) -> bool:
    return name.partition(".")[0] in _KEPT_PACKAGES


def _find_module_paths(name: str) -> list[str]:
    """Return a module's file or a package's folders; "" for a module made in code."""
    module_globals = getattr(
        sys.modules[name], "__dict__", {}
    )  # asking a lazy module would load it
    file: str | None = module_globals.get("__file__")
    if file:
        return [file]
    path = module_globals.get("__path__")
    # To list the path of a namespace looks through all folders of sys.path: milliseconds each.
    folders: list[str] = list(getattr(path, "_path", path) or ())
    if folders:
        return folders
    return [] if module_globals.get("__spec__") else [""]


def _is_installed(path: str) -> bool:
    return any(f"{os.sep}{name}{os.sep}" in path for name in _INSTALLED)


def _to_prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the prefixes of all paths in these folders."""
    return tuple(folder.rstrip(os.sep) + os.sep for folder in folders)
