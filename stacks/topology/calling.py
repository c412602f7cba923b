"""Evaluate a topology's expressions in Python programs that call `gpuform.expression`.

`gpuform.expression` calls `evaluate_expression`, which parses the text and waits for
the outputs that the expression refers to.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi
from jinja2 import nodes

from gpuform.providers.resource import PlatformResource
from gpuform.schemas.values import iterate_leaves
from gpuform.stacks.expressions.sandbox import Function
from gpuform.stacks.expressions.template import Template, compile_step, parse
from gpuform.stacks.module import Module
from gpuform.stacks.topology.scope import ResourceValue
from gpuform.stacks.topology_program import to_plain_value


def evaluate_expression(text: str, variables: Mapping[str, Any]) -> Any:
    """Evaluate a text with expressions; return an output if a used variable contains one.

    Raises:
        ExpressionError: at once, or when the outputs are known.
    """
    template = parse(text)
    selected = _select_variables(template, variables)
    outputs = list(_find_outputs(selected))
    # A known value at once, so that a program can branch on it.
    if not outputs:
        return template.evaluate(selected)

    def make(values: Sequence[Any]) -> Any:
        # Outputs have no names: each finds its value as a key.
        values_by_output = dict(zip(outputs, values, strict=True))
        return template.evaluate(_replace_outputs(selected, values_by_output))

    return pulumi.Output.all(*outputs).apply(make)


def _select_variables(template: Template, variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of `variables` named in the template.

    Names without a variable are left out.
    """
    selected: dict[str, Any] = {}
    for reference in template.references:
        if reference.root in variables:
            steps = [_evaluate_step(step, variables) for step in reference.steps]
            alone = reference is template.reference
            _merge(
                selected,
                {
                    reference.root: _select_part(
                        variables[reference.root], steps, is_whole_expression=alone
                    )
                },
            )
    return selected


def _evaluate_step(step: str | int | nodes.Expr, variables: Mapping[str, Any]) -> Any:
    """Return the value of a step, or None if the value depends on an output."""
    if not isinstance(step, nodes.Expr):
        return step
    template = compile_step(step)
    selected = _select_variables(template, variables)
    return None if any(_find_outputs(selected)) else template.evaluate(selected)


def _select_part(value: Any, steps: Sequence[Any], *, is_whole_expression: bool) -> Any:
    """Return the parts of a variable that `steps` lead to; of a resource only these properties.

    Without steps, a resource that is the complete expression has its id alone, any other all
    properties. Functions become functions with plain answers.
    """
    if isinstance(value, PlatformResource):
        # A resource alone means its id, so nothing else has to be known.
        names = (
            [steps[0]] if steps else ["id"] if is_whole_expression else _list_property_names(value)
        )
        # An output decides which property is read, so every property has to be there.
        if names == [None]:
            names = _list_property_names(value)
        return ResourceValue({name: getattr(value, name) for name in names if hasattr(value, name)})
    if isinstance(value, Module):
        value = value.outputs
    if isinstance(value, Mapping):
        if steps and steps[0] in value:
            return {
                steps[0]: _select_part(
                    value[steps[0]], steps[1:], is_whole_expression=is_whole_expression
                )
            }
        return {
            key: _select_part(item, (), is_whole_expression=False) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_select_part(item, (), is_whole_expression=False) for item in value]
    if callable(value) and not isinstance(value, pulumi.Output):
        lookup = value
        return Function(lambda *args, **kwargs: to_plain_value(lookup(*args, **kwargs)))
    return value


def _list_property_names(resource: PlatformResource) -> list[str]:
    """Return `id`, `urn` and the names of all properties of a resource."""
    return ["id", "urn", *resource.property_names()]


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Merge `other` into `into` in place, mappings at any depth."""
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def _find_outputs(value: Any) -> Iterator[pulumi.Output[Any]]:
    """Yield the outputs in a value, at any depth."""
    return (leaf for leaf in iterate_leaves(value) if isinstance(leaf, pulumi.Output))


def _replace_outputs(value: Any, values_by_output: Mapping[pulumi.Output[Any], Any]) -> Any:
    """Return a copy of `value` with known values in place of outputs."""
    if isinstance(value, pulumi.Output):
        return values_by_output[value]
    if isinstance(value, Mapping):
        return type(value)(
            {key: _replace_outputs(item, values_by_output) for key, item in value.items()}
        )  # type: ignore[call-arg] # a dict or a ResourceValue
    if isinstance(value, list):
        return [_replace_outputs(item, values_by_output) for item in value]
    return value
