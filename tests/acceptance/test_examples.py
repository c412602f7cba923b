"""Test that every example behaves as described in README, in YAML and in Python."""

import contextlib
import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.stacks.state_comparison import map_ids, normalize_export, normalize_resource

from gpuform.stacks.cli.app import cli

EXAMPLES = sorted(
    file.parent for file in (Path(__file__).parents[2] / "examples").glob("[0-9]*/Pulumi.yaml")
)
IN_PYTHON = [example for example in EXAMPLES if (example / "python").is_dir()]
FIRST, *OTHERS = [*EXAMPLES, *(example / "python" for example in IN_PYTHON)]
PROJECTS = [FIRST, *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)]


class Project:
    """A copy of an example's project, where commands run."""

    def __init__(self, source: Path, folder: Path) -> None:
        ignored = shutil.ignore_patterns(".*", "Pulumi.*.yaml", "python", "pulumi-yaml")
        self.directory = shutil.copytree(source, folder, ignore=ignored)
        self.environ = {
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_HOME": str(folder.parent / "home"),
            "PULUMI_BACKEND_URL": None,
            "TOGETHER_API_KEY": None,
            "TOGETHER_BASE_URL": None,
            "SCP_TF_ACCESS_KEY": None,
            "SCP_TF_ENDPOINT_OVERRIDE": None,
            "TENSORONE_API_KEY": None,
            "TENSORONE_BASE_URL": None,
        }

    def run(self, *command: str) -> str:
        with contextlib.chdir(self.directory):
            done = CliRunner().invoke(cli, command, env=self.environ)
        assert done.exit_code == 0, (command, done.output)
        return done.stdout


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", PROJECTS, ids=lambda p: str(p.relative_to(EXAMPLES[0].parent)))
def test_an_example_is_created_stays_unchanged_and_is_destroyed(source, tmp_path):
    project = Project(source, tmp_path / "project")
    project.run("stack", "init", "dev")
    printed = project.run("preview", "--emulate")
    for command in (
        ["up", "--emulate", "--yes", "--stack", "dev"],
        ["preview", "--emulate", "--expect-no-changes"],
        ["refresh", "--emulate", "--yes"],
        ["preview", "--emulate", "--expect-no-changes"],
        ["destroy", "--emulate", "--yes"],
        ["stack", "rm", "dev", "--yes"],
    ):
        project.run(*command)
    example = source if source in EXAMPLES else source.parent
    readme = (example / "README.md").read_text()
    plan = re.search(r"## The plan\n.*?```\n(.*?)```", readme, re.DOTALL)
    assert plan, "the README shows the plan"
    assert plan[1].strip() in printed


@pytest.mark.parametrize("example", IN_PYTHON, ids=lambda path: path.name)
@pytest.mark.slow
def test_topology_and_program_of_an_example_have_one_plan_and_state(example, tmp_path):
    plans, states = [], []
    for form, source in (("yaml", example), ("python", example / "python")):
        project = Project(source, tmp_path / form)
        project.run("stack", "init", "dev")
        plans.append(json.loads(project.run("preview", "--emulate", "--json")))
        project.run("up", "--emulate", "--yes")
        states.append(json.loads(project.run("stack", "export", "--show-secrets")))
    assert _planned(plans[0]) == _planned(plans[1])
    assert normalize_export(states[0]) == normalize_export(states[1])
    # The state of one form is no news to the other.
    for folder in (".pulumi", ".gpuform"):
        shutil.rmtree(project.directory / folder)
        shutil.copytree(tmp_path / "yaml" / folder, project.directory / folder)
    shutil.copy(tmp_path / "yaml" / "Pulumi.dev.yaml", project.directory)
    project.run("preview", "--emulate", "--expect-no-changes")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
@pytest.mark.slow
def test_a_topology_has_the_same_state_with_and_without_the_sdk(example, tmp_path):
    plans, states, printed = [], [], []
    for way in ("without", "with"):
        project = Project(example, tmp_path / way / "project")
        if way == "with":
            main = project.directory / "__main__.py"
            main.write_text(main.read_text() + "pass\n")  # more than a topology
        project.run("stack", "init", "dev")
        printed.append(project.run("preview", "--emulate"))
        plans.append(json.loads(project.run("preview", "--emulate", "--json")))
        project.run("up", "--emulate", "--yes")
        states.append(json.loads(project.run("stack", "export", "--show-secrets")))
    assert printed[0] == printed[1]
    assert _planned(plans[0]) == _planned(plans[1])
    assert normalize_export(states[0]) == normalize_export(states[1])


def _planned(plan):
    return {
        step["urn"]: (step["op"], normalize_resource(step["newState"], map_ids([step["newState"]])))
        for step in plan["steps"]
    }
