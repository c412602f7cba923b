"""Ranges of Pulumi's versions: `requiredPulumiVersion` and `pulumi.require_pulumi_version`.

gpuform counts as the newest Pulumi CLI that its suite was run with: it does what that CLI does.
"""

import re
from collections.abc import Callable
from typing import Final

from gpuform.stacks.engine.errors import USE_THE_CLI, EngineError
from gpuform.stacks.engine.machine.pulumi_cli import TRIED_VERSION

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
