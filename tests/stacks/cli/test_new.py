"""`gpuform new`: every template is listed, makes a project, and the project runs."""

import contextlib
import json
import os
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator

from gpuform.stacks.cli.app import cli
from gpuform.stacks.engine.project.project import load_project
from gpuform.stacks.formatting import format_topology
from gpuform.stacks.json_schema import build_topology_schema, render_topology_schema
from gpuform.stacks.new_project import derive_project_name, list_templates

ROOT = Path(__file__).parents[3]
TEMPLATES = sorted(list_templates())
FORMS = [pytest.param([], id="topology"), pytest.param(["--python"], id="program")]
PLAYED_TEMPLATES = [
    TEMPLATES[0],
    *(pytest.param(template, marks=pytest.mark.slow) for template in TEMPLATES[1:]),
]
"""Each takes seconds from its first command to its last."""


def test_new_lists_every_template_with_its_description(run: Any) -> None:
    lines = run("new").out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(TEMPLATES)]] == TEMPLATES
    assert (
        "together-training  A shared volume and a GPU cluster that trains on it"
        in lines[len(TEMPLATES)]
    )
    platforms = {template.partition("-")[0] for template in TEMPLATES}
    assert platforms >= {"together", "scp", "tensorone", "aios", "health"}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_creates_a_valid_project(run: Any, template: str, tmp_path: Path) -> None:
    directory = tmp_path / "My project!"
    ran = run("new", template, "--dir", str(directory))
    assert ran.code == 0
    assert {path.name for path in directory.iterdir()} == {
        *("Pulumi.yaml", "topology.yaml", "__main__.py", ".gpuform"),
        *("requirements.txt", ".gitignore", "tests"),
    }
    requirements = (directory / "requirements.txt").read_text().splitlines()
    assert all(line.startswith("#") for line in requirements)  # a name may be another's
    project = load_project(directory / "Pulumi.yaml")
    assert (project.name, project.backend_url) == ("My-project", "file://.")
    assert project.description == list_templates()[template]
    content = (directory / "topology.yaml").read_text()
    assert content.startswith("# yaml-language-server: $schema=.gpuform/topology.schema.json\n# ")
    link = json.loads((directory / ".gpuform/topology.schema.json").read_text())
    installed = Path(link["$ref"].removeprefix("file://"))
    assert installed.read_text() == render_topology_schema()
    assert format_topology(content.encode(), "topology.yaml").decode() == content
    Draft7Validator(build_topology_schema()).validate(yaml.safe_load(content))
    assert (directory / "__main__.py").read_text() == (
        (ROOT / "examples/01-together-training/__main__.py").read_text()
    )
    assert (
        f"  cd {directory}\n  gpuform stack init dev --emulate\n  gpuform up --emulate\n" in ran.out
    )


def run_commands(directory: Path, *commands: list[str]) -> str:
    """Run commands with only the passphrase set, and return the output of the last one."""
    own = ("PULUMI_", "GPUFORM_", "TOGETHER_", "SCP_", "TENSORONE_", "AIOS_", "LENS_")
    environ: dict[str, str | None] = {name: None for name in os.environ if name.startswith(own)}
    environ |= {"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_HOME": str(directory.parent / "home")}
    directory.mkdir(exist_ok=True)
    printed = ""
    for command in commands:
        with contextlib.chdir(directory):
            done = CliRunner().invoke(cli, command, env=environ)
        assert done.exit_code == 0, (command, done.output)
        printed = done.stdout
    return printed


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("template", PLAYED_TEMPLATES)
def test_a_new_project_is_created_unchanged_and_destroyed(
    template: str, form: list[str], tmp_path: Path
) -> None:
    run_commands(
        tmp_path / "project",
        ["new", template, *form],
        ["stack", "init", "dev"],
        ["up", "--emulate", "--yes"],
        ["preview", "--emulate", "--expect-no-changes"],
        ["destroy", "--emulate", "--yes"],
    )


@pytest.mark.slow
@pytest.mark.parametrize("template", PLAYED_TEMPLATES)
def test_topology_and_program_declare_the_same(template: str, tmp_path: Path) -> None:
    """The program finds the topology's objects as declared, and has equal outputs."""
    directory = tmp_path / "project"
    up = ["up", "--emulate", "--yes"]
    outputs = ["stack", "output", "--json"]
    outputs_of_topology = run_commands(
        directory, ["new", template], ["stack", "init", "dev"], up, outputs
    )
    (directory / "topology.yaml").unlink()
    run_commands(
        directory,
        ["new", template, "--python", "--force"],
        ["preview", "--emulate", "--expect-no-changes"],
    )
    assert run_commands(directory, up, outputs) == outputs_of_topology


def test_new_python_writes_a_program_instead_of_a_topology(run: Any, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert run("new", "scp-pool", "--python", "--dir", str(new), "-n", "pool", "-d", "D").code == 0
    assert not (new / "topology.yaml").exists()
    assert "NodePool(" in (new / "__main__.py").read_text()
    project = load_project(new / "Pulumi.yaml")
    assert (project.name, project.description) == ("pool", "D")


def test_the_current_folder_is_used_if_it_is_empty(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = tmp_path / "new"
    (new / ".git").mkdir(parents=True)
    monkeypatch.chdir(new)
    ran = run("new", "together-training")
    assert ran.code == 0
    assert "cd " not in ran.out
    assert load_project(new / "Pulumi.yaml").name == "new"


def test_a_folder_with_files_is_left_alone_without_force(run: Any, project: Path) -> None:
    before = (project / "Pulumi.yaml").read_text()
    ran = run("new", "together-training")
    assert ran.code == 1
    assert f"error: {project} is not empty\n  rerun in an empty directory" in ran.err
    assert (project / "Pulumi.yaml").read_text() == before
    (project / "mine.txt").write_text("mine")
    assert run("new", "together-training", "--force").code == 0
    assert (project / "mine.txt").read_text() == "mine"
    assert load_project(project / "Pulumi.yaml").name == "project"


def test_a_hidden_file_is_not_overwritten_without_force(run: Any, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/.gitignore").write_text("mine\n")
    ran = run("new", "together-training", "--dir", str(tmp_path / "new"))
    assert ran.code == 1
    assert "will make changes to existing files:\n  overwrite   .gitignore\n" in ran.err
    assert [path.name for path in (tmp_path / "new").iterdir()] == [".gitignore"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["together-traning"], "did you mean together-training?"),
        (["x"], "`gpuform new` lists the templates"),
        (["scp-pool", "--name", "a b"], "'a b' is not a valid project name"),
        (["scp-pool", "--name", ""], "'' is not a valid project name"),
    ],
)
def test_a_refused_new_writes_nothing(
    run: Any, tmp_path: Path, args: list[str], message: str
) -> None:
    ran = run("new", *args, "--dir", str(tmp_path / "new"))
    assert ran.code == 1
    assert message in ran.err
    assert not (tmp_path / "new").exists()


def test_new_refuses_a_file_as_folder(run: Any, project: Path) -> None:
    assert run("new", "scp-pool", "--dir", "Pulumi.yaml").code == 2
    assert "cannot be written" in run("new", "scp-pool", "--dir", "Pulumi.yaml/new").err


@pytest.mark.parametrize("name", ["no", "1.5", "null", "2026", "."])
def test_a_project_name_stays_text_in_yaml(run: Any, tmp_path: Path, name: str) -> None:
    assert run("new", "scp-pool", "--name", name, "--dir", str(tmp_path / "new")).code == 0
    assert yaml.safe_load((tmp_path / "new/Pulumi.yaml").read_text())["name"] == name


@pytest.mark.parametrize(
    ("folder", "name"), [("a b", "a-b"), ("/", "project"), ("é", "project"), ("x" * 150, "x" * 100)]
)
def test_a_project_is_named_after_its_folder_in_valid_characters(folder: str, name: str) -> None:
    assert derive_project_name(Path("/") / folder) == name


def test_every_file_of_the_templates_is_packaged() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = settings["package-data"]["gpuform.stacks"]
    package = ROOT / "stacks"
    files = [p for p in (package / "templates").rglob("*") if p.is_file() and p.suffix != ".pyc"]
    assert len(files) == 3 * len(TEMPLATES)
    for file in files:
        assert any(fnmatch(str(file.relative_to(package)), pattern) for pattern in patterns), file
