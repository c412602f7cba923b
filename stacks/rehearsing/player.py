"""Play a plan on an emulator in this process: once undisturbed, and once for each hazard.

`worker` creates a `PlanPlayer` in a sealed process. The emulator is in memory; before each run its
store and the folder of the stack's state are set back to what they were before the plan.
"""

import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuform.providers.context import create_wsgi_transport, get_run_context, mount_transport
from gpuform.providers.emulator.server import Server
from gpuform.schemas.errors import GpuformError
from gpuform.schemas.plan import Plan, ResourceChange
from gpuform.schemas.rehearsal import RERUN_AFTER_S
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Backend
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations import automation
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.callbacks import OperationEvent, RunEnded
from gpuform.stacks.operations.runs.options import RunOptions, RunResult
from gpuform.stacks.rehearsing.fleet import FleetRecorder, FleetState
from gpuform.stacks.rehearsing.points import (
    Interruption,
    Point,
    RehearsalTransport,
    RequestObserver,
    format_address,
)
from gpuform.stacks.testing.snapshots import mask_emulator_addresses


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The emulator's store, and a copy of the folder of the stack's state, at one moment."""

    store: bytes
    folder: Path


KillSnapshots = dict[tuple[int, str], tuple[Snapshot, list[FleetState]]]
"""What a kill leaves, and the fleet until then, by the request's number and `before` or `after`."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What the undisturbed run has left before the first step of a resource.

    A run that continues here does what the undisturbed run would have done. `urn` is the resource,
    `requests` how many requests other than reads the run had sent, and `samples` the fleet until
    then.
    """

    urn: str
    requests: int
    snapshot: Snapshot
    samples: Sequence[FleetState]


@dataclass(frozen=True, slots=True)
class StackRun:
    """A stack on the emulator, and the options of the run that makes its plan.

    Attributes:
        name: the stack as PROJECT/STACK.
        dependencies: names of stacks whose run must have succeeded, if they have one.
    """

    selected: SelectedStack
    options: RunOptions
    name: str = ""
    dependencies: frozenset[str] = frozenset()


@dataclass(slots=True)
class PlayedRun:
    """One run of the plan, and what came of it.

    Attributes:
        ending: how the run ended, as `ExitReason` has it, or `killed`.
        errors: the errors of the run, without addresses of the emulator.
        plan: the plan of the run's preview; None without one.
        samples: the fleet over the clock, up to the end of the mending.
        ended_at: the clock's time at the end of the run itself.
        made: the changes of the run.
        pending: the changes that were still to be made after the run.
        is_mended: whether the plan is empty at last.
        mended_by: the flags of the command that has completed the plan; None if none was needed.
        mending_errors: the errors of the command that was to mend.
        points: the changing requests, if they were learned.
        requests: how many requests other than reads were sent until the end of the run.
        has_met_target: whether a run that continues another one has sent the request to disturb.
    """

    ending: str
    errors: Sequence[str]
    samples: list[FleetState]
    ended_at: float
    plan: Plan | None = None
    made: Sequence[ResourceChange] = ()
    pending: Sequence[ResourceChange] = ()
    is_mended: bool = True
    mended_by: str | None = None
    mending_errors: Sequence[str] = ()
    points: Sequence[Point] = ()
    requests: int = 0
    has_met_target: bool = False


@dataclass(slots=True)
class _RunPlans:
    """The plan of a run's preview, unless the preview failed, and that of the run itself."""

    previewed: Plan | None = None
    made: Plan | None = None

    def collect(self, event: OperationEvent) -> None:
        if not isinstance(event, RunEnded) or event.outcome is None:
            return
        if not event.started.preview:
            self.made = event.plan
        elif event.outcome.succeeded:
            self.previewed = event.plan


@dataclass(slots=True)
class PlanPlayer:
    """Plays one plan again and again from the same start.

    Attributes:
        server: the emulator, with the stacks' objects in it.
        runs: the run of each stack's plan, in their order.
        folder: a folder for copies.
        state_folder: the folder of the stack's state.
        continues_after_failure: whether a run with a hazard continues with other resources.
        failed_nodes: the nodes that do not work from the start on: platform, owner and name.
        first_targets: the URNs that a first run changes alone; a second run makes the rest.
    """

    server: Server
    runs: Sequence[StackRun]
    folder: Path
    state_folder: Path
    continues_after_failure: bool = False
    failed_nodes: frozenset[tuple[str, str, str]] = frozenset()
    first_targets: tuple[str, ...] = ()
    start: Snapshot = field(init=False)
    _resume_points: list[ResumePoint] = field(default_factory=list)
    _machines: int = 0

    def __post_init__(self) -> None:
        self.start = self.take_snapshot("start")

    def create_recorder(self) -> FleetRecorder:
        """Return a recorder of the fleet before the plan, without samples."""
        return FleetRecorder(self.server, set(self.failed_nodes))

    def take_snapshot(self, name: str) -> Snapshot:
        """Copy the emulator and the state, as left by a process which ends now."""
        folder = self.folder / f"copy-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.state_folder, folder)
        return Snapshot(self.server.store.dump(), folder)

    def restore(self, snapshot: Snapshot) -> None:
        """Set the emulator and the state back to a snapshot."""
        self.server.clock.cancel_scheduled()
        self.server.store.restore(snapshot.store)
        shutil.rmtree(self.state_folder)
        shutil.copytree(snapshot.folder, self.state_folder)

    def play_undisturbed(self) -> PlayedRun:
        """Play the plan with a preview and no hazard, and return the run with all points."""
        self.restore(self.start)
        self._resume_points = []
        recorder = self.create_recorder()
        changes = {"skip_preview": False}
        played = self._run_plan(recorder, Interruption(), changes, learns=True)
        return self._complete_plan(played, recorder, lambda: None, 0.0)

    def take_kill_snapshots(self, numbers: Sequence[int], recorder: FleetRecorder) -> KillSnapshots:
        """Play the plan undisturbed, and return the snapshot a kill leaves at each request.

        A kill leaves the emulator, the state on disk, and the fleet's samples until then. The keys
        are the request's number with `before` or `after` its effect.
        """
        self.restore(self.start)
        snapshots: KillSnapshots = {}

        def copy_at(number: int, when: str) -> None:
            if number in numbers:
                snapshot = self.take_snapshot(f"{number}-{when}")
                snapshots[number, when] = snapshot, list(recorder.samples)

        interruption = Interruption(
            before=lambda number: copy_at(number, "before"),
            after=lambda number: copy_at(number, "after"),
        )
        self._run_plan(recorder, interruption, {"skip_preview": True})
        return snapshots

    def play(
        self,
        interruption: Interruption,
        recorder: FleetRecorder,
        *,
        point: Point | None = None,
        begin_hazard: Callable[[], None] = lambda: None,
        end_hazard: Callable[[], None] = lambda: None,
        outage_s: float = 0.0,
    ) -> PlayedRun:
        """Play the plan with an interruption, and then the commands that complete it.

        Args:
            interruption: what happens at requests.
            recorder: records the fleet; the hazard may break nodes in it.
            point: the request with the interruption; None for a hazard of the whole run.
            begin_hazard: called before the run, when everything is set back.
            end_hazard: ends the hazard, such as a lack of capacity, before the mending.
            outage_s: how many seconds after the run the hazard ends.
        """
        changes = {"skip_preview": True, "continue_on_error": self.continues_after_failure}
        played = self._resume(recorder, interruption, point, changes) if point else None
        if played is None:
            self.restore(self.start)
            begin_hazard()
            played = self._run_plan(recorder, interruption, changes)
        return self._complete_plan(played, recorder, end_hazard, outage_s)

    def _resume(
        self,
        recorder: FleetRecorder,
        interruption: Interruption,
        point: Point,
        changes: Mapping[str, Any],
    ) -> PlayedRun | None:
        """Play the plan from the last resume point before the request, and return the run.

        None if there is no such point, or if that run does not send the request: then nothing was
        disturbed. `changes` are other values of the run's options.
        """
        earlier_points = [item for item in self._resume_points if item.requests < point.number]
        if not earlier_points:
            return None
        start, run = earlier_points[-1], self.runs[0]
        self.restore(start.snapshot)
        recorder.samples[:] = start.samples
        played = self._run_operation(
            replace(run, options=replace(run.options, **changes)),
            recorder,
            replace(interruption, target=point, first_urn=start.urn),
            learns=False,
            requests_before=start.requests,
        )
        if not played.has_met_target:
            recorder.samples.clear()
            return None
        return played

    def play_after_kill(self, snapshot: Snapshot, samples: Sequence[FleetState]) -> PlayedRun:
        """Continue after a kill from the snapshot: another machine runs the command again."""
        self.restore(snapshot)
        recorder = replace(self.create_recorder(), samples=list(samples))
        now = self.server.clock.now()
        played = PlayedRun("killed", (), recorder.samples, now)
        return self._complete_plan(played, recorder, lambda: None, 0.0)

    def _complete_plan(
        self,
        played: PlayedRun,
        recorder: FleetRecorder,
        end_hazard: Callable[[], None],
        outage_s: float,
    ) -> PlayedRun:
        """Run the operation until the plan is empty; return `played` with the repetitions added.

        Nothing is run if the plan is empty already. A resource of which nothing works is replaced
        if the command alone does not complete it.
        """
        remaining: Sequence[ResourceChange] | None = None
        if played.ending == "succeeded":
            remaining = self._preview(recorder)
            if remaining is not None and not remaining:
                end_hazard()
                return played
        self._advance_clock(recorder, max(outage_s, RERUN_AFTER_S))
        end_hazard()
        recorder.sample(self.server.clock.now())
        played.is_mended = False
        flags: tuple[str, ...] = ()
        for _attempt in range(2):
            changes = {"skip_preview": True, **({"replace": flags} if flags else {})}
            mending = self._make_runs(recorder, Interruption(), changes)
            if played.mended_by is None:
                played.mending_errors, played.pending = mending.errors, mending.made
            played.mended_by = "".join(f" --replace {name}" for name in flags)
            remaining = self._preview(recorder)
            played.is_mended = remaining is not None and not remaining
            flags = tuple(change.name for change in remaining or () if change.action == "update")
            # A flag is for one stack alone.
            is_last = len(self.runs) > 1 or not flags
            if played.is_mended or is_last or self._has_working_gpus(recorder, flags):
                break
        pending_urns = {change.urn for change in played.pending}
        played.pending = [
            *played.pending,
            *(c for c in remaining or () if c.urn not in pending_urns),
        ]
        return played

    def _has_working_gpus(self, recorder: FleetRecorder, names: Sequence[str]) -> bool:
        """Return True if one of the resources has GPUs at work, which a replacement removes."""
        owners = {owner for _, owner in recorder.samples[-1].working}
        values = (
            value
            for resource in self.list_resources()
            if name_of(resource.urn) in names
            for value in resource.outputs.values()
        )
        return any(isinstance(value, str) and value in owners for value in values)

    def list_resources(self) -> list[ResourceState]:
        """Return the resources in the states of all stacks."""
        return [item for run in self.runs for item in run.selected.open().snapshot.resources]

    def _advance_clock(self, recorder: FleetRecorder, seconds: float) -> None:
        """Let time pass, and sample the fleet meanwhile, for nodes with a scheduled end."""
        end = self.server.clock.now() + seconds
        while (now := self.server.clock.now()) < end:
            self.server.clock.advance_to(min(end, now + max(600.0, seconds / 48)))
            recorder.sample(self.server.clock.now())

    def _preview(self, recorder: FleetRecorder) -> Sequence[ResourceChange] | None:
        """Return the changes of previews on another machine, or None if a preview fails."""
        remaining: list[ResourceChange] = []
        for run in self.runs:
            options = replace(run.options, preview_only=True, skip_preview=False)
            played = self._run_operation(
                replace(run, options=options), recorder, Interruption(), learns=False
            )
            if played.ending != "succeeded" or played.plan is None:
                return None
            remaining += _list_changes(played.plan)
        return remaining

    def _run_plan(
        self,
        recorder: FleetRecorder,
        interruption: Interruption,
        changes: Mapping[str, Any],
        *,
        learns: bool = False,
    ) -> PlayedRun:
        """Make the plan of each stack, with a run for the first targets before, and return all.

        `changes` are other values of the runs' options. Nobody starts the other runs if that of
        the first targets fails.
        """
        first = PlayedRun("succeeded", (), recorder.samples, self.server.clock.now())
        if self.first_targets:
            targets = {**changes, "skip_preview": True, "target": self.first_targets}
            first = self._make_runs(recorder, interruption, targets, learns=learns)
            if first.ending != "succeeded":
                return first
        return self._make_runs(recorder, interruption, changes, learns=learns, first=first)

    def _make_runs(
        self,
        recorder: FleetRecorder,
        interruption: Interruption,
        changes: Mapping[str, Any],
        *,
        learns: bool = False,
        first: PlayedRun | None = None,
    ) -> PlayedRun:
        """Make one run after the other, and return all runs as one, after the `first`.

        A run is left out if it depends on one that has failed. A run whose preview fails is
        returned alone: nothing is known about its plan.
        """
        total, failed = first, set[str]()
        for run in self.runs:
            if run.dependencies & failed:
                failed.add(run.name)
                continue
            changed_run = replace(run, options=replace(run.options, **changes))
            played = self._run_operation(
                changed_run,
                recorder,
                interruption,
                learns=learns,
                requests_before=0 if total is None else total.requests,
            )
            if played.plan is None and not changes["skip_preview"]:
                prefix = f"{run.name}: " if len(self.runs) > 1 else ""
                return replace(played, errors=[f"{prefix}{error}" for error in played.errors])
            if played.ending != "succeeded":
                failed.add(run.name)
            total = played if total is None else _join_runs(total, played)
        if total is None:
            raise AssertionError("a rehearsal has at least one run")
        return total

    def _run_operation(
        self,
        run: StackRun,
        recorder: FleetRecorder,
        interruption: Interruption,
        *,
        learns: bool,
        requests_before: int = 0,
    ) -> PlayedRun:
        """Run the operation of one stack, as on a new machine, and return the run.

        Requests are counted from `requests_before` on; in a run that continues another one, from
        the first step on.
        """
        clock = self.server.clock
        recorder.sample(clock.now())
        begun_urns: set[str] = set()

        def begin_step(step: Step) -> None:
            if interruption.first_urn and not begun_urns:
                # A copy of a state that was being written may lack a change, which is then made
                # again: that run is no continuation, and is not disturbed.
                is_continued = step.urn == interruption.first_urn
                observer.count = requests_before if is_continued else -1_000_000
            if learns and begun_urns and step.op is not Op.DELETE and step.urn not in begun_urns:
                self._add_resume_point(step.urn, observer.count, recorder)
            begun_urns.add(step.urn)
            recorder.urn = step.urn
            recorder.sample(clock.now())

        # The waits between repeated requests are random: equal runs must wait equally long.
        random.seed(0)
        observer = RequestObserver(
            self.server,
            lambda: recorder.sample(clock.now()),
            begin_step,
            interruption,
            learns=learns,
            count=0 if interruption.first_urn else requests_before,
        )
        plans = _RunPlans()

        def handle_event(event: OperationEvent) -> None:
            observer.follow_steps(event)
            plans.collect(event)

        with self._mount(observer):
            selected = self._enter_machine(run.selected)
            ending, errors = self._call_operation(selected, run.options, handle_event)
        recorder.urn = ""
        recorder.sample(clock.now())
        return PlayedRun(
            ending,
            [mask_emulator_addresses(error) for error in errors],
            recorder.samples,
            clock.now(),
            plan=plans.previewed,
            made=_list_changes(plans.made) if plans.made else (),
            points=observer.points,
            requests=observer.count,
            has_met_target=observer.has_met_target,
        )

    def _add_resume_point(self, urn: str, requests: int, recorder: FleetRecorder) -> None:
        """Store a copy of the emulator and the state, from which later plays can start."""
        if self.first_targets or len(self.runs) > 1:
            return
        # The run may be replacing its files at this moment: plays start earlier then.
        with suppress(OSError):
            snapshot = self.take_snapshot(f"resume-{len(self._resume_points)}")
            self._resume_points.append(ResumePoint(urn, requests, snapshot, list(recorder.samples)))

    def _call_operation(
        self,
        selected: SelectedStack,
        options: RunOptions,
        on_event: Callable[[OperationEvent], None],
    ) -> tuple[str, list[str]]:
        """Call the operation, and return the ending and the errors of the run."""
        try:
            if options.preview_only:
                result = automation.preview(selected, options, on_event=on_event)
            elif options.operation == "destroy":
                result = automation.destroy(selected, options, on_event=on_event)
            else:
                result = automation.up(selected, options, on_event=on_event)
        except GpuformError as error:
            return "failed", [error.message]
        return str(result.reason), _list_errors(result)

    def _enter_machine(self, selected: SelectedStack) -> SelectedStack:
        """Return the stack as opened by another machine: only the state is the same."""
        self._machines += 1
        home = self.folder / f"home-{self._machines}"
        home.mkdir()
        variables = {"PULUMI_HOME": str(home)}
        environ = get_run_context().with_variables(variables).environ
        backend = Backend.open(environ["PULUMI_BACKEND_URL"], environ)
        workspace = Workspace(selected.workspace.project, backend, environ)
        return SelectedStack(workspace, selected.name, variables)

    @contextmanager
    def _mount(self, observer: RequestObserver) -> Iterator[None]:
        """Carry all requests to the emulator inside this process, under both addresses."""
        transport = RehearsalTransport(create_wsgi_transport(self.server.app), observer)
        secure_url = self.server.url.replace("http:", "https:")
        with mount_transport(self.server.url, transport), mount_transport(secure_url, transport):
            yield


def _join_runs(first: PlayedRun, second: PlayedRun) -> PlayedRun:
    """Return two runs of different stacks, one after the other, as one."""
    plans = [run.plan for run in (first, second) if run.plan is not None]
    changes = tuple(change for plan in plans for change in plan.changes)
    return replace(
        second,
        ending=second.ending if first.ending == "succeeded" else first.ending,
        errors=[*first.errors, *second.errors],
        plan=plans[0].model_copy(update={"changes": changes}) if plans else None,
        made=[*first.made, *second.made],
        points=[*first.points, *second.points],
    )


def _list_changes(plan: Plan) -> list[ResourceChange]:
    return [change for change in plan.changes if change.action.is_change]


def _list_errors(result: RunResult) -> list[str]:
    """Return the errors of a run, and the findings of blocking gates, each once."""
    errors = [item.message for item in result.diagnostics if item.severity == "error"]
    findings = [f"{gate.name}: {finding}" for gate in result.gates for finding in gate.findings]
    return list(dict.fromkeys([*errors, *findings]))


def describe_pending(change: ResourceChange, *, with_stack: bool) -> str:
    """Return a change still to be made, for people: clusters.train: still to create."""
    address = format_address(change.type, change.urn, with_stack=with_stack)
    return f"{address}: still to {change.action}"
