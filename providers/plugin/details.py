"""The detailed diff: which properties change, and how, in Pulumi's words."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pulumi.runtime.proto import provider_pb2

from gpuform.schemas.changes import Action, FieldChange

_KINDS = {
    (Action.ADD, False): provider_pb2.PropertyDiff.ADD,
    (Action.ADD, True): provider_pb2.PropertyDiff.ADD_REPLACE,
    (Action.UPDATE, False): provider_pb2.PropertyDiff.UPDATE,
    (Action.UPDATE, True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
    (Action.DELETE, False): provider_pb2.PropertyDiff.DELETE,
    (Action.DELETE, True): provider_pb2.PropertyDiff.DELETE_REPLACE,
}
_KEYED = re.compile(r'\["')


def detailed(
    found: Iterable[FieldChange], olds: Mapping[str, Any], news: Mapping[str, Any]
) -> dict[str, provider_pb2.PropertyDiff]:
    """Each changed path with the kind of its change, compared with the last outputs.

    gpuform names an item of a list by its key, which Pulumi would take for one of an object: such
    a change is told of the whole list.
    """
    made: dict[str, provider_pb2.PropertyDiff] = {}
    for change in found:
        if change.action is Action.KEEP:
            continue
        path, action = change.path, Action(change.action)
        keyed = _KEYED.search(path)
        if keyed:
            path = path[: keyed.start()]
            action = _action(path, olds, news)
        before = made.get(path)
        replaces = change.replaces or (before is not None and _replaces(before))
        made[path] = provider_pb2.PropertyDiff(kind=_KINDS[action, replaces])
    return made


def _action(path: str, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Action:
    root = top_level(path)
    if root not in olds:
        return Action.ADD
    return Action.UPDATE if root in news else Action.DELETE


def _replaces(diff: provider_pb2.PropertyDiff) -> bool:
    return any(kind == diff.kind for (_, replaces), kind in _KINDS.items() if replaces)


def top_level(path: str) -> str:
    """The property that a path begins with."""
    return re.split(r"[.\[]", path, maxsplit=1)[0]
