"""Write the parts of a plan as the jobs of a child pipeline of GitLab.

`gpuform plan-part --waves --format gitlab` calls this module. A job of a pipeline appends the jobs
to a file of the repository, which has the hidden job that they extend, and triggers the result as a
child pipeline (docs.gitlab.com/ci/pipelines/downstream_pipelines, "Dynamic child pipelines").
"""

import re
import shlex
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.schemas.errors import EngineError
from gpuform.schemas.stacks_plan import PartSchedule, WavePart
from gpuform.stacks.engine.ci_job import require_workflow_text
from gpuform.stacks.operations.multi_stack.parts import SCHEDULE_FILE, PartFolder

_WAVES_JOB: Final = "gpuform-waves"
_JOB_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class GitLabJobsRefused(EngineError):
    """Raised if a name cannot be written into a pipeline of GitLab."""

    help_page = "guides/many-runners"


def render_gitlab_jobs(
    job: str, schedule: PartSchedule, folder: PartFolder | None, root: Path
) -> str:
    """Return the jobs of the parts as YAML, one stage for each wave.

    Args:
        job: the hidden job `.JOB` that each of the jobs extends; also the start of their names.
        schedule: the waves; the stacks of a part are in the variable STACKS of its job.
        folder: the folder of the parts, whose files the jobs pass on; None for jobs that apply.
        root: the root of the repository, below which GitLab finds the files of a job.

    Raises:
        EngineError: a name has characters that YAML, a shell or GitLab would misread.
    """
    if not _JOB_NAME.fullmatch(job):
        raise GitLabJobsRefused(
            f"{job!r} is no name for jobs of a pipeline",
            hint="use letters, digits, hyphens and underscores, a letter first",
        )
    stages = [
        "waves",
        *(f"wave-{number}" for number in range(1, len(schedule.waves) + 1)),
        "result",
    ]
    document: dict[str, Any] = {"stages": stages}
    if folder is not None:
        document[_WAVES_JOB] = _build_waves_job(folder, root)
    jobs_by_stack: dict[str, str] = {}
    for number, wave in enumerate(schedule.waves, 1):
        for part in wave:
            name = f"{job}-{part.part}"
            jobs_by_stack |= dict.fromkeys(part.stacks.split(), name)
            document[name] = {
                "extends": f".{job}",
                "stage": f"wave-{number}",
                "variables": {"STACKS": part.stacks},
                **_build_files(part, folder, root, jobs_by_stack),
            }
    return yaml.safe_dump(document, sort_keys=False, width=10_000)


def _build_waves_job(folder: PartFolder, root: Path) -> dict[str, Any]:
    """Return the job which passes the schedule on to the other jobs of the pipeline.

    A job can download no file of the parent pipeline without the id of that pipeline.
    """
    path = _format_repository_path(folder.path, root)
    # No line of a JSON document is END: a line break in a text is escaped.
    content = (folder.path / SCHEDULE_FILE).read_text(encoding="utf-8")
    return {
        "stage": "waves",
        "interruptible": True,
        "variables": {"GIT_STRATEGY": "none"},
        "before_script": [],
        "script": [
            f"mkdir -p {shlex.quote(path)}",
            f"cat > {shlex.quote(f'{path}/{SCHEDULE_FILE}')} <<'END'\n{content}END\n",
        ],
        "artifacts": {
            "paths": [f"{path}/{SCHEDULE_FILE}"],
            "access": "developer",
            "expire_in": "1 day",
        },
    }


def _build_files(
    part: WavePart, folder: PartFolder | None, root: Path, jobs_by_stack: dict[str, str]
) -> dict[str, Any]:
    """Return the downloads and artifacts of a part's job: the job's own parts, and no others.

    The job downloads only the parts that its stacks read.
    """
    if folder is None:
        return {"dependencies": []}
    names = part.stacks.split()
    own = jobs_by_stack[names[0]]
    dependencies = {stack.name: stack.dependencies for stack in folder.schedule.stacks}
    required_jobs = {jobs_by_stack[other] for name in names for other in dependencies[name]}
    paths = [_format_repository_path(folder.get_path(name), root) for name in names]
    return {
        "dependencies": [_WAVES_JOB, *sorted(required_jobs - {own})],
        "artifacts": {"paths": paths},
    }


def _format_repository_path(path: Path, root: Path) -> str:
    """Return the path relative to the repository's `root`, with slashes, as GitLab reads paths.

    Raises:
        EngineError: the path is outside of the repository, or a shell or YAML would misread the
            path.
    """
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        raise GitLabJobsRefused(
            f"{path} is outside of the repository {root}",
            hint="use a folder for the parts inside of the repository",
        )
    relative = resolved.relative_to(root).as_posix()
    require_workflow_text("folder", relative)
    return relative
