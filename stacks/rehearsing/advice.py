"""Propose other declarations that may avoid a loss, and write a copy of the project with one.

`worker` rehearses the copies; only a declaration whose rehearsal avoids the loss becomes advice.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.schemas.plan import PlanAction, ResourceChange
from gpuform.schemas.rehearsal import HazardOutcome
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.project import Project, load_project
from gpuform.stacks.resource_rules import find_kind

_SECTION_OF: Final = {kind: section for section, kind in SECTIONS.items()}
_NOT_COPIED: Final = (".git", ".venv", "venv", "node_modules", "__pycache__", ".gpuform", ".pulumi")
_ENOUGH: Final = 0.5
"""Advice leaves at most this share of the GPU-hours without work."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A member of a topology's entry that is declared differently."""

    section: str
    entry: str
    urn: str
    key: str
    value: Any

    def __str__(self) -> str:
        """Return the declaration in one line: rollout: {strategy: replace_cluster}."""
        text = yaml.safe_dump({self.key: self.value}, default_flow_style=True, width=1000)
        return text.strip().removeprefix("{").removesuffix("}")

    @property
    def cache_key(self) -> str:
        """Return a text that equal alternatives have in common."""
        return json.dumps([self.section, self.entry, self.key, self.value])


def list_alternatives(outcome: HazardOutcome, change: ResourceChange) -> Iterator[Alternative]:
    """Yield other declarations of the changed resource that may avoid the outcome's loss."""
    kind = find_kind(change.type)
    section = _SECTION_OF.get(kind[1]) if kind else None
    if kind is None or section is None:
        return

    def build_alternative(key: str, value: Any) -> Alternative:
        return Alternative(section, change.name, change.urn, key, value)

    is_replaced = change.action is PlanAction.REPLACE
    if kind == ("together", "Cluster") and is_replaced:
        yield build_alternative("rollout", {"strategy": "replace_cluster"})
    if kind == ("scp", "NodePool"):
        yield build_alternative("rollout", {"max_unavailable": 1})
    # Not `on_no_capacity`: waiting makes no outage shorter, and a platform without GPUs has no
    # alternatives.
    if outcome.jobs_ended:
        yield build_alternative("drain", {"on_busy": "wait"})
    # It stops no replacement: the state of the resource is not protected yet.
    if change.action is PlanAction.DELETE or outcome.data_lost:
        yield build_alternative("options", {"protect": True})


def has_less_loss(outcome: HazardOutcome, other: HazardOutcome) -> bool:
    """Return True if the other outcome of the same hazard has lost less, and nothing else."""
    is_never_worse = (
        other.lost_gpus <= outcome.lost_gpus
        and other.gpu_hours_without_work <= outcome.gpu_hours_without_work
        and len(other.jobs_ended) <= len(outcome.jobs_ended)
        and len(other.data_lost) <= len(outcome.data_lost)
    )
    is_better = (
        other.gpu_hours_without_work <= _ENOUGH * outcome.gpu_hours_without_work
        and outcome.gpu_hours_without_work > 0
    )
    is_better = is_better or len(other.jobs_ended) < len(outcome.jobs_ended)
    return is_never_worse and (is_better or len(other.data_lost) < len(outcome.data_lost))


def write_alternative(project: Project, alternative: Alternative, folder: Path) -> Project | None:
    """Copy the project with the alternative declared, and return the copy's project.

    None for a project without a topology, for an entry that the topology itself does not declare,
    such as one of a module, and for an entry that has the member already.
    """
    topology = find_topology(project.program)
    if topology is None:
        return None
    content = yaml.safe_load(topology.path.read_text(encoding="utf-8"))
    entries = content.get(alternative.section) if isinstance(content, Mapping) else None
    entry = entries.get(alternative.entry) if isinstance(entries, dict) else None
    if not isinstance(entry, dict) or alternative.key in entry:
        return None
    entry[alternative.key] = alternative.value
    copy = folder / "project"
    shutil.copytree(project.directory, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    path = copy / topology.path.relative_to(project.directory)
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return replace(
        load_project(copy / project.path.name), stack_config_dir=project.stack_config_dir
    )
