"""Write topologies into a folder and plan them; no platform is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from support.topologies.declarations import CLUSTER, VOLUME

from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic
from gpuform.stacks.topology.planning import PlanContext, PlannedTopology, plan


def format_flow(values: Mapping[str, Any], **more: str) -> str:
    """Format an object in YAML's flow style. The values of `more` are YAML already."""
    remaining_values = {key: value for key, value in values.items() if key not in more}
    return ", ".join(f"{key}: {value}" for key, value in {**remaining_values, **more}.items())


def declare_cluster(**more: str) -> str:
    """Return the entry of a valid cluster; `more` replaces values."""
    return f"{{{format_flow({'platform': 'together', **CLUSTER}, **more)}}}"


def declare_volume(**more: str) -> str:
    """Return the entry of a valid shared volume; `more` replaces values."""
    return f"{{{format_flow({'platform': 'together', **VOLUME}, **more)}}}"


@dataclass
class Stack:
    """The configuration of a stack: texts by name, and the names of secrets."""

    texts: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | None:
        return self.texts.get(name)

    def is_secret(self, name: str) -> bool:
        return name in self.secrets


@dataclass
class Result:
    planned: PlannedTopology
    problems: list[DocumentDiagnostic]

    @property
    def positioned_messages(self) -> list[str]:
        """Return the problems as `file:line: message`."""
        return [f"{p.position.file}:{p.position.line}: {p.message}" for p in self.problems]

    @property
    def messages(self) -> list[str]:
        return [problem.message for problem in self.problems]

    @property
    def names(self) -> list[str]:
        return [resource.instance.name for resource in self.planned.resources]

    def values(self, name: str) -> Mapping[str, Any]:
        (resource_values,) = [e.values for e in self.planned.resources if e.instance.name == name]
        return resource_values


class Topologies:
    """Plans topology.yaml of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = Stack()

    def write(self, text: str, name: str = "topology.yaml") -> None:
        (self.folder / name).parent.mkdir(exist_ok=True, parents=True)
        (self.folder / name).write_text(dedent(text))

    def __call__(self, text: str, *, planning: bool = True, **config: str) -> Result:
        """Plan a topology as a run does, or without `planning` as `gpuform validate` does.

        `config` is the configuration of the stack.
        """
        self.write(text)
        self.stack.texts = config
        lookup = (lambda platform, name: pytest.fail("asks a platform")) if planning else None
        problems = Diagnostics()
        program = {"project": "demo", "stack": "dev"}
        planned = plan(Path("topology.yaml"), PlanContext(self.stack, program, lookup), problems)
        return Result(planned, list(problems))

    def plan_valid(self, text: str, **config: str) -> Result:
        """Plan a topology that must have no problems."""
        result = self(text, **config)
        assert result.positioned_messages == []
        return result

    def plan_invalid(self, text: str, **config: str) -> list[str]:
        """Plan a topology that must have problems, and return them as `file:line: message`."""
        result = self(text, **config)
        assert result.problems
        return result.positioned_messages
