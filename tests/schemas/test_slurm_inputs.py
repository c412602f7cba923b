"""How a cluster's Slurm is asked, as people declare it."""

import pytest
from pydantic import ValidationError

from gpuform.schemas.slurm import SlurmInputs


def test_nothing_declared_is_slinky() -> None:
    inputs = SlurmInputs()
    assert inputs.via == "exec"
    assert (inputs.namespace, inputs.container) == ("slurm", "slurmctld")


@pytest.mark.parametrize(
    ("declared", "path"),
    [
        ({"via": "ssh", "namespace": "hpc"}, "namespace"),
        ({"host": "login"}, "host"),
        ({"via": "exec", "sudo": True}, "sudo"),
        ({"via": "local", "port": 22}, "port"),
    ],
)
def test_a_setting_of_another_method_is_reported(declared: dict[str, object], path: str) -> None:
    SlurmInputs.model_validate(declared)
    (problem,) = SlurmInputs.find_problems(declared)
    assert problem.path == path
    assert "is a setting of via:" in problem.reason


@pytest.mark.parametrize(
    "declared",
    [
        {"via": "ssh", "host": "login", "user": "ada", "port": 2222, "sudo": False},
        {"pod_selector": "a=b"},
    ],
)
def test_settings_of_the_chosen_way_are_right(declared: dict[str, object]) -> None:
    SlurmInputs.model_validate(declared)
    assert list(SlurmInputs.find_problems(declared)) == []


@pytest.mark.parametrize(
    "declared",
    [
        {"via": "telnet"},
        {"host": "-oProxyCommand=id"},
        {"user": "-x"},
        {"host": ""},
        {"hosts": "x"},
    ],
)
def test_hosts_and_users_like_ssh_options_are_refused(declared: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SlurmInputs.model_validate(declared)
