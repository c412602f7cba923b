"""Play a course with machines, faults and the colleague, and check the model after each step."""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from hostile.backends import Backend, BucketBackend, FolderBackend, read_folder
from hostile.colleague import REQUESTS, Colleague
from hostile.courses import SCHEDULER_MOODS, WATCH, Course, Event, Step
from hostile.fakes.behavior import USUAL
from hostile.fakes.faults import FaultPlan
from hostile.fakes.fleet import HONEST
from hostile.fakes.kubernetes import render_kubeconfig
from hostile.fakes.lens import HEALTHY
from hostile.fakes.serving import FakePlatforms
from hostile.fakes.simulation import PLATFORM, Simulation
from hostile.invariants import (
    EXPLAINED,
    InvariantChecker,
    StackKnowledge,
    Violation,
    read_knowledge,
)
from hostile.lives import LifeChecker
from hostile.machines import Machine, WarmCommandServer, start_command_server, write_slurm_commands
from hostile.planted import CONFIG_SECRET
from hostile.projects import PROJECTS, SECRET
from processes.commands import Result
from support.servers.bucket_server import BucketServer, serve_buckets

_STACK = ("--stack", "dev")
_ORDERED = ("--yes", "--parallel", "1", *_STACK)
"""One resource at a time, so that a fault always meets the same request."""
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "up": ("up", "--skip-preview", *_ORDERED),
    "preview": ("preview", *_STACK),
    "refresh": ("refresh", "--skip-preview", *_ORDERED),
    "destroy": ("destroy", "--skip-preview", *_ORDERED),
    "expire": ("expire", *_ORDERED),
    "repair": ("repair", *_ORDERED),
    "stack rm": ("stack", "rm", "--yes", *_STACK),
    "status": ("status", "--refresh", *_STACK),
    "orphans": ("orphans", *_STACK),
    "init": ("stack", "init", "dev"),
    "export": ("stack", "export", *_STACK),
}


@dataclass
class CoursePlayer:
    """Plays courses with the command server, fakes and buckets that all of them share."""

    command_server: WarmCommandServer
    fakes: FakePlatforms
    folder: Path
    bucket_server: Callable[[], BucketServer]
    encrypted_secret: str = ""
    """The planted secret, encrypted with the passphrase of the stacks."""
    taught_commands: set[tuple[str, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        environ = {"PULUMI_BACKEND_URL": FolderBackend(self.folder / "sealing" / "backend").url}
        machine = Machine(self.command_server, self.folder / "sealing" / "machine", environ)
        machine.set_up(PROJECTS["together"], "dynamic", "")
        for arguments in (
            _ARGUMENTS["init"],
            ("config", "set", "--secret", SECRET, CONFIG_SECRET, *_STACK),
        ):
            result = machine.run(*arguments)
            assert result.code == 0, result.stderr
        stack_yaml = (machine.project / "Pulumi.dev.yaml").read_text()
        self.encrypted_secret = str(
            yaml.safe_load(stack_yaml)["config"][f"together:{SECRET}"]["secure"]
        )

    def play(self, course: Course) -> "CourseResult":
        shutil.rmtree(self.folder / "course", ignore_errors=True)
        return _CourseRun(self, course, self.folder / "course").play()


@contextmanager
def open_player() -> Iterator[CoursePlayer]:
    """Yield a player in a temporary folder, which starts a bucket server on demand."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        servers: list[BucketServer] = []

        def get_bucket_server() -> BucketServer:
            if not servers:
                servers.append(stack.enter_context(serve_buckets()))
            return servers[0]

        warm = stack.enter_context(start_command_server())
        fakes = stack.enter_context(FakePlatforms().run_server())
        yield CoursePlayer(warm, fakes, folder, get_bucket_server)


@dataclass
class CourseResult:
    """The violations of a played course; `codes` are the exit codes of its commands."""

    course: Course
    violations: list[Violation] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [str(self.course), *self.trace, *(str(violation) for violation in self.violations)]
        return "\n".join(lines)


class _CourseRun:
    """One run of a course, with its own backend, machines and colleague."""

    def __init__(self, player: CoursePlayer, course: Course, folder: Path) -> None:
        self.player, self.course = player, course
        self.project = PROJECTS[course.platform]
        self.simulation = Simulation(course.seed, odd_ids=course.odd_ids, behavior=course.behavior)
        self.simulation.is_gated = course.platform == "lens"
        self.checker = InvariantChecker(self.simulation, lifetime=course.lifetime)
        self.result = CourseResult(course)
        self.rng = random.Random(course.seed)
        self.backend: Backend = (
            FolderBackend(folder / "backend")
            if course.backend == "folder"
            else BucketBackend(player.bucket_server())
        )
        player.fakes.begin_course(self.simulation, has_slurm=course.platform == "slurm")
        player.fakes.hostile = {self.project.name, self.project.platform, "kubernetes", "slurm"}
        player.fakes.fleet.naming = course.naming
        requests = REQUESTS[self.project.platform](self.simulation)
        self.colleague = Colleague(player.fakes.url, self.simulation, requests)
        environ = {
            **player.fakes.build_environ(),
            **self.backend.environ,
            "PULUMI_BACKEND_URL": self.backend.url,
        }
        if course.platform not in SCHEDULER_MOODS:
            environ["GPUFORM_ALLOW"] = "evict-jobs"  # their kubeconfigs have no Kubernetes behind
        if course.platform == "slurm":
            environ["GPUFORM_ALLOW"] = "real-schedulers"
            environ["PATH"] = (
                f"{write_slurm_commands(folder / 'bin', player.fakes.url)}:{os.environ['PATH']}"
            )
        self.machines = [Machine(player.command_server, folder / "machine-0", environ)]
        self.folder, self.environ = folder, environ
        self.lives = LifeChecker(self.simulation, self.backend, course.platform)

    @property
    def machine(self) -> Machine:
        return self.machines[-1]

    def play(self) -> CourseResult:
        try:
            self._set_up()
            for number, step in enumerate(self.course.steps, start=1):
                self.simulation.step = number
                if self._play_step(step):
                    return self.result
            self.simulation.step += 1
            self._recover_everything()
            return self.result
        finally:
            self.colleague.close()

    def _set_up(self) -> None:
        self._set_up_machine()
        self._write_topology("base")
        self._run_command("init")
        self.colleague.create_crowd(self.course.behavior.crowd)

    def _write_topology(self, variant: str) -> None:
        self.machine.write_topology(self.project.write_topology(variant, self.course.lifetime))

    def _play_step(self, step: Step) -> bool:
        """Play a step, and return whether an invariant was violated."""
        self._prepare_machine(step)
        self._pass_time(step)
        arguments = self._choose_arguments(step.command)
        fakes = self.player.fakes
        fakes.plan = FaultPlan(step.faults)
        fakes.signal = self.machine.send_signal
        fakes.race = self.colleague.race_request
        self.simulation.list_lag = step.list_lag
        self.simulation.lens_mood = step.lens_mood
        fakes.fleet.set_mood(step.scheduler_mood)
        if step.command == WATCH:
            for _ in range(4):
                self._run("expire", arguments)
                self.simulation.advance(600)
        result = self._run(step.command, arguments)
        self.lives.record_step()
        faults = ", ".join(str(item) for item in fakes.plan.applied_faults)
        fakes.plan = FaultPlan()
        self.simulation.list_lag = 0
        self.simulation.lens_mood = HEALTHY
        fakes.fleet.set_mood(HONEST)
        self._record_step(
            f"{step.command}: exit {result.code}" + (f" under {faults}" if faults else "")
        )
        violations = self.checker.check(result, self._read_knowledge(result), is_settled=False)
        violations += self.checker.check_step(result, step.command)
        if self.course.platform in SCHEDULER_MOODS:
            violations += self.checker.check_jobs(fakes.fleet, step)
        if step.command == "stack rm" and result.code == 0:
            violations += self._recreate_stack()
        return self._record_violations(violations, result)

    def _prepare_machine(self, step: Step) -> None:
        if step.on_new_machine:
            folder = self.folder / f"machine-{len(self.machines)}"
            self.machines.append(Machine(self.player.command_server, folder, self.environ))
            self._set_up_machine()
        self._write_topology(step.variant)

    def _set_up_machine(self) -> None:
        self.machine.set_up(self.project, self.course.form, self.player.encrypted_secret)
        folder = self.machine.folder / "home" / ".kube"
        folder.mkdir(parents=True)
        (folder / "train").write_text(render_kubeconfig(f"{self.player.fakes.url}/kubernetes"))

    def _pass_time(self, step: Step) -> None:
        self.simulation.advance(step.seconds_before)
        for event in step.events:
            self._apply_event(event)

    def _apply_event(self, event: Event) -> None:
        requests = REQUESTS[self.project.platform]
        if event.action == "make":
            self.colleague.create(requests.kinds[event.kind % len(requests.kinds)], event.likeness)
        elif event.action == "change":
            self.colleague.change_own_object(self.rng)
        elif event.action in ("join", "leave"):
            self.colleague.move_guest(event.action)
        elif event.action == "break":
            nodes = [node for node in self.checker.list_our_objects() if node.kind == "node"]
            if nodes:
                self.simulation.change_object(PLATFORM, self.rng.choice(nodes), broken=True)
        elif event.action == "run":
            self._run_job(300 if event.likeness == "equal" else 172_800)
        else:
            self.colleague.delete_own_object(self.rng)

    def _run_job(self, seconds: int) -> None:
        nodes = [node for node in self.checker.list_our_objects() if node.kind == "node"]
        if nodes:
            self.player.fakes.fleet.run_job(self.rng.choice(nodes), seconds)

    def _choose_arguments(self, command: str) -> tuple[str, ...]:
        if command == "import":
            return self._choose_import()
        if command == "repair node":
            nodes = [node.name for node in self.checker.list_our_objects() if node.kind == "node"]
            return ("repair", self.rng.choice(nodes or ["train-001"]), *_ORDERED)
        return _ARGUMENTS["expire" if command == WATCH else command]

    def _choose_import(self) -> tuple[str, ...]:
        """Return an import of one of the colleague's objects, which may be used from now on."""
        platform_objects = self.project.filter_importable(self.colleague.list_own_objects())
        if not platform_objects:
            return _ARGUMENTS["preview"]
        platform_object = self.rng.choice(platform_objects)
        self.checker.permitted_ids.add(platform_object.id)
        return (
            "import",
            self.project.token,
            f"taken-{self.simulation.get_next_number()}",
            platform_object.id,
            "--yes",
            *_STACK,
        )

    def _run(self, name: str, arguments: tuple[str, ...]) -> Result:
        """Run a command; the first one of each kind teaches the warm process."""
        lesson = (name, self.course.platform, self.course.form, self.course.backend)
        result = self.machine.run(*arguments, learn=lesson not in self.player.taught_commands)
        if result.code >= 0:
            self.player.taught_commands.add(lesson)
        self.result.codes.append(result.code)
        if result.code < 0:
            self.backend.expire_locks()
        return result

    def _run_command(self, name: str) -> Result:
        result = self._run(name, _ARGUMENTS[name])
        self._record_step(f"{name}: exit {result.code}")
        return result

    def _read_knowledge(self, result: Result) -> StackKnowledge:
        exported = None
        if result.code != 0:  # what was killed, or was refused after that, is in the journal only
            messages = self.machine.run(*_ARGUMENTS["export"])
            exported = messages.stdout if messages.code == 0 else None
        return read_knowledge(self.backend.read_files(), self.course.platform, exported)

    def _recreate_stack(self) -> list[Violation]:
        """Remove the stack, of which nothing may remain, and create a new one."""
        violations = [
            Violation("lost", f"{platform_object} outlives `stack rm`")
            for platform_object in self.checker.list_our_objects()
        ]
        self.machine.write_stack_file(self.project, self.course.form, self.player.encrypted_secret)
        self._run_command("init")
        return violations

    def _recover_everything(self) -> None:
        """Run the last command on an honest platform, and check the state for every object."""
        self.simulation.advance(600)
        self._write_topology("base")
        result = self._run_command(self.course.last_command)
        self.lives.record_step()
        violations = self.checker.check(result, self._read_knowledge(result), is_settled=True)
        violations += self.checker.check_step(result, self.course.last_command)
        for machine in self.machines:
            violations += self.checker.check_files(read_folder(machine.folder))
        violations += self.checker.check_files(self.backend.read_files())
        if self.course.last_command == "destroy" and result.code == 0:
            violations += [
                Violation("lost", f"{it} outlives `destroy`")
                for it in self.checker.list_our_objects()
            ]
        violations += [
            Violation(EXPLAINED, text)
            for text in self.lives.find_wrong_lives(
                self.checker.mistaken_ids, has_succeeded=result.code == 0
            )
        ]
        self._record_violations(violations, result)

    def _record_violations(self, violations: list[Violation], result: Result) -> bool:
        self.result.violations += violations
        if violations:
            steps_so_far = self.course.steps[: self.simulation.step]
            self.result.course = replace(self.course, steps=steps_so_far)
            self._record_step(f"stdout:\n{result.stdout[-1500:]}\nstderr:\n{result.stderr[-1500:]}")
            self.result.trace += [
                "requests:",
                *(f"  {request}" for request in self.player.fakes.requests),
            ]
            self.result.trace += [
                "ledger:",
                *(f"  {request}" for request in self.simulation.ledger),
            ]
        return bool(violations)

    def _record_step(self, text: str) -> None:
        self.result.trace.append(f"step {self.simulation.step}: {text}")


def shrink_course(player: CoursePlayer, played: CourseResult, attempts: int = 30) -> CourseResult:
    """Return a simpler course with the same first violation, after at most `attempts` plays."""
    best = played
    while attempts > 0:
        for candidate in _list_simpler_courses(best.course):
            tried = player.play(candidate)
            attempts -= 1
            if _find_first_violation(tried) == _find_first_violation(played):
                best = tried
                break
            if attempts <= 0:
                return best
        else:
            return best
    return best


def _find_first_violation(played: CourseResult) -> str | None:
    return played.violations[0].invariant if played.violations else None


def _list_simpler_courses(course: Course) -> list[Course]:
    steps = course.steps
    half = len(steps) // 2
    courses = [
        replace(course, steps=remaining_steps)
        for remaining_steps in (steps[:half], steps[half:])
        if half
    ]
    courses += [replace(course, steps=steps[:i] + steps[i + 1 :]) for i in range(len(steps))]
    for number, step in enumerate(steps):
        simpler_steps = [
            *(
                replace(step, faults=step.faults[:i] + step.faults[i + 1 :])
                for i in range(len(step.faults))
            ),
            *(
                replace(step, events=step.events[:i] + step.events[i + 1 :])
                for i in range(len(step.events))
            ),
            replace(step, variant="base"),
            replace(step, on_new_machine=False),
            replace(step, seconds_before=0),
            replace(step, list_lag=0),
            replace(step, lens_mood=HEALTHY),
            replace(step, scheduler_mood=HONEST),
        ]
        courses += [
            replace(course, steps=(*steps[:number], simpler_step, *steps[number + 1 :]))
            for simpler_step in simpler_steps
            if simpler_step != step
        ]
    simpler_courses = [
        replace(course, form="dynamic"),
        replace(course, backend="folder"),
        replace(course, odd_ids=False),
        replace(course, lifetime=""),
        replace(course, naming="same"),
        *(
            replace(course, behavior=replace(course.behavior, **{name: usual}))
            for name, usual in vars(USUAL).items()
        ),
    ]
    return courses + [simpler for simpler in simpler_courses if simpler != course]
