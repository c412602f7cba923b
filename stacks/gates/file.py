"""The project's gates, `gates.yaml` beside `Pulumi.yaml`: read and checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.schemas.gates import GateInputs, GatesInputs
from gpuform.schemas.plan import GateLevel
from gpuform.schemas.stacks_plan import StacksInputs
from gpuform.stacks.document.checked import read_checked
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.document.nodes import MappingNode, find_key_position, find_nearest_node
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.pricing import book as prices
from gpuform.stacks.topology.files import shown as shown_path

FILE: Final = "gates.yaml"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate. `value` is what its rule was given, `resources` limits it where there are any."""

    name: str
    rule: str
    value: Any
    resources: Sequence[str]
    level: GateLevel
    reason: str
    source: str

    @property
    def permission(self) -> str:
        """The name by which --allow lifts it."""
        return f"{permissions.GATE}{self.name}"


def project_gates(directory: Path) -> Sequence[Gate]:
    """Those of a project; none where it has no such file. Raises EngineError."""
    path = directory / FILE
    return read_gates(path, FILE) if path.exists() else ()


def read_gates(path: Path, shown: str) -> Sequence[Gate]:
    """The gates of a file. Raises EngineError with every problem and its place."""
    problems = Diagnostics()
    root, values = _checked(path, shown, problems)
    if problems:
        raise EngineError(f"the gates are wrong:\n{format_text(list(problems))}")
    return [
        _gate(name, entry, str(find_key_position(root, ("gates", name))))
        for name, entry in values["gates"].items()
    ]


def gates_in(stacks_file: Path) -> Sequence[Gate]:
    """The gates of a stacks.yaml over all of its stacks. Raises EngineError."""
    problems = Diagnostics()
    root, values = _checked_over(stacks_file, stacks_file.name, problems)
    if problems:
        raise EngineError(f"the gates are wrong:\n{format_text(list(problems))}")
    return [
        _gate(name, entry, str(find_key_position(root, ("gates", name))))
        for name, entry in (values.get("gates") or {}).items()
    ]


def check_gates(directory: Path, problems: Diagnostics) -> None:
    """Notes what is wrong with a project's gates and prices, where it has such files."""
    book, gates = directory / prices.FILE, directory / FILE
    if book.exists():
        # Each by its own: what was found before is no reason to stop.
        own = Diagnostics()
        read_checked(book, shown_path(book), prices.price_book_model(), own)
        problems.extend(own)
    if gates.exists():
        _checked(gates, shown_path(gates), problems)


def check_gates_over(stacks_file: Path, problems: Diagnostics) -> None:
    """Notes what is wrong with the gates of a stacks.yaml."""
    _checked_over(stacks_file, shown_path(stacks_file), problems)


def _checked_over(
    stacks_file: Path, shown: str, problems: Diagnostics
) -> tuple[MappingNode, Mapping[str, Any]]:
    own = Diagnostics()
    root, values = read_checked(stacks_file, shown, StacksInputs, own)
    if not own and values.get("gates"):
        _refuse_mixed_currencies(stacks_file, root, values["gates"], own)
    problems.extend(own)
    return root, values


def _checked(
    path: Path, shown: str, problems: Diagnostics
) -> tuple[MappingNode, Mapping[str, Any]]:
    own = Diagnostics()
    root, values = read_checked(path, shown, GatesInputs, own)
    if not own:
        _refuse_mixed_currencies(path, root, values["gates"], own)
    problems.extend(own)
    return root, values


def _refuse_mixed_currencies(
    path: Path, root: MappingNode, gates: Mapping[str, Any], problems: Diagnostics
) -> None:
    """All costs of a project are in one currency: that of its prices, else of its first gate."""
    known = _currency_of_prices(path.with_name(prices.FILE))
    for name, entry in gates.items():
        if entry.get("max_hourly_cost") is None:
            continue
        steps = ("gates", name, "max_hourly_cost", "currency")
        place, currency = find_nearest_node(root, steps).place, entry["max_hourly_cost"]["currency"]
        if known is None:
            known = currency, f"the limit at {place} is"
        elif currency != known[0]:
            problems.add(
                place,
                "currency",
                f"{'.'.join(steps)}: is {currency}, and {known[1]} in {known[0]}: costs in two "
                f"currencies cannot be compared",
                f"write the limit in {known[0]}",
            )


def _currency_of_prices(path: Path) -> tuple[str, str] | None:
    """The currency, and who says so; None where there is no price book, or one with mistakes."""
    if not path.exists():
        return None
    problems = Diagnostics()
    root, values = read_checked(path, prices.FILE, prices.price_book_model(), problems)
    if problems:
        return None
    return values["currency"], f"the prices at {find_nearest_node(root, ('currency',)).place} are"


def _gate(name: str, entry: Mapping[str, Any], source: str) -> Gate:
    (rule,) = (each for each in GateInputs.rules if entry.get(each) is not None)
    return Gate(
        name=name,
        rule=rule,
        value=entry[rule],
        resources=entry.get("resources") or (),
        level=GateLevel(entry.get("level") or GateLevel.MANDATORY),
        reason=entry.get("reason") or "",
        source=source,
    )
