"""Test the lookups of a TensorOne account for programs, through the emulator."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, NotFound
from gpuform.providers.operations import Settings, use_lookup_settings
from gpuform.providers.tensorone import clusters, metrics, projects, templates

Json = dict[str, Any]


@pytest.fixture
def cluster_ids(platform: Any, inputs: Json) -> Iterator[Json]:
    """Create two clusters, and return the ids by name."""
    template = {"template_id": "tmpl_pytorch_latest"}
    secret = {"environment_variables": {"WANDB_API_KEY": "w-123", "MODE": "m-456"}}
    result = {"train": platform.create({**inputs, **template, **secret})}
    result["eval"] = platform.create({**inputs, "name": "eval", "region": "us-east-1"}, "eval")
    with use_lookup_settings(Settings()):
        yield result


def list_names(**healthy_inputs: str) -> list[str]:
    return [cluster.name for cluster in clusters(**healthy_inputs)]


def test_clusters_are_found_by_their_fields(cluster_ids: Json) -> None:
    assert list_names() == ["eval", "train"]
    assert list_names(name="eval") == ["eval"]
    assert list_names(region="us-west-2", status="running") == ["train"]
    assert list_names(template_id="tmpl_pytorch_latest", gpu_type="A100") == ["train"]
    assert list_names(project_id="proj_other") == []


def test_lookups_return_no_secret(cluster_ids: Json) -> None:
    result = clusters()
    assert [cluster.environment.variables for cluster in result] == [{}, {}]
    assert [cluster.network.ssh_connection.connection_string for cluster in result] == [None, None]


def test_templates_and_projects_come_from_the_clusters(cluster_ids: Json) -> None:
    (template,) = templates()
    assert (template.template_id, template.template_version) == ("tmpl_pytorch_latest", "v2.1.0")
    assert template.cluster_ids == (cluster_ids["train"].id,)
    (project,) = projects()
    assert (project.project_name, project.owner_email) == (
        "ML Research Team",
        "researcher@company.com",
    )
    assert project.cluster_ids == tuple(sorted(cluster.id for cluster in cluster_ids.values()))


def test_metrics_are_current_or_of_a_window(cluster_ids: Json) -> None:
    result = metrics(cluster_ids["train"].id, "24h")
    assert result.metrics.current.temperature_celsius == 72.5
    assert result.metrics.historical.window == "24h"
    assert result.metrics.historical.gpu_utilization.trend == "increasing"
    assert result.metrics.historical.cost_efficiency.utilization_score == 85.2
    assert result.cost.cost_breakdown.gpu_cost == 6.8
    assert {volume.mount_path: volume.used_gb for volume in result.volumes} == {
        "/": 45,
        "/data": 230,
    }


def test_an_invalid_query_is_an_error(cluster_ids: Json) -> None:
    with pytest.raises(GpuformError, match="'2h' is not a window: use one of 1h, 6h, 24h, 7d"):
        metrics(cluster_ids["train"].id, "2h")
    with pytest.raises(NotFound):
        metrics("cluster_000000000000")
