"""Where the Pulumi CLI looks for the plugin, and what it finds there.

As its source has it (sdk/go/common/workspace/plugins.go): first on the PATH, then in the folder
`plugins` of its home, where `resource-gpuform-v0.1.0` holds a version, unless a file
`resource-gpuform-v0.1.0.partial` says that it is not finished. Of several versions it takes the
newest.
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
_FOLDER: Final = "resource-gpuform-v"
_PRE: Final = {"a": "alpha", "b": "beta", "rc": "rc"}


def plugin_version(of: str | None = None) -> str:
    """gpuform's version, or another one of Python's, as Pulumi wants them: semantic.

    Raises InvalidVersion.
    """
    found = Version(version("gpuform") if of is None else of)
    release = ".".join(str(number) for number in (*found.release, 0, 0)[:3])
    if found.pre:
        return f"{release}-{_PRE[found.pre[0]]}.{found.pre[1]}"
    return f"{release}-dev.{found.dev}" if found.dev is not None else release


@total_ordering
@dataclass(frozen=True)
class Installed:
    """A version in the CLI's folder; of two, the CLI takes the greater."""

    folder: Path

    @property
    def version(self) -> str:
        """Its version, as the folder says it."""
        return self.folder.name.removeprefix(_FOLDER)

    @property
    def partial(self) -> Path:
        """The file that is there until the installation is complete."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    @property
    def lock(self) -> Path:
        """The file that is locked while somebody installs or removes it."""
        return self.folder.with_name(f"{self.folder.name}.lock")

    def __lt__(self, other: "Installed") -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[bool, Version]:
        """What is not final comes before everything that is; what is no version, first of all."""
        try:
            found = Version(self.version)
        except InvalidVersion:
            return False, Version("0")
        return not found.is_prerelease, found


def plugin_folder(environ: Mapping[str, str], *, windows: bool = os.name == "nt") -> Path:
    """The CLI's folder of plugins. Raises GpuformError for a home that is a path of Windows."""
    given = environ.get("PULUMI_HOME")
    if given and not windows and is_windows_path(given):
        raise GpuformError(
            f"PULUMI_HOME is {given}, a path of Windows: here it would be a folder of that name in "
            "the current one",
            hint="set PULUMI_HOME to a path of this system, such as /mnt/c/Users/... in WSL, or "
            "unset it for ~/.pulumi",
        )
    return (Path(given) if given else Path.home() / ".pulumi") / "plugins"


def is_windows_path(text: str) -> bool:
    """Whether a path begins with a drive, or with two backslashes."""
    return bool(PureWindowsPath(text).drive) and not text.startswith("//")


def of_version(plugins: Path, wanted: str) -> Installed:
    """A version in a folder of plugins, there or not."""
    return Installed(plugins / f"{_FOLDER}{wanted}")


def installed(plugins: Path) -> list[Installed]:
    """What is in a folder of plugins, also what is not finished; the CLI's choice comes last."""
    if not plugins.is_dir():
        return []
    pattern = re.compile(re.escape(_FOLDER) + r"[0-9]")
    found = [each for each in plugins.iterdir() if pattern.match(each.name) and each.is_dir()]
    return sorted(map(Installed, found))


def on_path(environ: Mapping[str, str]) -> Path | None:
    """The plugin that the CLI takes before all installed ones, with a warning."""
    if environ.get(IGNORE_AMBIENT_VARIABLE, "").lower() in ("1", "true"):
        return None
    found = shutil.which(COMMAND, path=environ.get("PATH", ""))
    return Path(found) if found else None


def executable(folder: Path, *, windows: bool = os.name == "nt") -> Path | None:
    """The file in a version's folder that the CLI starts."""
    names = (f"{COMMAND}.exe", f"{COMMAND}.cmd") if windows else (COMMAND,)
    return next((folder / name for name in names if (folder / name).exists()), None)


def named_by(project: Path) -> str | None:
    """The folder of the plugin that a Pulumi.yaml names; the CLI takes that before any other."""
    document = yaml.safe_load(project.read_text(encoding="utf-8"))
    plugins = document.get("plugins") if isinstance(document, dict) else None
    providers = plugins.get("providers") if isinstance(plugins, dict) else None
    for each in providers if isinstance(providers, list) else ():
        if isinstance(each, dict) and each.get("name") == PACKAGE and each.get("path"):
            return str(each["path"])
    return None
