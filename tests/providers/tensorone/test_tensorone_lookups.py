"""What a program finds of a TensorOne account, through the emulator."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, NotFound
from gpuform.providers.operations import Settings, use_lookup_settings
from gpuform.providers.tensorone import clusters, metrics, projects, templates

Json = dict[str, Any]


@pytest.fixture
def made(world: Any, inputs: Json) -> Iterator[Json]:
    """Two clusters by name."""
    template = {"template_id": "tmpl_pytorch_latest"}
    secret = {"environment_variables": {"WANDB_API_KEY": "w-123", "MODE": "m-456"}}
    found = {"train": world.create({**inputs, **template, **secret})}
    found["eval"] = world.create({**inputs, "name": "eval", "region": "us-east-1"}, "eval")
    with use_lookup_settings(Settings()):
        yield found


def names(**wanted: str) -> list[str]:
    return [each.name for each in clusters(**wanted)]


def test_clusters_by_what_they_have(made: Json) -> None:
    assert names() == ["eval", "train"]
    assert names(name="eval") == ["eval"]
    assert names(region="us-west-2", status="running") == ["train"]
    assert names(template_id="tmpl_pytorch_latest", gpu_type="A100") == ["train"]
    assert names(project_id="proj_other") == []


def test_nothing_secret_is_given_out(made: Json) -> None:
    found = clusters()
    assert [each.environment.variables for each in found] == [{}, {}]
    assert [each.network.ssh_connection.connection_string for each in found] == [None, None]


def test_templates_and_projects_are_those_of_clusters(made: Json) -> None:
    (template,) = templates()
    assert (template.template_id, template.template_version) == ("tmpl_pytorch_latest", "v2.1.0")
    assert template.cluster_ids == (made["train"].id,)
    (project,) = projects()
    assert (project.project_name, project.owner_email) == (
        "ML Research Team",
        "researcher@company.com",
    )
    assert project.cluster_ids == tuple(sorted(each.id for each in made.values()))


def test_metrics_of_now_and_of_a_window(made: Json) -> None:
    found = metrics(made["train"].id, "24h")
    assert found.metrics.current.temperature_celsius == 72.5
    assert found.metrics.historical.window == "24h"
    assert found.metrics.historical.gpu_utilization.trend == "increasing"
    assert found.metrics.historical.cost_efficiency.utilization_score == 85.2
    assert found.cost.cost_breakdown.gpu_cost == 6.8
    assert {each.mount_path: each.used_gb for each in found.volumes} == {"/": 45, "/data": 230}


def test_what_cannot_be_asked_for_is_an_error(made: Json) -> None:
    with pytest.raises(GpuformError, match="'2h' is not a window: use one of 1h, 6h, 24h, 7d"):
        metrics(made["train"].id, "2h")
    with pytest.raises(NotFound):
        metrics("cluster_000000000000")
