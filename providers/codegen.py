"""Write the typed resource classes from the input models: `python -m gpuform.providers.codegen`.

The models are the one source of truth. They are those of gpuform's own platforms, or of the
platforms that are named. `--check` writes nothing and fails when a file is not current.
"""

import argparse
import keyword
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from gpuform.providers.catalog import load_lifecycle_class, require_platform
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import Platform, list_own_platforms
from gpuform.schemas.rules import append_change_effect, get_field_rules


def parser(command: str, doc: str | None) -> argparse.ArgumentParser:
    """The command line `python -m COMMAND [--check]`."""
    found = argparse.ArgumentParser(prog=f"python -m {command}", description=doc)
    found.add_argument("--check", action="store_true", help="only say whether files are current")
    return found


def write_or_check(files: Iterable[tuple[Path, str]], *, check: bool) -> int:
    """Writes the files that are not current, or with `check` returns 1 for them. Names them."""
    stale = [(path, text) for path, text in files if _written(path) != text]
    for path, text in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        state = "is not current" if check else "written"
        sys.stderr.write(f"{path.parent.name}/{path.name} {state}\n")
    return 1 if check and stale else 0


def _written(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


_TYPING = ("Any", "Literal", "NotRequired", "TypedDict", "Unpack")
_WIDTH = 100
_HEAD = '''"""{title}'s resources for programs.

Generated from the input models: python -m gpuform.providers.codegen{which}
"""

{standard}

import pulumi

{imports}

__all__ = [{exports}]
'''
_CLASS = '''

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
    """Writes or checks; 1 when `--check` found a file that is not current."""
    command = parser("gpuform.providers.codegen", __doc__)
    command.add_argument("platforms", nargs="*", metavar="PLATFORM", type=_named)
    options = command.parse_args(arguments)
    return write_or_check(generated(options.platforms), check=options.check)


def _named(name: str) -> Platform:
    try:
        return require_platform(name)
    except GpuformError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def generated(platforms: Sequence[Platform] = ()) -> Iterator[tuple[Path, str]]:
    """Each generated file and its text, formatted as ruff would; gpuform's own by default."""
    for platform in platforms or list_own_platforms().values():
        package = import_module(platform.package)
        yield Path(package.__path__[0]) / "resources.py", _module(platform)


def _module(platform: Platform) -> str:
    lifecycles = {kind: load_lifecycle_class(platform.name, kind) for kind in platform.lifecycles}
    imports = sorted(
        [
            "from gpuform.providers.resource import PlatformResource",
            *(f"from {each.__module__} import {each.__name__}" for each in lifecycles.values()),
        ]
    )
    exports = ", ".join(f'"{kind}"' for kind in sorted(lifecycles))
    parts: list[str] = []
    models: dict[str, type[BaseModel]] = {}
    for lifecycle in lifecycles.values():
        _collect(lifecycle.inputs, models)
    choices: dict[str, tuple[str, ...]] = {}
    dicts = [_typed_dict(model, choices) for model in models.values()]
    parts.extend(_alias(name, values) for name, values in choices.items())
    parts.extend(dicts)
    for kind, lifecycle in lifecycles.items():
        parts.append(_class(platform.name, kind, lifecycle))
    body = "".join(parts)
    standard = {
        "collections.abc": [name for name in ("Mapping", "Sequence") if f"{name}[" in body],
        "typing": [name for name in _TYPING if re.search(rf"\b{name}\b", body)],
    }
    lines = (f"from {module} import {', '.join(of)}" for module, of in standard.items() if of)
    head = _HEAD.format(
        title=platform.title,
        which="" if platform.name in list_own_platforms() else f" {platform.name}",
        standard="\n".join(lines),
        imports="\n".join(imports),
        exports=exports,
    )
    return head + body


def _collect(model: type[BaseModel], found: dict[str, type[BaseModel]]) -> None:
    """The models inside a model, innermost first, then itself."""
    for rules in get_field_rules(model).values():
        if rules.nested:
            _collect(rules.nested, found)
    found.setdefault(_arguments_name(model), model)


def _typed_dict(model: type[BaseModel], choices: dict[str, tuple[str, ...]]) -> str:
    """A class; a call where a field has the name of a word of Python's."""
    is_class = not any(map(keyword.iskeyword, get_field_rules(model)))
    named, doc = _arguments_name(model), _doc(model)
    if is_class:
        lines = [f'\n\nclass {named}(TypedDict):\n    """{doc}"""\n\n']
    else:
        lines = [f'\n\n{named} = TypedDict(\n    "{named}",\n    {{\n']
    for name, rules in get_field_rules(model).items():
        field = model.model_fields[name]
        comment = _comment(append_change_effect(field.description or name, rules))
        wanted = f"pulumi.Input[{_argument(name, field.annotation, choices)}]"
        if rules.reference_kind:
            wanted += " | PlatformResource"
        if not field.is_required():
            wanted = f"NotRequired[{wanted} | None]"
        if is_class:
            lines += [*comment, f"    {name}: {wanted}\n"]
        else:
            lines += [*(f"    {line}" for line in comment), f'        "{name}": {wanted},\n']
    end = "" if is_class else f'    }},\n)\n"""{doc}"""\n'
    return "".join([*lines, end])


def _class(platform: str, kind: str, lifecycle: type[Lifecycle[Any, Any]]) -> str:
    lines = []
    for name in lifecycle.list_property_names():
        computed = lifecycle.outputs.model_fields.get(name)
        field = computed or lifecycle.inputs.model_fields[name]
        optional = " | None" if _is_optional(field.annotation) else ""
        lines.append(f"    {name}: pulumi.Output[{_output(field.annotation)}{optional}]")
    return _CLASS.format(
        kind=kind,
        platform=platform,
        doc=_doc(lifecycle.inputs),
        lifecycle=lifecycle.__name__,
        outputs="\n".join(lines),
    )


def _argument(name: str, annotation: Any, choices: dict[str, tuple[str, ...]]) -> str:
    """The type of an argument; closed enumerations get a name of their own."""
    kind = _bare(annotation)
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(_argument(name, each, choices) for each in get_args(kind))
    if get_origin(kind) is Literal:
        alias = "".join(word.capitalize() for word in name.split("_"))
        choices[alias] = tuple(map(str, get_args(kind)))
        return alias
    if get_origin(kind) in (list, tuple):
        return f"Sequence[pulumi.Input[{_argument(name, get_args(kind)[0], choices)}]]"
    if get_origin(kind) is dict:
        return f"Mapping[str, pulumi.Input[{_argument(name, get_args(kind)[1], choices)}]]"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _arguments_name(kind)
    return _plain(kind)


def _output(annotation: Any) -> str:
    kind = _bare(annotation)
    if get_origin(kind) is Literal:
        return "str"
    if get_origin(kind) in (list, tuple):
        return f"list[{_output(get_args(kind)[0])}]"
    if get_origin(kind) is dict:
        return f"dict[str, {_output(get_args(kind)[1])}]"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return "dict[str, Any]"
    return _plain(kind)


def _plain(kind: Any) -> str:
    return kind.__name__ if kind in (str, int, float, bool) else "Any"


def _bare(annotation: Any) -> Any:
    """An annotation without None and without rules."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _bare(get_args(annotation)[0])
    if origin in (Union, UnionType):
        some = [each for each in get_args(annotation) if each is not NoneType]
        return _bare(some[0]) if len(some) == 1 else Union[*some]
    return annotation


def _is_optional(annotation: Any) -> bool:
    return NoneType in get_args(annotation)


def _arguments_name(model: type[BaseModel]) -> str:
    return model.__name__.removesuffix("Inputs") + "Arguments"


def _doc(model: type[BaseModel]) -> str:
    return (model.__doc__ or model.__name__).strip().partition("\n")[0]


def _alias(name: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f'\n{name} = Literal["{values[0]}"]\n'
    listed = "".join(f'    "{value}",\n' for value in values)
    return f"\n{name} = Literal[\n{listed}]\n"


def _comment(text: str) -> list[str]:
    wrapped = textwrap.wrap(text, _WIDTH - 6, break_on_hyphens=False)
    return [f"    # {line}\n" for line in wrapped]


if __name__ == "__main__":
    sys.exit(main())
