"""From the options of an import to what is asked for."""

import re
from collections.abc import Mapping
from typing import Final

from gpuform.providers.actions import Settings
from gpuform.providers.catalog import platform_of
from gpuform.providers.inventory import held_by
from gpuform.stacks.adopting import chosen
from gpuform.stacks.adopting.chosen import Filter, ImportChoice
from gpuform.stacks.adopting.declaring import Choices
from gpuform.stacks.adopting.errors import NotImported
from gpuform.stacks.adopting.places import DeclarationPlace
from gpuform.stacks.adopting.planning import Request
from gpuform.stacks.adopting.project_place import place_of
from gpuform.stacks.authoring.declared import ConfigValue, Reference, Value
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import plain
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.operations.runs.options import ImportOptions
from gpuform.stacks.review.names import short_type

_CONFIG: Final = re.compile(r"\s*\{\{\s*config\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}\s*")


def request_of(options: ImportOptions, stack: Stack, environ: Mapping[str, str]) -> Request:
    """Asks the platform's lists. Raises EngineError for options that fit nothing."""
    config, _ = stack.settings.program_config(stack.crypter)
    settings = Settings(config=config.get, environ=environ)

    def read_place() -> DeclarationPlace:
        return place_of(stack.project, stack.name, options.out, python=options.python)

    place = read_place()
    parent, reference = _parent(options.parent, stack, place)
    own = f"{stack.project.name}:"
    choices = Choices(
        protect=options.protect,
        parent=reference,
        given={name: _value(name, text) for name, text in options.given},
        config={key.removeprefix(own): text for key, text in config.items()},
        defaults=place.defaults,
    )
    return Request(
        stack=stack,
        wanted=_wanted(options, settings),
        place=place,
        read_place=read_place,
        settings=settings,
        choices=choices,
        parent=parent,
        is_sole=not options.everything,
    )


def _wanted(options: ImportOptions, settings: Settings) -> list[ImportChoice]:
    if not options.everything:
        type_, name, id_ = options.type_ or "", options.name or "", options.id_ or ""
        platform, _ = chosen.kind_of(type_)
        held = held_by(platform, settings, options.regions)
        return [chosen.one(type_, name, id_, held, next(iter(options.regions), ""))]
    platform = options.platform or ""
    platform_of(platform)
    types = [":".join(chosen.kind_of(each)) for each in options.types]
    wanted = Filter(types, options.names, options.regions, options.tags)
    return chosen.all_of(held_by(platform, settings, options.regions), wanted)


def _value(name: str, text: str) -> Value:
    """The value of --set: YAML, or a configuration value."""
    config = _CONFIG.fullmatch(text)
    if config:
        return ConfigValue(config[1])
    problems = Diagnostics()
    value = plain(read_text(f"value: {text}", f"--set {name}", problems)).get("value")
    if problems or has_expression(text):
        raise NotImported(
            f"--set {name}: {text} is no value",
            hint="write it as in a topology file, or '{{ config.NAME }}'",
        )
    return value


def _parent(
    given: str | None, stack: Stack, place: DeclarationPlace
) -> tuple[str, Reference | None]:
    if given is None:
        return "", None
    for each in stack.snapshot.resources:
        if given in (each.urn, name_of(each.urn)):
            platform, _, kind = short_type(each.type).partition(":")
            reference = place.reference(platform, kind, name_of(each.urn))
            if reference is not None:
                return each.urn, reference
    raise NotImported(
        f"the stack has no resource {given} that an entry could name as its parent",
        hint="give the URN of a resource that is declared: `gpuform state list`",
    )
