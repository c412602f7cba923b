"""Install the plugin in the Pulumi CLI's plugins folder, and remove it from there.

`gpuform plugin install` and `gpuform plugin uninstall` call this module. It uses the CLI's own lock
files and `.partial` markers, so that both may work on the folder at the same time.
"""

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuform.providers.errors import GpuformError
from gpuform.providers.plugin.locations import (
    COMMAND,
    InstalledPlugin,
    build_launcher,
    find_executable,
    get_plugin_version,
    get_plugins_folder,
    list_installed_plugins,
    locate_version,
)

WINDOWS = sys.platform == "win32"


@dataclass(frozen=True, slots=True)
class Installation:
    """Result of an installation: the plugin's location, and whether any file was changed."""

    plugin: InstalledPlugin
    changed: bool
    other_versions: tuple[InstalledPlugin, ...]
    """Other versions in the same folder. The Pulumi CLI starts the newest of all of them."""


def install(environ: Mapping[str, str], python: Path = Path(sys.executable)) -> Installation:
    """Install this version of gpuform as a plugin, to run in the interpreter `python`.

    Repeated and simultaneous calls are safe, and a running command of the Pulumi CLI never sees an
    incomplete plugin. The result says whether anything was changed, and which other versions are
    installed.

    Raises:
        GpuformError: the plugins folder cannot be written, or PULUMI_HOME is a Windows path.
    """
    plugins_folder = get_plugins_folder(environ)
    plugin = locate_version(plugins_folder, get_plugin_version())
    with _report_write_errors(plugins_folder), _hold_lock(plugin):
        changed = _write_program(plugin, *_build_program(python))
    others = tuple(
        other for other in list_installed_plugins(plugins_folder) if other.folder != plugin.folder
    )
    return Installation(plugin, changed, others)


def uninstall(environ: Mapping[str, str], version: str | None) -> list[InstalledPlugin]:
    """Remove installed versions of the plugin, complete or not, and return the removed ones.

    Args:
        environ: Environment variables; PULUMI_HOME names the CLI's folder.
        version: The version to remove; None removes all versions.

    Raises:
        GpuformError: the plugins folder cannot be written, or PULUMI_HOME is a Windows path.
    """
    plugins_folder = get_plugins_folder(environ)
    removed = []
    with _report_write_errors(plugins_folder):
        for plugin in list_installed_plugins(plugins_folder):
            if version in (None, plugin.version):
                with _hold_lock(plugin):
                    # The lock file stays: another process may be waiting for it.
                    shutil.rmtree(plugin.folder)
                    plugin.partial.unlink(missing_ok=True)
                removed.append(plugin)
    return removed


def _build_program(python: Path) -> tuple[str, bytes]:
    """Return the file name and the contents of a program to start the plugin with `python`.

    On Windows this is pip's .exe if there is one beside `python`, else a batch file; elsewhere a
    shell script.
    """
    if not WINDOWS:
        return COMMAND, build_launcher(python, windows=False)
    # pip's .exe stops Python when it is stopped; a batch file does not.
    pip_program = python.parent / f"{COMMAND}.exe"
    if pip_program.exists():
        return pip_program.name, pip_program.read_bytes()
    return f"{COMMAND}.cmd", build_launcher(python, windows=True)


def _write_program(plugin: InstalledPlugin, name: str, program: bytes) -> bool:
    """Write the program into the plugin's folder, and return False if nothing had to be changed."""
    existing_file = find_executable(plugin.folder, windows=WINDOWS)
    is_complete = (
        existing_file is not None
        and existing_file.name == name
        and os.access(existing_file, os.X_OK)
    )
    if (
        existing_file
        and is_complete
        and not plugin.partial.exists()
        and existing_file.read_bytes() == program
    ):
        return False
    # The CLI ignores a version with a .partial file: a crash leaves no broken plugin.
    if not is_complete:
        plugin.partial.touch()
    plugin.folder.mkdir(parents=True, exist_ok=True)
    new_file = plugin.folder / f".{name}.new"
    new_file.write_bytes(program)
    new_file.chmod(0o755)
    # A rename is atomic: a CLI that starts the plugin gets the old or the new file.
    new_file.replace(plugin.folder / name)
    # On Windows pip's .exe may replace a .cmd or the reverse: only one file may remain.
    if existing_file is not None and existing_file.name != name:
        existing_file.unlink()
    plugin.partial.unlink(missing_ok=True)
    return True


@contextmanager
def _report_write_errors(plugins_folder: Path) -> Iterator[None]:
    """Raise an OSError of the block as a GpuformError that names the file and a remedy."""
    try:
        yield
    except OSError as error:
        raise GpuformError(
            f"{error.filename or plugins_folder} cannot be written: {error.strerror or error}",
            hint="end the Pulumi commands that use the plugin, or fix the permissions, and run the "
            "command again; PULUMI_HOME selects another folder than ~/.pulumi",
        ) from None


@contextmanager
def _hold_lock(plugin: InstalledPlugin) -> Iterator[None]:
    """Hold the lock file of the version, waiting for other installers first.

    The Pulumi CLI locks the same file while it installs. On Windows the wait ends with OSError
    after ten seconds.
    """
    plugin.lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(plugin.lock, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - Windows only

            msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - not on Windows

            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Closing the file releases the lock on both systems, and so does a crash.
        os.close(descriptor)
