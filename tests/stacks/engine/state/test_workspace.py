"""The selected stack, in Pulumi's own file."""

import hashlib
import json
from pathlib import Path

import pytest

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.workspace import select_stack, selected_stack


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project("demo", tmp_path / "demo" / "Pulumi.yaml")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PULUMI_HOME": str(tmp_path / "home")}


def file_of(project: Project, environ: dict[str, str]) -> Path:
    digest = hashlib.sha1(str(project.path).encode()).hexdigest()
    return Path(environ["PULUMI_HOME"]) / "workspaces" / f"demo-{digest}-workspace.json"


def test_a_selection_is_kept_where_the_cli_looks(project: Project, environ) -> None:
    assert selected_stack(project, environ) is None
    select_stack(project, "dev", environ)
    assert json.loads(file_of(project, environ).read_text()) == {"stack": "organization/demo/dev"}
    assert selected_stack(project, environ) == "dev"
    select_stack(project, None, environ)
    assert selected_stack(project, environ) is None
    assert not file_of(project, environ).exists()
    select_stack(project, None, environ)


@pytest.mark.parametrize("stored", ["dev", "organization/dev", "organization/demo/dev"])
def test_every_spelling_of_the_cli_is_understood(project: Project, environ, stored: str) -> None:
    path = file_of(project, environ)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"stack": stored, "unheard": 1}))
    assert selected_stack(project, environ) == "dev"
    select_stack(project, "prod", environ)
    assert json.loads(path.read_text()) == {"stack": "organization/demo/prod", "unheard": 1}


def test_the_variable_wins(project: Project, environ) -> None:
    select_stack(project, "dev", environ)
    assert selected_stack(project, environ | {"PULUMI_STACK": "organization/demo/prod"}) == "prod"


@pytest.mark.parametrize("text", ["", "[]", '{"stack": 5}', '{"stack": ""}'])
def test_a_damaged_file_selects_nothing(project: Project, environ, text: str) -> None:
    path = file_of(project, environ)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert selected_stack(project, environ) is None


def test_the_users_home_is_the_default(project: Project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    select_stack(project, "dev", {})
    assert len(list((tmp_path / ".pulumi" / "workspaces").iterdir())) == 1


def test_a_home_that_cannot_be_written_is_named(project: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be kept") as caught:
        select_stack(project, "dev", {"PULUMI_HOME": str(tmp_path / "file")})
    assert "--stack" in caught.value.hint
