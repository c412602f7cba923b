"""Write what the processes of a rehearsal need to know about each stack, without any secret.

`operation` calls `build_specs`. It reads the states with their secrets sealed, and replaces each
secret by a placeholder before anything is written.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from gpuform.providers.context import get_run_context
from gpuform.providers.permissions import Permission
from gpuform.schemas.cases_file import CaseInputs
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, ResourceChange, ResourceDrift
from gpuform.schemas.rehearsal import HazardKind
from gpuform.schemas.values import (
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    convert_leaves,
    find_reachable,
    is_secret_object,
)
from gpuform.stacks.engine.project import StackSettings, convert_encrypted, is_secure
from gpuform.stacks.engine.state import ResourceState, load_checkpoint
from gpuform.stacks.engine.store import read_sealed
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.gates.file import read_project_gates
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.options import RunOptions, convert_outputs
from gpuform.stacks.operations.transfer import export_deployment
from gpuform.stacks.rehearsing.fleet import ObservedNodes, apply_drift, list_observed_nodes
from gpuform.stacks.rehearsing.worker import LaterStack, RehearsalSpec
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.testing.case_run import CaseRunSpec
from gpuform.stacks.testing.runner import find_free_ports
from gpuform.stacks.testing.seeding import SECRET_PLACEHOLDER

MOST_CHANGES: Final = 30
"""Of a plan with more changes, only some of each kind are played."""
_SELECTING_OPTIONS: Final = (
    *("target", "target_dependents", "exclude", "exclude_dependents", "replace", "target_replace"),
    "run_program",
)
"""The options that decide which resources a run changes."""


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    """What to play.

    Attributes:
        hazards: the kinds to play; the run in which nothing goes wrong is always played.
        seed: the seed of the emulator's ids.
        jobs: how many processes play at a time.
        allow: names of permissions of the run.
        run_options: the options of the plan's run, for a plan that was not saved.
        on_progress: called with the number of hazards played and of all hazards, from any thread.
    """

    hazards: tuple[HazardKind, ...] = tuple(HazardKind)
    seed: int = 0
    jobs: int = 2
    allow: tuple[str, ...] = ()
    run_options: RunOptions | None = None
    on_progress: Callable[[int, int], None] = field(default=lambda _played, _planned: None)


@dataclass(frozen=True, slots=True)
class PlannedStack:
    """A stack with its plan, and the names of the stacks whose outputs it reads."""

    stack: SelectedStack
    plan: Plan
    dependencies: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _SealedStack:
    """What the processes know about one stack: files without secrets, and its options."""

    name: str
    case: CaseRunSpec
    plan: Plan
    options: RunOptions
    nodes: Mapping[str, ObservedNodes]
    dependencies: frozenset[str]

    def move(self, folder: Path, port: int) -> LaterStack:
        """Return the stack with a new folder and a port, for one process."""
        (folder / "settings").mkdir(parents=True)
        case = replace(self.case, folder=folder, port=port)
        return LaterStack(case, self.options, self.name, self.dependencies)


def _seal_stack(
    item: PlannedStack,
    options: RehearsalOptions,
    folder: Path,
    chosen: frozenset[str] | None,
    played: Collection[str],
) -> _SealedStack:
    """Write the sealed states of a stack and of the stacks connected with it.

    `played` are the names of all stacks whose plans are played: these have states of their own.
    """
    folder.mkdir()
    stack, plan, state_file = item.stack, item.plan, folder / "state.json"
    has_state = _write_sealed_state(stack, state_file, chosen, plan.drift)
    names = [name.removeprefix("organization/") for name in plan.stack_references]
    references = {name: _read_outputs(stack, name) for name in names}
    required, dependents = _write_other_states(stack, folder, references, played)
    project = stack.workspace.project
    inputs = CaseInputs(
        stack=stack.name,
        secrets=_build_secret_placeholders(stack),
        stack_references={name: references[name] for name in names if name not in played},
    )
    run_options = _build_run_options(plan, options, project.directory)
    if chosen is not None:
        targets = {change.urn for change in plan.changes} & chosen
        run_options = replace(run_options, target=tuple(sorted(targets)))
        changes = tuple(change for change in plan.changes if change.urn in chosen)
        plan = plan.model_copy(update={"changes": changes})
    backend = stack.workspace.backend
    resources = read_sealed(backend, project.name, stack.name).snapshot.resources
    nodes = list_observed_nodes(resources, plan.drift)
    case = CaseRunSpec(
        project.path,
        folder,
        0,
        inputs,
        has_predecessor=False,
        state=state_file if has_state else None,
        environ={"PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS": "1"},
        dependents=dependents if has_state else (),
        required=required,
    )
    name = f"{project.name}/{stack.name}"
    return _SealedStack(name, case, plan, run_options, nodes, item.dependencies)


def build_specs(
    items: Sequence[PlannedStack],
    plan: Plan,
    options: RehearsalOptions,
    folder: Path,
    chosen: frozenset[str] | None,
) -> Iterator[RehearsalSpec]:
    """Write the sealed states, and yield the task of each process, with a folder for each.

    `plan` has the changes of all `items`; of these, the `chosen` ones are played, or all.
    """
    if chosen is not None:
        # A stack without a chosen change is not played: without targets its run changes all.
        items = [item for item in items if any(c.urn in chosen for c in item.plan.changes)]
    played = {item.plan.project_stack for item in items}
    sealed = [
        _seal_stack(item, options, folder / f"stack-{number}", chosen, played)
        for number, item in enumerate(items)
    ]
    changes = tuple(change for item in sealed for change in item.plan.changes)
    plan = plan.model_copy(update={"changes": changes})
    nodes = {urn: value for item in sealed for urn, value in item.nodes.items()}
    ports = find_free_ports()
    for share in range(options.jobs):
        share_folder, port = folder / str(share), next(ports)
        first, *others = (
            item.move(share_folder if number == 0 else share_folder / f"later-{number}", port)
            for number, item in enumerate(sealed)
        )
        yield RehearsalSpec(
            first.case,
            plan,
            first.options,
            options.hazards,
            options.seed,
            share,
            options.jobs,
            nodes,
            first.name,
            tuple(others),
        )


def _build_run_options(plan: Plan, options: RehearsalOptions, directory: Path) -> RunOptions:
    """Return the options of the plan's run, one resource at a time, for equal runs every time.

    Gates let everything pass: what they say about the plan is in the plan.
    """
    # Also those of the run that this rehearsal is a part of.
    permissions = get_run_context().with_permissions(options.allow).permissions
    gates = {f"gate:{gate.name}" for gate in read_project_gates(directory)}
    run_options = options.run_options or RunOptions()
    if plan.basis is not None:
        option_names = {item.name for item in fields(RunOptions)}
        recorded: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in plan.basis.options.items()
            if name in option_names
        }
        run_options = replace(run_options, **recorded)
    return RunOptions(
        operation=plan.operation,
        parallel=1,
        refresh=False,
        allow=tuple(sorted((permissions - {Permission.REAL_SCHEDULERS}) | gates)),
        reviewed=True,
        **{name: getattr(run_options, name) for name in _SELECTING_OPTIONS},
    )


def choose_changes(plan: Plan) -> frozenset[str] | None:
    """Return the URNs of the changes played in place of all changes of a large plan.

    Of each kind of resource and of each action on it, these are the first change and the one with
    the most GPUs. None for a plan whose changes are all played.
    """
    changes = [change for change in plan.changes if change.action.is_change]
    if len(changes) <= MOST_CHANGES:
        return None
    groups: dict[tuple[str, str], list[ResourceChange]] = {}
    for change in changes:
        groups.setdefault((change.type, change.action), []).append(change)
    chosen = set()
    for members in groups.values():
        largest = max(members, key=lambda change: change.gpus_removed or change.gpus_added or 0)
        chosen |= {members[0].urn, largest.urn}
    return frozenset(chosen)


def _keep_resources(resources: list[Any], chosen: frozenset[str]) -> list[Any]:
    """Return the chosen resources of a state with all their dependencies, in the same order."""
    by_urn = {resource["urn"]: resource for resource in resources}

    def list_dependencies(urn: str) -> list[str]:
        resource = by_urn.get(urn, {})
        provider = str(resource.get("provider") or "").rpartition("::")[0]
        needed = [resource.get("parent"), resource.get("deletedWith"), provider]
        return [*filter(None, needed), *(resource.get("dependencies") or ())]

    stack_urns = [resource["urn"] for resource in resources if resource["type"] == STACK_TYPE]
    kept_urns = find_reachable([*chosen, *stack_urns], list_dependencies)
    return [resource for resource in resources if resource["urn"] in kept_urns]


def _write_sealed_state(
    stack: SelectedStack,
    file: Path,
    chosen: frozenset[str] | None,
    drift: Sequence[ResourceDrift],
) -> bool:
    """Write the drifted state without ciphertexts; return True unless there are no resources.

    With `chosen`, only these resources are written, and those that they need.
    """
    # Not by `export_stack`: a rehearsal may be a part of an operation that runs already.
    exported = export_deployment(stack, lambda _warning: None, show_secrets=False)
    document = _drop_ciphertexts(exported)
    deployment = document["deployment"]
    if not deployment.get("resources"):
        return False
    deployment["resources"] = apply_drift(deployment["resources"], drift)
    if chosen is not None:
        deployment["resources"] = _keep_resources(deployment["resources"], chosen)
    file.write_text(json.dumps(document), encoding="utf-8")
    return True


def _write_other_states(
    stack: SelectedStack, folder: Path, references: Mapping[str, Any], played: Collection[str]
) -> tuple[list[Path], list[Path]]:
    """Write the sealed states of the backend's other stacks connected with the stack.

    The first files have the objects that the stack uses, such as a volume that its cluster mounts.
    The others are the states of stacks that use objects of the stack: a platform refuses, for
    example, to delete a volume that the cluster of another stack mounts. Stacks that are `played`
    have states of their own.
    """
    backend, project = stack.workspace.backend, stack.workspace.project.name
    own_data = backend.read(project, stack.name) or b""
    own_ids = _list_ids(read_sealed(backend, project, stack.name).snapshot.resources)
    used_text = json.dumps(references) + own_data.decode(errors="replace")
    required: list[Path] = []
    dependents: list[Path] = []
    for number, full_name in enumerate(backend.list_stacks()):
        _, other_project, other_stack = full_name.split("/")
        if f"{other_project}/{other_stack}" in {*played, f"{project}/{stack.name}"}:
            continue
        # A damaged state of another stack is no reason to refuse this one's rehearsal.
        with suppress(EngineError):
            data = backend.read(other_project, other_stack) or b""
            other = read_sealed(backend, other_project, other_stack).snapshot.resources
            used = frozenset(urn for id_, urn in _list_ids(other).items() if id_ in used_text)
            if not used and not any(id_.encode() in data for id_ in own_ids):
                continue
            deployment = _drop_ciphertexts(load_checkpoint(data).latest)
            if used:
                deployment["resources"] = _keep_resources(deployment["resources"], used)
            document = {"version": json.loads(data)["version"], "deployment": deployment}
            file = folder / f"other-{number}.json"
            file.write_text(json.dumps(document), encoding="utf-8")
            (required if used else dependents).append(file)
    return required, dependents


def _list_ids(resources: Iterable[ResourceState]) -> dict[str, str]:
    """Return the URN of each object of a state by id; short ids may be any text."""
    return {
        item.id: item.urn
        for item in resources
        if item.id and len(item.id) >= _SHORTEST_ID and not item.external and find_kind(item.type)
    }


_SHORTEST_ID: Final = 8
"""Characters from which on a text is an id; shorter ones may be anything."""


def _drop_ciphertexts(value: Any) -> Any:
    """Return JSON with every secret's ciphertext emptied; the emulator gets placeholders."""
    empty_secret = {SIGNATURE_KEY: SECRET_SIGNATURE, "ciphertext": ""}
    return convert_leaves(
        value, lambda leaf: empty_secret if isinstance(leaf, dict) else leaf, is_secret_object
    )


def _build_secret_placeholders(stack: SelectedStack) -> dict[str, Any]:
    """Return a placeholder for each encrypted value of the stack's configuration, by key."""
    settings = StackSettings.load(stack.workspace.project, stack.name)
    return {
        key: convert_encrypted(value, lambda _text: SECRET_PLACEHOLDER)
        for key, value in settings.config.items()
        if is_secure(value)
    }


def _read_outputs(stack: SelectedStack, name: str) -> dict[str, Any]:
    """Return the outputs of PROJECT/STACK, with placeholders for secrets; {} without a state.

    In a preview of several stacks these are the planned outputs, without the unknown ones.
    """
    project, _, other_stack = name.partition("/")
    root = stack.planned_outputs(project, other_stack) if stack.planned_outputs else None
    if root is None:
        backend = stack.workspace.backend
        if not backend.exists(project, other_stack):
            return {}
        resources = read_sealed(backend, project, other_stack).snapshot.resources
        root = next((item.outputs for item in resources if item.type == STACK_TYPE), {})
    return {
        key: SECRET_PLACEHOLDER if output.secret else output.value
        for key, output in convert_outputs(root).items()
    }
