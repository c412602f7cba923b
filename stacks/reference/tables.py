"""Tables of models' fields in Markdown, and of the models inside them."""

import re
from collections.abc import Callable, Sequence

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuform.schemas.rules import FieldRules, effect, inside, rules_of
from gpuform.stacks.language.type_text import type_text, yaml_text
from gpuform.stacks.reference.markdown import link_to, plain, table

Cells = Callable[[FieldInfo, FieldRules], Sequence[str]]
"""What a table says of a field beside its name, type and meaning."""


def input_tables(model: type[BaseModel], title: str) -> str:
    """The fields that a person declares of a resource, and the objects inside them."""
    return _tables(model, title, ("a change of it", "default", "example"), _of_input)


def part_tables(model: type[BaseModel], title: str) -> str:
    """The fields of a part of a file, and the objects inside them."""
    return _tables(model, title, ("example",), lambda field, _: [_example(field)])


def file_tables(model: type[BaseModel], title: str) -> str:
    """The fields of a file, and the objects inside them."""
    return _tables(model, title, ("required", "example"), _of_file)


def output_tables(model: type[BaseModel], title: str) -> str:
    """What a resource gives out, and the objects inside it."""
    return _tables(model, title, ("secret",), lambda _, rules: ["yes" if rules.secret else ""])


def _tables(model: type[BaseModel], title: str, columns: Sequence[str], cells: Cells) -> str:
    head = ("field", "type", "meaning", *columns)
    parts = []
    for each, outer in _models(model).items():
        rows = [
            [
                *_first_cells(each, name, title, outermost=each is model),
                *cells(each.model_fields[name], inside(rules, outer)),
            ]
            for name, rules in rules_of(each).items()
        ]
        heading = "" if each is model else f"### {_title(each, title)}\n\n{_doc(each)}"
        parts.append(heading + table(head, rows))
    return "\n".join(parts)


def _first_cells(
    model: type[BaseModel], name: str, title: str, *, outermost: bool
) -> Sequence[str]:
    rules = rules_of(model)[name]
    inner = f"[object]({link_to(_title(rules.nested, title))})" if rules.nested else ""
    meaning = plain(model.model_fields[name].description or "")
    if rules.refers and outermost:
        meaning += f" Or `{name.removesuffix('_id')}`, a {rules.refers} itself."
    return f"`{name}`", type_text(model, name, of_model=inner), meaning


def _models(model: type[BaseModel]) -> dict[type[BaseModel], FieldRules]:
    """The model and those inside it, each once, with the rules of the field that has it."""
    found = {model: FieldRules()}
    left = [model]
    while left:
        outer = left.pop(0)
        for rules in rules_of(outer).values():
            if rules.nested and rules.nested not in found:
                found[rules.nested] = inside(rules, found[outer])
                left.append(rules.nested)
    return found


def _title(model: type[BaseModel], outer: str) -> str:
    """`OidcConfigInputs` of Cluster on together is `Oidc config of Cluster on together`."""
    name = model.__name__.removesuffix("Inputs").removesuffix("Outputs")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return f"{words.capitalize()} of {outer}"


def _doc(model: type[BaseModel]) -> str:
    """Pydantic's models have a docstring of their own only where they state one."""
    doc = (model.__dict__.get("__doc__") or "").strip().partition("\n")[0]
    return f"{doc}\n\n" if doc else ""


def _of_input(field: FieldInfo, rules: FieldRules) -> Sequence[str]:
    return effect(rules), _default(field, rules), _example(field)


def _of_file(field: FieldInfo, _rules: FieldRules) -> Sequence[str]:
    return "yes" if field.is_required() else "", _example(field)


def _default(field: FieldInfo, rules: FieldRules) -> str:
    if field.is_required():
        return "required"
    return f"`{yaml_text(rules.default.value)}`" if rules.default is not None else ""


def _example(field: FieldInfo) -> str:
    return " or ".join(f"`{yaml_text(example)}`" for example in field.examples or ())
