"""From a topology file to the resources that it declares, in their order, all of it checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry
from gpuform.stacks.topology.checking import Checked, check_all
from gpuform.stacks.topology.configuration import StackConfig, Stacked, configured
from gpuform.stacks.topology.declarations import Topology
from gpuform.stacks.topology.expanding import expand
from gpuform.stacks.topology.known import known
from gpuform.stacks.topology.loading import load
from gpuform.stacks.topology.names import Names
from gpuform.stacks.topology.ordering import in_order
from gpuform.stacks.topology.rules import check_rules
from gpuform.stacks.topology.scope import Scope
from gpuform.stacks.topology.sources import Checking


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a topology is planned with.

    `program` are the names of the `project` and `stack`. Without `lookup`, which asks a platform,
    it is only checked: then nothing needs to have a value yet.
    """

    config: StackConfig
    program: Mapping[str, str]
    lookup: Callable[[str, str], Any] | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A topology that can be registered; `config` has the values of its variables."""

    topology: Topology
    names: Names
    config: Mapping[str, Stacked]
    resources: list[Checked]


def plan(path: Path, surroundings: Surroundings, problems: Diagnostics) -> Planned:
    """Checks a topology file with all that it includes; what is wrong goes to `problems`."""
    topology = load(path, problems)
    config = configured(topology.config.values(), surroundings.config, problems)
    planning = surroundings.lookup is not None
    if planning and not problems:
        _refuse_unset(topology, config, problems)
        planning = not problems  # else what is not known would be told twice
    source = Checking(config, surroundings.program, surroundings.lookup)
    names = Names(source, tuple(topology.config), tuple(topology.stack_references))
    names = replace(names, groups=expand(topology, names, problems, planning=planning))
    scope = Scope(names)
    checked = check_all(names.groups, scope, problems, planning=planning)
    for name, entry in topology.stack_references.items():
        _check_stack(name, entry, scope, problems, planning=planning)
    for entry in topology.outputs.values():
        scope.value(entry.node, problems)
    resources = in_order(checked, problems)
    check_rules(resources, problems)
    return Planned(topology, names, config, resources)


def _check_stack(
    name: str, entry: Entry, scope: Scope, problems: Diagnostics, *, planning: bool
) -> None:
    address = f"stack_references.{name}"
    value = known(entry.node, address, scope, problems, planning=planning)
    if not isinstance(value, str) and value is not UNKNOWN:
        message = f"{address} must be the name of a stack, as text"
        problems.add(entry.node.place, "value", message, "write ORGANIZATION/PROJECT/STACK")


def _refuse_unset(topology: Topology, config: Mapping[str, Stacked], problems: Diagnostics) -> None:
    for name, variable in topology.config.items():
        if name not in config:
            secret = " --secret" if variable.secret else ""
            hint = f"set it: gpuform config set{secret} {name} VALUE"
            problems.add(variable.place, "config", f"config.{name} has no value", hint)
