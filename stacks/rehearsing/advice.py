"""Propose what may avoid a loss: other declarations, or another order of two changes.

`worker` rehearses the proposals; only one whose rehearsal avoids the loss becomes advice.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.providers.emulator.tensorone import catalogue as tensorone
from gpuform.providers.emulator.together import catalogue as together
from gpuform.schemas.plan import PlanAction, ResourceChange
from gpuform.schemas.rehearsal import Advice, HazardKind, HazardOutcome
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.project import Project, load_project
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.resource_rules import find_kind

_SECTION_OF: Final = {kind: section for section, kind in SECTIONS.items()}
_NOT_COPIED: Final = (".git", ".venv", "venv", "node_modules", "__pycache__", ".gpuform", ".pulumi")
_ENOUGH: Final = 0.5
"""Advice leaves at most this share of the GPU-hours without work."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A member of a topology's entry that is declared differently, or a first run of its own.

    Attributes:
        section, entry, urn: the resource.
        key, value: the other declaration; `key` is empty for a first run.
        targets: the URNs of a first run, after which a second one makes the rest of the plan.
        shortage: what a create must ask for to find no capacity; empty: nothing is free at all.
    """

    section: str
    entry: str
    urn: str
    key: str = ""
    value: Any = None
    targets: tuple[str, ...] = ()
    shortage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cache_key(self) -> str:
        """Return a key equal for equal alternatives."""
        return json.dumps([self.urn, self.key, self.value, self.targets])

    def build_advice(self, outcome: HazardOutcome, command: str) -> Advice:
        """Return the alternative as advice; `command` is the command to apply the plan."""
        flags = "".join(f" --target {name_of(urn)}" for urn in self.targets)
        missing = " in ".join(map(str, self.shortage.values()))
        return Advice(
            urn=self.urn,
            declaration=format_declaration({self.key: self.value}) if self.key else "",
            commands=(f"{command}{flags}", command) if self.targets else (),
            condition=f"only {missing} is out of stock" if missing else "",
            lost_gpus=outcome.lost_gpus,
            gpu_hours_without_work=outcome.gpu_hours_without_work,
        )


def format_declaration(declaration: Mapping[str, Any]) -> str:
    """Return a declaration in one line: rollout: {strategy: replace_cluster}."""
    flow_mapping = yaml.safe_dump(dict(declaration), default_flow_style=True, width=1000)
    return flow_mapping.strip().removeprefix("{").removesuffix("}")


def list_alternatives(
    outcome: HazardOutcome, plan: Mapping[str, ResourceChange], inputs: Mapping[str, Any]
) -> Iterator[Alternative]:
    """Yield the changed declarations and commands which may avoid the outcome's loss.

    Args:
        outcome: what the hazard has cost.
        plan: the changes of the plan by URN, with that of the hazard.
        inputs: the inputs of the hazard's resource after the plan.
    """
    change = plan[outcome.hazard.urn]
    kind = find_kind(change.type)
    section = _SECTION_OF.get(kind[1]) if kind else None
    if kind is None or section is None:
        return
    proposal = Alternative(section, change.name, change.urn)

    def build_alternative(key: str, value: Any) -> Alternative:
        return replace(proposal, key=key, value=value)

    if change.action is PlanAction.REPLACE:
        if kind == ("together", "Cluster"):
            yield build_alternative("rollout", {"strategy": "replace_cluster"})
        else:
            yield build_alternative("options", {"delete_before_replace": False})
        other_place = find_other_place(kind[0], inputs)
        # Waiting makes no outage shorter, and another place helps only if it is not out of stock.
        if outcome.hazard.kind is HazardKind.NO_CAPACITY and other_place:
            shortage = {name: inputs[name] for name in ("gpu_type", "region") if name in inputs}
            proposed = build_alternative("on_no_capacity", {"alternatives": [other_place]})
            yield replace(proposed, shortage=shortage)
    if kind == ("scp", "NodePool"):
        yield build_alternative("rollout", {"max_unavailable": 1})
    if outcome.jobs_ended:
        yield build_alternative("drain", {"on_busy": "wait"})
    # It stops no replacement: the state of the resource is not protected yet.
    if change.action is PlanAction.DELETE or outcome.data_lost:
        yield build_alternative("options", {"protect": True})
    if outcome.hazard.kind in _MET_BY_FIRST_RUN and (targets := _list_first_targets(change, plan)):
        yield replace(proposal, targets=targets)


_MET_BY_FIRST_RUN: Final = (HazardKind.NO_CAPACITY, HazardKind.QUOTA, HazardKind.NO_CREDIT)
"""Hazards that a create meets first if it has a run of its own, before anything is deleted."""


def _list_first_targets(
    change: ResourceChange, plan: Mapping[str, ResourceChange]
) -> tuple[str, ...]:
    """Return the URNs of a first run for the resource and everything the resource needs.

    Empty if that run would delete something, or if the plan has nothing else to do.
    """
    targets: dict[str, None] = {}
    pending = [change.urn]
    while pending:
        urn = pending.pop()
        needed = plan.get(urn)
        if needed is None or not needed.action.is_change or urn in targets:
            continue
        is_growth = needed.action is PlanAction.UPDATE and needed.gpus_removed == 0
        if needed.action is not PlanAction.CREATE and not is_growth:
            return ()
        targets[urn] = None
        pending += needed.dependencies
    others = (item for urn, item in plan.items() if urn not in targets)
    return tuple(targets) if any(item.gpus_removed for item in others) else ()


def find_other_place(platform: str, inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return another region with the same GPUs, or else other GPUs in the region; {} for none.

    The places are those of the emulator. A shared volume stays in its region, with its cluster.
    """
    region, gpu_type = inputs.get("region"), inputs.get("gpu_type")
    if platform == "tensorone":
        return next(({"region": name} for name in tensorone.REGIONS if name != region), {})
    if platform != "together":
        return {}
    driver = (inputs.get("cuda_version"), inputs.get("nvidia_driver_version"))
    own_region = together.REGIONS.get(str(region))
    if inputs.get("volume_id") is None and inputs.get("shared_volume") is None:
        for other in together.REGIONS.values():
            drivers = [(item.cuda_version, item.nvidia_driver_version) for item in other.drivers]
            if other is not own_region and gpu_type in other.gpu_types and driver in drivers:
                return {"region": other.name}
    other_types = own_region.gpu_types if own_region else ()
    return next(({"gpu_type": name} for name in other_types if name != gpu_type), {})


def has_less_loss(outcome: HazardOutcome, other: HazardOutcome) -> bool:
    """Return True if `other`, an outcome of the same hazard, has less loss and never more."""
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
    if not isinstance(entry, dict):
        return None
    declared, value = entry.get(alternative.key), alternative.value
    if declared is not None:
        # Only options have members that are independent of each other.
        is_new = isinstance(declared, dict) and not set(declared) & set(value)
        if alternative.key != "options" or not is_new:
            return None
        value = {**declared, **value}
    entry[alternative.key] = value
    copy = folder / "project"
    shutil.copytree(project.directory, copy, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    path = copy / topology.path.relative_to(project.directory)
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return replace(
        load_project(copy / project.path.name), stack_config_dir=project.stack_config_dir
    )
