"""Find the installed gpuform and Pulumi CLI, and check versions: `requiredPulumiVersion` and
`pulumi.require_pulumi_version`.

gpuform counts as the newest Pulumi CLI that its suite was run with: it does what that CLI does.
"""

import importlib.metadata
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from gpuform.stacks.engine.errors import USE_THE_CLI, EngineError


def requirement(extra: str = "") -> str:
    """What installs it: a folder, a file or an address, as pip was told; the name by an index.

    The name alone may be somebody else's where no index is known to have it.
    """
    extras = f"[{extra}]" if extra else ""
    told = importlib.metadata.distribution("gpuform").read_text("direct_url.json")
    url = str(json.loads(told)["url"]) if told else ""
    if url.startswith("file:"):
        return f"{unquote(urlsplit(url).path)}{extras}"
    return f"gpuform{extras} @ {url}" if url else f"gpuform{extras}"


TRIED_VERSION: Final = (3, 274, 1)
"""The newest Pulumi CLI that the suite of docs/reference/pulumi-cli.md was run with."""
LAST_TRIED: Final = TRIED_VERSION[:2]


def cli_version(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Major and minor version of the `pulumi` on PATH; None where there is none that tells it."""
    cli = shutil.which("pulumi", path=environ.get("PATH"))
    if cli is None:
        return None
    try:
        told = subprocess.run(  # noqa: S603 - the program that the user would start
            [cli, "version"],
            env={**environ, "PULUMI_SKIP_UPDATE_CHECK": "1"},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.match(r"v(\d+)\.(\d+)", told)
    return (int(version[1]), int(version[2])) if version else None


_Version = tuple[int, int, int]

_COMPARED: Final[dict[str, Callable[[_Version, _Version], bool]]] = {
    ">=": lambda ours, theirs: ours >= theirs,
    "<=": lambda ours, theirs: ours <= theirs,
    ">": lambda ours, theirs: ours > theirs,
    "<": lambda ours, theirs: ours < theirs,
    "!=": lambda ours, theirs: ours != theirs,
    "!": lambda ours, theirs: ours != theirs,
    "==": lambda ours, theirs: ours == theirs,
    "=": lambda ours, theirs: ours == theirs,
    "": lambda ours, theirs: ours == theirs,
}
_CONDITION: Final = re.compile(r"(>=|<=|!=|==|>|<|!|=)?\s*v?(\d+)\.(\d+)\.(\d+)")


def require_version(version_range: str, source: str) -> None:
    """Refuse a range that the version gpuform stands for is not in.

    Args:
        version_range: as Pulumi writes them: `>=3.5.0 !3.7.7`, `<3.4.0 || >3.8.0`.
        source: who requires it, for the message.

    Raises:
        EngineError: the version is outside, or the text is no such range.
    """
    if not is_in_range(TRIED_VERSION, version_range, source):
        ours = ".".join(map(str, TRIED_VERSION))
        raise EngineError(
            f"{source} requires Pulumi {version_range}, and gpuform does what Pulumi {ours} does",
            hint=f"{USE_THE_CLI}, or widen the range",
        )


def is_in_range(version: _Version, version_range: str, source: str) -> bool:
    """Return whether one of the alternatives of `version_range` has `version`."""
    return any(_holds(version, each, source) for each in version_range.split("||"))


def _holds(version: _Version, conditions: str, source: str) -> bool:
    found = list(_CONDITION.finditer(conditions))
    if not found or _CONDITION.sub("", conditions).strip():
        raise EngineError(
            f"{source}: {conditions.strip()!r} is no range of versions",
            hint="write such as >=3.5.0 <4.0.0",
        )
    return all(
        _COMPARED[each[1] or ""](version, (int(each[2]), int(each[3]), int(each[4])))
        for each in found
    )
