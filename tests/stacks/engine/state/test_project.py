"""Test Pulumi.yaml: lookup, parsing and errors."""

from pathlib import Path

import pytest

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import ConfigDefault, ProjectError, find_project
from gpuform.stacks.engine.project.project import load_project


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "Pulumi.yaml"
        path.write_text(text)
        return path

    return write


def test_a_minimal_project_file_is_read(write, tmp_path: Path) -> None:
    project = load_project(write("name: demo\nruntime: python\n"))
    assert project.name == "demo"
    assert project.directory == tmp_path
    assert project.program == tmp_path
    assert project.virtualenv is None
    assert project.backend_url == ""
    assert project.get_settings_path("dev") == tmp_path / "Pulumi.dev.yaml"


def test_all_fields_of_a_project_file_are_read(write, tmp_path: Path) -> None:
    project = load_project(
        write(
            """\
name: demo
description: Train it
runtime:
  name: python
  options:
    virtualenv: venv
    toolchain: pip
main: infra
backend:
  url: file://state
stackConfigDir: stacks
unheard: of
config:
  size: 5
  gpus: {type: integer, default: 16}
  names: {type: array, default: [a, b]}
  token: {default: for-tests, secret: true}
  needed: {type: string}
  aws:region: {value: eu-west-1}
"""
        )
    )
    assert project.virtualenv == tmp_path / "venv"
    assert project.program == tmp_path / "infra"
    assert project.description == "Train it"
    assert project.backend_url == "file://state"
    assert project.get_settings_path("dev") == tmp_path / "stacks" / "Pulumi.dev.yaml"
    assert project.config == {
        "size": ConfigDefault("5"),
        "gpus": ConfigDefault("16", "integer"),
        "names": ConfigDefault(["a", "b"], "array"),
        "token": ConfigDefault("for-tests", secret=True),
        "needed": ConfigDefault(None, "string"),
        "aws:region": ConfigDefault("eu-west-1"),
    }


def test_the_project_file_is_found_from_a_subfolder(write, tmp_path: Path, monkeypatch) -> None:
    path = write("name: demo\nruntime: python\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_project(below).path == path
    monkeypatch.chdir(below)
    assert find_project(Path()).path == path


def test_a_missing_project_file_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match=r"no Pulumi\.yaml in") as caught:
        find_project(tmp_path)
    assert "--cwd" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"Pulumi.yaml:1:1: the file is empty"),
        ("runtime: python", r":1:1: name is missing"),
        ("name: demo", r":1:1: runtime is missing"),
        ("name: demo\nruntime: nodejs", r":2:10: gpuform does not support the runtime 'nodejs'"),
        ("name: demo\nruntime: {name: go}", r":2:17: gpuform does not support the runtime 'go'"),
        ("name: demo\nruntime: {options: {}}", r":2:10: gpuform does not support the runtime ''"),
        ("name: a/b\nruntime: python", r":1:7: name must be"),
        ("name: [a]\nruntime: python", r":1:7: name must be"),
        ("name: demo\nruntime: python\nmain: [x]", r":3:7: main must be text"),
        ("name: demo\nruntime: python\nbackend: x", r":3:10: backend must be a mapping"),
        ("name: demo\nruntime: python\nconfig: [x]", r":3:9: config must be a mapping"),
        (
            "name: demo\nruntime: python\nconfig: {a: {type: date}}",
            r":3:20: a: the type must be one of",
        ),
        ("name: demo\n  runtime: python", r":2:10: not YAML"),
    ],
)
def test_problems_in_a_project_file_have_line_and_column(write, text: str, problem: str) -> None:
    with pytest.raises(EngineError, match=problem):
        load_project(write(text))


def test_an_unsupported_runtime_is_an_error_that_names_the_pulumi_cli(write) -> None:
    with pytest.raises(EngineError) as caught:
        load_project(write("name: demo\nruntime: nodejs"))
    assert "Pulumi CLI" in caught.value.hint


def test_an_unreadable_project_file_is_an_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="cannot be read"):
        load_project(tmp_path / "absent.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(ProjectError, match="not UTF-8"):
        load_project(tmp_path / "latin.yaml")


@pytest.mark.parametrize(
    ("key", "full"),
    [("size", "demo:size"), ("aws:region", "aws:region"), ("demo:config:size", "demo:size")],
)
def test_configuration_keys_get_the_project_namespace(write, key: str, full: str) -> None:
    assert load_project(write("name: demo\nruntime: python")).qualify_key(key) == full


@pytest.mark.parametrize("key", ["", ":a", "a:", "a:b:c", "a::b"])
def test_invalid_configuration_keys_are_rejected(write, key: str) -> None:
    with pytest.raises(ProjectError, match="not a configuration key"):
        load_project(write("name: demo\nruntime: python")).qualify_key(key)
