"""Use topologies in Python programs: run a file, register a module, or evaluate an expression.

`gpuform.stacks` offers this as `run`, `Module` and `expression`. With Pulumi's SDK `run_topology`
registers the resources; gpuform's own engine calls `declare_topology`. An expression waits for the
outputs that it refers to.
"""

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import time
from typing import Any

import pulumi
from jinja2 import nodes
from pulumi.runtime import config as pulumi_config
from pydantic import BaseModel

from gpuform.providers.catalog import load_lookup
from gpuform.providers.context import use_run_context
from gpuform.providers.environment import are_emulated
from gpuform.providers.operations import use_lookup_settings
from gpuform.providers.resource import PlatformResource
from gpuform.schemas.values import UNKNOWN, convert_leaves, iterate_leaves
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import Entry, ScalarNode
from gpuform.stacks.engine.language_host import Program, TopologyRun
from gpuform.stacks.engine.urn import MODULE_TYPE
from gpuform.stacks.expressions.sandbox import Function
from gpuform.stacks.expressions.template import Template, compile_step, parse
from gpuform.stacks.offers import find_misspelled_values, read_recent_offers
from gpuform.stacks.topology.configuration import ConfigValue, StackConfig, find_unencrypted_secrets
from gpuform.stacks.topology.declarations import MODULES, ConfigVariable, Inclusion, Topology
from gpuform.stacks.topology.declaring import declare_nothing, prepare
from gpuform.stacks.topology.files import InclusionPath, format_path
from gpuform.stacks.topology.loading import check_inputs, load_module
from gpuform.stacks.topology.planning import (
    PlanContext,
    PlannedTopology,
    find_project_folder,
    plan,
    plan_topology,
)
from gpuform.stacks.topology.registering import (
    ProgramSource,
    TopologyError,
    evaluate_outputs,
    register,
    register_resources,
)
from gpuform.stacks.topology.scope import ResourceValue, Scope


def run_topology(path: Path) -> None:
    """Register the declarations of a topology in the running Pulumi program.

    Raises:
        TopologyError: the topology has problems; nothing is registered.
    """
    register(
        _plan_topology(
            path, _PulumiConfig(), pulumi.get_project(), pulumi.get_stack(), pulumi.log.warn
        )
    )


def declare_topology(run: TopologyRun) -> None:
    """Declare a topology in a run of gpuform's own engine, without Pulumi's SDK.

    For a topology with problems only the stack itself is declared, and TopologyError is raised.
    """
    program = run.program
    config = _ProgramConfig(program)
    with use_run_context(program.run_context), use_lookup_settings(program.settings):
        try:
            prepared = prepare(
                _plan_topology(run.file, config, program.project, program.stack, run.warn), run
            )
        except TopologyError:
            # The stack itself is registered even for a topology with errors, as by a program that
            # fails.
            declare_nothing(run)
            raise
        prepared.declare()


def _plan_topology(
    path: Path, config: StackConfig, project: str, stack: str, warn: Callable[[str], None]
) -> PlannedTopology:
    """Return the planned topology, with warnings about misspellings and plaintext secrets.

    Raises:
        TopologyError: the topology has problems.
    """
    problems = Diagnostics()
    program = {"project": project, "stack": stack}
    planned = plan(
        path, PlanContext(config, program, create_lookup_finder(), are_emulated), problems
    )
    if problems:
        raise TopologyError(problems)
    for misspelling in find_misspelled_values(
        planned, read_recent_offers(find_project_folder(path), time())
    ):
        warn(f"{misspelling.position}: {misspelling.message}\n{misspelling.hint}")
    file = f"Pulumi.{stack}.yaml or Pulumi.yaml"
    for warning in find_unencrypted_secrets(planned.topology.config.values(), config, file):
        warn(warning)
    return planned


@dataclass(frozen=True, slots=True)
class _ProgramConfig:
    """The configuration of a run."""

    program: Program

    def get(self, name: str) -> str | None:
        return self.program.config.get(self._qualify(name))

    def is_secret(self, name: str) -> bool:
        return self._qualify(name) in self.program.secret_keys

    def _qualify(self, name: str) -> str:
        """Return the configuration key of a variable: PROJECT:NAME."""
        return f"{self.program.project}:{name}"


class _PulumiConfig:
    """The configuration of the running Pulumi program, in the project's namespace."""

    def get(self, name: str) -> str | None:
        return pulumi.Config().get(name)

    def is_secret(self, name: str) -> bool:
        return pulumi_config.is_config_secret(pulumi.Config().full_key(name))


def create_lookup_finder() -> Callable[[str, str], Any]:
    """Return a finder of lookups by platform and name.

    The lookups remember their answers: each question is asked once in a run.
    """

    @cache
    def find_lookup(platform: str, name: str) -> Function:
        return Function(_remember_answers(load_lookup(platform, name)))

    return find_lookup


def _remember_answers(lookup: Callable[..., Any]) -> Callable[..., Any]:
    """Return the lookup with remembered answers, by arguments: an argument may be an object."""
    answers: dict[str, Any] = {}

    def remembering_lookup(*args: Any, **kwargs: Any) -> Any:
        arguments_key = json.dumps([args, kwargs], sort_keys=True, default=repr)
        if arguments_key not in answers:
            answers[arguments_key] = lookup(*args, **kwargs)
        # A new copy for each caller, so that no caller changes the remembered answer.
        return to_plain_value(answers[arguments_key])

    return remembering_lookup


def to_plain_value(answer: Any) -> Any:
    """Return the answer as plain values, with objects in place of models."""
    return convert_leaves(
        answer,
        lambda leaf: leaf.model_dump(mode="json") if isinstance(leaf, BaseModel) else leaf,
    )


class Module(pulumi.ComponentResource):
    """An instance of a module file, as `include` creates one in a topology.

        pool = Module("train", "pool.yaml", {"gpus": 16, "volume": data})
        pulumi.export("kubeconfig", pool.outputs["kubeconfig"])

    Its resources have the same names and URNs as in a topology, with the prefix `train-`. `file` is
    relative to the current folder, which is the program's. An input may be an output, or a
    resource, which means its id. TopologyError is raised for any problem before anything is
    registered.
    """

    outputs: Mapping[str, pulumi.Output[Any]]
    """The outputs of the module file, by name."""

    def __init__(
        self,
        name: str,
        file: str,
        inputs: Mapping[str, Any] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        position, problems = _find_caller(), Diagnostics()
        # As in a topology, a null leaves the module's own default.
        given_inputs = {
            key: _to_input(value) for key, value in (inputs or {}).items() if value is not None
        }
        topology = _build_topology(name, Path(file), list(given_inputs), position, problems)
        program_names = {"project": pulumi.get_project(), "stack": pulumi.get_stack()}
        # Planning reports all problems of the file before the first resource is registered.
        planned = plan_topology(
            topology,
            PlanContext(_NoConfig(), program_names, create_lookup_finder()),
            problems,
            {
                key: ConfigValue(_to_known_value(value), secret=False)
                for key, value in given_inputs.items()
            },
        )
        if problems:
            raise TopologyError(problems)
        super().__init__(MODULE_TYPE, name, None, opts)
        program = ProgramSource(planned, given_inputs)
        module = next(instance for instance in planned.modules if instance.module is None)
        program.modules[module] = self
        scope = Scope(replace(planned.names, source=program, passed={}))
        register_resources(planned, scope, program)
        outputs = evaluate_outputs(module, scope)
        self.outputs = {key: pulumi.Output.from_input(value) for key, value in outputs.items()}


class _NoConfig:
    """An empty configuration: a module has inputs instead."""

    def get(self, _name: str) -> str | None:
        return None

    def is_secret(self, _name: str) -> bool:
        return False


def _build_topology(
    name: str, file: Path, inputs: list[str], position: SourcePosition, problems: Diagnostics
) -> Topology:
    """Return a topology with the module, whose inputs are passed on to the module."""
    module_topology = load_module(file, InclusionPath((), (position,)), problems)
    arguments = {
        key: Entry(
            position, ScalarNode(position, expression := f"{{{{ inputs['{key}'] }}}}", expression)
        )
        for key in inputs
    }
    module = Inclusion(
        section=MODULES,
        name=name,
        position=position,
        file=file,
        arguments=arguments,
        topology=module_topology,
    )
    check_inputs(module, problems)
    variables = {key: ConfigVariable(key, position, {}) for key in inputs}
    return Topology(inputs=variables, modules={name: module})


def _find_caller() -> SourcePosition:
    """Return the position of the program's line with the call of `Module`.

    Frames of the constructors of subclasses are skipped.
    """
    frame = inspect.currentframe()
    while frame is not None and (
        # Python puts `__class__` among the names of each method that calls super().
        "__class__" in frame.f_locals or frame.f_code.co_filename == __file__
    ):
        frame = frame.f_back
    if frame is None:
        return SourcePosition("")
    return SourcePosition(format_path(Path(frame.f_code.co_filename)), frame.f_lineno)


def _to_input(value: Any) -> Any:
    """Return the id of a resource; any other value is returned unchanged."""
    return value.id if isinstance(value, pulumi.CustomResource) else value


def _to_known_value(value: Any) -> Any:
    """Return the value with UNKNOWN in place of outputs."""
    return convert_leaves(value, lambda leaf: UNKNOWN if isinstance(leaf, pulumi.Output) else leaf)


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
    """Return the value of a step, or None if it depends on an output."""
    if not isinstance(step, nodes.Expr):
        return step
    template = compile_step(step)
    selected = _select_variables(template, variables)
    return None if any(_find_outputs(selected)) else template.evaluate(selected)


def _select_part(value: Any, steps: Sequence[Any], *, is_whole_expression: bool) -> Any:
    """Return the parts of a variable at the end of `steps`; of a resource, single properties.

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
