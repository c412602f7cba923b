"""Test that a program that changes the current folder does not affect the command."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

Run = Any

# Every way of leaving, before anything is sent and again while things are done.
PROGRAM = """
import os
import pulumi
from gpuform.providers.together import SharedVolume

with open("region.txt") as file:
    region = file.read().strip()


def leave(where):
    os.makedirs(where, exist_ok=True)
    os.chdir(where)
    for name in ("HOME", "PULUMI_HOME", "PULUMI_BACKEND_URL", "TMPDIR"):
        os.environ[name] = os.getcwd()
    os.environ["PULUMI_STACK"] = "other"
    os.environ["PULUMI_CONFIG_PASSPHRASE"] = "changed"


leave("away")
data = SharedVolume("data", volume_name="data", region=region, size_tib=1)
pulumi.export("id", data.id.apply(lambda id: [leave("further"), id][1]))
pulumi.export("cwd", data.id.apply(lambda _: os.path.basename(os.getcwd())))
"""


@pytest.fixture
def changing_project(project: Path) -> Path:
    """Return a project whose program is in a folder of its own and changes the current folder."""
    program = project / "infra"
    program.mkdir()
    (project / "__main__.py").unlink()
    (program / "__main__.py").write_text(PROGRAM)
    (program / "region.txt").write_text("us-central-8")
    return project


@pytest.mark.slow
@pytest.mark.parametrize("where", ["project", "variable", "home"])
def test_a_program_that_changes_folder_moves_no_file_of_the_command(
    run: Run, changing_project: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    home = changing_project.parent / "house"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    url = {"project": "file://./state", "variable": "file://./unused", "home": "file://~"}[where]
    state = {
        "project": changing_project / "state",
        "variable": changing_project / "here",
        "home": home,
    }[where]
    state.mkdir(exist_ok=True)
    message = "name: demo\nruntime: python\nmain: infra\nbackend:\n  url: "
    (changing_project / "Pulumi.yaml").write_text(message + url + "\n")
    if where == "variable":
        monkeypatch.setenv("PULUMI_BACKEND_URL", "file://./here")
    before = (dict(os.environ), Path.cwd())
    assert run("stack", "init", "dev").code == 0
    up = run("up", "--emulate", "--yes", "--event-log", "events.jsonl")
    assert up.code == 0, up.err + up.out
    assert (dict(os.environ), Path.cwd()) == before
    again = run("preview", "--emulate", "--expect-no-changes")
    assert again.code == 0, again.err + again.out
    assert run("stack", "output", "cwd").out.strip() == "further"

    (checkpoint,) = state.glob(".pulumi/stacks/demo/dev.json")
    assert "SharedVolume" in checkpoint.read_text()
    events = [
        json.loads(line) for line in (changing_project / "events.jsonl").read_text().splitlines()
    ]
    assert "preludeEvent" in events[0]
    assert "cancelEvent" in events[-1]
    assert (changing_project / ".gpuform" / "emulator.db").is_file()
    assert list(changing_project.rglob(".gpuform")) == [changing_project / ".gpuform"]
    made = {path.name for path in (changing_project / "infra").iterdir()} - {"__pycache__"}
    assert made == {"__main__.py", "region.txt", "away"}
    assert list((changing_project / "infra" / "away").rglob("*")) == [
        changing_project / "infra" / "away" / "further"
    ]

    destroyed = run("destroy", "--emulate", "--yes")
    assert destroyed.code == 0, destroyed.err + destroyed.out


def test_a_missing_main_folder_is_reported(run: Run, changing_project: Path) -> None:
    (changing_project / "Pulumi.yaml").write_text(
        "name: demo\nruntime: python\nmain: src\nbackend:\n  url: file://.\n"
    )
    run("stack", "init", "dev")
    ran = run("preview")
    assert ran.code == 1
    assert f"the program {changing_project}/src does not exist" in ran.err
    assert "`main` in Pulumi.yaml" in ran.err


def test_an_unsupported_resource_is_reported_with_its_line_and_a_hint(
    dev: Run, project: Path
) -> None:
    (project / "__main__.py").write_text(
        "import pulumi\n\npulumi.CustomResource('aws:s3/bucket:Bucket', 'logs', {})\n"
    )
    ran = dev("up", "--yes")
    assert ran.code == 1
    output = ran.out + ran.err
    assert "__main__.py:3: resource 'logs' is of package 'aws' (aws:s3/bucket:Bucket)" in output
    assert "run this stack with the Pulumi CLI (`pulumi up`)" in output
    assert "Traceback" not in output
