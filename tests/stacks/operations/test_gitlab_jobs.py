"""The parts of a plan as jobs of a child pipeline of GitLab: what they pass on and refuse."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.schemas.errors import EngineError
from gpuform.schemas.stacks_plan import PartSchedule, ScheduledStack, WavePart
from gpuform.stacks.operations.multi_stack.gitlab_jobs import GitLabJobsRefused, render_gitlab_jobs
from gpuform.stacks.operations.multi_stack.parts import PartFolder

DEPENDENCIES = {"a/x": [], "b/x": [], "c/x": ["b/x"], "d/x": ["a/x", "c/x"]}


WAVES = (("a/x", "b/x"), ("c/x",), ("d/x",))


def create_schedule(folder: str = "p") -> PartSchedule:
    """Return the schedule of four stacks in three waves, each stack in a part of its own."""
    return PartSchedule(
        made_by="gpuform 1",
        stacks=tuple(
            ScheduledStack(name=name, folder=folder, dependencies=tuple(others))
            for name, others in DEPENDENCIES.items()
        ),
        waves=tuple(
            tuple(
                WavePart(part=f"{wave}-{part}", stacks=name) for part, name in enumerate(names, 1)
            )
            for wave, names in enumerate(WAVES, 1)
        ),
    )


def render(root: Path, path: Path, folder: str = "p", job: str = "plan") -> Any:
    parts = PartFolder.create(path, create_schedule(folder))
    return yaml.safe_load(render_gitlab_jobs(job, parts.schedule, parts, root))


def test_each_wave_is_a_stage_after_the_waves_before(tmp_path: Path) -> None:
    document = render(tmp_path, tmp_path / "infra/parts")
    assert document["stages"] == ["waves", "wave-1", "wave-2", "wave-3", "result"]
    jobs = {name: job for name, job in document.items() if name.startswith("plan-")}
    assert {name: (job["stage"], job["variables"]["STACKS"]) for name, job in jobs.items()} == {
        "plan-1-1": ("wave-1", "a/x"),
        "plan-1-2": ("wave-1", "b/x"),
        "plan-2-1": ("wave-2", "c/x"),
        "plan-3-1": ("wave-3", "d/x"),
    }
    assert {job["extends"] for job in jobs.values()} == {".plan"}


def test_a_job_gets_only_the_parts_that_its_stacks_read_and_passes_on_its_own(
    tmp_path: Path,
) -> None:
    document = render(tmp_path, tmp_path / "infra/parts")
    assert document["plan-1-2"]["dependencies"] == ["gpuform-waves"]
    assert document["plan-2-1"]["dependencies"] == ["gpuform-waves", "plan-1-2"]
    assert document["plan-3-1"]["dependencies"] == ["gpuform-waves", "plan-1-1", "plan-2-1"]
    assert document["plan-3-1"]["artifacts"] == {"paths": ["infra/parts/d/x.json"]}


@pytest.mark.parametrize(
    "folder",
    ["p", "p\nEND\necho a > stolen\n", "$(touch stolen)", "`touch stolen`", "p'\"\\é"],
)
def test_the_schedule_arrives_byte_for_byte_and_no_name_becomes_a_command(
    tmp_path: Path, folder: str
) -> None:
    document = render(tmp_path, tmp_path / "my infra/parts", folder)
    content = (tmp_path / "my infra/parts/waves.json").read_bytes()
    clone = tmp_path / "clone"
    clone.mkdir()
    script = "\n".join(document["gpuform-waves"]["script"])
    subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=clone, check=True)
    (path,) = document["gpuform-waves"]["artifacts"]["paths"]
    assert (clone / path).read_bytes() == content
    assert [*clone.iterdir()] == [clone / "my infra"]


def test_jobs_of_an_apply_pass_nothing_on(tmp_path: Path) -> None:
    schedule = create_schedule()
    text = render_gitlab_jobs("gpuform-apply-prod", schedule, None, tmp_path)
    document = yaml.safe_load(text)
    assert document["gpuform-apply-prod-1-1"] == {
        "extends": ".gpuform-apply-prod",
        "stage": "wave-1",
        "variables": {"STACKS": "a/x"},
        "dependencies": [],
    }
    assert "gpuform-waves" not in document
    empty = schedule.model_copy(update={"waves": ()})
    nothing = yaml.safe_load(render_gitlab_jobs("apply", empty, None, tmp_path))
    assert nothing == {"stages": ["waves", "result"]}


@pytest.mark.parametrize("job", ["", "-x", "a b", "a\nb", "a: {}", "$(id)", ".a", "é"])
def test_a_name_of_a_job_that_yaml_would_misread_is_refused(tmp_path: Path, job: str) -> None:
    with pytest.raises(GitLabJobsRefused, match="is no name for jobs of a pipeline"):
        render_gitlab_jobs(job, create_schedule(), None, tmp_path)


@pytest.mark.parametrize("name", ["$(id)", "a*", "a\nb", "é", "..", "../other"])
def test_a_folder_of_parts_that_gitlab_would_misread_is_refused(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    problem = "outside of the repository" if ".." in name else "cannot be written into a workflow"
    with pytest.raises(EngineError, match=problem):
        render(root, root / name)
