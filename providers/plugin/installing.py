"""Puts the plugin where the Pulumi CLI finds it, and takes it away, as the CLI itself does."""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuform.providers.errors import GpuformError
from gpuform.providers.plugin.launchers import launcher
from gpuform.providers.plugin.places import (
    COMMAND,
    Installed,
    executable,
    installed,
    of_version,
    plugin_folder,
    plugin_version,
)

WINDOWS = sys.platform == "win32"


@dataclass(frozen=True, slots=True)
class Installation:
    """What an installation did: nothing, where it was as it should be."""

    installed: Installed
    changed: bool
    others: tuple[Installed, ...]
    """The other versions there, of which the CLI takes the newest if it is newer."""


def install(environ: Mapping[str, str], python: Path = Path(sys.executable)) -> Installation:
    """Installs this gpuform's version, for the interpreter that runs it.

    Safe to repeat and to run several times at once; what a running command of the CLI sees is
    never half of it. Raises GpuformError when the folder cannot be written.
    """
    plugins = plugin_folder(environ)
    ours = of_version(plugins, plugin_version())
    with _told(plugins), _locked(ours):
        changed = _write(ours, *_program(python))
    others = tuple(each for each in installed(plugins) if each.folder != ours.folder)
    return Installation(ours, changed, others)


def uninstall(environ: Mapping[str, str], wanted: str | None) -> list[Installed]:
    """Removes a version, or all of them, finished or not; those that were there.

    Files that are locked stay: somebody may wait for one.
    """
    plugins = plugin_folder(environ)
    removed = []
    with _told(plugins):
        for each in installed(plugins):
            if wanted in (None, each.version):
                with _locked(each):
                    shutil.rmtree(each.folder)
                    each.partial.unlink(missing_ok=True)
                removed.append(each)
    return removed


def _program(python: Path) -> tuple[str, bytes]:
    """The executable's name and contents.

    On Windows pip's own program is preferred: it ends with what it has started, which a batch file
    does not.
    """
    if not WINDOWS:
        return COMMAND, launcher(python, windows=False)
    made = python.parent / f"{COMMAND}.exe"
    if made.exists():
        return made.name, made.read_bytes()
    return f"{COMMAND}.cmd", launcher(python, windows=True)


def _write(ours: Installed, name: str, program: bytes) -> bool:
    """Whether anything had to be written."""
    there = executable(ours.folder, windows=WINDOWS)
    is_whole = there is not None and there.name == name and os.access(there, os.X_OK)
    if there and is_whole and not ours.partial.exists() and there.read_bytes() == program:
        return False
    if not is_whole:
        ours.partial.touch()
    ours.folder.mkdir(parents=True, exist_ok=True)
    made = ours.folder / f".{name}.new"
    made.write_bytes(program)
    made.chmod(0o755)
    made.replace(ours.folder / name)
    if there is not None and there.name != name:
        there.unlink()
    ours.partial.unlink(missing_ok=True)
    return True


@contextmanager
def _told(plugins: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise GpuformError(
            f"{error.filename or plugins} cannot be written: {error.strerror or error}",
            hint="end the commands of Pulumi that use the plugin, or put the permissions right, "
            "and run it again; PULUMI_HOME names another folder than ~/.pulumi",
        ) from None


@contextmanager
def _locked(one: Installed) -> Iterator[None]:
    """Waits for whoever else installs this version: the CLI locks the same file."""
    one.lock.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(one.lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - of Windows alone

            msvcrt.locking(handle, msvcrt.LK_LOCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - Windows has none

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
