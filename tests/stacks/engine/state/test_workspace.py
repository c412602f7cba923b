"""Test the selected stack in Pulumi's workspace file."""

import hashlib
import json
from pathlib import Path

import pytest

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.stack import find_selected_stack
from gpuform.stacks.engine.stack.workspace import StackNotFound, select_stack, unselect_stack


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project("demo", tmp_path / "demo" / "Pulumi.yaml")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PULUMI_HOME": str(tmp_path / "home"), "PULUMI_BACKEND_URL": "file:///one", "PATH": ""}


def get_workspace_path(project: Project, environ: dict[str, str]) -> Path:
    digest = hashlib.sha1(str(project.path).encode()).hexdigest()
    return Path(environ["PULUMI_HOME"]) / "workspaces" / f"demo-{digest}-workspace.json"


def write_workspace_file(project: Project, environ: dict[str, str], text: str) -> Path:
    path = get_workspace_path(project, environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_selection_is_stored_in_pulumis_workspace_file(project: Project, environ) -> None:
    assert find_selected_stack(project, environ) is None
    select_stack(project, "dev", environ)
    expected_workspace = {"stacks": {"file:///one": "organization/demo/dev"}}
    assert json.loads(get_workspace_path(project, environ).read_text()) == expected_workspace
    assert find_selected_stack(project, environ) == "dev"
    select_stack(project, None, environ)
    assert find_selected_stack(project, environ) is None
    assert not get_workspace_path(project, environ).exists()
    select_stack(project, None, environ)


def test_each_backend_has_its_own_selection(project: Project, environ) -> None:
    other = environ | {"PULUMI_BACKEND_URL": "s3://bucket/prefix?region=x"}
    select_stack(project, "dev", environ)
    assert find_selected_stack(project, other) is None
    select_stack(project, "prod", other)
    assert (find_selected_stack(project, environ), find_selected_stack(project, other)) == (
        "dev",
        "prod",
    )
    select_stack(project, None, environ)
    assert (find_selected_stack(project, environ), find_selected_stack(project, other)) == (
        None,
        "prod",
    )


def test_the_selection_is_stored_under_the_backend_url_as_written(tmp_path: Path, environ) -> None:
    del environ["PULUMI_BACKEND_URL"]
    project = Project("demo", tmp_path / "Pulumi.yaml", backend_url="file://./state")
    select_stack(project, "dev", environ)
    assert list(json.loads(get_workspace_path(project, environ).read_text())["stacks"]) == [
        "file://./state"
    ]


def test_a_selection_of_an_older_cli_applies_until_a_new_selection(
    project: Project, environ
) -> None:
    path = write_workspace_file(project, environ, '{"stack": "organization/demo/old"}')
    assert find_selected_stack(project, environ) == "old"
    select_stack(project, "new", environ)
    assert json.loads(path.read_text()) == {
        "stack": "organization/demo/old",
        "stacks": {"file:///one": "organization/demo/new"},
    }
    assert find_selected_stack(project, environ) == "new"
    other = environ | {"PULUMI_BACKEND_URL": "file:///two"}
    assert find_selected_stack(project, other) == "old"
    unselect_stack(project, "old", environ)  # not what is selected
    assert find_selected_stack(project, environ) == "new"
    unselect_stack(project, "new", environ)
    assert (find_selected_stack(project, environ), find_selected_stack(project, other)) == (
        None,
        None,
    )


@pytest.mark.parametrize(
    ("version", "expected_workspace"),
    [
        ("v3.255.1", {"stack": "organization/demo/dev"}),
        ("v3.256.0", {"stacks": {"file:///one": "organization/demo/dev"}}),
        ("v4.0.0-alpha.1", {"stacks": {"file:///one": "organization/demo/dev"}}),
        ("no version", {"stacks": {"file:///one": "organization/demo/dev"}}),
    ],
)
def test_the_selection_is_written_in_the_format_of_the_installed_cli(
    project: Project, environ, tmp_path: Path, version: str, expected_workspace: dict[str, object]
) -> None:
    cli = tmp_path / "bin" / "pulumi"
    cli.parent.mkdir()
    cli.write_text(f"#!/bin/sh\necho {version}\n")
    cli.chmod(0o755)
    environ["PATH"] = str(cli.parent)
    select_stack(project, "dev", environ)
    assert json.loads(get_workspace_path(project, environ).read_text()) == expected_workspace
    assert find_selected_stack(project, environ) == "dev"


@pytest.mark.parametrize("stored", ["dev", "organization/dev", "organization/demo/dev"])
@pytest.mark.parametrize("shape", ['{"stack": "%s"}', '{"stacks": {"file:///one": "%s"}}'])
def test_all_stack_name_forms_of_the_cli_are_read(
    project: Project, environ, stored: str, shape: str
) -> None:
    write_workspace_file(project, environ, shape % stored)
    assert find_selected_stack(project, environ) == "dev"


def test_a_selected_stack_of_another_project_is_not_found(project: Project, environ) -> None:
    write_workspace_file(project, environ, '{"stacks": {"file:///one": "organization/other/dev"}}')
    with pytest.raises(StackNotFound, match=r"organization/other/dev.*demo"):
        find_selected_stack(project, environ)
    with pytest.raises(StackNotFound, match="acme/dev"):
        find_selected_stack(project, environ | {"PULUMI_STACK": "acme/dev"})
    select_stack(project, "dev", environ)
    assert find_selected_stack(project, environ) == "dev"


def test_a_selection_of_an_older_cli_in_another_backend_is_ignored(
    project: Project, environ
) -> None:
    write_workspace_file(project, environ, '{"stack": "acme/demo/dev"}')
    assert find_selected_stack(project, environ) is None


def test_the_environment_variable_wins_over_the_selection(project: Project, environ) -> None:
    select_stack(project, "dev", environ)
    assert (
        find_selected_stack(project, environ | {"PULUMI_STACK": "organization/demo/prod"}) == "prod"
    )


def test_an_empty_environment_variable_selects_no_stack(project: Project, environ) -> None:
    select_stack(project, "dev", environ)
    assert find_selected_stack(project, environ | {"PULUMI_STACK": ""}) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "not a JSON object"),
        ('{"stack": 5}', "not a string"),
        ('{"stacks": ["dev"]}', "not a map of strings"),
        ('{"stacks": {"file:///one": {"name": "dev"}}}', "not a map of strings"),
        ('{"version": 2, "stacks": {}}', "version.*newer Pulumi CLI"),
    ],
)
def test_an_invalid_workspace_file_is_an_error_and_is_not_changed(
    project: Project, environ, text: str, why: str
) -> None:
    path = write_workspace_file(project, environ, text)
    for attempt in (
        lambda: find_selected_stack(project, environ),
        lambda: select_stack(project, "dev", environ),
        lambda: select_stack(project, None, environ),
    ):
        with pytest.raises(EngineError, match=why) as caught:
            attempt()
        assert str(path) in str(caught.value)
        assert "--stack NAME" in caught.value.hint
    assert path.read_text() == text
    assert find_selected_stack(project, environ | {"PULUMI_STACK": "dev"}) == "dev"


def test_the_workspace_file_is_in_the_home_directory_by_default(
    project: Project, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    select_stack(project, "dev", {})
    assert len(list((tmp_path / ".pulumi" / "workspaces").iterdir())) == 1


def test_an_unwritable_home_directory_is_an_error_with_a_hint(
    project: Project, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot save the selected stack") as caught:
        select_stack(
            project, "dev", {"PULUMI_HOME": str(tmp_path / "file"), "PULUMI_BACKEND_URL": "s3://b"}
        )
    assert "--stack" in caught.value.hint
