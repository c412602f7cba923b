"""Register module files from Python programs: `gpuform.stacks.Module`."""

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi

from gpuform.schemas.values import UNKNOWN, convert_leaves
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import Entry, ScalarNode
from gpuform.stacks.engine.urn import MODULE_TYPE
from gpuform.stacks.topology.configuration import ConfigValue
from gpuform.stacks.topology.declarations import MODULES, ConfigVariable, Inclusion, Topology
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.files import InclusionPath, format_path
from gpuform.stacks.topology.loading import check_inputs, load_module
from gpuform.stacks.topology.planning import PlanContext, plan_topology
from gpuform.stacks.topology.registering import ProgramSource, register_resources
from gpuform.stacks.topology.run_sources import evaluate_outputs
from gpuform.stacks.topology.scope import Scope
from gpuform.stacks.topology_program import create_lookup_finder


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
        key: Entry(position, ScalarNode(position, text := f"{{{{ inputs['{key}'] }}}}", text))
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
    """Return the value with UNKNOWN in the place of outputs."""
    return convert_leaves(value, lambda leaf: UNKNOWN if isinstance(leaf, pulumi.Output) else leaf)
