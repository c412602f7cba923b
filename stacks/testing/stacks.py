"""Stacks for tests in Python: each run starts where the one before it has ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from gpuform.schemas.cases_file import CaseInputs
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project, find_project
from gpuform.stacks.testing.cases import with_defaults, without_settings
from gpuform.stacks.testing.ending import Ending
from gpuform.stacks.testing.playing import Part
from gpuform.stacks.testing.report import Report
from gpuform.stacks.testing.running import Process, free_ports

_T = TypeVar("_T")


class NotPlayed(EngineError):
    """A run that could not be played."""

    help_page = "guides/test-a-stack"


class Named(dict[str, _T]):
    """Values by name. An unknown name is told with those that there are."""

    def __init__(self, what: str, values: Mapping[str, _T]) -> None:
        super().__init__(values)
        self._what = what

    def __missing__(self, name: str) -> NoReturn:
        __tracebackhide__ = True
        raise KeyError(f"there is no {self._what} {name}; there is {', '.join(self) or 'none'}")


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """One run: how it ended, what it planned, and what it has left."""

    report: Report

    def __repr__(self) -> str:
        """How it ended and what it said, as assertions show it: no outputs, which may be secret."""
        said = "; ".join(" ".join(text.split()) for text in self.report.errors)
        return f"<run {self.ending}: {said}>" if said else f"<run {self.ending}>"

    @property
    def ending(self) -> str:
        """`succeeded`, `failed`, `policy-violation`, `killed`, ..."""
        return Ending.of(self.report.ending, self.report.errors)

    @property
    def plan(self) -> Plan | None:
        """The plan, with secrets masked; None where there is none."""
        return self.report.plan

    @property
    def actions(self) -> dict[str, str]:
        """What the plan does to each resource, by name."""
        changes = self.plan.changes if self.plan else ()
        return Named("change of", {each.name: str(each.action) for each in changes})

    @property
    def errors(self) -> list[str]:
        """What the run says as errors and refusals."""
        return list(self.report.errors)

    @property
    def warnings(self) -> list[str]:
        """What it says as warnings."""
        return list(self.report.warnings)

    @property
    def outputs(self) -> dict[str, Any]:
        """The stack's outputs after the run, in plain text."""
        outputs = self.report.left.outputs
        return Named("output", {name: each.value for name, each in outputs.items()})

    @property
    def resources(self) -> dict[str, dict[str, Any]]:
        """The outputs of each resource in the state, by name, in plain text."""
        found = {
            each.name: Named(
                f"output of {each.name}:", {k: v.value for k, v in each.outputs.items()}
            )
            for each in self.report.left.resources
        }
        return Named("resource", found)

    @property
    def objects(self) -> dict[str, list[dict[str, Any]]]:
        """What is on the platforms, by PLATFORM/KIND: `id`, `name` and `status` of each."""
        found = {
            f"{platform}/{kind}": [dict(each) for each in objects]
            for platform, kinds in self.report.left.objects.items()
            for kind, objects in kinds.items()
        }
        return Named("kind", found)

    @property
    def seconds(self) -> float:
        """How long it took, by the platform's clock."""
        return self.report.left.seconds


@dataclass(slots=True, repr=False)
class StackUnderTest:
    """A stack on an emulator of its own. `inputs` are fields of a case, which all runs have.

    `beside` is the folder that the paths in them are from.
    """

    project: Project
    folder: Path
    inputs: Mapping[str, Any]
    port: int
    beside: Path
    _is_begun: bool = field(default=False)

    @classmethod
    def of(
        cls, directory: Path, folder: Path, inputs: Mapping[str, Any], beside: Path
    ) -> "StackUnderTest":
        """That of the project of a directory; `folder` is where it is kept.

        Raises NotPlayed for inputs that no run could have.
        """
        __tracebackhide__ = True
        project = find_project(directory)
        _checked(project, inputs, beside)
        return cls(project, folder, inputs, next(free_ports()), beside)

    def __repr__(self) -> str:
        """Without its inputs, which have secrets."""
        return f"<stack of {self.project.name}>"

    def up(self, **inputs: Any) -> Run:
        """`gpuform up`. `inputs` are fields of a case: config, events, allow, target, ..."""
        __tracebackhide__ = True
        return self._run("up", inputs)

    def preview(self, **inputs: Any) -> Run:
        """`gpuform preview`."""
        __tracebackhide__ = True
        return self._run("preview", inputs)

    def refresh(self, **inputs: Any) -> Run:
        """`gpuform refresh`."""
        __tracebackhide__ = True
        return self._run("refresh", inputs)

    def destroy(self, **inputs: Any) -> Run:
        """`gpuform destroy`."""
        __tracebackhide__ = True
        return self._run("destroy", inputs)

    def expire(self, **inputs: Any) -> Run:
        """`gpuform expire`."""
        __tracebackhide__ = True
        return self._run("expire", inputs)

    def repair(self, **inputs: Any) -> Run:
        """`gpuform repair`."""
        __tracebackhide__ = True
        return self._run("repair", inputs)

    def _run(self, operation: str, inputs: Mapping[str, Any]) -> Run:
        __tracebackhide__ = True
        if self._is_begun and "state" in (inputs.get("start") or {}):
            raise NotPlayed("start.state: this run starts where the one before it has ended")
        declared = with_defaults(self.inputs, inputs)
        case = _checked(self.project, declared, self.beside)
        case = case.model_copy(update={"run": operation})
        state = None if self._is_begun else _state(case, self.beside)
        path = self.project.path
        process = Process(Part(path, self.folder, self.port, case, self._is_begun, state))
        report = process.play()
        if report is None:
            raise NotPlayed(process.told)
        self._is_begun = True
        self.inputs = {name: each for name, each in self.inputs.items() if name != "start"}
        missed = [f"{'.'.join(map(str, at))}: {why}" for at, why in report.wrong]
        missed += [f"event {number} did not happen" for number in report.unplayed]
        refused = {**report.misses, **report.refused}
        missed += [f"event {number}: {why}" for number, why in refused.items()]
        if missed:
            raise NotPlayed("\n".join(missed))
        return Run(report)


_OTHERWISE: Final = {
    "expect": "assert it of what the run returns",
    "run": "call the method of that name",
}


def _checked(project: Project, inputs: Mapping[str, Any], beside: Path) -> CaseInputs:
    """Inputs of a run. Raises NotPlayed with all that is wrong."""
    __tracebackhide__ = True
    values, problems = validate_inputs(CaseInputs, inputs)
    wrong = [str(problem) for problem in problems]
    wrong += [f"{name}: {instead}" for name, instead in _OTHERWISE.items() if name in inputs]
    if wrong:
        raise NotPlayed("\n".join(wrong))
    case = CaseInputs.model_validate(values)
    if case.stack and (missing := without_settings(project, case.stack)):
        raise NotPlayed(f"stack: {missing}")
    if case.start and case.start.case:
        raise NotPlayed("start.case: each run starts where the one before it has ended")
    state = _state(case, beside)
    if state is not None and not state.is_file():
        raise NotPlayed(f"start.state: there is no file {state}")
    return case


def _state(case: CaseInputs, beside: Path) -> Path | None:
    """The file of the state that the first run starts from."""
    state = case.start.state if case.start else None
    return None if state is None else (beside / state).resolve()
