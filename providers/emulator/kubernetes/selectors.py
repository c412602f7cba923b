"""Selectors: of labels as clients write them, of labels as objects hold them, of fields."""

import re
from typing import Any

from gpuform.providers.emulator.kubernetes.errors import StatusError

_IN = re.compile(r"^\s*([^\s!=,]+)\s+(in|notin)\s+\(([^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=]+)\s*(==|=|!=)\s*([^\s!=]*)\s*$")
_PRESENT = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")


def labels_match(text: str, labels: dict[str, str]) -> bool:
    """A `labelSelector`. Raises StatusError when it makes no sense."""
    return all(_label_holds(term, labels) for term in re.split(r",(?![^(]*\))", text) if term)


def _label_holds(term: str, labels: dict[str, str]) -> bool:
    if found := _IN.match(term):
        key, operator, values = found.groups()
        is_in = labels.get(key) in {value.strip() for value in values.split(",")}
        return is_in == (operator == "in")
    if found := _EQUAL.match(term):
        key, operator, value = found.groups()
        return (labels.get(key) == value) == (operator != "!=")
    if found := _PRESENT.match(term):
        return (found[2] in labels) != bool(found[1])
    raise StatusError(400, f"unable to parse requirement: {term!r}")


def selected(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    """A LabelSelector object; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_holds(each, labels) for each in selector.get("matchExpressions") or [])


def _holds(requirement: dict[str, Any], labels: dict[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or []
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[requirement["operator"]]


def fields_match(text: str, each: dict[str, Any]) -> bool:
    """A `fieldSelector`, on any field that holds a plain value."""
    for term in filter(None, text.split(",")):
        found = _EQUAL.match(term)
        if found is None:
            raise StatusError(400, f"invalid field selector {term!r}")
        path, operator, value = found.groups()
        here: Any = each
        for name in path.split("."):
            here = here.get(name) if isinstance(here, dict) else None
        shown = str(here).lower() if isinstance(here, bool) else str(here or "")
        if path == "spec.unschedulable" and here is None:
            shown = "false"
        if (shown == value) != (operator != "!="):
            return False
    return True
