"""Entries of a state as people read them."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.engine.state import PendingOperation, ResourceState, encode_resource
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.review.outputs_text import shown

_FLAGS = {
    "protect": "protected",
    "delete": "waits for deletion",
    "pending_replacement": "waits for replacement",
    "taint": "tainted",
    "external": "external",
    "retain_on_delete": "retained on delete",
    "init_errors": "not ready",
}


def flags_of(entry: ResourceState) -> list[str]:
    """What is special about an entry, in a few words each."""
    return [word for attribute, word in _FLAGS.items() if getattr(entry, attribute)]


def state_lines(
    entries: Sequence[ResourceState], pending: Sequence[PendingOperation]
) -> Iterator[str]:
    """A line for each entry, URNs and ids aligned, and one for each pending operation."""
    rows = [(entry.urn, entry.id or "-", ", ".join(flags_of(entry))) for entry in entries]
    rows += [(o.resource.urn, o.resource.id or "-", f"pending: {o.type}") for o in pending]
    rows = [
        (escape_invisible(urn), escape_invisible(id_), escape_invisible(flags))
        for urn, id_, flags in rows
    ]
    urns = max([len(row[0]) for row in rows] + [3])
    ids = max([len(row[1]) for row in rows] + [2])
    yield f"{'URN':<{urns}}  {'ID':<{ids}}  FLAGS"
    for urn, id_, flags in rows:
        yield f"{urn:<{urns}}  {id_:<{ids}}  {flags}".rstrip()


def state_rows(entries: Sequence[ResourceState]) -> list[dict[str, Any]]:
    """The same as data."""
    return [
        {"urn": entry.urn, "type": entry.type, "id": entry.id, "flags": flags_of(entry)}
        for entry in entries
    ]


def entry_document(entry: ResourceState, *, show_secrets: bool = False) -> dict[str, Any]:
    """An entry as Pulumi's JSON names it, secrets masked unless they are to be shown.

    The code of a dynamic resource, which the SDK keeps among its properties, is left out.
    """

    def plain(properties: PropertyMap) -> PropertyMap:
        own = {key: value for key, value in properties.items() if not key.startswith("__")}
        made: PropertyMap = shown(own, show_secrets=show_secrets)
        return made

    masked = replace(
        entry,
        inputs=plain(entry.inputs),
        outputs=plain(entry.outputs),
        replacement_trigger=shown(entry.replacement_trigger, show_secrets=show_secrets),
    )
    document: dict[str, Any] = json.loads(encode_resource(masked, None))
    return document
