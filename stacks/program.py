"""What the program of a topology does: `from gpuform.stacks import run; run("topology.yaml")`."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import time
from typing import Any

import pulumi
from pulumi.runtime import config as pulumi_config
from pydantic import BaseModel

from gpuform.providers.catalog import load_lookup
from gpuform.providers.environment import are_emulated
from gpuform.providers.operations import Settings, use_lookup_settings
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.language_host import Program, TopologyRun
from gpuform.stacks.expressions.sandbox import Function
from gpuform.stacks.offers import misspelt, seen_lately
from gpuform.stacks.topology.configuration import StackConfig, find_unencrypted_secrets
from gpuform.stacks.topology.declaring import declare_nothing, prepare
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.offline import find_project_folder
from gpuform.stacks.topology.planning import PlanContext, PlannedTopology, plan
from gpuform.stacks.topology.registering import register


def run_topology(path: Path) -> None:
    """Registers what a topology declares, in the running Pulumi program.

    Raises TopologyError with everything that is wrong, before anything is registered.
    """
    register(_planned(path, _Config(), pulumi.get_project(), pulumi.get_stack(), pulumi.log.warn))


def declare_topology(run: TopologyRun) -> None:
    """The same in a run of gpuform's own engine, without the SDK between them."""
    program = run.program
    config = _ProgramConfig(program)
    with use_lookup_settings(Settings(config=program.config.get)):
        try:
            prepared = prepare(
                _planned(run.file, config, program.project, program.stack, run.warn), run
            )
        except TopologyError:
            declare_nothing(run)
            raise
        prepared.declare()


def _planned(
    path: Path, config: StackConfig, project: str, stack: str, warn: Callable[[str], None]
) -> PlannedTopology:
    problems = Diagnostics()
    program = {"project": project, "stack": stack}
    planned = plan(path, PlanContext(config, program, lookups(), are_emulated), problems)
    if problems:
        raise TopologyError(problems)
    for each in misspelt(planned, seen_lately(find_project_folder(path), time())):
        warn(f"{each.position}: {each.message}\n{each.hint}")
    file = f"Pulumi.{stack}.yaml or Pulumi.yaml"
    for text in find_unencrypted_secrets(planned.topology.config.values(), config, file):
        warn(text)
    return planned


@dataclass(frozen=True, slots=True)
class _ProgramConfig:
    """The configuration that a run gives its program."""

    program: Program

    def get(self, name: str) -> str | None:
        return self.program.config.get(self._key(name))

    def is_secret(self, name: str) -> bool:
        return self._key(name) in self.program.secret_keys

    def _key(self, name: str) -> str:
        return f"{self.program.project}:{name}"


class _Config:
    """The configuration of the running program, in its project's namespace."""

    def get(self, name: str) -> str | None:
        return pulumi.Config().get(name)

    def is_secret(self, name: str) -> bool:
        return pulumi_config.is_config_secret(pulumi.Config().full_key(name))


def lookups() -> Callable[[str, str], Any]:
    """Finds lookups; what was asked once in a run is not asked again."""

    @cache
    def found(platform: str, name: str) -> Function:
        return Function(_asked_once(load_lookup(platform, name)))

    return found


def _asked_once(ask: Callable[..., Any]) -> Callable[..., Any]:
    """Keeps the answers by what was asked, which may be a filter: an object."""
    answers: dict[str, Any] = {}

    def answer(*args: Any, **kwargs: Any) -> Any:
        question = json.dumps([args, kwargs], sort_keys=True, default=repr)
        if question not in answers:
            answers[question] = ask(*args, **kwargs)
        return plain_answer(answers[question])

    return answer


def plain_answer(answer: Any) -> Any:
    """The answer of plain values: models are objects."""
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json")
    if isinstance(answer, list | tuple):
        return [plain_answer(item) for item in answer]
    if isinstance(answer, dict):
        return {key: plain_answer(item) for key, item in answer.items()}
    return answer
