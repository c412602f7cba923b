"""Install the plugin where the Pulumi CLI looks for it, and warn programs that it is missing.

The rules are those of the CLI's source (sdk/go/common/workspace/plugins.go): a plugin on the PATH
comes first, then the folder `plugins` of PULUMI_HOME, where `resource-gpuform-v0.1.0` is a version
and `resource-gpuform-v0.1.0.partial` marks the version as incomplete. The CLI starts the newest
version. `gpuform plugin install` and `uninstall` use the CLI's own lock files and `.partial`
markers, so that both may work on the folder at the same time.

`install` writes the script that the CLI starts, and `gpuform plugin doctor` reads it. The script
starts Python with `-P`, so that neither an active virtualenv nor the current folder changes which
modules are imported.

The resource classes call `warn_if_plugin_missing` and `warn_about_import` before the CLI fails with
an error that does not help.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, total_ordering
from importlib.metadata import version
from pathlib import Path, PureWindowsPath
from typing import Final

import pulumi
import yaml
from packaging.version import InvalidVersion, Version
from pulumi.runtime.proto.resource_pb2_grpc import ResourceMonitorStub

from gpuform.providers.context import read_run_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.platform import PACKAGE

COMMAND: Final = "pulumi-resource-gpuform"
IGNORE_AMBIENT_VARIABLE: Final = "PULUMI_IGNORE_AMBIENT_PLUGINS"
_FOLDER_PREFIX: Final = "resource-gpuform-v"
_PRERELEASE_LABELS: Final = {"a": "alpha", "b": "beta", "rc": "rc"}


def get_plugin_version(python_version: str | None = None) -> str:
    """Return a Python version, by default gpuform's own, as a semantic version for Pulumi.

    Parts that a semantic version cannot have, such as `.post1`, are left out.

    Raises:
        InvalidVersion: `python_version` is not a version.
    """
    parsed_version = Version(version("gpuform") if python_version is None else python_version)
    # Semantic versions have exactly three numbers: 0.2 becomes 0.2.0.
    release = ".".join(str(number) for number in (*parsed_version.release, 0, 0)[:3])
    if parsed_version.pre:
        return f"{release}-{_PRERELEASE_LABELS[parsed_version.pre[0]]}.{parsed_version.pre[1]}"
    return f"{release}-dev.{parsed_version.dev}" if parsed_version.dev is not None else release


@total_ordering
@dataclass(frozen=True)
class InstalledPlugin:
    """A version of the plugin in the CLI's folder. The CLI starts the greatest version."""

    folder: Path

    @property
    def version(self) -> str:
        """The plugin's version, taken from the name of its folder."""
        return self.folder.name.removeprefix(_FOLDER_PREFIX)

    @property
    def partial(self) -> Path:
        """The path of the marker file by which the CLI knows an incomplete installation."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    @property
    def lock(self) -> Path:
        """The file locked during the installation or removal of the version."""
        return self.folder.with_name(f"{self.folder.name}.lock")

    def __lt__(self, other: "InstalledPlugin") -> bool:
        return self._sort_key() < other._sort_key()

    def _sort_key(self) -> tuple[bool, Version]:
        """Return the sort key: invalid versions first, then prereleases, then releases."""
        try:
            parsed_version = Version(self.version)
        except InvalidVersion:
            return False, Version("0")
        # The CLI prefers any release to any prerelease.
        return not parsed_version.is_prerelease, parsed_version


def get_plugins_folder(environ: Mapping[str, str], *, windows: bool = os.name == "nt") -> Path:
    """Return the Pulumi CLI's folder `plugins` in PULUMI_HOME or ~/.pulumi, which need not exist.

    Raises:
        GpuformError: PULUMI_HOME is a Windows path, and `windows` is False.
    """
    pulumi_home = environ.get("PULUMI_HOME")
    # In WSL the variable may come from Windows, and `C:\Users` is a relative path on Linux.
    if pulumi_home and not windows and is_windows_path(pulumi_home):
        raise GpuformError(
            f"PULUMI_HOME is {pulumi_home}, a Windows path: on this "
            "system it would be a folder of that name in the current folder",
            hint="set PULUMI_HOME to a path of this system, such as /mnt/c/Users/... in WSL, or "
            "unset it for ~/.pulumi",
        )
    return (Path(pulumi_home) if pulumi_home else Path.home() / ".pulumi") / "plugins"


def is_windows_path(path: str) -> bool:
    """Return True if the path begins with a drive letter or with two backslashes."""
    return bool(PureWindowsPath(path).drive) and not path.startswith("//")


def locate_version(plugins_folder: Path, version_: str) -> InstalledPlugin:
    """Return the location of a version in a plugins folder, installed or not."""
    return InstalledPlugin(plugins_folder / f"{_FOLDER_PREFIX}{version_}")


def list_installed_plugins(plugins_folder: Path) -> list[InstalledPlugin]:
    """Return the versions in a plugins folder, incomplete ones included, in ascending order."""
    if not plugins_folder.is_dir():
        return []
    pattern = re.compile(re.escape(_FOLDER_PREFIX) + r"[0-9]")
    folders = [
        folder
        for folder in plugins_folder.iterdir()
        if pattern.match(folder.name) and folder.is_dir()
    ]
    return sorted(map(InstalledPlugin, folders))


def find_plugin_on_path(environ: Mapping[str, str]) -> Path | None:
    """Return the plugin on the PATH, which the CLI prefers to installed ones, or None.

    Returns None, too, while PULUMI_IGNORE_AMBIENT_PLUGINS makes the CLI ignore the PATH.
    """
    if environ.get(IGNORE_AMBIENT_VARIABLE, "").lower() in ("1", "true"):
        return None  # the CLI ignores the PATH, too, while this variable is set
    program = shutil.which(COMMAND, path=environ.get("PATH", ""))
    return Path(program) if program else None


def find_executable(folder: Path, *, windows: bool = os.name == "nt") -> Path | None:
    """Return the existing program that the CLI would start in a version's folder, or None."""
    names = (f"{COMMAND}.exe", f"{COMMAND}.cmd") if windows else (COMMAND,)
    return next((folder / name for name in names if (folder / name).exists()), None)


def find_project_plugin(project_file: Path) -> str | None:
    """Return the folder that a Pulumi.yaml sets for gpuform's plugin, as written there, or None.

    The CLI prefers this plugin to any other.

    Raises:
        OSError: the file cannot be read.
        yaml.YAMLError: the file is not YAML.
    """
    document = yaml.safe_load(project_file.read_text(encoding="utf-8"))
    plugins = document.get("plugins") if isinstance(document, dict) else None
    providers = plugins.get("providers") if isinstance(plugins, dict) else None
    for provider in providers if isinstance(providers, list) else ():
        if isinstance(provider, dict) and provider.get("name") == PACKAGE and provider.get("path"):
            return str(provider["path"])
    return None


_MODULE: Final = "gpuform.providers.plugin"
_REINSTALL_ADVICE: Final = (
    "the environment from which the gpuform plugin was installed no longer exists; "
    "in the environment that has gpuform now, run: gpuform plugin install"
)
_SHELL_SCRIPT: Final = f"""\
#!/bin/sh
# Written by `gpuform plugin install`.
python={{python}}
if [ ! -x "$python" ]; then
    echo "$python does not exist: {_REINSTALL_ADVICE}" >&2
    exit 1
fi
exec "$python" -P -m {_MODULE} "$@"
"""
_BATCH_FILE: Final = f"""\
@echo off
rem Written by `gpuform plugin install`.
chcp 65001 >nul
if not exist "{{python}}" (
    echo "{{python}}" does not exist: {_REINSTALL_ADVICE} 1>&2
    exit /b 1
)
"{{python}}" -P -m {_MODULE} %*
"""
_INTERPRETER_PATTERNS: Final = (
    re.compile(r"^python=(.+)$", re.MULTILINE),
    re.compile(r'^if not exist "(.+)" \($', re.MULTILINE),
)


def build_launcher(python: Path, *, windows: bool) -> bytes:
    """Return a shell script, or a batch file if `windows`, to start the plugin with `python`."""
    if windows:
        # In a batch file `%` begins a variable; doubling it keeps it in a path.
        batch_file = _BATCH_FILE.format(python=str(python).replace("%", "%%"))
        return batch_file.replace("\n", "\r\n").encode()
    return _SHELL_SCRIPT.format(python=shlex.quote(str(python))).encode()


def find_interpreter(program: bytes) -> str | None:
    """Return the path of the interpreter named in a launcher, or None if not found.

    Args:
        program: The contents of a launcher, written by `build_launcher` or by pip.
    """
    script = program.decode("utf-8", "replace").replace("\r\n", "\n")
    shell_match, batch_match = (pattern.search(script) for pattern in _INTERPRETER_PATTERNS)
    if shell_match:
        return (shlex.split(shell_match[1]) or [""])[0]
    if batch_match:
        return batch_match[1].replace("%%", "%")
    if program.startswith(b"#!"):
        return _read_shebang(script)
    # pip's .exe has the shebang near its end; its first part may contain `#!`, too.
    shebangs = re.findall(rb'#!"?([^\r\n"]+python[^\r\n"]*)"?\r?\n', program)
    return shebangs[-1].decode("utf-8", "replace").strip() if shebangs else None


def _read_shebang(script: str) -> str:
    """Return the interpreter named in the first lines of pip's script."""
    first_line, _, remaining_lines = script.removeprefix("#!").partition("\n")
    # For a path that is too long for line 1, pip starts /bin/sh, and line 2 names Python.
    exec_line = re.match(r"'''exec' (\"[^\"]+\"|\S+)", remaining_lines)
    return (
        exec_line[1].strip('"')
        if first_line.strip() == "/bin/sh" and exec_line
        else first_line.strip()
    )


CLI_RUNNER = "pulumi-language-python-exec"
"""Program with which the Pulumi CLI runs a Python program.

gpuform's own engine runs programs without it, and needs no plugin.
"""


@cache
def warn_if_plugin_missing() -> None:
    """Warn once per process if the Pulumi CLI runs the program and finds no plugin.

    The caller has checked that the resources are of the plugin form. The CLI would look for the
    plugin on the internet, where there is none.
    """
    command_names = {Path(argument).name for argument in sys.orig_argv}
    environ = read_run_context().environ
    if CLI_RUNNER not in command_names or is_plugin_available(environ, Path.cwd()):
        return
    pulumi.log.warn(
        "gpuform:form is plugin, and the gpuform plugin is not installed: run `gpuform plugin "
        "install` (`gpuform plugin doctor` shows where the Pulumi CLI looks)"
    )


def warn_about_import(resource_name: str) -> None:
    """Warn that the Pulumi CLI cannot import into the dynamic form, and name the alternatives.

    Does nothing under gpuform's own engine, which can import.
    """
    # The CLI's dynamic host fails with a KeyError before any code of gpuform runs.
    if isinstance(pulumi.runtime.settings.get_monitor(), ResourceMonitorStub):
        pulumi.log.warn(
            f"resource '{resource_name}': import_ does not work in the dynamic form under the "
            "Pulumi CLI, which fails with KeyError: '__provider'. Import the object with `gpuform "
            "up` or `gpuform import`, or use the plugin form (gpuform config set gpuform:form "
            "plugin); once the object is in the state, remove import_"
        )


def is_plugin_available(environ: Mapping[str, str], program_folder: Path) -> bool:
    """Return True if the CLI finds a plugin for the program in this folder, or may find one.

    A file that cannot be read may name a plugin. A Windows path in PULUMI_HOME means that there is
    none.
    """
    project_files = (folder / "Pulumi.yaml" for folder in (program_folder, *program_folder.parents))
    project_file = next((file for file in project_files if file.is_file()), None)
    try:
        if project_file is not None and find_project_plugin(project_file):
            return True
        complete_plugins = (
            plugin
            for plugin in list_installed_plugins(get_plugins_folder(environ))
            if not plugin.partial.exists()
        )
        return find_plugin_on_path(environ) is not None or any(complete_plugins)
    except GpuformError:
        # PULUMI_HOME is a Windows path: the CLI finds nothing in such a folder.
        return False
    except (OSError, yaml.YAMLError):
        # What cannot be read may contain a plugin: no warning is better than a wrong one.
        return True


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
