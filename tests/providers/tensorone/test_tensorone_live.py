"""Test the current measurements of TensorOne clusters, as compact lines of figures."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.tensorone.cluster import ClusterLifecycle

Json = dict[str, Any]


def read_live_metrics(platform: Any, *clusters: Any) -> Any:
    with platform.use_provider_context():
        ids = [cluster.id for cluster in clusters]
        return ClusterLifecycle.hooks.read_live_metrics(Settings(), ids)


def replace_reported_values(platform: Any, cluster: Any, **instead: Any) -> None:
    platform.send_control("POST", f"tensorone/clusters/{cluster.id}", {"shown": instead})


def count_requests(platform: Any) -> int:
    request_count = len(platform.list_requests())
    platform.send_control("DELETE", "requests")
    return request_count


def test_metrics_of_a_busy_cluster(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    platform.advance(2 * 3600)
    use, cost = read_live_metrics(platform, cluster)[cluster.id].lines
    assert use.startswith("GPUs 87.3%, GPU memory 94.2%, 72.5 °C, 1250 W; up 2h")
    assert "; last accessed 2027-" in use
    assert " USD this session, " in cost
    assert cost.endswith(" USD per compute hour; utilization score 85.2")
    figures = read_live_metrics(platform, cluster)[cluster.id].figures
    assert figures["metrics"]["current"]["network_rx_mbps"] == 125.3
    assert figures["cost"]["total_lifetime_cost"] > 0


def test_several_clusters_need_one_list(platform: Any, inputs: Json) -> None:
    created = [platform.create({**inputs, "name": name}, name) for name in ("one", "two", "three")]
    count_requests(platform)
    assert sorted(read_live_metrics(platform, *created)) == sorted(
        cluster.id for cluster in created
    )
    assert count_requests(platform) == 1


def test_a_cluster_without_metrics_in_the_list_is_read_separately(
    platform: Any, inputs: Json
) -> None:
    created = [platform.create({**inputs, "name": name}, name) for name in ("one", "two")]
    replace_reported_values(platform, created[0], metrics=None)
    count_requests(platform)
    metrics_by_id = read_live_metrics(platform, *created)
    assert count_requests(platform) == 2
    assert "GPUs" not in metrics_by_id[created[0].id].lines[0]
    assert "GPUs 87.3%" in metrics_by_id[created[1].id].lines[0]


def test_a_deleted_cluster_is_omitted(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    platform.delete(cluster)
    assert read_live_metrics(platform, cluster) == {}


def test_metrics_of_an_idle_and_of_a_stopped_cluster(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    platform.make_idle(cluster)
    platform.advance(720)
    assert ", idle 12m; " in read_live_metrics(platform, cluster)[cluster.id].lines[0]
    stopped = platform.update(cluster, {**inputs, "state": "stopped"})
    use, cost = read_live_metrics(platform, stopped)[cluster.id].lines
    assert use.startswith("last accessed ")
    assert " in all; " in cost


@pytest.mark.parametrize("bad", [None, "many", {"a": 1}, [1]])
def test_a_value_that_is_no_number_is_omitted(platform: Any, inputs: Json, bad: Any) -> None:
    cluster = platform.create(inputs)
    numbers = ("gpu_utilization", "temperature_celsius", "power_usage_watts")
    well = dict.fromkeys(("utilization_score", "cost_per_compute_hour"), bad)
    replace_reported_values(
        platform,
        cluster,
        metrics={"current": dict.fromkeys(numbers, bad), "historical": {"cost_efficiency": well}},
        cost={"total_lifetime_cost": bad},
        uptime_seconds=bad,
        last_accessed=None,
    )
    use, cost = read_live_metrics(platform, cluster)[cluster.id].lines
    assert use == "GPU memory 94.2%"
    assert cost.endswith(" USD this session")


def test_a_failed_request_is_an_error(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    platform.add_fault("GET", "clusters", status=403, count=None)
    with pytest.raises(GpuformError, match="403"):
        read_live_metrics(platform, cluster)
