"""A topology's expressions in Python programs: `expression("{{ ... }}", clusters={...})`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
from jinja2 import nodes

from gpuform.providers.resource import PlatformResource
from gpuform.stacks.expressions.sandbox import Function
from gpuform.stacks.expressions.template import Template, compile_step, parse
from gpuform.stacks.module import Module
from gpuform.stacks.program import plain_answer
from gpuform.stacks.topology.scope import ResourceValue


def value_of(text: str, variables: Mapping[str, Any]) -> Any:
    """The text's value, an output where something that it needs is one.

    Raises ExpressionError, at once or when the outputs are known.
    """
    template = parse(text)
    needed = _needed_by(template, variables)
    outputs = list(_outputs(needed))
    if not outputs:
        return template.evaluate(needed)

    def make(values: Sequence[Any]) -> Any:
        known = {id(output): value for output, value in zip(outputs, values, strict=True)}
        return template.evaluate(_filled(needed, known))

    return pulumi.Output.all(*outputs).apply(make)


def _needed_by(template: Template, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Of the variables what the template refers to: of a resource no more than it has to."""
    found: dict[str, Any] = {}
    for need in template.needs:
        if need.root in variables:
            steps = [_known_step(step, variables) for step in need.steps]
            alone = need is template.reference
            _merge(found, {need.root: _part(variables[need.root], steps, alone=alone)})
    return found


def _known_step(step: str | int | nodes.Expr, variables: Mapping[str, Any]) -> Any:
    """None for a step that an output decides."""
    if not isinstance(step, nodes.Expr):
        return step
    template = compile_step(step)
    needed = _needed_by(template, variables)
    return None if any(_outputs(needed)) else template.evaluate(needed)


def _part(value: Any, steps: Sequence[Any], *, alone: bool) -> Any:
    if isinstance(value, PlatformResource):
        names = [steps[0]] if steps else ["id"] if alone else _property_names(value)
        if names == [None]:
            names = _property_names(value)
        return ResourceValue({name: getattr(value, name) for name in names if hasattr(value, name)})
    if isinstance(value, Module):
        value = value.outputs
    if isinstance(value, Mapping):
        if steps and steps[0] in value:
            return {steps[0]: _part(value[steps[0]], steps[1:], alone=alone)}
        return {key: _part(item, (), alone=False) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_part(item, (), alone=False) for item in value]
    if callable(value) and not isinstance(value, pulumi.Output):
        ask = value
        return Function(lambda *args, **kwargs: plain_answer(ask(*args, **kwargs)))
    return value


def _property_names(resource: PlatformResource) -> list[str]:
    return ["id", "urn", *resource.property_names()]


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _outputs(value: Any) -> Iterator[pulumi.Output[Any]]:
    if isinstance(value, pulumi.Output):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _outputs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _outputs(item)


def _filled(value: Any, known: Mapping[int, Any]) -> Any:
    """The value with what its outputs have turned out to be."""
    if isinstance(value, pulumi.Output):
        return known[id(value)]
    if isinstance(value, Mapping):
        return type(value)({key: _filled(item, known) for key, item in value.items()})  # type: ignore[call-arg] # a dict or a ResourceValue
    if isinstance(value, list):
        return [_filled(item, known) for item in value]
    return value
