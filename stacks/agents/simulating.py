"""A change played on an emulator that is made to hold what the state names."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.schemas.cases_file import CaseInputs
from gpuform.schemas.checking import check
from gpuform.schemas.visible import MASK
from gpuform.stacks.agents.answers import Answer
from gpuform.stacks.agents.projects import Place
from gpuform.stacks.engine.project import Project, StackSettings, is_secure
from gpuform.stacks.testing.comparing import durations_text, exercised
from gpuform.stacks.testing.playing import Part, address_of
from gpuform.stacks.testing.report import Report
from gpuform.stacks.testing.running import Process, free_ports
from gpuform.stacks.testing.seeding import STAND_IN


def simulate(
    project: Project, place: Place, stack: str, inputs: Mapping[str, Any], state: bytes | None
) -> Answer:
    """One run of the project in a place, by the fields of a test case, from a state if given.

    A secret of the stack has a text that stands for it, unless the inputs give it another.
    """
    secrets = {**_stand_ins(project, stack), **(inputs.get("secrets") or {})}
    given = {key: value for key, value in inputs.items() if value is not None}
    values, problems = check(CaseInputs, {**given, "stack": stack, "secrets": secrets})
    if problems:
        return Answer(ok=False, told={"problems": [str(each) for each in problems]})
    folder = tempfile.TemporaryDirectory(prefix="gpuform-simulation-", ignore_cleanup_errors=True)
    with folder as name:
        kept = Path(name)
        file = kept / f"{stack}.json"
        if state is not None:
            file.write_bytes(state)
        (kept / "played").mkdir()
        part = Part(
            place.folder / project.path.name,
            kept / "played",
            next(free_ports()),
            CaseInputs.model_validate(values),
            is_begun=False,
            state=None if state is None else file,
            environ=place.environ,
        )
        process = Process(part)
        report = process.play()
    if report is None:
        return Answer(ok=False, told={"problem": "the run could not be played"}, data=process.told)
    return _answer(report)


def _answer(report: Report) -> Answer:
    plan, left = report.plan, report.left
    told: dict[str, Any] = {
        "ending": report.ending,
        "platform_time": durations_text(left.seconds),
        "plan": {address_of(each.type, each.urn): str(each.action) for each in plan.changes}
        if plan is not None
        else None,
        "gates": dict(exercised(plan)),
        "hourly_cost": dict(plan.cost.after.hourly()) if plan is not None and plan.cost else {},
        "events_that_did_not_happen": _missed(report),
    }
    data = {
        "errors": list(report.errors),
        "warnings": list(report.warnings),
        "changes": [
            each.model_dump(mode="json", exclude_defaults=True)
            for each in (plan.changes if plan is not None else ())
            if each.action != "same"
        ],
        "outputs": {
            name: MASK if each.secret else each.value for name, each in left.outputs.items()
        },
        "objects": {
            f"{platform}/{kind}": list(objects)
            for platform, kinds in left.objects.items()
            for kind, objects in kinds.items()
            if objects
        },
    }
    return Answer(ok=report.ending == "succeeded", told=told, data=data)


def _missed(report: Report) -> list[str]:
    late = [f"event {number}: the run was over before" for number in report.unplayed]
    return [*late, *(f"event {number}: {why}" for number, why in report.refused.items())]


def _stand_ins(project: Project, stack: str) -> dict[str, str]:
    """A text for each value that the stack's settings have encrypted."""
    config = StackSettings.load(project, stack).config
    return {key: STAND_IN for key, value in config.items() if is_secure(value)}
