"""One selection: what either engine selects, makes, renames or removes, the other one finds so."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes.commands import PASSPHRASE, SALT, Cli, Result, pulumi

Change = Callable[["Project", Cli], object]


@dataclass
class Project:
    """A project with two backends. `backend` is the one that commands are given."""

    folder: Path
    gpuform: Cli
    backend: str

    def run(self, cli: Cli, *arguments: str, **environ: str) -> Result:
        return cli(
            self.folder / "project",
            *arguments,
            "--non-interactive",
            PULUMI_HOME=str(self.folder / "home"),
            PULUMI_CONFIG_PASSPHRASE=PASSPHRASE,
            **{"PULUMI_BACKEND_URL": self.backend, **environ},
        )

    def run_successfully(self, cli: Cli, *arguments: str) -> None:
        done = self.run(cli, *arguments)
        assert done.code == 0, done.stderr

    def get_selected(self) -> str | None:
        """Return the selected stack, and assert that both engines report the same."""
        own, theirs = (
            [load["name"] for load in json.loads(listed.stdout) if load["current"]]
            for listed in (
                self.run(self.gpuform, "stack", "ls", "--json"),
                self.run(pulumi, "stack", "ls", "--json"),
            )
        )
        assert own == theirs
        ran = self.run(pulumi, "stack", "--show-name")
        assert ran.stdout.split() == own
        exported = self.run(self.gpuform, "stack", "export")
        assert exported.code == (0 if own else 6)
        return own[0] if own else None


@pytest.fixture
def project(tmp_path: Path, gpuform: Cli) -> Project:
    for name in ("project", "state", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "project/Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (tmp_path / "project/__main__.py").write_text("")
    for stack in ("dev", "prod", "new"):
        (tmp_path / f"project/Pulumi.{stack}.yaml").write_text(f"encryptionsalt: {SALT}\n")
    return Project(tmp_path, gpuform, f"file://{tmp_path}/state")


@pytest.fixture(params=["gpuform", "pulumi"])
def selecting_engine(request: pytest.FixtureRequest, gpuform: Cli) -> Cli:
    return gpuform if request.param == "gpuform" else pulumi


def test_both_tools_see_each_selection_of_a_stack(project: Project, selecting_engine: Cli) -> None:
    assert project.get_selected() is None
    project.run_successfully(selecting_engine, "stack", "init", "dev")
    assert project.get_selected() == "dev"
    project.run_successfully(selecting_engine, "stack", "init", "prod")
    assert project.get_selected() == "prod"
    project.run_successfully(selecting_engine, "stack", "select", "dev")
    assert project.get_selected() == "dev"
    (project.folder / "project/Pulumi.new.yaml").unlink()
    project.run_successfully(selecting_engine, "stack", "rename", "new")
    assert project.get_selected() == "new"
    project.run_successfully(selecting_engine, "stack", "unselect")
    assert project.get_selected() is None
    project.run_successfully(selecting_engine, "stack", "select", "organization/demo/prod")
    assert project.get_selected() == "prod"
    project.run_successfully(selecting_engine, "stack", "rm", "prod", "--yes")
    assert project.get_selected() is None
    project.run_successfully(selecting_engine, "stack", "select", "--create", "dev")
    assert project.get_selected() == "dev"


def test_a_stack_that_moves_to_another_project_has_the_same_files(
    project: Project, selecting_engine: Cli
) -> None:
    project.run_successfully(selecting_engine, "stack", "init", "dev")
    for stack in ("prod", "new"):
        (project.folder / f"project/Pulumi.{stack}.yaml").unlink()
    project.run_successfully(pulumi, "up", "--yes", "--skip-preview", "--stack", "dev")
    project.run_successfully(
        selecting_engine, "stack", "rename", "organization/train/live", "--stack", "dev"
    )
    folder = project.folder / "state/.pulumi"
    files = {path.relative_to(folder).parts for path in folder.rglob("*.json*")}
    states = {parts for parts in files if parts[0] == "stacks" and ".attrs" not in parts[-1]}
    assert states == {("stacks", "demo", "dev.json.bak"), ("stacks", "train", "live.json")}
    assert {parts[:3] for parts in files if parts[0] == "history"} == {("history", "train", "live")}
    assert [path.name for path in (project.folder / "project").glob("Pulumi.*.yaml")] == [
        "Pulumi.live.yaml"
    ]
    refused = project.run(project.gpuform, "preview")
    assert "'organization/train/live' does not belong to this project" in refused.stderr
    assert "doesn't match Pulumi.yaml" in project.run(pulumi, "preview").stderr
    (project.folder / "project/Pulumi.yaml").write_text("name: train\nruntime: python\n")
    for cli in (project.gpuform, pulumi):
        project.run_successfully(cli, "preview", "--expect-no-changes", "--stack", "live")


def test_each_tool_can_unselect_the_stack_that_the_other_selected(
    project: Project, gpuform: Cli
) -> None:
    for first, second in ((gpuform, pulumi), (pulumi, gpuform)):
        project.run_successfully(first, "stack", "init", "dev")
        project.run_successfully(second, "stack", "init", "prod")
        project.run_successfully(first, "stack", "select", "dev")
        project.run_successfully(second, "stack", "unselect")
        assert project.get_selected() is None
        project.run_successfully(first, "stack", "select", "dev")
        project.run_successfully(second, "stack", "rm", "dev", "--yes")
        assert project.get_selected() is None
        project.run_successfully(second, "stack", "rm", "prod", "--yes")


def test_each_backend_has_its_own_selection(project: Project, selecting_engine: Cli) -> None:
    project.run_successfully(selecting_engine, "stack", "init", "dev")
    project.run_successfully(selecting_engine, "stack", "init", "prod")
    first_backend, second_backend = project.backend, f"file://{project.folder}/other"
    project.backend = second_backend
    assert project.get_selected() is None
    project.run_successfully(selecting_engine, "stack", "init", "dev")
    assert project.get_selected() == "dev"
    project.backend = first_backend
    assert project.get_selected() == "prod"
    project.run_successfully(selecting_engine, "stack", "unselect")
    project.backend = second_backend
    assert project.get_selected() == "dev"


def test_a_selection_in_the_backend_that_the_project_names(
    project: Project, selecting_engine: Cli
) -> None:
    (project.folder / "project/state").mkdir()
    (project.folder / "project/Pulumi.yaml").write_text(
        "name: demo\nruntime: python\nbackend:\n  url: file://./state\n"
    )
    project.backend = ""
    project.run_successfully(selecting_engine, "stack", "init", "dev")
    assert project.get_selected() == "dev"


def test_a_selection_in_the_backend_of_a_login(project: Project, selecting_engine: Cli) -> None:
    url, project.backend = project.backend, ""
    project.run_successfully(selecting_engine, "login", url)
    project.run_successfully(selecting_engine, "stack", "init", "dev")
    assert project.get_selected() == "dev"


def test_both_tools_read_the_selection_of_an_older_cli(
    project: Project, selecting_engine: Cli
) -> None:
    project.run_successfully(selecting_engine, "stack", "init", "dev")
    project.run_successfully(selecting_engine, "stack", "init", "prod")
    (file,) = (project.folder / "home/workspaces").iterdir()
    file.write_text('{"stack": "organization/demo/dev"}')
    assert project.get_selected() == "dev"
    project.run_successfully(selecting_engine, "stack", "select", "prod")
    assert project.get_selected() == "prod"
    project.run_successfully(selecting_engine, "stack", "unselect")
    assert project.get_selected() is None


def test_gpuform_does_not_use_a_selected_stack_of_another_project(
    project: Project, gpuform: Cli
) -> None:
    project.run_successfully(pulumi, "stack", "init", "dev")
    other = Project(project.folder / "another", gpuform, project.backend)
    (other.folder / "project").mkdir(parents=True)
    (other.folder / "project/Pulumi.yaml").write_text("name: other\nruntime: python\n")
    other.run_successfully(pulumi, "stack", "init", "dev")
    project.run_successfully(pulumi, "stack", "select", "organization/other/dev")
    refused = project.run(gpuform, "stack", "export")
    assert (refused.code, refused.stdout) == (6, "")
    assert "'organization/other/dev' does not belong to this project" in refused.stderr
    ran = project.run(gpuform, "stack", "ls")
    assert (ran.code, "dev" in ran.stdout, "*" in ran.stdout) == (0, True, False)
    refused = project.run(gpuform, "stack", "export", "--stack", "organization/other/dev")
    assert refused.code == 6
    assert project.run(gpuform, "stack", "export", "--stack", "dev").code == 0


def test_an_empty_variable_selects_nothing(project: Project, gpuform: Cli) -> None:
    project.run_successfully(pulumi, "stack", "init", "dev")
    for cli in (gpuform, pulumi):
        assert project.run(cli, "stack", "export", PULUMI_STACK="").code != 0


def test_the_pulumi_cli_finds_a_moved_stack_in_the_new_place_only(
    project: Project, selecting_engine: Cli
) -> None:
    former, new = project.backend, f"file://{project.folder}/other"
    project.run_successfully(selecting_engine, "stack", "init", "dev")

    project.run_successfully(project.gpuform, "stack", "migrate", new, "--stack", "dev")

    project.backend = new
    assert project.get_selected() == "dev"
    project.run_successfully(pulumi, "stack", "export", "--stack", "dev")
    project.backend = former
    assert json.loads(project.run(pulumi, "stack", "ls", "--json").stdout) == []
    assert project.run(pulumi, "stack", "export", "--stack", "dev").code != 0
