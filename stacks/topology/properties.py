"""The properties of an entry, under the names of its model."""

from collections.abc import Mapping

from gpuform.providers.catalog import lifecycle_class
from gpuform.schemas.topology import SECTIONS, EntryInputs, short_names
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry

_OWN_KEYS = frozenset(EntryInputs.model_fields)


def properties_of(
    said: Mapping[str, Entry], section: str, platform: str, problems: Diagnostics
) -> dict[str, Entry]:
    """Those that an entry or its defaults say: `volume` is volume_id, whose id it means."""
    model = lifecycle_class(platform, SECTIONS[section]).inputs
    short_of = short_names(model)
    found: dict[str, Entry] = {}
    for key, entry in said.items():
        if key in _OWN_KEYS:
            continue
        name = key if key in model.model_fields else short_of.get(key, key)
        if name in found:
            short = name.removesuffix("_id")
            message = f"{short} and {name} are the same: keep one of the two"
            problems.add(entry.place, "duplicate", message)
        found[name] = entry
    return found
