"""Modules in Python programs: `gpuform.stacks.Module`."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi

from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import Entry, ScalarNode
from gpuform.stacks.engine.urn import MODULE_TYPE
from gpuform.stacks.program import lookups
from gpuform.stacks.topology.configuration import ConfigValue
from gpuform.stacks.topology.declarations import MODULES, ConfigVariable, Inclusion, Topology
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.files import InclusionPath, format_path
from gpuform.stacks.topology.loading import check_inputs, load_module
from gpuform.stacks.topology.planning import PlanContext, plan_topology
from gpuform.stacks.topology.registering import ProgramSource, evaluate_outputs, register_resources
from gpuform.stacks.topology.scope import Scope


class Module(pulumi.ComponentResource):
    """An instance of a module file, as `include` makes one in a topology.

        pool = Module("train", "pool.yaml", {"gpus": 16, "volume": data})
        pulumi.export("kubeconfig", pool.outputs["kubeconfig"])

    Its resources have the same names and URNs as in a topology: `train-` goes before each. `file`
    is relative to the current folder, which is the program's. An input may be an output, or a
    resource, which means its id. Whatever is wrong is raised as TopologyError, before anything is
    registered.
    """

    outputs: Mapping[str, pulumi.Output[Any]]
    """The outputs of the file, by name."""

    def __init__(
        self,
        name: str,
        file: str,
        inputs: Mapping[str, Any] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        place, problems = _caller(), Diagnostics()
        given = {key: _id_of(value) for key, value in (inputs or {}).items() if value is not None}
        topology = _including(name, Path(file), list(given), place, problems)
        program_names = {"project": pulumi.get_project(), "stack": pulumi.get_stack()}
        planned = plan_topology(
            topology,
            PlanContext(_NoConfig(), program_names, lookups()),
            problems,
            {key: ConfigValue(_known(value), secret=False) for key, value in given.items()},
        )
        if problems:
            raise TopologyError(problems)
        super().__init__(MODULE_TYPE, name, None, opts)
        program = ProgramSource(planned, given)
        module = next(each for each in planned.modules if each.module is None)
        program.modules[module] = self
        scope = Scope(replace(planned.names, source=program, passed={}))
        register_resources(planned, scope, program)
        outputs = evaluate_outputs(module, scope)
        self.outputs = {key: pulumi.Output.from_input(value) for key, value in outputs.items()}


class _NoConfig:
    """A module has inputs instead."""

    def get(self, _name: str) -> str | None:
        return None

    def is_secret(self, _name: str) -> bool:
        return False


def _including(
    name: str, file: Path, inputs: list[str], place: SourcePosition, problems: Diagnostics
) -> Topology:
    """A topology that includes the module, and hands on what it is given itself."""
    found = load_module(file, InclusionPath((), (place,)), problems)
    given = {
        key: Entry(place, ScalarNode(place, text := f"{{{{ inputs['{key}'] }}}}", text))
        for key in inputs
    }
    module = Inclusion(
        section=MODULES, name=name, position=place, file=file, arguments=given, topology=found
    )
    check_inputs(module, problems)
    variables = {key: ConfigVariable(key, place, {}) for key in inputs}
    return Topology(inputs=variables, modules={name: module})


def _caller() -> SourcePosition:
    """The line of the program that makes the module, or its subclass."""
    frame = inspect.currentframe()
    while frame is not None and (
        "__class__" in frame.f_locals or frame.f_code.co_filename == __file__
    ):
        frame = frame.f_back
    if frame is None:
        return SourcePosition("")
    return SourcePosition(format_path(Path(frame.f_code.co_filename)), frame.f_lineno)


def _id_of(value: Any) -> Any:
    return value.id if isinstance(value, pulumi.CustomResource) else value


def _known(value: Any) -> Any:
    """The value with UNKNOWN for what is known only later."""
    if isinstance(value, pulumi.Output):
        return UNKNOWN
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items()}
    return [_known(item) for item in value] if isinstance(value, list | tuple) else value
