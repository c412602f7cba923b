"""What interrupted creates have made that the state does not have, where `pulumi destroy` runs.

The Pulumi CLI asks no provider about such creates: it would forget them with their stack, and leave
the objects on the platform.
"""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Intent, Intents, Stored, in_dynamic_form

_DESTROY = frozenset({"destroy", "down", "dn"})
_CLI_NAMES = frozenset({"pulumi", "pulumi-wrapped"})
_GENERATIONS = 4
"""How many processes may be between the CLI and this one: shells, a launcher, a wrapper."""
_COMMANDS = _DESTROY | {"up", "update", "preview", "pre", "refresh", "import", "watch"}


def refuse_to_forget(intents: Intents) -> None:
    """Raises GpuformError when this is a destroy that would leave something."""
    stored = intents.records.stored()
    left = left_behind(intents.all(), stored) if stored is not None else []
    if left and is_destroy(_arguments_of_cli()):
        raise GpuformError(
            "\n".join(f"{describe_left(each)}: this would leave it" for each in left),
            hint="`pulumi up` resumes the create, and then `pulumi destroy` deletes what it made; "
            "`gpuform destroy` does both, whatever language the program is in",
        )


def left_behind(intents: Iterable[Intent], stored: Stored) -> list[Intent]:
    """Those that have, or may have, made something that is not stored."""
    ids = {id_ for _, id_ in stored}
    urns = {in_dynamic_form(urn) for urn, _ in stored}

    def is_stored(intent: Intent) -> bool:
        if intent.names:  # parts of a resource, which looks after them
            return in_dynamic_form(intent.urn or "") in urns
        return bool(intent.made) and ids.issuperset(intent.made)

    return [each for each in intents if not each.outcome and not is_stored(each)]


def is_destroy(arguments: Sequence[str]) -> bool:
    """Whether these are the arguments of `pulumi destroy`."""
    return next((each for each in arguments if each in _COMMANDS), "") in _DESTROY


def _arguments_of_cli() -> list[str]:
    """Return the arguments of the Pulumi CLI that runs this process, itself or through scripts.

    Those of the parent where none of the nearest processes above is a `pulumi`.
    """
    process = os.getppid()
    nearest = _arguments(process)
    arguments = nearest
    for _ in range(_GENERATIONS):
        if arguments and Path(arguments[0]).stem.strip(".") in _CLI_NAMES:
            return arguments
        process = _parent(process)
        arguments = _arguments(process) if process > 1 else []
    return nearest


def _parent(process: int) -> int:
    """Return the parent of a process; 0 where the system does not tell it."""
    try:
        # The name in parentheses may have spaces: what follows it is the state and the parent.
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        ps = ["ps", "-o", "ppid=", "-p", str(process)]
        done = subprocess.run(ps, capture_output=True, text=True, check=False)  # noqa: S603 - fixed
        return int(done.stdout)
    except (OSError, ValueError):
        return 0


def _arguments(process: int) -> list[str]:
    """Those of a process; nothing where the system does not tell them."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")
    except OSError:
        pass
    try:
        ps = ["ps", "-o", "args=", "-p", str(process)]
        done = subprocess.run(ps, capture_output=True, text=True, check=False)  # noqa: S603 - fixed
        return done.stdout.split()
    except OSError:
        return []


def describe_left(intent: Intent) -> str:
    """Return what an interrupted create has made, or may have made, that the state lacks."""
    what = f"{intent.kind} {intent.name!r} on {intent.platform}"
    if intent.made:
        made = f"has made {', '.join(intent.made)}, which the state does not have"
    else:
        made = "may have made it, and the state does not have it"
    return f"an interrupted create of {what} {made}"
