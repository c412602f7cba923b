"""`--emulate`: an emulator for the length of a command, whose objects the next command finds."""

import pytest
from support.topologies.declarations import CLUSTER, VOLUME

UNSET = {"TOGETHER_API_KEY": None, "TOGETHER_BASE_URL": None, "GPUFORM_CLOCK": None}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_next_command_finds_the_same_clusters(project):
    project.declare(CLUSTER, VOLUME)
    for command in (
        ["preview", "--emulate"],
        ["up", "--emulate", "--yes", "--stack", "dev"],
        ["preview", "--emulate", "--expect-no-changes"],
        ["refresh", "--emulate", "--yes", "--expect-no-changes"],
        ["destroy", "--emulate", "--yes"],
    ):
        project.run_ok(*command, **UNSET)
    assert project.state.get("resources", []) == []
    assert (project.directory / ".gpuform").is_dir()
    assert project.objects == {"clusters": [], "volumes": []}, "the other emulator saw nothing"


def test_the_environment_of_an_emulator_is_printed(project):
    port = project.emulator.url.rpartition(":")[2]
    output = project.run_ok("emulator", "env", "--port", port).out
    assert "export TOGETHER_BASE_URL=" in output
    assert "export TOGETHER_API_KEY=" in output
    assert "export GPUFORM_CLOCK=" in output
    assert port in output
