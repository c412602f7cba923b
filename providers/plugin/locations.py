"""Find the plugin where the Pulumi CLI looks for it: on the PATH and in the plugins folder.

The rules are those of the CLI's source (sdk/go/common/workspace/plugins.go): a plugin on the PATH
comes first, then the folder `plugins` of PULUMI_HOME, where `resource-gpuform-v0.1.0` is a version
and `resource-gpuform-v0.1.0.partial` marks the version as incomplete. The CLI starts the newest
version. `installing`, `program_warnings` and `gpuform plugin doctor` call this module.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import total_ordering
from importlib.metadata import version
from pathlib import Path, PureWindowsPath
from typing import Final

import yaml
from packaging.version import InvalidVersion, Version

from gpuform.providers.errors import GpuformError
from gpuform.providers.forms import PACKAGE

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
