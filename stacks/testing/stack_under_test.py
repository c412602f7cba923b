"""Run stacks on emulators in Python tests; each run starts from the end of the previous one.

`StackUnderTest` is what the pytest fixture `gpuform_stack` creates.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from gpuform.schemas.cases_file import CaseInputs
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.project import Project, find_project
from gpuform.stacks.testing import RunEnding
from gpuform.stacks.testing.case_run import CaseRunSpec
from gpuform.stacks.testing.cases import RunReport, describe_missing_settings, merge_defaults
from gpuform.stacks.testing.processes import CaseProcess
from gpuform.stacks.testing.runner import find_free_ports

_T = TypeVar("_T")


class CaseRunError(EngineError):
    """A run that could not take place as the test describes."""

    help_page = "guides/test-a-stack"


class NamedValues(dict[str, _T]):
    """Values by name. A lookup of an unknown name raises KeyError with the known names."""

    def __init__(self, noun: str, values: Mapping[str, _T]) -> None:
        super().__init__(values)
        self._noun = noun

    def __missing__(self, name: str) -> NoReturn:
        __tracebackhide__ = True
        known_names = ", ".join(self) or "none"
        raise KeyError(f"unknown {self._noun} {name}; known: {known_names}")


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """One run: its ending, its plan, and the state and objects afterwards."""

    report: RunReport

    def __repr__(self) -> str:
        """Return the ending and the errors, as failed assertions show them.

        Outputs are left out, because they may be secret.
        """
        errors = "; ".join(" ".join(message.split()) for message in self.report.errors)
        return f"<run {self.ending}: {errors}>" if errors else f"<run {self.ending}>"

    @property
    def ending(self) -> str:
        """Return how the run ended: `succeeded`, `failed`, `policy-violation`, `killed`, ..."""
        return RunEnding.from_errors(self.report.ending, self.report.errors)

    @property
    def plan(self) -> Plan | None:
        """Return the plan, with secrets masked, or None if the run made no plan."""
        return self.report.plan

    @property
    def actions(self) -> dict[str, str]:
        """Return the plan's action on each resource, by the resource's name."""
        changes = self.plan.changes if self.plan else ()
        return NamedValues("change of", {change.name: str(change.action) for change in changes})

    @property
    def errors(self) -> list[str]:
        """Return the messages of errors, and of gates with objections."""
        return list(self.report.errors)

    @property
    def warnings(self) -> list[str]:
        """Return the messages of the run's warnings."""
        return list(self.report.warnings)

    @property
    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs after the run, secrets included."""
        outputs = self.report.final_state.outputs
        return NamedValues("output", {name: output.value for name, output in outputs.items()})

    @property
    def resources(self) -> dict[str, dict[str, Any]]:
        """Return the outputs of each resource in the state by name, secrets included."""
        outputs_by_name = {
            resource.name: NamedValues(
                f"output of {resource.name}:", {k: v.value for k, v in resource.outputs.items()}
            )
            for resource in self.report.final_state.resources
        }
        return NamedValues("resource", outputs_by_name)

    @property
    def objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the objects on the platforms by PLATFORM/KIND.

        `id`, `name` and `status` of each.
        """
        objects_by_kind = {
            f"{platform}/{kind}": [dict(platform_object) for platform_object in objects]
            for platform, kinds in self.report.final_state.objects.items()
            for kind, objects in kinds.items()
        }
        return NamedValues("kind", objects_by_kind)

    @property
    def seconds(self) -> float:
        """Return how many seconds the run took, by the platform's clock."""
        return self.report.final_state.seconds


@dataclass(slots=True, repr=False)
class StackUnderTest:
    """A stack on an emulator of its own.

    Args:
        project: the project of the stack.
        work_folder: where the emulator's database and the state are kept between runs.
        inputs: the fields of a case that all runs have.
        port: the emulator's port, the same for all runs.
        base_folder: the folder that relative paths of the inputs start from.
    """

    project: Project
    work_folder: Path
    inputs: Mapping[str, Any]
    port: int
    base_folder: Path
    _has_run: bool = field(default=False)

    @classmethod
    def for_directory(
        cls, directory: Path, work_folder: Path, inputs: Mapping[str, Any], base_folder: Path
    ) -> "StackUnderTest":
        """Return a stack of the project in `directory` or the nearest folder above.

        `work_folder` is an empty folder for the emulator and the state. Raises CaseRunError for
        invalid inputs.
        """
        __tracebackhide__ = True
        project = find_project(directory)
        _validate_inputs(project, inputs, base_folder)
        return cls(project, work_folder, inputs, next(find_free_ports()), base_folder)

    def __repr__(self) -> str:
        """Return the project's name only: inputs may contain secrets."""
        return f"<stack of {self.project.name}>"

    def up(self, **inputs: Any) -> Run:
        """Run `gpuform up`. `inputs` are fields of a case: config, events, allow, target, ...

        Raises:
            CaseRunError: an input is invalid, an event did not happen, or the run could not start.
                A run that fails raises nothing: read its `ending`.
        """
        __tracebackhide__ = True
        return self._run("up", inputs)

    def preview(self, **inputs: Any) -> Run:
        """Run `gpuform preview`, as `up` does `gpuform up`."""
        __tracebackhide__ = True
        return self._run("preview", inputs)

    def refresh(self, **inputs: Any) -> Run:
        """Run `gpuform refresh`, as `up` does `gpuform up`."""
        __tracebackhide__ = True
        return self._run("refresh", inputs)

    def destroy(self, **inputs: Any) -> Run:
        """Run `gpuform destroy`, as `up` does `gpuform up`."""
        __tracebackhide__ = True
        return self._run("destroy", inputs)

    def expire(self, **inputs: Any) -> Run:
        """Run `gpuform expire`, as `up` does `gpuform up`."""
        __tracebackhide__ = True
        return self._run("expire", inputs)

    def repair(self, **inputs: Any) -> Run:
        """Run `gpuform repair`, as `up` does `gpuform up`."""
        __tracebackhide__ = True
        return self._run("repair", inputs)

    def _run(self, operation: str, inputs: Mapping[str, Any]) -> Run:
        """Run an operation as a case in a new process, and return the run, failed or not.

        `inputs` are merged over the stack's own (see `merge_defaults`). A run continues with the
        state and the emulator of the previous run; only the first run applies `start`.

        Raises:
            CaseRunError: an input is invalid, an event did not happen, or the run has no report.
        """
        __tracebackhide__ = True
        if self._has_run and "state" in (inputs.get("start") or {}):
            raise CaseRunError("start.state: this run starts where the previous one ended")
        merged_inputs = merge_defaults(self.inputs, inputs)
        case = _validate_inputs(self.project, merged_inputs, self.base_folder)
        case = case.model_copy(update={"run": operation})
        state_file = None if self._has_run else _resolve_state_file(case, self.base_folder)
        project_file = self.project.path
        process = CaseProcess(
            CaseRunSpec(project_file, self.work_folder, self.port, case, self._has_run, state_file)
        )
        report = process.run()
        if report is None:
            raise CaseRunError(process.error)
        self._has_run = True
        # Only the first run has a start: later runs continue from the previous one.
        self.inputs = {name: value for name, value in self.inputs.items() if name != "start"}
        problems = [
            f"{'.'.join(map(str, path_in_case))}: {message}"
            for path_in_case, message in report.case_problems
        ]
        problems += [f"event {number} did not happen" for number in report.pending_events]
        failed_events = {**report.fault_mismatches, **report.failed_events}
        problems += [f"event {number}: {message}" for number, message in failed_events.items()]
        # An event without effect would let the test pass for the wrong reason.
        if problems:
            raise CaseRunError("\n".join(problems))
        return Run(report)


_REPLACEMENTS_BY_FIELD: Final = {
    "expect": "write assertions about the run that is returned",
    "run": "call the method of this name",
}


def _validate_inputs(project: Project, inputs: Mapping[str, Any], base_folder: Path) -> CaseInputs:
    """Return the inputs of a run. Raises CaseRunError with all problems of the inputs."""
    __tracebackhide__ = True
    values, problems = validate_inputs(CaseInputs, inputs)
    messages = [str(problem) for problem in problems]
    messages += [
        f"{name}: {instead}" for name, instead in _REPLACEMENTS_BY_FIELD.items() if name in inputs
    ]
    if messages:
        raise CaseRunError("\n".join(messages))
    case = CaseInputs.model_validate(values)
    if case.stack and (missing_settings := describe_missing_settings(project, case.stack)):
        raise CaseRunError(f"stack: {missing_settings}")
    if case.start and case.start.case:
        raise CaseRunError("start.case: each run starts where the previous one ended")
    state_file = _resolve_state_file(case, base_folder)
    if state_file is not None and not state_file.is_file():
        raise CaseRunError(f"start.state: file {state_file} not found")
    return case


def _resolve_state_file(case: CaseInputs, base_folder: Path) -> Path | None:
    state = case.start.state if case.start else None
    return None if state is None else (base_folder / state).resolve()
