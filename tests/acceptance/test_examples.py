"""Every example does what its README says, with the passphrase alone set."""

import contextlib
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuform.stacks.cli.app import cli

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_comes_up_stays_and_goes(example, tmp_path):
    ignored = shutil.ignore_patterns(".*", "Pulumi.*.yaml")
    directory = shutil.copytree(example, tmp_path / example.name, ignore=ignored)
    environ = {
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_BACKEND_URL": None,
        "TOGETHER_API_KEY": None,
        "TOGETHER_BASE_URL": None,
        "SCP_TF_ACCESS_KEY": None,
        "SCP_TF_ENDPOINT_OVERRIDE": None,
        "TENSORONE_API_KEY": None,
        "TENSORONE_BASE_URL": None,
    }
    printed = {}
    for command in (
        ["stack", "init", "dev"],
        ["preview", "--emulate"],
        ["up", "--emulate", "--yes", "--stack", "dev"],
        ["preview", "--emulate", "--expect-no-changes"],
        ["refresh", "--emulate", "--yes"],
        ["preview", "--emulate", "--expect-no-changes"],
        ["destroy", "--emulate", "--yes"],
        ["stack", "rm", "dev", "--yes"],
    ):
        with contextlib.chdir(directory):
            done = CliRunner().invoke(cli, command, env=environ)
        assert done.exit_code == 0, (command, done.output)
        printed.setdefault(command[0], done.stdout)
    readme = (example / "README.md").read_text()
    plan = re.search(r"## The plan\n.*?```\n(.*?)```", readme, re.DOTALL)
    assert plan, "the README shows the plan"
    assert plan[1].strip() in printed["preview"]
