"""Topologies written into a folder and planned, with no platform to ask."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from declared import CLUSTER, VOLUME

from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics
from gpuform.stacks.topology.planning import PlanContext, PlannedTopology, plan


def flow(values: Mapping[str, Any], **more: str) -> str:
    """An object in YAML's flow style; `more` is YAML already."""
    said = {key: value for key, value in values.items() if key not in more}
    return ", ".join(f"{key}: {value}" for key, value in {**said, **more}.items())


def cluster(**more: str) -> str:
    """The entry of a valid cluster."""
    return f"{{{flow({'platform': 'together', **CLUSTER}, **more)}}}"


def volume(**more: str) -> str:
    """The entry of a valid shared volume."""
    return f"{{{flow({'platform': 'together', **VOLUME}, **more)}}}"


@dataclass
class Stack:
    """What a stack sets."""

    texts: dict[str, str] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)

    def get(self, name: str) -> str | None:
        return self.texts.get(name)

    def is_secret(self, name: str) -> bool:
        return name in self.secrets


@dataclass
class Result:
    planned: PlannedTopology
    problems: list[Diagnostic]

    @property
    def told(self) -> list[str]:
        """What is wrong, as `file:line: message`."""
        return [f"{p.position.file}:{p.position.line}: {p.message}" for p in self.problems]

    @property
    def messages(self) -> list[str]:
        return [problem.message for problem in self.problems]

    @property
    def names(self) -> list[str]:
        return [each.instance.name for each in self.planned.resources]

    def values(self, name: str) -> Mapping[str, Any]:
        (found,) = [e.values for e in self.planned.resources if e.instance.name == name]
        return found


class Topologies:
    """Plans topology.yaml of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stack = Stack()

    def write(self, text: str, name: str = "topology.yaml") -> None:
        (self.folder / name).parent.mkdir(exist_ok=True, parents=True)
        (self.folder / name).write_text(dedent(text))

    def __call__(self, text: str, *, planning: bool = True, **config: str) -> Result:
        """`planning` as a run does it, else as `gpuform validate` does; `config` is the stack's."""
        self.write(text)
        self.stack.texts = config
        lookup = (lambda platform, name: pytest.fail("asks a platform")) if planning else None
        problems = Diagnostics()
        program = {"project": "demo", "stack": "dev"}
        planned = plan(Path("topology.yaml"), PlanContext(self.stack, program, lookup), problems)
        return Result(planned, list(problems))

    def good(self, text: str, **config: str) -> Result:
        result = self(text, **config)
        assert result.told == []
        return result

    def bad(self, text: str, **config: str) -> list[str]:
        result = self(text, **config)
        assert result.problems
        return result.told
