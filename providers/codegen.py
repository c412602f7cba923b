"""Write the typed resource classes from the input models: `python -m gpuform.providers.codegen`.

The models are the one source of truth. They are those of gpuform's own platforms, or of the
platforms that are named. `--check` writes nothing and fails when a file is not current.
"""

import argparse
import keyword
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from gpuform.providers.catalog import load_lifecycle_class, require_platform
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import Platform, list_own_platforms
from gpuform.providers.plugin.package_schema import get_summary, is_optional, to_camel_case
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import (
    Choice,
    ListOf,
    MapOf,
    append_change_effect,
    get_field_rules,
    is_model,
    list_value_types,
)


def create_parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """Create the parser of the command line `python -m COMMAND [--check]`."""
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=description)
    parser.add_argument("--check", action="store_true", help="only say whether files are current")
    return parser


def write_or_check(files: Iterable[tuple[Path, str]], *, check: bool) -> int:
    """Write the outdated files and name them on stderr, or with `check` only name them.

    Returns:
        The exit code: 1 if `check` is set and a file is outdated, else 0.
    """
    # a file is written only when its text changes, so that its time stays and builds are not
    # repeated
    stale = [
        (path, content)
        for path, content in files
        if not path.exists() or path.read_text(encoding="utf-8") != content
    ]
    for path, content in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        state = "is not current" if check else "written"
        sys.stderr.write(f"{path.parent.name}/{path.name} {state}\n")
    return 1 if check and stale else 0


_TYPING = ("TYPE_CHECKING", "Any", "Literal", "NotRequired", "TypedDict", "Unpack")
_WIDTH = 100
_ARGUMENTS, _VALUES = "Arguments", "Values"
_POLICIES = "gpuform.schemas.policies."
"""The modules whose models are inputs on several platforms."""
MODULE_HEAD = '''"""{title}'s resources for programs.

Generated from the input models: python -m gpuform.providers.codegen{which}
"""

{standard}

import pulumi

{imports}

__all__ = [{exports}]
'''
SHARED_HEAD = '''"""The types of arguments and outputs that resources of several platforms have.

Generated from the input models: python -m gpuform.providers.codegen
"""

{standard}

import pulumi
'''
CLASS_TEMPLATE = '''

class {kind}(PlatformResource, module="gpuform.{platform}", name="{kind}"):
    """{doc}"""

    _lifecycle = {lifecycle}

{outputs}

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[{kind}Arguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
'''


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the generated resource modules, and return the exit code."""
    command = create_parser("gpuform.providers.codegen", __doc__)
    command.add_argument("platforms", nargs="*", metavar="PLATFORM", type=_parse_platform)
    options = command.parse_args(arguments)
    return write_or_check(generate_files(options.platforms), check=options.check)


def _parse_platform(name: str) -> Platform:
    """Return the platform named on the command line; an unknown platform is a usage error."""
    try:
        return require_platform(name)
    except GpuformError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def generate_files(platforms: Sequence[Platform] = ()) -> Iterator[tuple[Path, str]]:
    """Yield path and text of each module of resource classes, formatted as by ruff.

    Without `platforms`, for gpuform's own platforms, with the module of the types they share.
    """
    for platform in platforms or list_own_platforms().values():
        package = import_module(platform.package)
        yield Path(package.__path__[0]) / "resources.py", _render_module(platform)
    if not platforms:
        body = "".join(_render_types(_collect_shared_types()))
        head = SHARED_HEAD.format(standard=_render_standard_imports(body))
        yield Path(__file__).with_name("shared_types.py"), head + body


def _render_module(platform: Platform) -> str:
    """Return the Python module with a platform's argument types and resource classes."""
    lifecycles = {kind: load_lifecycle_class(platform.name, kind) for kind in platform.lifecycles}
    exports = ", ".join(f'"{kind}"' for kind in sorted(lifecycles))
    shared = _collect_shared_types()
    types = _collect_types(lifecycles.values())
    parts = _render_types(
        {name: model for name, model in types.items() if shared.get(name) is not model}
    )
    for kind, lifecycle in lifecycles.items():
        parts.append(_render_class(platform.name, kind, lifecycle))
    body = "".join(parts)
    used = [name for name in sorted(shared, key=str.lower) if re.search(rf"\b{name}\b", body)]
    imports = [
        "from gpuform.providers.resource import PlatformResource",
        *(
            f"from {lifecycle_class.__module__} import {lifecycle_class.__name__}"
            for lifecycle_class in lifecycles.values()
        ),
        *([_render_import("gpuform.providers.shared_types", used)] if used else ()),
    ]
    head = MODULE_HEAD.format(
        title=platform.title,
        which="" if platform.name in list_own_platforms() else f" {platform.name}",
        standard=_render_standard_imports(body),
        imports="\n".join(sorted(imports)),
        exports=exports,
    )
    return head + body


def _render_types(types: Mapping[str, type[BaseModel]]) -> list[str]:
    """Return the Python code of types, by their names, and of the enumerations in them."""
    choices: dict[str, tuple[str, ...]] = {}
    arguments, values = (
        {name: model for name, model in types.items() if name.endswith(suffix)}
        for suffix in (_ARGUMENTS, _VALUES)
    )
    dicts = [_render_typed_dict(model, choices) for model in arguments.values()]
    aliases = (_render_alias(name, members) for name, members in choices.items())
    return [*(("\n", *aliases) if choices else ()), *dicts, _render_values_types(values)]


def _render_standard_imports(body: str) -> str:
    """Return the imports from the standard library that the code in `body` needs."""
    standard = {
        "collections.abc": [name for name in ("Mapping", "Sequence") if f"{name}[" in body],
        "typing": [name for name in _TYPING if re.search(rf"\b{name}\b", body)],
    }
    return "\n".join(_render_import(module, names) for module, names in standard.items() if names)


def _render_import(module: str, names: Sequence[str]) -> str:
    """Return an import on one line, or with a name on each line where one line is too long."""
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _collect_types(lifecycles: Iterable[type[Lifecycle[Any, Any]]]) -> dict[str, type[BaseModel]]:
    """Return the models of all inputs and of objects among outputs, by the names of their types."""
    types: dict[str, type[BaseModel]] = {}
    for lifecycle in lifecycles:
        _collect_models(lifecycle.inputs, types)
        for name in lifecycle.list_property_names():
            _collect_output_models(_get_property_field(lifecycle, name).annotation, types)
    return types


@cache
def _collect_shared_types() -> Mapping[str, type[BaseModel]]:
    """Return the policies among the types of gpuform's own platforms, by the names of types."""
    return {
        name: model
        for platform in list_own_platforms().values()
        for kind in platform.lifecycles
        for name, model in _collect_types([load_lifecycle_class(platform.name, kind)]).items()
        if model.__module__.startswith(_POLICIES)
    }


def _collect_models(model: type[BaseModel], models: dict[str, type[BaseModel]]) -> None:
    """Add the nested models of a model to `models`, innermost first, then the model."""
    for rules in get_field_rules(model).values():
        if rules.nested:
            _collect_models(rules.nested, models)
    models.setdefault(_format_arguments_name(model), model)


def _render_typed_dict(model: type[BaseModel], enumerations: dict[str, tuple[str, ...]]) -> str:
    """Render the TypedDict of a model's arguments; add closed enumerations to `enumerations`.

    A class cannot have a field with the name of a Python keyword: then the type is written as a
    call.
    """
    is_class = not any(map(keyword.iskeyword, get_field_rules(model)))
    type_name, doc = _format_arguments_name(model), get_summary(model)
    if is_class:
        lines = [f'\n\nclass {type_name}(TypedDict):\n    """{doc}"""\n\n']
    else:
        lines = [f'\n\n{type_name} = TypedDict(\n    "{type_name}",\n    {{\n']
    for name, rules in get_field_rules(model).items():
        field = model.model_fields[name]
        description = append_change_effect(field.description or name, rules)
        field_type = f"pulumi.Input[{_render_argument_type(name, field.annotation, enumerations)}]"
        if rules.reference_kind:
            field_type += " | PlatformResource"
        if not field.is_required():
            field_type = f"NotRequired[{field_type} | None]"
        if is_class:
            lines += [f"    {name}: {field_type}\n", *_render_docstring(description, 4)]
        else:
            comment = _render_comment(description)
            lines += [*(f"    {line}" for line in comment), f'        "{name}": {field_type},\n']
    end = "" if is_class else f'    }},\n)\n"""{doc}"""\n'
    return "".join([*lines, end])


def _render_class(platform: str, kind: str, lifecycle: type[Lifecycle[Any, Any]]) -> str:
    """Return the Python code of the resource class of a kind, with each output's type."""
    lines = []
    for name in lifecycle.list_property_names():
        field = _get_property_field(lifecycle, name)
        optional = " | None" if is_optional(field.annotation) else ""
        output_type = _render_output_type(field.annotation)
        lines += [
            f"    {name}: pulumi.Output[{output_type}{optional}]\n",
            *_render_docstring(field.description or name, 4),
        ]
    return CLASS_TEMPLATE.format(
        kind=kind,
        platform=platform,
        doc=get_summary(lifecycle.inputs),
        lifecycle=lifecycle.__name__,
        outputs="".join(lines).rstrip("\n"),
    )


def _render_argument_type(
    name: str, annotation: Any, enumerations: dict[str, tuple[str, ...]]
) -> str:
    """Render the type of an argument.

    A closed enumeration gets a named alias, added to `enumerations`. Raises ValueError for a second
    enumeration of the same name with other values.
    """
    rendered_types = []
    for value_type in list_value_types(annotation):
        match value_type:
            case Choice():
                alias, values = to_camel_case(name), tuple(map(str, value_type.values))
                if enumerations.setdefault(alias, values) != values:
                    raise ValueError(f"{alias} has the values {values} and {enumerations[alias]}")
                rendered = alias
            case ListOf(item):
                item_type = _render_argument_type(name, item, enumerations)
                rendered = f"Sequence[pulumi.Input[{item_type}]]"
            case MapOf(item):
                item_type = _render_argument_type(name, item, enumerations)
                rendered = f"Mapping[str, pulumi.Input[{item_type}]]"
            case _ if is_model(value_type):
                rendered = _format_arguments_name(value_type)
            case _:
                rendered = _render_scalar_type(value_type)
        rendered_types.append(rendered)
    return " | ".join(rendered_types)


def _render_output_type(annotation: Any) -> str:
    """Return the Python type of an output for a field's annotation.

    An object has the type that `_render_values_types` declares. A union of several types is `Any`.
    """
    match list_value_types(annotation):
        case [Choice()]:
            return "str"
        case [ListOf(item)]:
            return f"list[{_render_output_type(item)}]"
        case [MapOf(item)]:
            return f"dict[str, {_render_output_type(item)}]"
        case [value_type] if is_model(value_type):
            return _format_values_name(value_type)
        case [value_type]:
            return _render_scalar_type(value_type)
        case _:
            return "Any"


def _render_scalar_type(bare_type: Any) -> str:
    """Return the name of a type if str, int, float or bool, else `Any`."""
    return bare_type.__name__ if bare_type in (str, int, float, bool) else "Any"


def _format_arguments_name(model: type[BaseModel]) -> str:
    """Return the name of the TypedDict for an input model: `DrainArguments` for `DrainInputs`."""
    return model.__name__.removesuffix("Inputs") + _ARGUMENTS


def _format_values_name(model: type[BaseModel]) -> str:
    """Return the name of the TypedDict for an object among outputs: `DrainValues`."""
    return model.__name__.removesuffix("Inputs").removesuffix("Outputs") + _VALUES


def _get_property_field(lifecycle: type[Lifecycle[Any, Any]], name: str) -> FieldInfo:
    """Return the field of a property: of the outputs, else of the inputs that outputs repeat."""
    return lifecycle.outputs.model_fields.get(name) or lifecycle.inputs.model_fields[name]


def _render_values_types(models: Mapping[str, type[BaseModel]]) -> str:
    """Return the Python code of the types of objects among outputs; may be empty.

    Only type checkers see the TypedDicts: Pulumi converts outputs by their annotations, and knows
    objects as `dict[str, Any]`.
    """
    if not models:
        return ""
    classes = "\n".join(_render_values_type(name, model) for name, model in models.items())
    aliases = "".join(f"    {name} = dict[str, Any]\n" for name in models)
    return f"\n\nif TYPE_CHECKING:\n\n{classes}\nelse:\n{aliases}"


def _collect_output_models(annotation: Any, models: dict[str, type[BaseModel]]) -> None:
    """Add the models inside an annotation to `models`, innermost first.

    A union of several types is `Any`, and adds none.
    """
    match list_value_types(annotation):
        case [ListOf(item) | MapOf(item)]:
            _collect_output_models(item, models)
        case [model] if is_model(model):
            for field in model.model_fields.values():
                _collect_output_models(field.annotation, models)
            models.setdefault(_format_values_name(model), model)


def _render_values_type(type_name: str, model: type[BaseModel]) -> str:
    """Return the Python code of the TypedDict of an object among the outputs.

    A class cannot have a field with the name of a Python keyword: then the type is written as a
    call.
    """
    is_class = not any(map(keyword.iskeyword, model.model_fields))
    is_input = issubclass(model, InputModel)
    sentence = (model.__doc__ or "").strip().partition("\n")[0].partition(". ")[0]
    doc = f'"""{sentence.removesuffix(".")}."""' if sentence else ""
    lines = [f"    class {type_name}(TypedDict):\n", f"        {doc}\n\n" if doc else ""]
    if not is_class:
        lines = [f'    {type_name} = TypedDict(\n        "{type_name}",\n        {{\n']
    for name, field in model.model_fields.items():
        field_type = _render_output_type(field.annotation)
        # The state has no members that are None, and of inputs only what was declared.
        is_declared = is_input and not field.is_required()
        if is_declared or is_optional(field.annotation):
            field_type = f"NotRequired[{field_type}]"
        if is_class:
            description = _render_docstring(field.description or name, 8)
            lines += [f"        {name}: {field_type}\n", *description]
        else:
            lines.append(f'            "{name}": {field_type},\n')
    end = "" if is_class else f"        }},\n    )\n{f'    {doc}' if doc else ''}\n"
    return "".join([*lines, end])


def _render_alias(name: str, values: Sequence[str]) -> str:
    """Return the Python code of a named `Literal` with these values."""
    quoted = [f'"{value}"' for value in values]
    line = f"{name} = Literal[{', '.join(quoted)}]"
    if len(line) > _WIDTH:
        line = "\n".join([f"{name} = Literal[", *(f"    {value}," for value in quoted), "]"])
    return f"{line}\n"


def _render_comment(text: str) -> list[str]:
    """Return the lines of a Python comment inside a class, wrapped to the line width."""
    wrapped = textwrap.wrap(text, _WIDTH - 6, break_on_hyphens=False)
    return [f"    # {line}\n" for line in wrapped]


def _render_docstring(text: str, indent: int) -> list[str]:
    """Return the lines of a docstring below a field, which editors show beside the field's name."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if text.endswith('"'):
        text = text.removesuffix('"') + '\\"'
    wrapped = textwrap.wrap(f'"""{text}"""', _WIDTH - indent, break_on_hyphens=False)
    return [f"{' ' * indent}{line}\n" for line in wrapped]


if __name__ == "__main__":
    sys.exit(main())
