"""A topology as YAML text."""

from collections.abc import Iterator, Mapping, Sequence

from gpuform.schemas.topology import SECTIONS, short_names
from gpuform.stacks.authoring.declared import Declared, Entry, Reference, Value, Variable
from gpuform.stacks.authoring.yaml_values import STEP, member
from gpuform.stacks.authoring.yaml_values import key as key_of


def topology_text(declared: Declared) -> str:
    """The file that declares this, and nothing else."""
    return "\n".join("".join(f"{line}\n" for line in part) for part in _parts(declared))


def members(declared: Declared) -> dict[str, dict[str, Mapping[str, Value] | Value]]:
    """Top-level key -> name -> what the file has under it, in the order of a file."""
    found: dict[str, dict[str, Mapping[str, Value] | Value]] = {
        "config": {each.name: _variable(each) for each in declared.variables}
    }
    for section in SECTIONS:
        of_section = (entry for entry in declared.entries if entry.section == section)
        found[section] = {entry.name: entry_members(entry) for entry in of_section}
    found["outputs"] = dict(declared.outputs)
    return {key: names for key, names in found.items() if names}


def entry_members(entry: Entry) -> dict[str, Value]:
    """What the entry says: its platform, its properties in the model's order, its options."""
    short_of = {field: short for short, field in short_names(entry.model).items()}
    order = {name: place for place, name in enumerate(entry.model.model_fields)}
    said: dict[str, Value] = {"platform": entry.platform}
    for name in sorted(entry.properties, key=lambda each: order.get(each, len(order))):
        value = entry.properties[name]
        is_resource = isinstance(value, Reference) and not value.steps
        said[short_of.get(name, name) if is_resource else name] = value
    if entry.options:
        said["options"] = dict(entry.options)
    return said


def lines_of(names: Mapping[str, Value], indent: int, step: int = STEP) -> list[str]:
    """The lines of entries under a top-level key; objects stand in lines of their own."""
    return [line for name, value in names.items() for line in _entry(name, value, indent, step)]


def _entry(name: str, value: Value, indent: int, step: int) -> Sequence[str]:
    if not isinstance(value, Mapping) or "platform" not in value:
        return member(name, value, indent)
    inner = [line for key, item in value.items() for line in member(key, item, indent + step)]
    return [f"{' ' * indent}{key_of(name)}:", *inner]


def _parts(declared: Declared) -> Iterator[list[str]]:
    for key, names in members(declared).items():
        yield [f"{key}:", *lines_of(names, STEP)]


def _variable(variable: Variable) -> Mapping[str, Value]:
    return dict(variable.said)
