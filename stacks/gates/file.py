"""Read and check `gates.yaml` beside `Pulumi.yaml`, and the gates of a `stacks.yaml`.

Called by the planning operations and by `gpuform validate`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.schemas.errors import EngineError
from gpuform.schemas.gates import GateInputs, GatesInputs
from gpuform.schemas.plan import GateLevel, Waiver
from gpuform.schemas.stacks_plan import StacksInputs
from gpuform.stacks import pricing as prices
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.document.nodes import MappingNode, find_key_position, find_nearest_node
from gpuform.stacks.document.reading import read_checked
from gpuform.stacks.topology.files import format_path as shown_path

FILE: Final = "gates.yaml"
STACKS_FILE: Final = "stacks.yaml"
"""The file of several stacks, which may have gates over all of them."""


@dataclass(frozen=True, slots=True)
class Gate:
    """Hold one gate of a file.

    `value` is the rule's value in the file; `resources` are name patterns that limit the gate, none
    for all resources.
    """

    name: str
    rule: str
    value: Any
    resources: Sequence[str]
    level: GateLevel
    reason: str
    source: str
    waiver: Waiver | None = None

    @property
    def permission(self) -> str:
        """Return the name by which --allow lifts the gate."""
        return f"{permissions.GATE}{self.name}"


def read_project_gates(directory: Path) -> Sequence[Gate]:
    """Read the gates of a project; none without a gates.yaml. Raises EngineError."""
    path = directory / FILE
    return read_gates(path, FILE) if path.exists() else ()


def read_gates(path: Path, file_label: str) -> Sequence[Gate]:
    """Read the gates of a file. Raises EngineError with every problem and its position.

    `file_label` is the name of the file in messages.
    """
    problems = Diagnostics()
    root, values = _read_checked_gates(path, file_label, problems)
    if problems:
        raise EngineError(f"the gates file is invalid:\n{format_text(list(problems))}")
    return _build_gates(root, values)


def read_stacks_gates(stacks_file: Path) -> Sequence[Gate]:
    """Read the gates over all stacks of a stacks.yaml. Raises EngineError."""
    problems = Diagnostics()
    root, values = _read_checked_stacks_gates(stacks_file, stacks_file.name, problems)
    if problems:
        raise EngineError(f"the gates file is invalid:\n{format_text(list(problems))}")
    return _build_gates(root, values)


def check_gates(directory: Path, problems: Diagnostics) -> None:
    """Add the problems of a project's gates and prices to `problems`."""
    book, gates = directory / prices.FILE, directory / FILE
    if book.exists():
        # Each by its own: what was found before is no reason to stop.
        own = Diagnostics()
        read_checked(book, shown_path(book), prices.get_price_book_model(), own)
        problems.extend(own)
    if gates.exists():
        _read_checked_gates(gates, shown_path(gates), problems)


def check_stacks_gates(stacks_file: Path, problems: Diagnostics) -> None:
    """Add the problems of the gates in a stacks.yaml to `problems`."""
    _read_checked_stacks_gates(stacks_file, shown_path(stacks_file), problems)


def _read_checked_stacks_gates(
    stacks_file: Path, file_label: str, problems: Diagnostics
) -> tuple[MappingNode, Mapping[str, Any]]:
    """Return the tree and values of stacks.yaml, and add all problems of the gates there."""
    # `read_checked` stops at any problem, also at those of other files.
    own = Diagnostics()
    root, values = read_checked(stacks_file, file_label, StacksInputs, own)
    if not own and values.get("gates"):
        _reject_mixed_currencies(stacks_file, root, values["gates"], own)
    problems.extend(own)
    return root, values


def _read_checked_gates(
    path: Path, file_label: str, problems: Diagnostics
) -> tuple[MappingNode, Mapping[str, Any]]:
    """Return the tree and values of a file of gates, and add all problems of the file."""
    # `read_checked` stops at any problem, also at those of other files.
    own = Diagnostics()
    root, values = read_checked(path, file_label, GatesInputs, own)
    if not own:
        _reject_mixed_currencies(path, root, values["gates"], own)
    problems.extend(own)
    return root, values


def _reject_mixed_currencies(
    path: Path, root: MappingNode, gates: Mapping[str, Any], problems: Diagnostics
) -> None:
    """Report each limit in another currency than the price book's, or else the first gate's."""
    currency_source = _find_price_currency(path.with_name(prices.FILE))
    for name, entry in gates.items():
        if entry.get("max_hourly_cost") is None:
            continue
        steps = ("gates", name, "max_hourly_cost", "currency")
        position, currency = (
            find_nearest_node(root, steps).position,
            entry["max_hourly_cost"]["currency"],
        )
        # Without a price book, the first limit sets the currency.
        if currency_source is None:
            currency_source = currency, f"the limit at {position} is"
        elif currency != currency_source[0]:
            problems.add(
                position,
                "currency",
                f"{'.'.join(steps)}: is {currency}, and {currency_source[1]} in "
                f"{currency_source[0]}: costs in two currencies cannot be compared",
                f"write the limit in {currency_source[0]}",
            )


def _find_price_currency(path: Path) -> tuple[str, str] | None:
    """Return the currency of the price book, and a phrase that names the line of the currency.

    None for a missing or invalid price book.
    """
    if not path.exists():
        return None
    problems = Diagnostics()
    root, values = read_checked(path, prices.FILE, prices.get_price_book_model(), problems)
    if problems:
        return None
    return values[
        "currency"
    ], f"the prices at {find_nearest_node(root, ('currency',)).position} are"


def _build_gates(root: MappingNode, values: Mapping[str, Any]) -> list[Gate]:
    """Build the gates of a checked file, each with its waiver, if any."""
    waivers = {
        waiver["gate"]: Waiver(**{name: waiver[name] for name in ("until", "by", "reason")})
        for waiver in values.get("waive") or ()
    }
    return [
        _build_gate(name, entry, str(find_key_position(root, ("gates", name))), waivers.get(name))
        for name, entry in (values.get("gates") or {}).items()
    ]


def _build_gate(name: str, entry: Mapping[str, Any], source: str, waiver: Waiver | None) -> Gate:
    """Build a gate from a checked entry, which has exactly one rule.

    Without a level the gate is mandatory. `source` is the position of the entry in its file.
    """
    (rule,) = (
        name_of_rule for name_of_rule in GateInputs.rules if entry.get(name_of_rule) is not None
    )
    return Gate(
        name=name,
        rule=rule,
        value=entry[rule],
        resources=entry.get("resources") or (),
        level=GateLevel(entry.get("level") or GateLevel.MANDATORY),
        reason=entry.get("reason") or "",
        source=source,
        waiver=waiver,
    )
