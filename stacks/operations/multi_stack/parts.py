"""Plan several stacks on several machines: the schedule, the parts, and how they become one plan.

`gpuform plan-part` and `gpuform join` call this module; `runner` plans and combines. A folder holds
the schedule (`waves.json`) and the part of each stack (`PROJECT/STACK.json`). Every part carries
the planned outputs of its stack, so that a later part is planned as on one machine.
"""

import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import PartSchedule, PlanPart, ScheduledStack, WavePart
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine import digests, value_json
from gpuform.stacks.engine.ci_job import read_commit
from gpuform.stacks.engine.deployment import is_sealed
from gpuform.stacks.engine.machine import describe_release
from gpuform.stacks.engine.project import StackSettings
from gpuform.stacks.engine.secrets import SecretsManager, find_settings_crypter
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.multi_stack import (
    MultiStackWorkspace,
    StackOrder,
    WorkspaceStack,
    find_workspace_root,
    read_some_stacks,
)
from gpuform.stacks.operations.multi_stack.applied_parts import (
    find_apply_order,
    select_planned_names,
)
from gpuform.stacks.operations.multi_stack.stack_process import TaskResult, pack_outputs
from gpuform.stacks.operations.opening.selected_stack import (
    AskPassphrase,
    create_passphrase_finder,
)
from gpuform.stacks.operations.runs.plan_file import write_private_file
from gpuform.stacks.operations.runs.stacks_plan_file import StacksPlanFile

SCHEDULE_FILE: Final = "waves.json"
_NAME: Final = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)


class PartRefused(EngineError):
    """A part of a plan, or its schedule, that is missing or must not be used."""

    help_page = "guides/many-runners"


def build_schedule(order: StackOrder, names: set[str], runners: int | None) -> PartSchedule:
    """Return the schedule of the named stacks.

    A stack is in the wave after the last one of its dependencies. `runners` limits the parts of a
    wave, which then have several stacks each; with None each stack is a part.

    Raises:
        PartRefused: a name has characters that mean something else in a shell or a path.
    """
    workspace = order.workspace
    chosen_names = [name for name in workspace.stacks if name in names]
    for name in chosen_names:
        # A settings file may have any name, and the jobs of a CI put the stack into a command,
        # where a hyphen begins a flag. `..` is a folder outside of that of the parts.
        if not _NAME.fullmatch(name):
            raise PartRefused(
                f"{name!r} is not a name that can be planned in parts",
                hint="rename the stack: letters, digits, hyphens, underscores and dots, and "
                "neither a hyphen nor a dot first",
            )
    dependencies = {
        name: [other for other in order.dependencies[name] if other in names]
        for name in chosen_names
    }
    return PartSchedule(
        made_by=describe_release(),
        commit=read_commit(workspace.root),
        stacks=tuple(
            ScheduledStack(
                name=name,
                folder=Path(
                    os.path.relpath(workspace.stacks[name].project.directory, workspace.root)
                ).as_posix(),
                dependencies=tuple(dependencies[name]),
            )
            for name in chosen_names
        ),
        waves=tuple(
            _split_wave(number, wave_names, runners)
            for number, wave_names in enumerate(_find_waves(dependencies), 1)
        ),
    )


def build_apply_schedule(
    path: Path, workspace: MultiStackWorkspace, chosen_names: Collection[str], runners: int | None
) -> PartSchedule:
    """Return the schedule in which the chosen stacks of the saved plan `path` are applied.

    The order is that of `up --all --plan`: a destroy has the waves of an update in reverse.

    Raises:
        PlanRefused: the plan cannot be read, or belongs to another workspace.
        PartRefused: as for `build_schedule`.
    """
    saved_plan = StacksPlanFile.open(path).outline
    plans = {plan.project_stack: plan for plan in saved_plan.plans}
    names = set(chosen_names) & plans.keys()
    if names:
        select_planned_names(path, saved_plan, workspace, "update", names)
    position = SourcePosition(str(path))
    required_names = find_apply_order(workspace, plans) if names else {}
    dependencies = {
        name: dict.fromkeys(sorted(required_names.get(name, ())), position)
        for name in workspace.stacks
    }
    return build_schedule(StackOrder(workspace, dependencies, {}, {}), names, runners)


def _find_waves(dependencies: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the names of each wave. The dependencies have no cycle."""
    missing = {name: len(required_names) for name, required_names in dependencies.items()}
    dependents: dict[str, list[str]] = {name: [] for name in dependencies}
    for name, required_names in dependencies.items():
        for other in required_names:
            dependents[other].append(name)
    waves: list[list[str]] = []
    wave = [name for name, count in missing.items() if count == 0]
    while wave:
        waves.append(wave)
        next_wave = []
        for name in wave:
            for dependent in dependents[name]:
                missing[dependent] -= 1
                if missing[dependent] == 0:
                    next_wave.append(dependent)
        wave = next_wave
    return waves


def _split_wave(number: int, names: Sequence[str], runners: int | None) -> tuple[WavePart, ...]:
    """Return the parts of a wave, with equal numbers of stacks, or one more."""
    count = len(names) if runners is None else min(runners, len(names))
    return tuple(
        WavePart(part=f"{number}-{index + 1}", stacks=" ".join(names[index::count]))
        for index in range(count)
    )


@dataclass(frozen=True, slots=True)
class PartFolder:
    """A folder with the schedule and the parts; `digest` is the SHA-256 of the schedule."""

    path: Path
    schedule: PartSchedule
    digest: str

    @classmethod
    def create(cls, path: Path, schedule: PartSchedule) -> "PartFolder":
        """Write the schedule into the folder, which is created if missing. Raises EngineError."""
        content = schedule.model_dump_json(indent=1).encode() + b"\n"
        _make_folder(path)
        write_private_file(path / SCHEDULE_FILE, content)
        return cls(path, schedule, hashlib.sha256(content).hexdigest())

    @classmethod
    def open(cls, path: Path, start: Path) -> "PartFolder":
        """Read the schedule of the folder; `start` is a folder of the stacks.

        Raises:
            PartRefused: the schedule is missing or damaged, or of another release or commit.
        """
        file = path / SCHEDULE_FILE
        hint = f"run `gpuform plan-part --waves --parts {path}`, and give {file} to every runner"
        try:
            content = file.read_bytes()
        except OSError as error:
            raise PartRefused(f"{file} cannot be read: {error.strerror}", hint) from error
        try:
            schedule = PartSchedule.model_validate_json(content)
        except ValidationError as error:
            raise PartRefused(f"{file} is no schedule of parts, or is damaged", hint) from error
        if schedule.made_by != describe_release():
            raise PartRefused(
                f"{file} is of {schedule.made_by}, but this is {describe_release()}",
                hint="install one release on every runner, and begin again with --waves",
            )
        commit = read_commit(find_workspace_root(start)[0])
        if schedule.commit != commit:
            raise PartRefused(
                f"{file} is of commit {schedule.commit or 'none'}, but this is commit "
                f"{commit or 'none'}",
                hint="check out one commit on every runner, or begin again with --waves",
            )
        return cls(path, schedule, hashlib.sha256(content).hexdigest())

    @property
    def names(self) -> list[str]:
        """The names of all stacks of the part folder's schedule."""
        return [stack.name for stack in self.schedule.stacks]

    @property
    def part_facts(self) -> dict[str, str]:
        """The fields of a part that name its schedule, for the process that seals the part."""
        facts = {"made_by": self.schedule.made_by, "commit": self.schedule.commit}
        return {**facts, "schedule": self.digest}

    def get_path(self, name: str) -> Path:
        """Return the path of the plan part of a stack."""
        return self.path / f"{name}.json"

    def write_part(self, name: str, result: TaskResult) -> Path:
        """Write the part of a stack planned with `part_facts`, and return the path."""
        if result.plan is None:
            raise AssertionError("a stack without a plan has no part")
        part = PlanPart(plan=result.plan, **result.part_fields)
        path = self.get_path(name)
        _make_folder(path.parent)
        write_private_file(path, part.model_dump_json(exclude_defaults=True).encode() + b"\n")
        return path

    def read_part(self, name: str) -> PlanPart:
        """Read the part of a stack. Raises PartRefused if it is missing, damaged or another's."""
        return self.read_part_and_digest(name)[0]

    def read_part_and_digest(self, name: str) -> tuple[PlanPart, str]:
        """Read the part of a stack like `read_part`, and return the SHA-256 of the file, too."""
        path = self.get_path(name)
        try:
            content = path.read_bytes()
            part = PlanPart.model_validate_json(content)
        except OSError as error:
            raise PartRefused(
                f"the part of {name} is missing: {path} cannot be read: {error.strerror}",
                hint=self._build_hint([name]),
            ) from error
        except ValidationError as error:
            raise PartRefused(
                f"{path} is no part of a plan, or is damaged", hint=self._build_hint([name])
            ) from error
        if part.plan.project_stack != name:
            raise PartRefused(
                f"{path} is the part of {part.plan.project_stack}, not of {name}",
                hint=self._build_hint([name]),
            )
        facts = self.part_facts
        for fact, label in (("made_by", "release"), ("commit", "commit"), ("schedule", "schedule")):
            if getattr(part, fact) != facts[fact]:
                raise PartRefused(
                    f"the part of {name} ({path}) is of another {label}: "
                    f"{getattr(part, fact) or 'none'}, not {facts[fact] or 'none'}",
                    hint=self._build_hint([name]),
                )
        return part, hashlib.sha256(content).hexdigest()

    def require_complete(self) -> None:
        """Raise PartRefused if the part of a stack is missing, or a file belongs to no stack."""
        names = self.names
        missing = [name for name in names if not self.get_path(name).is_file()]
        if missing:
            raise PartRefused(
                f"the parts of {len(missing)} of {len(names)} stacks are missing in {self.path}: "
                f"{', '.join(missing)}",
                hint=self._build_hint(missing),
            )
        expected_paths = {self.path / SCHEDULE_FILE, *map(self.get_path, names)}
        foreign = sorted(path for path in self.path.rglob("*.json") if path not in expected_paths)
        if foreign:
            raise PartRefused(
                f"{foreign[0]} is the part of no stack of {self.path / SCHEDULE_FILE}",
                hint="remove it, or use an empty folder for the parts",
            )

    def _build_hint(self, names: Sequence[str]) -> str:
        """Return how to make the parts of the stacks again."""
        return f"plan again: `gpuform plan-part {' '.join(names)} --parts {self.path}`"


def _make_folder(path: Path) -> None:
    """Create a folder for parts. Raises PartRefused."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PartRefused(f"the folder {path} cannot be created: {error.strerror}") from error


def build_part_order(
    folder: PartFolder, names: Sequence[str], start: Path, environ: Mapping[str, str]
) -> tuple[StackOrder, list[str]]:
    """Return the order of the named stacks and of the stacks they read, and the latter's names.

    Only these stacks are loaded, so that a part takes the same time in a workspace of any size.

    Raises:
        PartRefused: a stack is not in the schedule.
        MultiStackError: a stack is not in its folder.
    """
    scheduled = {stack.name: stack for stack in folder.schedule.stacks}
    unknown = [name for name in names if name not in scheduled]
    if unknown:
        raise PartRefused(
            f"{', '.join(unknown)}: not in {folder.path / SCHEDULE_FILE}",
            hint="name the stacks as PROJECT/STACK, as `gpuform plan-part --waves` prints them",
        )
    required_names = [other for name in names for other in scheduled[name].dependencies]
    upstream = [name for name in dict.fromkeys(required_names) if name not in names]
    folders = {name: scheduled[name].folder for name in (*names, *upstream) if name in scheduled}
    workspace = read_some_stacks(start, folders, environ)
    position = SourcePosition(str(folder.path / SCHEDULE_FILE))
    dependencies = {
        name: dict.fromkeys(scheduled[name].dependencies, position) for name in workspace.stacks
    }
    return StackOrder(workspace, dependencies, {}, {}), upstream


def seal_part_fields(
    plan: Plan, part_facts: Mapping[str, str], outputs: PropertyMap, crypter: SecretsManager
) -> dict[str, Any]:
    """Return the fields of a plan's part beside the plan, with encrypted secrets and the seal."""
    fields = {**part_facts, "outputs": value_json.encode_map(outputs, crypter)}
    part = PlanPart(plan=plan, **fields)
    return {**fields, "seal": _compute_seal(part, crypter)}


def _compute_seal(part: PlanPart, crypter: SecretsManager) -> str:
    """Compute the keyed digest of a part; the seal of the plan stands for the plan."""
    document = part.model_dump(mode="json", exclude={"plan", "seal"})
    plan_seal = part.plan.basis.seal if part.plan.basis else ""
    return digests.compute_digest(crypter.compute_digest, "part", plan_seal, document)


def open_upstream_parts(
    folder: PartFolder,
    stacks: Iterable[WorkspaceStack],
    environ: Mapping[str, str],
    ask_passphrase: AskPassphrase | None,
) -> dict[str, TaskResult]:
    """Return the saved plans of stacks which other stacks read, as if planned on this machine.

    Raises:
        PartRefused: a part is missing, is not the one that was made, or its stack has another key.
    """
    results: dict[str, TaskResult] = {}
    for stack in stacks:
        part = folder.read_part(stack.name)
        try:
            crypter = _open_crypter(stack, environ, ask_passphrase)
            is_genuine = _is_genuine(part, crypter)
        except EngineError as error:
            raise PartRefused(
                f"the part of {stack.name} cannot be checked without the key of {stack.name}: "
                f"{error.message}",
                hint=f"give this runner the key, or plan the stacks in one part with {stack.name}",
            ) from error
        if not is_genuine:
            raise _build_edited_error(folder, stack.name)
        outputs = value_json.decode_map(part.outputs, crypter)
        results[stack.name] = TaskResult(code=0, plan=part.plan, outputs=pack_outputs(outputs))
    return results


def _open_crypter(
    stack: WorkspaceStack, environ: Mapping[str, str], ask_passphrase: AskPassphrase | None
) -> SecretsManager:
    """Return the encryption of a stack with the key in the settings, else in the state.

    The part itself is not asked: whoever edits it could name another key. Raises EngineError.
    """
    workspace = stack.open_workspace(environ)
    find_passphrase = create_passphrase_finder(workspace, ask_passphrase)
    settings = StackSettings.load(stack.project, stack.stack)
    crypter = find_settings_crypter(settings, None, find_passphrase)
    if crypter is None:
        data = workspace.backend.read(stack.project.name, stack.stack)
        stored = None if data is None else load_checkpoint(data).secrets_provider
        crypter = find_settings_crypter(settings, stored, find_passphrase)
    if crypter is None:
        raise EngineError(f"stack {stack.name} has no key in its settings or its state")
    return crypter


def _is_genuine(part: PlanPart, crypter: SecretsManager) -> bool:
    """Return True if the seals of part and plan are the stack's own. Raises EngineError."""
    # The file leaves out default values. They are those that were sealed: `read_part` refuses the
    # parts of another release.
    is_plan_sealed = is_sealed(part.plan.model_dump_json(), crypter.compute_digest)
    return part.seal == _compute_seal(part, crypter) and is_plan_sealed


def _build_edited_error(folder: PartFolder, name: str) -> PartRefused:
    """Build the error for a plan part with a wrong seal."""
    return PartRefused(
        f"the part of {name} ({folder.get_path(name)}) was edited after it was made",
        hint=f"find out who can write to the parts, and plan again: `gpuform plan-part {name} "
        f"--parts {folder.path}`",
    )


@dataclass(frozen=True, slots=True)
class JoinedParts:
    """The parts of all stacks, without the digests that only the apply of a plan compares.

    The complete plans of many stacks may not fit into memory together: `load_plan` reads one again.
    """

    folder: PartFolder
    results: Mapping[str, TaskResult]
    file_digests: Mapping[str, str]

    def load_plan(self, name: str) -> Plan:
        """Return the complete plan of a stack. Raises PartRefused if its part was replaced."""
        part, digest = self.folder.read_part_and_digest(name)
        if digest != self.file_digests[name]:
            raise PartRefused(
                f"the part of {name} ({self.folder.get_path(name)}) was replaced during the run",
                hint="plan no part while `gpuform join` runs, and join again",
            )
        return part.plan


def read_all_parts(
    folder: PartFolder,
    stacks: Mapping[str, WorkspaceStack],
    environ: Mapping[str, str],
    warn: Callable[[str], None],
) -> JoinedParts:
    """Return the plans of all stacks of the schedule, in the form of plans made on this machine.

    The seals are checked where the environment has the keys; else a warning says that the apply
    checks them.

    Raises:
        PartRefused: a part is missing, foreign, edited, or was planned with another plan of a stack
            that it reads.
    """
    folder.require_complete()
    names = folder.names
    lost = [name for name in names if name not in stacks]
    if lost:
        raise PartRefused(
            f"{folder.path / SCHEDULE_FILE} has stacks that are not in this folder: "
            f"{', '.join(lost)}",
            hint="run `gpuform join` in the checkout of the commit that was planned",
        )
    unchecked_reasons: dict[str, str] = {}

    def read_and_check(name: str) -> tuple[Plan, str]:
        part, digest = folder.read_part_and_digest(name)
        try:
            is_genuine = _is_genuine(part, _open_crypter(stacks[name], environ, None))
        except EngineError as error:
            unchecked_reasons[name] = error.message
        else:
            if not is_genuine:
                raise _build_edited_error(folder, name)
        return part.plan.drop_digests(), digest

    # The derivation of a key takes 0.3 s, and runs beside others: OpenSSL releases Python's lock.
    with ThreadPoolExecutor(os.cpu_count()) as executor:
        checked = dict(zip(names, executor.map(read_and_check, names), strict=True))
    plans = {name: plan for name, (plan, _) in checked.items()}
    _require_one_planning(folder, plans)
    if unchecked_reasons:
        first = next(name for name in names if name in unchecked_reasons)
        warn(
            f"warning: the seals of {len(unchecked_reasons)} of {len(names)} parts were not "
            f"checked ({first}: {unchecked_reasons[first]}); `gpuform up` checks the plan of "
            "each stack before it changes the stack"
        )
    return JoinedParts(
        folder,
        {name: TaskResult(code=0, plan=plan) for name, plan in plans.items()},
        {name: digest for name, (_, digest) in checked.items()},
    )


def _require_one_planning(folder: PartFolder, plans: Mapping[str, Plan]) -> None:
    """Raise PartRefused if a part was planned with another plan of a stack than the present one."""
    seals = {
        build_full_name(plan.project, plan.stack): plan.basis.seal
        for plan in plans.values()
        if plan.basis
    }
    for name, plan in plans.items():
        for other, seal in plan.planned_with.items():
            if seals.get(other) != seal:
                other_name = other.removeprefix("organization/")
                raise PartRefused(
                    f"the part of {name} was planned with another part of {other_name} than the "
                    f"one in {folder.path}",
                    hint=f"plan again: `gpuform plan-part {name} --parts {folder.path}`",
                )
