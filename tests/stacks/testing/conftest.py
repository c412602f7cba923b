"""Provide a project with gates and prices, whose test cases each test writes and runs."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from gpuform.stacks.testing.cases import read_cases
from gpuform.stacks.testing.runner import CaseResult, CaseRunner

TOPOLOGY = """\
config:
  gpus: {type: integer, default: 16, multiple_of: 8}
  spare: {type: boolean, default: false}
  token: {type: string, secret: true, default: planted-7d1f}

shared_volumes:
  data: {platform: together, volume_name: training-data, region: us-central-8, size_tib: 5}
  scratch:
    platform: together
    when: "{{ config.spare }}"
    volume_name: scratch
    region: us-central-8
    size_tib: 1

clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: "{{ config.gpus }}"
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume: "{{ shared_volumes.data }}"

outputs:
  status: "{{ clusters.train.status }}"
  token: "{{ config.token }}"
"""
GATES = """\
gates:
  budget: {max_hourly_cost: {amount: 60, currency: USD}}
  place: {allowed_regions: [us-central-8]}
  few: {max_destroyed_gpus: 8, level: advisory}
"""
PRICES = """\
currency: USD
gpus:
  - {platform: together, gpu_type: H100_SXM, per_hour: 2.99}
storage:
  - {platform: together, unit: TiB, per_month: 0}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project with a topology, gates, prices and an empty folder `tests`."""
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (folder / "topology.yaml").write_text(TOPOLOGY)
    (folder / "gates.yaml").write_text(GATES)
    (folder / "prices.yaml").write_text(PRICES)
    return folder


WriteCases = Callable[[str], Path]


@pytest.fixture
def write_cases(project: Path) -> WriteCases:
    """Return a function that writes the project's `tests/demo.yaml` and returns the path."""

    def write(text: str) -> Path:
        file = project / "tests" / "demo.yaml"
        file.write_text(dedent(text))
        return file

    return write


RunCases = Callable[..., dict[str, CaseResult]]


@pytest.fixture
def run_cases(write_cases: WriteCases) -> RunCases:
    """Return a function that writes and runs cases, and returns the results by name."""

    def run_written_cases(text: str, *, update: bool = False) -> dict[str, CaseResult]:
        cases = read_cases([write_cases(text)], Path())
        return {result.case.name: result for result in CaseRunner(2, update=update).run(cases)}

    return run_written_cases


def format_findings(result: CaseResult) -> list[str]:
    """Return the findings of a case as LINE: MESSAGE, without the file's path."""
    return [f"{finding.position.line}: {finding.message}" for finding in result.findings]
