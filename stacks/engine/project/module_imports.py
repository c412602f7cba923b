"""The imports of a project: its own modules, as fresh for each run as in a process of their own."""

import importlib
import os
import sys
import sysconfig
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project.process_state import restore_process

_ONE_AT_A_TIME = threading.Lock()
_NEVER_FORGOTTEN = ("gpuform", "pulumi")
_INSTALLED = ("site-packages", "dist-packages")


@contextmanager
def import_project_modules(program: Path) -> Iterator[None]:
    """The process as the Pulumi CLI starts it for a program, given its folder or its file.

    The program's folder is where work is done and modules are found, and all that changed is
    undone afterwards. For the length of a run: deletes and refreshes load providers from there as
    well. A process has one working folder and one set of modules, so the run of another thread
    waits until this one has ended. Raises EngineError when there is no such folder.
    """
    folder, entry = folder_and_entry(program)
    with _ONE_AT_A_TIME, restore_process(), _own_modules(folder):
        sys.path.insert(0, str(folder))
        sys.argv = [entry]
        os.chdir(folder)
        yield


def folder_and_entry(program: Path) -> tuple[Path, str]:
    """A program's folder, and what the Pulumi CLI runs there: `.` or the name of a file."""
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
def _own_modules(folder: Path) -> Iterator[None]:
    """What the program imports of its own is imported anew, and forgotten afterwards.

    Installed packages stay: many cannot be imported twice in one process.
    """
    importlib.invalidate_caches()
    before = dict(sys.modules)
    libraries = [path for path in sys.path if path and Path(path) != folder]
    libraries += map(sysconfig.get_path, ("stdlib", "platstdlib"))
    own, others = _prefixes([str(folder)]), _prefixes(libraries)

    def is_in_folder(place: str) -> bool:
        return place.startswith(own) and not _is_installed(place)

    def is_own(place: str) -> bool:
        library = place.startswith(others) or _is_installed(place)
        return is_in_folder(place) or not library

    _forget(name for name in before if any(map(is_in_folder, _places(name))) and not _is_kept(name))
    try:
        yield
    finally:
        new = [name for name in list(sys.modules) if name not in before and not _is_kept(name)]
        _forget(name for name in new if any(map(is_own, _places(name))))
        sys.modules.update(before)


def _forget(names: Iterable[str]) -> None:
    for name in list(names):
        del sys.modules[name]


def _is_kept(name: str) -> bool:
    return name.partition(".")[0] in _NEVER_FORGOTTEN


def _places(name: str) -> list[str]:
    """Where a module comes from: its file, or a package's folders; nowhere when just made."""
    known = getattr(sys.modules[name], "__dict__", {})  # asking a lazy module would load it
    file: str | None = known.get("__file__")
    if file:
        return [file]
    path = known.get("__path__")
    # To list the path of a namespace looks through all folders of sys.path: milliseconds each.
    folders: list[str] = list(getattr(path, "_path", path) or ())
    if folders:
        return folders
    return [] if known.get("__spec__") else [""]


def _is_installed(place: str) -> bool:
    return any(f"{os.sep}{name}{os.sep}" in place for name in _INSTALLED)


def _prefixes(folders: Iterable[str]) -> tuple[str, ...]:
    """What the paths begin with of all that is in these folders."""
    return tuple(folder.rstrip(os.sep) + os.sep for folder in folders)
