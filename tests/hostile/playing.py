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
from hostile.backends import Backend, Bucket, Folder
from hostile.colleague import REQUESTS, Colleague
from hostile.courses import SCHEDULED, WATCH, Act, Course, Step
from hostile.fakes.behavior import USUAL
from hostile.fakes.faults import Plan
from hostile.fakes.fleet import HONEST
from hostile.fakes.kubernetes import kubeconfig
from hostile.fakes.lens import HEALTHY
from hostile.fakes.serving import Fakes
from hostile.fakes.world import PLATFORM, World
from hostile.machines import Machine, Warm, warm_process, write_commands
from hostile.model import Known, Model, Violation, read
from hostile.planted import CONFIG_SECRET
from hostile.projects import PROJECTS, SECRET
from processes.commands import Result
from support.servers.bucket_server import BucketServer, serving

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
class Stage:
    """The parts that all courses of a process share."""

    warm: Warm
    fakes: Fakes
    place: Path
    bucket_server: Callable[[], BucketServer]
    sealed: str = ""
    """The planted secret as the stacks' passphrase encrypts it."""
    learned: set[tuple[str, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        environ = {"PULUMI_BACKEND_URL": Folder(self.place / "sealing" / "backend").url}
        machine = Machine(self.warm, self.place / "sealing" / "machine", environ)
        machine.set_up(PROJECTS["together"], "dynamic", "")
        for arguments in (
            _ARGUMENTS["init"],
            ("config", "set", "--secret", SECRET, CONFIG_SECRET, *_STACK),
        ):
            result = machine.run(*arguments)
            assert result.code == 0, result.stderr
        stack_yaml = (machine.project / "Pulumi.dev.yaml").read_text()
        self.sealed = str(yaml.safe_load(stack_yaml)["config"][f"together:{SECRET}"]["secure"])

    def play(self, course: Course) -> "Played":
        shutil.rmtree(self.place / "course", ignore_errors=True)
        return _Playing(self, course, self.place / "course").play()


@contextmanager
def open_stage() -> Iterator[Stage]:
    """Yield a stage in a temporary folder; buckets are served from the first course that asks."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        servers: list[BucketServer] = []

        def get_bucket_server() -> BucketServer:
            if not servers:
                servers.append(stack.enter_context(serving()))
            return servers[0]

        warm = stack.enter_context(warm_process())
        fakes = stack.enter_context(Fakes().serving())
        yield Stage(warm, fakes, folder, get_bucket_server)


@dataclass
class Played:
    course: Course
    violations: list[Violation] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [str(self.course), *self.trace, *(str(violation) for violation in self.violations)]
        return "\n".join(lines)


class _Playing:
    def __init__(self, stage: Stage, course: Course, folder: Path) -> None:
        self.stage, self.course = stage, course
        self.project = PROJECTS[course.platform]
        self.world = World(course.seed, odd_ids=course.odd_ids, behavior=course.behavior)
        self.world.is_gated = course.platform == "lens"
        self.model = Model(self.world, lifetime=course.lifetime)
        self.played = Played(course)
        self.chance = random.Random(course.seed)
        self.backend: Backend = (
            Folder(folder / "backend")
            if course.backend == "folder"
            else Bucket(stage.bucket_server())
        )
        stage.fakes.begin(self.world, has_slurm=course.platform == "slurm")
        stage.fakes.hostile = {self.project.name, self.project.platform, "kubernetes", "slurm"}
        stage.fakes.fleet.naming = course.naming
        requests = REQUESTS[self.project.platform](self.world)
        self.colleague = Colleague(stage.fakes.url, self.world, requests)
        environ = {
            **stage.fakes.environ(),
            **self.backend.environ,
            "PULUMI_BACKEND_URL": self.backend.url,
        }
        if course.platform not in SCHEDULED:
            environ["GPUFORM_ALLOW"] = "evict-jobs"  # their kubeconfigs have no Kubernetes behind
        if course.platform == "slurm":
            environ["GPUFORM_ALLOW"] = "real-schedulers"
            environ["PATH"] = (
                f"{write_commands(folder / 'bin', stage.fakes.url)}:{os.environ['PATH']}"
            )
        self.machines = [Machine(stage.warm, folder / "machine-0", environ)]
        self.place, self.environ = folder, environ

    @property
    def machine(self) -> Machine:
        return self.machines[-1]

    def play(self) -> Played:
        try:
            self._set_up()
            for number, step in enumerate(self.course.steps, start=1):
                self.world.step = number
                if self._play_step(step):
                    return self.played
            self.world.step += 1
            self._wait_until_everything_is_known()
            return self.played
        finally:
            self.colleague.close()

    def _set_up(self) -> None:
        self._set_up_machine()
        self._declare("base")
        self._command("init")
        self.colleague.gather(self.course.behavior.crowd)

    def _declare(self, variant: str) -> None:
        self.machine.declare(self.project.write_topology(variant, self.course.lifetime))

    def _play_step(self, step: Step) -> bool:
        """Play a step, and return True if a check failed."""
        self._move_to(step)
        self._pass_time(step)
        arguments = self._choose_arguments(step.command)
        fakes = self.stage.fakes
        fakes.plan = Plan(step.faults)
        fakes.signal = self.machine.signal
        fakes.race = self.colleague.race
        self.world.list_lag = step.lag
        self.world.lens_mood = step.mood
        fakes.fleet.behave(step.fleet)
        if step.command == WATCH:
            for _ in range(4):
                self._run("expire", arguments)
                self.world.move(600)
        result = self._run(step.command, arguments)
        hit = ", ".join(str(item) for item in fakes.plan.hit)
        fakes.plan = Plan()
        self.world.list_lag = 0
        self.world.lens_mood = HEALTHY
        fakes.fleet.behave(HONEST)
        self._note(f"{step.command}: exit {result.code}" + (f" under {hit}" if hit else ""))
        violations = self.model.check(result, self._known(result), is_settled=False)
        violations += self.model.check_step(result, step.command)
        if self.course.platform in SCHEDULED:
            violations += self.model.check_jobs(fakes.fleet, step)
        if step.command == "stack rm" and result.code == 0:
            violations += self._recreate_stack()
        return self._is_wrong(violations, result)

    def _move_to(self, step: Step) -> None:
        if step.fresh:
            folder = self.place / f"machine-{len(self.machines)}"
            self.machines.append(Machine(self.stage.warm, folder, self.environ))
            self._set_up_machine()
        self._declare(step.variant)

    def _set_up_machine(self) -> None:
        self.machine.set_up(self.project, self.course.form, self.stage.sealed)
        folder = self.machine.position / "home" / ".kube"
        folder.mkdir(parents=True)
        (folder / "train").write_text(kubeconfig(f"{self.stage.fakes.url}/kubernetes"))

    def _pass_time(self, step: Step) -> None:
        self.world.move(step.passes)
        for act in step.acts:
            self._act(act)

    def _act(self, act: Act) -> None:
        requests = REQUESTS[self.project.platform]
        if act.what == "make":
            self.colleague.make(requests.kinds[act.kind % len(requests.kinds)], act.like)
        elif act.what == "change":
            self.colleague.change(self.chance)
        elif act.what in ("join", "leave"):
            self.colleague.visit(act.what)
        elif act.what == "break":
            nodes = [our for our in self.model.ours() if our.kind == "node"]
            if nodes:
                self.world.change(PLATFORM, self.chance.choice(nodes), broken=True)
        elif act.what == "run":
            self._run_job(300 if act.like == "equal" else 172_800)
        else:
            self.colleague.delete(self.chance)

    def _run_job(self, seconds: int) -> None:
        nodes = [our for our in self.model.ours() if our.kind == "node"]
        if nodes:
            self.stage.fakes.fleet.run_job(self.chance.choice(nodes), seconds)

    def _choose_arguments(self, command: str) -> tuple[str, ...]:
        if command == "import":
            return self._import()
        if command == "repair node":
            nodes = [our.name for our in self.model.ours() if our.kind == "node"]
            return ("repair", self.chance.choice(nodes or ["train-001"]), *_ORDERED)
        return _ARGUMENTS["expire" if command == WATCH else command]

    def _import(self) -> tuple[str, ...]:
        """Import one of the colleague's objects, which the flags allow from here on."""
        platform_objects = self.project.importable(self.colleague.own())
        if not platform_objects:
            return _ARGUMENTS["preview"]
        platform_object = self.chance.choice(platform_objects)
        self.model.permitted.add(platform_object.id)
        return (
            "import",
            self.project.token,
            f"taken-{self.world.number()}",
            platform_object.id,
            "--yes",
            *_STACK,
        )

    def _run(self, name: str, arguments: tuple[str, ...]) -> Result:
        """Run a command; the first one of each kind teaches the warm process."""
        lesson = (name, self.course.platform, self.course.form, self.course.backend)
        result = self.machine.run(*arguments, learn=lesson not in self.stage.learned)
        if result.code >= 0:
            self.stage.learned.add(lesson)
        self.played.codes.append(result.code)
        if result.code < 0:
            self.backend.end_locks()
        return result

    def _command(self, name: str) -> Result:
        result = self._run(name, _ARGUMENTS[name])
        self._note(f"{name}: exit {result.code}")
        return result

    def _known(self, result: Result) -> Known:
        exported = None
        if result.code != 0:  # what was killed, or was refused after that, is in the journal only
            messages = self.machine.run(*_ARGUMENTS["export"])
            exported = messages.stdout if messages.code == 0 else None
        return read(self.backend.files(), self.course.platform, exported)

    def _recreate_stack(self) -> list[Violation]:
        """Remove the stack, of which nothing may remain, and create a new one."""
        violations = [Violation("lost", f"{our} outlives `stack rm`") for our in self.model.ours()]
        self.machine.configure(self.project, self.course.form, self.stage.sealed)
        self._command("init")
        return violations

    def _wait_until_everything_is_known(self) -> None:
        """Give an honest platform a little more time, after which everything has to be known."""
        self.world.move(600)
        self._declare("base")
        result = self._command(self.course.end)
        violations = self.model.check(result, self._known(result), is_settled=True)
        violations += self.model.check_step(result, self.course.end)
        for machine in self.machines:
            own = Folder.__new__(Folder)
            own.place = machine.position
            violations += self.model.check_files(own.files())
        violations += self.model.check_files(self.backend.files())
        if self.course.end == "destroy" and result.code == 0:
            violations += [
                Violation("lost", f"{it} outlives `destroy`") for it in self.model.ours()
            ]
        self._is_wrong(violations, result)

    def _is_wrong(self, violations: list[Violation], result: Result) -> bool:
        self.played.violations += violations
        if violations:
            played_steps = self.course.steps[: self.world.step]
            self.played.course = replace(self.course, steps=played_steps)
            self._note(f"stdout:\n{result.stdout[-1500:]}\nstderr:\n{result.stderr[-1500:]}")
            self.played.trace += [
                "requests:",
                *(f"  {request}" for request in self.stage.fakes.requests),
            ]
            self.played.trace += ["ledger:", *(f"  {request}" for request in self.world.ledger)]
        return bool(violations)

    def _note(self, text: str) -> None:
        self.played.trace.append(f"step {self.world.step}: {text}")


def shrink(stage: Stage, played: Played, attempts: int = 30) -> Played:
    """Return the same violation with fewer steps, faults and other circumstances."""
    best = played
    while attempts > 0:
        for candidate in _list_simpler_courses(best.course):
            tried = stage.play(candidate)
            attempts -= 1
            if _find_first_violation(tried) == _find_first_violation(played):
                best = tried
                break
            if attempts <= 0:
                return best
        else:
            return best
    return best


def _find_first_violation(played: Played) -> str | None:
    return played.violations[0].invariant if played.violations else None


def _list_simpler_courses(course: Course) -> list[Course]:
    steps = course.steps
    half = len(steps) // 2
    violations = [
        replace(course, steps=plainer_course)
        for plainer_course in (steps[:half], steps[half:])
        if half
    ]
    violations += [replace(course, steps=steps[:i] + steps[i + 1 :]) for i in range(len(steps))]
    for number, step in enumerate(steps):
        plainer = [
            *(
                replace(step, faults=step.faults[:i] + step.faults[i + 1 :])
                for i in range(len(step.faults))
            ),
            *(
                replace(step, acts=step.acts[:i] + step.acts[i + 1 :])
                for i in range(len(step.acts))
            ),
            replace(step, variant="base"),
            replace(step, fresh=False),
            replace(step, passes=0),
            replace(step, lag=0),
            replace(step, mood=HEALTHY),
            replace(step, fleet=HONEST),
        ]
        violations += [
            replace(course, steps=(*steps[:number], plainer_course, *steps[number + 1 :]))
            for plainer_course in plainer
            if plainer_course != step
        ]
    plainer_courses = [
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
    return violations + [
        plainer_course for plainer_course in plainer_courses if plainer_course != course
    ]
