"""Test the rules of Slurm's startup scripts, as a plan checks them."""

from typing import Any

import pytest

from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.together.cluster_parts import SCRIPTS
from gpuform.schemas.together.inputs import ClusterInputs
from gpuform.schemas.values import UNKNOWN

SLURM = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "billing_type": "ON_DEMAND",
    "driver_version": "CUDA_12_6_560",
    "cluster_type": "SLURM",
    "slurm_shm_size_gib": 64,
}


def list_problems(**scripts: Any) -> list[str]:
    config = {"load_balancer": "NONE", "slurm_startup_scripts": scripts}
    _, problems = validate_inputs(ClusterInputs, {**SLURM, "cluster_config": config})
    return [f"{problem.path}: {problem.reason}" for problem in problems]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_requires_a_shebang(name: str) -> None:
    (problem,) = list_problems(**{name: "echo hello\n"})
    assert problem.startswith(f"cluster_config.slurm_startup_scripts.{name}: ")
    assert "shebang" in problem
    assert list_problems(**{name: "#!/bin/bash\necho hello\n"}) == []
    assert list_problems(**{name: "#! /usr/bin/env python3\nprint()\n"}) == []


@pytest.mark.parametrize(
    "text",
    ["", "\n#!/bin/sh\n", " #!/bin/sh\n", "\ufeff#!/bin/sh\n", "#!\n", "#!bash\n", "#/bin/sh"],
)
def test_invalid_shebangs_are_refused(text: str) -> None:
    (problem,) = list_problems(worker_epilog=text)
    assert "#!/bin/bash" in problem


def test_windows_line_ends_are_refused() -> None:
    (problem,) = list_problems(login_init_script="#!/bin/bash\r\necho\r\n")
    assert "line ends" in problem


@pytest.mark.parametrize(
    "line",
    [
        "squeue -h",
        "  scontrol show job $SLURM_JOB_ID",
        "jobs=$(squeue -h)",
        "jobs=`sacct`",
        "echo one; sinfo",
        "test -f x && /usr/bin/scancel 7",
        "if srun true; then echo; fi",
        "sudo scontrol update NodeName=x State=drain",
        "while ! sinfo; do sleep 1; done",
        "SLURM_CONF=/x scontrol ping",
        "cat x | sbatch",
    ],
)
def test_a_prolog_that_calls_slurm_is_refused(line: str) -> None:
    for name in ("worker_prolog", "controller_prolog"):
        (problem,) = list_problems(**{name: f"#!/bin/bash\nset -e\n{line}\n"})
        assert problem.startswith(f"cluster_config.slurm_startup_scripts.{name}: calls s")
        assert "in line 3" in problem
    assert list_problems(worker_epilog=f"#!/bin/bash\n{line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "# squeue is not called",
        "echo squeue",
        "echo 'no squeue here'",
        "mkdir -p /scratch/squeue",
        "srunner --now",
        "./my-scontrol",
        "export SLURM_JOB_ID",
        "nvidia-smi  # not scontrol",
    ],
)
def test_text_similar_to_a_slurm_call_is_accepted(line: str) -> None:
    assert list_problems(worker_prolog=f"#!/bin/bash\n{line}\n") == []


def test_scripts_of_other_languages_are_not_checked_for_slurm_calls() -> None:
    assert list_problems(worker_prolog="#!/usr/bin/env python3\nsqueue = 1\n") == []


def test_unknown_scripts_are_not_checked() -> None:
    assert list_problems(worker_prolog=UNKNOWN) == []


def test_configuration_lines_need_no_shebang() -> None:
    assert list_problems(extra_slurm_conf="MaxJobCount=20000\n") == []
