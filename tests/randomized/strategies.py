"""Hypothesis strategies of programs and of their successors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from randomized.memory_platform import OUTSIDE
from randomized.programs import Declaration, Program

VARIABLES = "abcdefgh"
SECRET = "hush-hush"
"""The beginning of every secret value; its dash cannot be in a ciphertext."""

_BOOLEANS = st.sampled_from(["True", "False"])
_VALUES = {
    "size": st.sampled_from(["1", "2"]),
    "rack": st.sampled_from(["'x'", "'y'"]),
    "slot": st.sampled_from(["'x'", "'y'"]),
    "lazy": st.sampled_from(["1", "2"]),
    "token": st.sampled_from([f"Output.secret('{SECRET}-{n}')" for n in (1, 2)]),
    "tags": st.sampled_from(
        ["{'a': 1}", "{'a': 2, 'b': [1]}", f"{{'a': Output.secret('{SECRET}-3'), 'b': [1, 2]}}"]
    ),
}
_OPTIONS = {
    "protect": _BOOLEANS,
    "retain_on_delete": _BOOLEANS,
    "delete_before_replace": _BOOLEANS,
    "ignore_changes": st.sampled_from(
        ["['size']", "['tags.a']", "['rack', 'tags']", "['tags.b[0]']", "['*']", "['slot']"]
    ),
    "replace_on_changes": st.sampled_from(
        ["['size']", "['*']", "['lazy']", "['tags.b']", "['#initerror']"]
    ),
    "additional_secret_outputs": st.sampled_from(["['address']", "['size', 'nothing']"]),
    "replacement_trigger": st.sampled_from(["1", "2", f"Output.secret('{SECRET}-4')"]),
    "custom_timeouts": st.just("pulumi.CustomTimeouts(create='5m', delete='1h')"),
}


_GROUP_OPTIONS = _OPTIONS.keys() - {
    "delete_before_replace",
    "replacement_trigger",
    "custom_timeouts",
    "ignore_changes",
    "replace_on_changes",
}


@dataclass(frozen=True)
class Frequencies:
    """How often (in percent) a resource gets options, references and properties."""

    option: int = 8
    reference: int = 30
    property: int = 35


def draw_chance(draw: st.DrawFn, percent: int) -> bool:
    """Draw whether something happens; shrinks to False."""
    return draw(st.integers(0, 99)) >= 100 - percent


@st.composite
def programs(
    draw: st.DrawFn,
    frequencies: Frequencies = Frequencies(),
    *,
    may_fail: bool = True,
    most: int = len(VARIABLES),
) -> Program:
    """Draw some resources, each declared after all referenced ones."""
    variables = draw(st.lists(st.sampled_from(VARIABLES), unique=True, max_size=most))
    declared: list[Declaration] = []
    for variable in variables:
        declared.append(draw(_resources(variable, declared, frequencies)))
    exported = draw(st.lists(st.sampled_from(declared), max_size=2)) if declared else []
    exports = {
        d.variable: f"{d.variable}.{'urn' if d.kind == 'group' else 'address'}" for d in exported
    }
    end = ""
    if may_fail and draw_chance(draw, 6):
        machines = [d.variable for d in declared if d.kind == "machine"]
        end = "raise ValueError('the end')\n"
        if machines and draw(st.booleans()):
            end = f"{draw(st.sampled_from(machines))}.address.apply(lambda it: 1 // 0)\n"
    return Program(tuple(declared), exports, end)


@st.composite
def successors(draw: st.DrawFn, program: Program) -> Program:
    """Draw another program: the same, with a few changes, or with fewer resources."""
    declared = list(program.declared)
    how = draw(st.sampled_from(["same", "shorter", *["edited"] * 4]))
    if how == "shorter":
        # Whatever is used is declared before its user: a beginning is always a program.
        declared = declared[: draw(st.integers(0, len(declared)))]
    for _ in range(draw(st.integers(1, 3)) if how == "edited" and declared else 0):
        index = draw(st.integers(0, len(declared) - 1))
        declared[index] = draw(_edited_declarations(declared[index]))
    names = {d.variable for d in declared}
    exports = {name: value for name, value in program.exports.items() if name in names}
    return Program(tuple(declared), exports)


@st.composite
def _edited_declarations(draw: st.DrawFn, declared: Declaration) -> Declaration:
    """Draw the resource with other properties or options, or with another name."""
    edit = draw(st.sampled_from(["value", "value", "less", "option", "name"]))
    if declared.kind == "read" or (edit == "name" and declared.name.endswith("2")):
        return declared
    if edit == "name":
        aliases = f"[Alias(name={declared.name!r})]"
        options = {**declared.options, "aliases": aliases}
        return replace(declared, name=f"{declared.name}2", options=options)
    if edit == "option":
        key = draw(
            st.sampled_from(sorted(_GROUP_OPTIONS if declared.kind == "group" else _OPTIONS))
        )
        return replace(declared, options={**declared.options, key: draw(_OPTIONS[key])})
    properties = dict(declared.properties)
    if edit == "less":
        properties = dict(list(properties.items())[1:])
    else:
        key = draw(st.sampled_from(["rack", "slot", *sorted(_VALUES)]))
        properties[key] = draw(_VALUES[key])
    return replace(declared, properties=properties)


@st.composite
def _resources(
    draw: st.DrawFn, variable: str, earlier: Sequence[Declaration], frequencies: Frequencies
) -> Declaration:
    kind = draw(st.sampled_from(["machine"] * 8 + ["group", "read"]))
    name = variable + ("2" if draw_chance(draw, 12) else "")
    parent = ""
    groups = [d.variable for d in earlier if d.kind == "group" and not _is_awaited(d, earlier)]
    machines = [d.variable for d in earlier if d.kind == "machine"]
    if groups and draw_chance(draw, 50):
        parent = draw(st.sampled_from(groups))
    elif machines and draw_chance(draw, 8):
        parent = draw(st.sampled_from(machines))
    if parent and draw_chance(draw, 30):
        name = f"{next(d.name for d in earlier if d.variable == parent)}-{name}"
    options: dict[str, str] = {}
    if kind != "read":
        options = draw(_options(name, kind, earlier, frequencies))
    elif earlier and draw_chance(draw, 20):
        options["depends_on"] = f"[{draw(st.sampled_from(earlier)).variable}]"
    read_id = ""
    if kind == "read":
        read_id = draw(
            st.sampled_from([*(repr(i) for i in OUTSIDE), *(f"{m}.id" for m in machines)])
        )
    properties = draw(_properties(kind, earlier, frequencies))
    outputs = kind == "group" and draw(st.booleans())
    return Declaration(variable, kind, name, parent, properties, options, read_id, outputs)


def _is_awaited(group: Declaration, earlier: Sequence[Declaration]) -> bool:
    """Return whether resources that a child depends on might wait for the child.

    To the SDK, what depends on a component depends on all its children.
    """
    by_variable = {d.variable: d for d in earlier}
    awaited = {d.options.get("depends_on", "[]").strip("[]") for d in earlier}
    while group.variable not in awaited and group.parent:
        group = by_variable[group.parent]
    return group.variable in awaited


@st.composite
def _properties(
    draw: st.DrawFn, kind: str, earlier: Sequence[Declaration], frequencies: Frequencies
) -> dict[str, str]:
    if kind == "read":
        return {}
    properties = {k: draw(v) for k, v in _VALUES.items() if draw_chance(draw, frequencies.property)}
    sources = [d.variable for d in earlier if d.kind != "group"]
    for key in ("uses", "rack", "slot"):
        if sources and draw_chance(draw, frequencies.reference):
            properties[key] = f"{draw(st.sampled_from(sources))}.address"
    return properties


@st.composite
def _options(
    draw: st.DrawFn, name: str, kind: str, earlier: Sequence[Declaration], frequencies: Frequencies
) -> dict[str, str]:
    options = {k: draw(v) for k, v in _OPTIONS.items() if draw_chance(draw, frequencies.option)}
    machines = st.sampled_from([d.variable for d in earlier if d.kind == "machine"] or [""])
    if earlier and draw_chance(draw, frequencies.reference):
        options["depends_on"] = f"[{draw(st.sampled_from(earlier)).variable}]"
    if draw_chance(draw, frequencies.option) and (machine := draw(machines)):
        options["deleted_with"] = machine
    if draw_chance(draw, frequencies.option) and (machine := draw(machines)):
        options["replace_with"] = f"[{machine}]"
    if "replacement_trigger" in options and (machine := draw(machines)) and draw(st.booleans()):
        options["replacement_trigger"] = f"{machine}.address"
    if kind == "machine" and draw_chance(draw, frequencies.option):
        options["import_"] = repr(f"i-{name[0]}")
    if draw_chance(draw, 25):
        options["aliases"] = f"[{draw(_aliases(name, earlier))}]"
    if kind == "group":
        return {
            key: text
            for key, text in options.items()
            if key in _GROUP_OPTIONS or key not in _OPTIONS
        }
    return options


@st.composite
def _aliases(draw: st.DrawFn, name: str, earlier: Sequence[Declaration]) -> str:
    base = name.rpartition("-")[2]
    other = repr(base[0] if base.endswith("2") else f"{base}2")
    parents = ["pulumi.ROOT_STACK_RESOURCE", *(d.variable for d in earlier if d.kind == "group")]
    parent = f"parent={draw(st.sampled_from(parents))}"
    which = draw(st.sampled_from(["name", "parent", "both"]))
    if which == "name":
        return f"Alias(name={other})"
    return f"Alias({parent})" if which == "parent" else f"Alias(name={other}, {parent})"
