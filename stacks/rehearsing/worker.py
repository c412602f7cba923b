"""Rehearse a plan in a sealed process: seed an emulator, and play a share of the hazards.

`operation` starts a process for each share. All processes seed the same emulator and find the same
plays, so that the result does not depend on their number.
"""

import gc
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers import collect_less_garbage
from gpuform.providers.emulator.server import Server
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import (
    OUTAGE_S,
    Hazard,
    HazardKind,
    HazardOutcome,
)
from gpuform.stacks.engine.state import ResourceState, find_dependency_urns
from gpuform.stacks.engine.urn import get_stack_and_project
from gpuform.stacks.operations import automation
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.rehearsing.advice import (
    Alternative,
    has_less_loss,
    list_alternatives,
    write_alternative,
)
from gpuform.stacks.rehearsing.fleet import (
    JOB_S,
    FleetRecorder,
    FleetState,
    FleetTarget,
    ObservedNodes,
    Owner,
    StartedJob,
    break_observed_nodes,
    find_unknown_objects,
    list_ended_jobs,
    list_lost_data,
    measure_loss,
    start_known_jobs,
    sum_billed_hours,
)
from gpuform.stacks.rehearsing.hazards import (
    OUTAGES,
    HazardInjector,
    HazardPlay,
    find_credit_loss,
    list_plays,
)
from gpuform.stacks.rehearsing.player import (
    KillSnapshots,
    PlanPlayer,
    PlayedRun,
    StackRun,
    describe_pending,
)
from gpuform.stacks.rehearsing.points import (
    LearnedPlan,
    find_owners,
    find_prices,
    find_urns_by_owner,
    group_points,
    list_differences,
)
from gpuform.stacks.testing.case_run import CaseRunSpec, CaseStack, serve_emulator
from gpuform.stacks.testing.events import list_objects

if TYPE_CHECKING:
    from _typeshed import HasFileno

MOST_POINTS: Final = 16
"""How many requests of all kinds together are played for each hazard, if there are few kinds."""
RESOLUTION_S: Final = 60.0
"""How long each wait of a run lasts at least: the more polls, the slower is a rehearsal."""
LONGEST_SKIP_S: Final = 300.0
"""How long a wait lasts at most while no object of the emulator changes."""
MOST_ADVISED: Final = 4
"""For how many resources alternatives are rehearsed, whatever the number of processes.

An alternative takes as long as the plan itself, and again for each hazard that it may avoid.
"""
BROKEN_FOR_S: Final = 3600.0
"""How long the nodes that the plan knows as broken have been broken when the plan begins."""
UNDISTURBED: Final = Hazard(kind=HazardKind.NONE, description="nothing goes wrong")


@dataclass(frozen=True, slots=True)
class LaterStack:
    """A stack whose plan is made after that of the first one, on the same emulator.

    `dependencies` are the names, as PROJECT/STACK, of stacks whose outputs the stack reads.
    """

    case: CaseRunSpec
    options: RunOptions
    name: str
    dependencies: frozenset[str]


@dataclass(frozen=True, slots=True)
class RehearsalSpec:
    """What the processes of a rehearsal need to know; nothing of it is secret.

    Attributes:
        case: the project, the folder, the port, the state and the configuration, as `gpuform test`
            has them.
        plan: the plan to rehearse; of several stacks, with the changes of all plans.
        options: the options of the plan's run.
        name: the stack as PROJECT/STACK.
        later: the other stacks whose plans are rehearsed together with this one.
        kinds: the hazards.
        seed: the seed of the emulator.
        share, shares: the process plays the share of this number, from 0, of so many shares.
        nodes: the nodes of each resource that the platform has last reported, by URN.
    """

    case: CaseRunSpec
    plan: Plan
    options: RunOptions
    kinds: Sequence[HazardKind]
    seed: int
    share: int = 0
    shares: int = 1
    nodes: Mapping[str, ObservedNodes] = field(default_factory=dict)
    name: str = ""
    later: tuple[LaterStack, ...] = ()


@dataclass(frozen=True, slots=True)
class PlayProgress:
    """How many plays of the process's share are done, and how many there are."""

    played: int
    planned: int


@dataclass(frozen=True, slots=True)
class ShareReport:
    """The outcomes of one process, with the number of each play; the undisturbed run has -1."""

    outcomes: Mapping[int, HazardOutcome]
    differences: tuple[str, ...] = ()
    failure: str = ""


def rehearse_share(spec: RehearsalSpec, send: Callable[[object], None]) -> ShareReport:
    """Play the process's share of the hazards, and return the report. `send` receives the progress.

    Replaces the platforms' and Pulumi's variables of this process's environment.
    """
    remove_credentials()
    # The state of a rehearsal need not survive this machine, and waiting for disks takes long.
    os.fsync = _ignore_sync
    # A tenth of the time would go into collecting: nearly all that lives here lives to the end.
    gc.freeze()
    collect_less_garbage()
    with serve_emulator(spec.case, in_memory=True, seed=f"gpuform rehearse {spec.seed}") as server:
        server.clock.smallest_wait = RESOLUTION_S
        server.clock.longest_skip = LONGEST_SKIP_S
        try:
            return ShareRehearsal.prepare(spec, server).play_share(send)
        except EngineError as error:
            return ShareReport({}, failure=error.message)


_CREDENTIAL_NAME: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|JWT|WEBHOOK|DSN|(^|_)PAT($|_)"
    r"|^AWS_|^AZURE_|^ARM_|^GOOGLE_|^SSH_|^KUBE"
)
_ADDRESS_WITH_PASSWORD: Final = re.compile(r"://[^/\s@]*:[^/\s@]+@")


def _ignore_sync(fd: "int | HasFileno") -> None:
    """Do nothing, in place of `os.fsync`."""
    del fd


def remove_credentials() -> None:
    """Remove every possible credential from this process's environment, of whatever service."""
    for name, value in list(os.environ.items()):
        if _CREDENTIAL_NAME.search(name.upper()) or _ADDRESS_WITH_PASSWORD.search(value):
            del os.environ[name]


@dataclass(slots=True)
class ShareRehearsal:
    """The plays of one process."""

    spec: RehearsalSpec
    server: Server
    player: PlanPlayer
    jobs: list[StartedJob]
    _undisturbed_run: PlayedRun = field(init=False)
    _undisturbed_outcome: HazardOutcome = field(init=False)
    _learned: LearnedPlan = field(init=False)
    _target: FleetTarget = field(init=False)
    _usual_unknown: frozenset[str] = field(default=frozenset())
    _dependencies: dict[str, set[str]] = field(default_factory=dict)
    _inputs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _prices: dict[str, tuple[str, float]] = field(default_factory=dict)
    _counterparts: dict[tuple[HazardKind, str, bool], list[HazardOutcome]] = field(
        default_factory=dict
    )
    _alternatives: dict[str, "ShareRehearsal | None"] = field(default_factory=dict)

    @classmethod
    def prepare(cls, spec: RehearsalSpec, server: Server) -> "ShareRehearsal":
        """Create the stack and its objects on the emulator, with the jobs named in the plan."""
        parts = [LaterStack(spec.case, spec.options, spec.name, frozenset()), *spec.later]
        runs: list[StackRun] = []
        emulator_ids: Mapping[str, str] = {}
        # Objects need those of the stacks that their own one reads, which are destroyed last.
        is_destroy = spec.options.operation == "destroy"
        for part in parts[::-1] if is_destroy else parts:
            stack = CaseStack(part.case, lambda _plan: None)
            selected = stack.prepare(server, emulator_ids)
            emulator_ids = stack.emulator_ids
            runs.append(StackRun(selected, part.options, part.name, part.dependencies))
        if is_destroy:
            runs.reverse()
        failed_nodes = _break_nodes(spec, server, [run.selected for run in runs])
        jobs = list(start_known_jobs(server, spec.plan))
        folder = spec.case.folder
        player = PlanPlayer(server, runs, folder, folder / "state", failed_nodes=failed_nodes)
        return cls(spec, server, player, jobs)

    def play_share(self, send: Callable[[object], None]) -> ShareReport:
        """Learn the plan, play the share with advice, and return the report."""
        plan = self.play_undisturbed()
        if isinstance(plan, str):
            return ShareReport({}, failure=plan)
        plays = list_plays(self._learned, self.spec.kinds)
        shares = assign_shares(plays, self.spec.shares)
        own = [item for item in enumerate(plays) if shares[item[0]] == self.spec.share]
        outcomes = {-1: self._undisturbed_outcome}
        send(PlayProgress(0, len(own)))
        kills = self._take_kill_snapshots(own)
        for done, (number, play) in enumerate(own, 1):
            outcomes[number] = self._add_advice(self.play_hazard(play, kills))
            send(PlayProgress(done, len(own)))
        return ShareReport(outcomes, list_differences(self.spec.plan, plan))

    def play_undisturbed(self) -> Plan | str:
        """Play the plan undisturbed, and return the plan of the preview, or the errors as text."""
        self.player.restore(self.player.start)
        resources = self.player.list_resources()
        undisturbed = self.player.play_undisturbed()
        if undisturbed.plan is None:
            return "\n".join(undisturbed.errors)
        self._undisturbed_run = undisturbed
        resources += self.player.list_resources()
        self._learned = self._build_learned_plan(undisturbed, undisturbed.plan, resources)
        # Side by side, changes that do not depend on a failed one would be under way already. But a
        # run that fails deletes nothing any more.
        self.player.continues_after_failure = not self._learned.has_late_deletions
        urns = find_urns_by_owner(self._learned, self._dependencies)
        before, after = undisturbed.samples[0], undisturbed.samples[-1]
        self._target = FleetTarget.from_states(before, after, urns)
        self._prices = find_prices(undisturbed.plan)
        # Those of other stacks, and those that the plan keeps when it removes them from the state.
        self._usual_unknown = self._list_unknown_objects()
        self._undisturbed_outcome = self._build_outcome(
            HazardPlay(UNDISTURBED), undisturbed, self.jobs
        )
        return undisturbed.plan

    def _build_learned_plan(
        self, undisturbed: PlayedRun, plan: Plan, resources: Sequence[ResourceState]
    ) -> LearnedPlan:
        """Return the plan's requests in groups, and the owners of the resources' GPUs."""
        before, after = undisturbed.samples[0], undisturbed.samples[-1]
        changes = {change.urn: change for change in plan.changes}
        owners = find_owners(resources, {*before.working, *after.working})
        for resource in resources:
            dependency_urns = find_dependency_urns(resource, provider=False)
            self._dependencies.setdefault(resource.urn, set()).update(dependency_urns)
            if not resource.delete:
                self._inputs[resource.urn] = resource.inputs
        self._add_stack_dependencies()
        names_stacks = bool(self.spec.later)
        learned = LearnedPlan(changes, (), owners, before, after, undisturbed.samples, names_stacks)
        kinds_of_change = {point.group for point in undisturbed.points}
        limit = max(2, MOST_POINTS // max(1, len(kinds_of_change)))
        groups = group_points(undisturbed.points, learned.count_gpus, limit)
        return replace(learned, groups=groups)

    def _add_stack_dependencies(self) -> None:
        """Make the resources of a stack depend on those of each stack whose outputs it reads."""
        urns: dict[str, list[str]] = {}
        for urn in self._dependencies:
            stack, project = get_stack_and_project(urn)
            urns.setdefault(f"{project}/{stack}", []).append(urn)
        for run in self.player.runs:
            needed = {urn for name in run.dependencies for urn in urns.get(name, ())}
            for urn in urns.get(run.name, ()) if needed else ():
                self._dependencies[urn] |= needed

    def _add_advice(self, outcome: HazardOutcome) -> HazardOutcome:
        """Return the outcome with advice: alternatives that lose less when played, best first."""
        change = self._learned.changes.get(outcome.hazard.urn)
        if change is None or change.urn not in self._learned.list_riskiest(MOST_ADVISED):
            return outcome
        if not outcome.is_worse_than(self._undisturbed_outcome):
            return outcome
        if not (outcome.gpu_hours_without_work or outcome.jobs_ended or outcome.data_lost):
            return outcome
        advice = []
        inputs = self._inputs.get(change.urn, {})
        for alternative in list_alternatives(outcome, self._learned.changes, inputs):
            # A first run is for one stack, and has targets of its own.
            if alternative.targets and (self.spec.options.target or self.spec.later):
                continue
            other = self._rehearse_alternative(alternative)
            if other is None:
                continue
            shortage = alternative.shortage
            new_outcome = other.play_like(outcome, shortage)
            if new_outcome is None:
                continue
            # The plan as it is must lose more in the same shortage: other places have GPUs in it.
            worst = self.play_worst(outcome.hazard, shortage) if shortage else None
            if worst is not None and not has_less_loss(worst, new_outcome):
                continue
            advice.append(alternative.build_advice(new_outcome, self._command))
            if not new_outcome.has_losses:
                break
        advice.sort(key=lambda item: item.gpu_hours_without_work)
        return outcome.model_copy(update={"advice": tuple(advice)})

    def _rehearse_alternative(self, alternative: Alternative) -> "ShareRehearsal | None":
        """Return the rehearsal of an alternative, ready to play, or None if there is none."""
        key = alternative.cache_key
        if key in self._alternatives:
            return self._alternatives[key]
        rehearsal = None
        folder = Path(tempfile.mkdtemp(dir=self.spec.case.folder))
        # The new player starts from what is there when it is created.
        self.player.restore(self.player.start)
        player = self._change_player(alternative, folder)
        if player is not None:
            rehearsal = ShareRehearsal(self.spec, self.server, player, self.jobs)
            if isinstance(rehearsal.play_undisturbed(), str):
                rehearsal = None
        self._alternatives[key] = rehearsal
        return rehearsal

    def _change_player(self, alternative: Alternative, folder: Path) -> PlanPlayer | None:
        """Return a player with the alternative in `folder`, or None if not declarable."""
        if alternative.targets:
            return replace(self.player, first_targets=alternative.targets, folder=folder)
        owner = get_stack_and_project(alternative.urn)
        runs = [*self.player.runs]
        for number, run in enumerate(runs):
            workspace = run.selected.workspace
            if (run.selected.name, workspace.project.name) == owner:
                project = write_alternative(workspace.project, alternative, folder)
                if project is None:
                    return None
                selected = replace(run.selected, workspace=replace(workspace, project=project))
                runs[number] = replace(run, selected=selected)
        return replace(self.player, runs=runs, folder=folder)

    def play_like(
        self, outcome: HazardOutcome, shortage: Mapping[str, Any]
    ) -> HazardOutcome | None:
        """Return the worst outcome of an equal hazard of the resource under the alternative.

        The undisturbed outcome, if that hazard meets no request any more. None as soon as one
        outcome does not avoid the loss. Capacity is missing only in a `shortage`, if there is one.
        """
        # A hazard makes a run no better, so that most declarations need no other play.
        if self._undisturbed_outcome.has_failed or not has_less_loss(
            outcome, self._undisturbed_outcome
        ):
            return None
        worst = self._undisturbed_outcome
        for counterpart in self._play_counterparts(outcome.hazard, shortage):
            if not has_less_loss(outcome, counterpart):
                return None
            worst = max(worst, counterpart, key=lambda item: item.severity)
        return worst

    def play_worst(self, hazard: Hazard, shortage: Mapping[str, Any]) -> HazardOutcome:
        """Return the worst outcome of the hazard of the resource in a shortage."""
        outcomes = [self._undisturbed_outcome, *self._play_counterparts(hazard, shortage)]
        return max(outcomes, key=lambda item: item.severity)

    def _play_counterparts(
        self, hazard: Hazard, shortage: Mapping[str, Any]
    ) -> Iterator[HazardOutcome]:
        """Yield the outcomes of an equal hazard of the resource, each played once."""
        plays = [
            (number, replace(play, shortage=shortage))
            for number, play in enumerate(list_plays(self._learned, [hazard.kind]))
            if play.hazard.urn == hazard.urn
        ]
        # Several outcomes of one resource have the same counterparts.
        key = hazard.kind, hazard.urn, bool(shortage)
        counterparts = self._counterparts.setdefault(key, [])
        kills = self._take_kill_snapshots(plays[len(counterparts) :])
        for number, (_, play) in enumerate(plays):
            if number == len(counterparts):
                counterparts.append(self.play_hazard(play, kills))
            yield counterparts[number]

    def _list_unknown_objects(self) -> frozenset[str]:
        """Return the clusters and volumes on the emulator which are missing in the state."""
        known_ids = {resource.id for resource in self.player.list_resources() if resource.id}
        return find_unknown_objects(list_objects(self.server), known_ids)

    def _take_kill_snapshots(self, plays: Sequence[tuple[int, HazardPlay]]) -> KillSnapshots:
        """Return the snapshots that the kills among the plays leave, by number of the request."""
        numbers = {
            play.point.number
            for _, play in plays
            if play.point is not None and play.hazard.kind is HazardKind.KILLED
        }
        if not numbers:
            return {}
        return self.player.take_kill_snapshots(sorted(numbers), self.player.create_recorder())

    def play_hazard(self, play: HazardPlay, kills: KillSnapshots) -> HazardOutcome:
        """Play one hazard from the plan's start, and return the outcome.

        Raises:
            EngineError: the run did not send the request at which the hazard happens.
        """
        kind = play.hazard.kind
        if kind is HazardKind.KILLED and play.point is not None:
            snapshot, samples = kills[play.point.number, play.when]
            return self._build_outcome(
                play, self.player.play_after_kill(snapshot, samples), self.jobs
            )
        recorder = self.player.create_recorder()
        injector = HazardInjector(self.server, play, recorder, self._find_excused(play))
        played = self.player.play(
            injector.build_interruption(),
            recorder,
            point=play.point,
            begin_hazard=injector.begin,
            end_hazard=injector.end,
            outage_s=_find_outage(kind),
        )
        if not injector.has_happened:
            # Else a run that nothing disturbed would show that the hazard does no harm.
            raise EngineError(f"{play.hazard.description}: the run did not send that request")
        return self._build_outcome(play, played, [*self.jobs, *injector.jobs])

    def _find_excused(self, play: HazardPlay) -> Mapping[Owner, int]:
        """Return the number of GPUs lost without credit even without the plan, by owner."""
        if play.hazard.kind is not HazardKind.NO_CREDIT or play.point is None:
            return {}
        self.player.restore(self.player.start)
        self.server.clock.advance_to(play.point.at)
        return find_credit_loss(self.server, self._learned.before, self.player.create_recorder())

    def _build_outcome(
        self, play: HazardPlay, played: PlayedRun, jobs: Sequence[StartedJob]
    ) -> HazardOutcome:
        """Return the loss and cost of a played run, compared with the fleet before the plan."""
        samples, kind = played.samples, play.hazard.kind
        loss = measure_loss(self._target, samples)
        at_end = [state for state in samples if state.at <= played.ended_at]
        is_outage = bool(kind in OUTAGES and at_end and self._target.list_missing(at_end[-1]))
        # What is missing after the mending too stays away until somebody finds the cause.
        is_open = is_outage or bool(self._target.list_missing(samples[-1]))
        lost_objects = sorted(self._list_unknown_objects() - self._usual_unknown)
        return HazardOutcome(
            hazard=play.hazard,
            ending=played.ending,
            errors=tuple(dict.fromkeys([*played.errors, *played.mending_errors])),
            lost_gpus=loss.gpus,
            lost_for_s=None if is_open else loss.seconds,
            gpu_hours_without_work=loss.gpu_hours,
            jobs_ended=list_ended_jobs(self.server, jobs),
            data_lost=list_lost_data(samples[0], samples[-1]),
            extra_cost=self._sum_extra_cost(samples),
            half_done=(
                *(describe_pending(c, with_stack=bool(self.spec.later)) for c in played.pending),
                *(f"{name}: on the platform, but in no state" for name in lost_objects),
            ),
            mended_by=f"{self._command}{played.mended_by}"
            if played.mended_by is not None and played.is_mended
            else "",
            # No command deletes what no state has.
            is_mended=played.is_mended and not lost_objects,
        )

    @property
    def _command(self) -> str:
        """Return the command to apply the plan: gpuform up --stack dev."""
        operation = "destroy" if self.spec.options.operation == "destroy" else "up"
        selection = "--all" if self.spec.later else f"--stack {self.spec.plan.stack}"
        return f"gpuform {operation} {selection}"

    def _sum_extra_cost(self, samples: Sequence[FleetState]) -> dict[str, float]:
        """Return by currency the extra cost over the undisturbed run in the same time."""
        if not self._prices:
            return {}
        until = max(samples[-1].at, self._undisturbed_run.samples[-1].at)
        usual = sum_billed_hours(self._undisturbed_run.samples, until)
        costs: dict[str, float] = {}
        for platform, hours in sum_billed_hours(samples, until).items():
            extra_hours = hours - usual.get(platform, 0.0)
            # Less than a GPU-hour is noise of polls.
            if platform in self._prices and extra_hours >= 1.0:
                currency, price = self._prices[platform]
                costs[currency] = round(costs.get(currency, 0.0) + extra_hours * price, 2)
        return costs


def _break_nodes(
    spec: RehearsalSpec, server: Server, stacks: Sequence[SelectedStack]
) -> frozenset[tuple[str, str, str]]:
    """Break the nodes reported as failed, and return these nodes.

    The states of the stacks have their faults then, as after a refresh.
    """
    fleet = FleetRecorder(server).read(server.clock.now())
    resources = [resource for stack in stacks for resource in stack.open().snapshot.resources]
    owners = find_owners(resources, {*fleet.working})
    broken = break_observed_nodes(server, spec.nodes, owners, fleet)
    if broken:
        # A node that has just failed may be back in a moment, and counts as healthy for a while.
        server.clock.advance_to(server.clock.now() + BROKEN_FOR_S)
        for stack in stacks:
            automation.refresh(stack, RunOptions(allow=spec.options.allow))
    return broken


def assign_shares(plays: Sequence[HazardPlay], shares: int) -> list[int]:
    """Return the share of each play, with all plays of one resource in the same share.

    Processes would otherwise rehearse the same alternatives. The shares have about as many plays.
    """
    numbers: dict[str, list[int]] = {}
    for number, play in enumerate(plays):
        numbers.setdefault(play.hazard.urn, []).append(number)
    share_of_play, sizes = [0] * len(plays), [0] * shares
    for members in sorted(numbers.values(), key=len, reverse=True):
        share = sizes.index(min(sizes))
        sizes[share] += len(members)
        for number in members:
            share_of_play[number] = share
    return share_of_play


def _find_outage(kind: HazardKind) -> float:
    """Return the seconds between the end of the run and of the hazard; 0 without an own end."""
    if kind is HazardKind.JOB_STARTS:
        return JOB_S
    return OUTAGE_S if kind in OUTAGES else 0.0
