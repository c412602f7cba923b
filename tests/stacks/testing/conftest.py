"""A project whose cases are written by the tests."""

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
    """A project with gates and prices, and an empty folder of tests."""
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (folder / "topology.yaml").write_text(TOPOLOGY)
    (folder / "gates.yaml").write_text(GATES)
    (folder / "prices.yaml").write_text(PRICES)
    return folder


Written = Callable[[str], Path]


@pytest.fixture
def written(project: Path) -> Written:
    """Writes a test file of the project."""

    def write(text: str) -> Path:
        file = project / "tests" / "demo.yaml"
        file.write_text(dedent(text))
        return file

    return write


Played = Callable[..., dict[str, CaseResult]]


@pytest.fixture
def played(written: Written) -> Played:
    """Plays a test file; its results by the cases' names."""

    def play(text: str, *, update: bool = False) -> dict[str, CaseResult]:
        cases = read_cases([written(text)], Path())
        return {each.case.name: each for each in CaseRunner(2, update=update).run(cases)}

    return play


def told(result: CaseResult) -> list[str]:
    """What a case has found, without the file's path."""
    return [f"{each.position.line}: {each.message}" for each in result.findings]
