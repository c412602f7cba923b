"""Run a topology as a program: `from gpuform.stacks import run; run("topology.yaml")`.

With Pulumi's SDK `run_topology` registers the resources; gpuform's own engine calls
`declare_topology`.
"""

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
from gpuform.providers.context import use_run_context
from gpuform.providers.environment import are_emulated
from gpuform.providers.operations import use_lookup_settings
from gpuform.schemas.values import convert_leaves
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.language_host import Program, TopologyRun
from gpuform.stacks.expressions.sandbox import Function
from gpuform.stacks.offers import find_misspelled_values, read_recent_offers
from gpuform.stacks.topology.configuration import StackConfig, find_unencrypted_secrets
from gpuform.stacks.topology.declaring import declare_nothing, prepare
from gpuform.stacks.topology.errors import TopologyError
from gpuform.stacks.topology.offline import find_project_folder
from gpuform.stacks.topology.planning import PlanContext, PlannedTopology, plan
from gpuform.stacks.topology.registering import register


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
    """Return the answer as plain values, with objects in the place of models."""
    return convert_leaves(
        answer,
        lambda leaf: leaf.model_dump(mode="json") if isinstance(leaf, BaseModel) else leaf,
    )
