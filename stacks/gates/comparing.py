"""Compare two sets of gates, and describe where the second one lets more plans pass.

`base_branch` calls `find_weakened_gates`. A difference that may be weaker counts as weaker.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.plan import GateLevel
from gpuform.stacks.gates.file import Gate


def find_weakened_gates(base: Sequence[Gate], changed: Sequence[Gate]) -> Iterator[str]:
    """Yield a text for each way in which `changed` is weaker: `gate budget: is removed`."""
    changed_gates = {gate.name: gate for gate in changed}
    for gate in base:
        other = changed_gates.get(gate.name)
        problems = ["is removed"] if other is None else _find_weakenings(gate, other)
        for problem in problems:
            yield f"gate {gate.name}: {problem}"


def _find_weakenings(gate: Gate, other: Gate) -> Iterator[str]:
    """Yield how `other` is weaker than `gate`, which has the same name."""
    if gate.rule != other.rule:
        yield f"checks {other.rule} instead of {gate.rule}"
    elif gate.value != other.value and not _is_stricter(gate.rule, gate.value, other.value):
        yield f"{gate.rule} is {_format_value(other.value)} instead of {_format_value(gate.value)}"
    if gate.level is GateLevel.MANDATORY and other.level is not GateLevel.MANDATORY:
        yield f"is {other.level} instead of {gate.level}"
    if other.resources and not (gate.resources and set(gate.resources) <= set(other.resources)):
        yield f"checks only the resources {', '.join(other.resources)}"
    if other.waiver is not None and (gate.waiver is None or other.waiver.until > gate.waiver.until):
        yield f"is waived until {other.waiver.until}, by {other.waiver.by}: {other.waiver.reason}"


def _is_lower(value: Any, other: Any) -> bool:
    """Return True if the number `other` is lower than `value`."""
    return bool(other < value)


def _has_fewer(value: Any, other: Any) -> bool:
    """Return True if all items of `other` are in `value`: a list of what is allowed."""
    return set(other) <= set(value)


def _has_more(value: Any, other: Any) -> bool:
    """Return True if all items of `value` are in `other`: a list of what is required."""
    return set(value) <= set(other)


def _costs_less(value: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if `other` is a lower amount in the same currency."""
    return bool(value["currency"] == other["currency"] and other["amount"] <= value["amount"])


def _opens_fewer(value: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if no further ports may be open in `other`."""
    return set(other.get("allowed") or ()) <= set(value.get("allowed") or ())


def _limits_more(value: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if each limit of `value` is as low in `other`, or lower."""
    limits = {name: limit for name, limit in value.items() if limit is not None}
    return all(
        other.get(name) is not None and other[name] <= limit for name, limit in limits.items()
    )


def _parse_percentage(text: str) -> float:
    return float(text.removesuffix("%"))


_STRICTER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    **dict.fromkeys(("max_destroyed_gpus", "max_repaired_nodes"), _is_lower),
    **dict.fromkeys(("allowed_regions", "allowed_gpu_types"), _has_fewer),
    **dict.fromkeys(("not_replaced", "required_tags", "protected"), _has_more),
    "max_hourly_cost": _costs_less,
    "max_cost_increase": lambda value, other: _parse_percentage(other) <= _parse_percentage(value),
    "no_open_ports": _opens_fewer,
    "rehearsal": _limits_more,
}
"""The rules whose values can be compared; a changed value of another rule counts as weaker."""


def _is_stricter(rule: str, value: Any, other: Any) -> bool:
    """Return True if the rule with `other` stops every plan that it stops with `value`."""
    compare = _STRICTER.get(rule)
    return compare is not None and compare(value, other)


def _format_value(value: Any) -> str:
    """Format a rule's value as in a line of YAML; undeclared fields are left out."""
    if isinstance(value, Mapping):
        fields = (
            f"{name}: {_format_value(item)}" for name, item in value.items() if item is not None
        )
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return str(value)
