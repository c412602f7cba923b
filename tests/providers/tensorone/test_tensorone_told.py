"""Test the outputs and notices of TensorOne clusters: stable, and no failure of a refresh."""

from typing import Any

import pytest

from gpuform.providers.tensorone.cluster import ClusterLifecycle

Json = dict[str, Any]
START = 1_800_000_000.0
NEW = (
    *("firewall_rules", "volumes", "cost_breakdown", "project_name", "owner_id", "owner_email"),
    *("template_name", "template_version", "made_from_version", "last_status_change"),
    "estimated_termination",
)


def list_notices(platform: Any, cluster: Any) -> list[str]:
    current_notices = ClusterLifecycle.hooks.list_notices(
        cluster.inputs, cluster.outs, platform.clock.now()
    )
    return [notice.text for notice in current_notices]


def replace_reported_values(platform: Any, cluster: Any, **instead: Any) -> None:
    """Make the platform report the given values from now on."""
    platform.send_control("POST", f"tensorone/clusters/{cluster.id}", {"shown": instead})


def test_an_unchanged_cluster_has_the_same_outputs_at_any_time(platform: Any, inputs: Json) -> None:
    cluster = platform.create({**inputs, "template_id": "tmpl_pytorch_latest"})
    for _ in range(3):
        platform.advance(3600)
        refreshed = platform.refresh(cluster)
        assert platform.plan(refreshed) == {}
        assert {name: refreshed.outs[name] for name in NEW if name in refreshed.outs} == {
            name: cluster.outs[name] for name in NEW if name in cluster.outs
        }
    assert cluster.outs["firewall_rules"][0]["source"] == "0.0.0.0/0"
    assert [volume["mount_path"] for volume in cluster.outs["volumes"]] == ["/", "/data"]
    assert cluster.outs["owner_email"] == "researcher@company.com"


def test_a_state_without_the_outputs_plans_no_change(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    for name in NEW:
        cluster.outs.pop(name, None)
    assert platform.plan(cluster) == {}
    assert list_notices(platform, cluster) == []
    refreshed = platform.refresh(cluster)
    assert platform.plan(refreshed) == {}
    assert refreshed.outs["project_name"] == "ML Research Team"


def test_the_scheduled_termination_is_a_notice(platform: Any, inputs: Json) -> None:
    cluster = platform.create(
        {**inputs, "auto_terminate": {"enabled": True, "max_runtime_hours": 24}}
    )
    platform.advance(21 * 3600 - 60)
    (refreshed,) = list_notices(platform, platform.refresh(cluster))
    assert refreshed.startswith("ends by itself in 3h")
    assert refreshed.endswith("(auto_terminate)")
    platform.advance(4 * 3600)
    assert list_notices(platform, platform.refresh(cluster)) == []


def test_a_newer_template_is_a_notice_and_no_change(platform: Any, inputs: Json) -> None:
    cluster = platform.create({**inputs, "template_id": "tmpl_pytorch_latest"})
    replace_reported_values(platform, cluster, template_info={"template_version": "v2.2.0"})
    refreshed = platform.refresh(platform.refresh(cluster))
    assert platform.plan(refreshed) == {}
    (message,) = list_notices(platform, refreshed)
    assert "is now v2.2.0, but the cluster was created from v2.1.0" in message
    tagged = platform.update(refreshed, {**refreshed.inputs, "tags": {"a": "b"}})
    assert tagged.outs["made_from_version"] == "v2.1.0"


@pytest.mark.parametrize("bad", [None, "many", {"a": 1}, [1], True])
def test_invalid_informational_values_do_not_fail_a_refresh(
    platform: Any, inputs: Json, bad: Any
) -> None:
    cluster = platform.create(inputs)
    numbers = ("gpu_memory_utilization", "temperature_celsius", "power_usage_watts")
    replace_reported_values(
        platform,
        cluster,
        project_info={"project_name": bad, "owner_email": bad},
        template_info={"template_version": bad},
        cost={"total_lifetime_cost": bad, "cost_breakdown": {"gpu_cost": bad}},
        metrics={"current": dict.fromkeys(numbers, bad)},
        storage={"volumes": [{"name": "root", "used_gb": bad, "encrypted": bad}]},
        network={"firewall_rules": [{"port_range": bad, "source": bad}]},
        auto_terminate={"estimated_termination": bad},
        uptime_seconds=bad,
        last_accessed=bad,
    )
    assert platform.plan(platform.refresh(cluster)) == {}
