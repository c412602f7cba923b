"""Test the declared access to a cluster's Slurm."""

import pytest
from pydantic import ValidationError

from gpuform.schemas.policies.certification import CertificationPolicy
from gpuform.schemas.policies.drain import ScheduledDrainInputs, SlurmInputs


def test_undeclared_access_means_slinky() -> None:
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
def test_a_setting_of_another_access_method_is_reported(
    declared: dict[str, object], path: str
) -> None:
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
def test_settings_of_the_chosen_method_are_accepted(declared: dict[str, object]) -> None:
    SlurmInputs.model_validate(declared)
    assert list(SlurmInputs.find_problems(declared)) == []


@pytest.mark.parametrize("via", ["exec", "ssh", "local"])
def test_a_drain_by_slinky_goes_with_each_access_method(via: str) -> None:
    declared = {"via": via, "drain_by": "slinky"}
    inputs = SlurmInputs.model_validate(declared)
    assert list(SlurmInputs.find_problems(declared)) == []
    assert inputs.access == SlurmInputs.model_validate({"via": via})
    assert SlurmInputs().drain_by == "scontrol"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"slurm": {"via": "ssh", "drain_by": "slinky"}}, ["slurm.drain_by"]),
        ({"slurm": {"drain_by": "slinky"}}, ["slurm.via"]),
        ({"kubernetes": {}, "slurm": {"via": "ssh", "drain_by": "slinky"}}, []),
    ],
)
def test_a_drain_by_slinky_needs_kubernetes(
    declared: dict[str, object], expected: list[str]
) -> None:
    problems = ScheduledDrainInputs.find_problems(declared)
    assert [problem.path for problem in problems] == expected


def test_a_certification_that_would_drain_by_slinky_is_reported() -> None:
    job = {"script": "run", "pattern": "(?P<value>1)"}
    category = {"domain": "communication", "variant": "mine", "job": job}
    declared = {
        "categories": [category],
        "slurm": {"via": "ssh", "drain_by": "slinky"},
    }
    (problem,) = CertificationPolicy.find_problems(declared)
    assert problem.path == "slurm.drain_by"


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
