"""Write Markdown: pages, headings, tables, links, and tables of the fields of models.

The modules of this package call these functions, and so do the scripts that write tables from runs
of tests.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuform.schemas.rules import (
    FieldRules,
    describe_change_effect,
    get_field_rules,
    inherit_all_rules,
)
from gpuform.stacks.lsp.vocabulary import describe_type, render_yaml_value

MARK: Final = "<!-- Generated: python -m tools.generate -->"
"""A line in each generated page, for people who want to change the page."""


def render_page(title: str, lead: str, parts: Iterable[str]) -> str:
    """Return a page as Markdown; `lead` is the first paragraph, about the use of the page."""
    texts = [f"# {title}", MARK, lead, *parts]
    return "\n\n".join(text.strip("\n") for text in texts if text.strip()) + "\n"


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells may contain any text, or "" without rows."""
    lines = [[_escape_cell(cell) for cell in row] for row in rows]
    if not lines:
        return ""
    return "".join(f"| {' | '.join(line)} |\n" for line in [head, ["---"] * len(head), *lines])


def to_anchor(title: str) -> str:
    """Return the link to a heading on the same page."""
    words = re.sub(r"[^\w\s-]", "", title).strip().lower()
    return "#" + re.sub(r"[-\s]+", "-", words)


def join_as_code(names: Iterable[str]) -> str:
    """Return names as code, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def to_kebab_case(name: str) -> str:
    """Return `NodePool` as `node-pool`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def escape_prose(text: str) -> str:
    """Return prose with marks of Markdown and HTML escaped, and with `<name>` as code."""
    return _change_outside_code(_change_outside_code(text, _mark_names_as_code), _escape_marks)


def _change_outside_code(text: str, change: Callable[[str], str]) -> str:
    """Return the text with `change` applied to each part outside of backticks."""
    # The group keeps the code itself among the pieces.
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else change(piece) for piece in pieces)


def _mark_names_as_code(text: str) -> str:
    """Return the text with each placeholder, such as `<name>`, in backticks."""
    return re.sub(r"(?:<[^<>]*>)+", r"`\g<0>`", text)


def _escape_marks(text: str) -> str:
    """Return the text with `*`, `<`, and underscores at the edge of a word escaped."""
    # An underscore inside of a name, as in num_gpus, marks nothing in Markdown.
    marks = re.sub(r"(\*|(?<!\w)_+|_+(?!\w))", lambda match: re.sub("(.)", r"\\\1", match[1]), text)
    # A browser would take `<name>` for an element of the page.
    return marks.replace("<", "&lt;")


def _escape_cell(text: str) -> str:
    """Return the text for a table's cell: on one line, with `|` escaped."""
    # A line break or a bar would end the cell.
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|")


Cells = Callable[[FieldInfo, FieldRules], Sequence[str]]
"""Returns the cells of a field's row after its name, type and meaning."""


def render_input_tables(model: type[BaseModel], title: str) -> str:
    """Return tables of a resource's inputs and nested objects."""
    return _render_tables(
        model, title, ("a change of it", "default", "example"), _format_input_cells
    )


def render_part_tables(model: type[BaseModel], title: str) -> str:
    """Return tables of the fields and nested objects of a part of a file."""
    return _render_tables(model, title, ("example",), lambda field, _: [_format_examples(field)])


def render_file_tables(model: type[BaseModel], title: str) -> str:
    """Return tables of the fields and nested objects of a file."""
    return _render_tables(model, title, ("required", "example"), _format_file_cells)


def render_output_tables(model: type[BaseModel], title: str) -> str:
    """Return tables of a resource's outputs and nested objects."""
    return _render_tables(
        model, title, ("secret",), lambda _, rules: ["yes" if rules.secret else ""]
    )


def _render_tables(model: type[BaseModel], title: str, columns: Sequence[str], cells: Cells) -> str:
    """Return a table of the model's fields, and one with a heading for each nested model.

    `columns` are the heads of the additional cells, which `cells` returns for each field.
    """
    head = ("field", "type", "meaning", *columns)
    parts = []
    for inner, outer in _list_nested_models(model).items():
        rows = [
            [
                *_format_first_cells(inner, name, title, outermost=inner is model),
                *cells(inner.model_fields[name], inherit_all_rules(rules, outer)),
            ]
            for name, rules in get_field_rules(inner).items()
        ]
        heading = (
            ""
            if inner is model
            else f"### {_format_model_title(inner, title)}\n\n{_read_docstring(inner)}"
        )
        parts.append(heading + render_table(head, rows))
    return "\n".join(parts)


def _format_first_cells(
    model: type[BaseModel], name: str, title: str, *, outermost: bool
) -> Sequence[str]:
    """Return the cells with a field's name, type and meaning.

    Only the `outermost` model's fields mention the short form of a reference, such as `volume`.
    """
    rules = get_field_rules(model)[name]
    inner = (
        f"[object]({to_anchor(_format_model_title(rules.nested, title))})" if rules.nested else ""
    )
    meaning = escape_prose(model.model_fields[name].description or "")
    # Only the properties of an entry itself have short names for resources.
    if rules.reference_kind and outermost:
        reference = name.removesuffix("_id")
        meaning += f" Or declare `{reference}`, a reference to a {rules.reference_kind}."
    return f"`{name}`", describe_type(model, name, model_label=inner), meaning


def _list_nested_models(model: type[BaseModel]) -> dict[type[BaseModel], FieldRules]:
    """Return the model and all nested models, each once, with the rules of the field."""
    rules_by_model = {model: FieldRules()}
    waiting = [model]
    while waiting:
        outer = waiting.pop(0)
        for rules in get_field_rules(outer).values():
            # A model may be nested in several objects, or in itself.
            if rules.nested and rules.nested not in rules_by_model:
                rules_by_model[rules.nested] = inherit_all_rules(rules, rules_by_model[outer])
                waiting.append(rules.nested)
    return rules_by_model


def _format_model_title(model: type[BaseModel], outer: str) -> str:
    """Return a heading: `OidcConfigInputs` of the inputs is `Oidc config of the inputs`."""
    name = model.__name__.removesuffix("Inputs").removesuffix("Outputs")
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return f"{words.capitalize()} of {outer}"


def _read_docstring(model: type[BaseModel]) -> str:
    """Return the first line of the model's own docstring, or "" without one.

    Models inherit the docstring of pydantic's base class, which no page needs.
    """
    doc = (model.__dict__.get("__doc__") or "").strip().partition("\n")[0]
    return f"{doc}\n\n" if doc else ""


def _format_input_cells(field: FieldInfo, rules: FieldRules) -> Sequence[str]:
    """Return the cells with the effect of a change, the default and the examples of an input."""
    return describe_change_effect(rules), _format_default(field, rules), _format_examples(field)


def _format_file_cells(field: FieldInfo, _rules: FieldRules) -> Sequence[str]:
    """Return the cells with `yes` for a required field, else "", and with the examples."""
    return "yes" if field.is_required() else "", _format_examples(field)


def _format_default(field: FieldInfo, rules: FieldRules) -> str:
    """Return `required`, the default as code, or "" for an optional field without a default."""
    if field.is_required():
        return "required"
    return f"`{render_yaml_value(rules.default.value)}`" if rules.default is not None else ""


def _format_examples(field: FieldInfo) -> str:
    """Return the field's examples as code, joined by "or"; "" without examples."""
    return " or ".join(f"`{render_yaml_value(example)}`" for example in field.examples or ())
