"""What a TensorOne cluster tells beside its inputs: no noise, and nothing that spoils a refresh."""

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


def notices(world: Any, thing: Any) -> list[str]:
    found = ClusterLifecycle.list_notices(thing.inputs, thing.outs, world.clock.now())
    return [each.text for each in found]


def shows(world: Any, thing: Any, **instead: Any) -> None:
    """What the platform's answers have instead from now on."""
    world.control("POST", f"tensorone/clusters/{thing.id}", {"shown": instead})


def test_an_untouched_cluster_is_the_same_at_any_time(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "template_id": "tmpl_pytorch_latest"})
    for _ in range(3):
        world.advance(3600)
        seen = world.refresh(made)
        assert world.plan(seen) == {}
        assert {name: seen.outs[name] for name in NEW if name in seen.outs} == {
            name: made.outs[name] for name in NEW if name in made.outs
        }
    assert made.outs["firewall_rules"][0]["source"] == "0.0.0.0/0"
    assert [each["mount_path"] for each in made.outs["volumes"]] == ["/", "/data"]
    assert made.outs["owner_email"] == "researcher@company.com"


def test_a_state_without_the_outputs_plans_nothing(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    for name in NEW:
        made.outs.pop(name, None)
    assert world.plan(made) == {}
    assert notices(world, made) == []
    seen = world.refresh(made)
    assert world.plan(seen) == {}
    assert seen.outs["project_name"] == "ML Research Team"


def test_its_own_end_is_told(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "auto_terminate": {"enabled": True, "max_runtime_hours": 24}})
    world.advance(21 * 3600 - 60)
    (text,) = notices(world, world.refresh(made))
    assert text.startswith("ends by itself in 3h")
    assert text.endswith("(auto_terminate)")
    world.advance(4 * 3600)
    assert notices(world, world.refresh(made)) == []


def test_a_template_that_has_moved_on_is_told_and_plans_nothing(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "template_id": "tmpl_pytorch_latest"})
    shows(world, made, template_info={"template_version": "v2.2.0"})
    seen = world.refresh(world.refresh(made))
    assert world.plan(seen) == {}
    (text,) = notices(world, seen)
    assert "is now v2.2.0, and the cluster was created from v2.1.0" in text
    tagged = world.update(seen, {**seen.inputs, "tags": {"a": "b"}})
    assert tagged.outs["made_from_version"] == "v2.1.0"


@pytest.mark.parametrize("bad", [None, "many", {"a": 1}, [1], True])
def test_what_is_only_shown_spoils_no_refresh(world: Any, inputs: Json, bad: Any) -> None:
    made = world.create(inputs)
    numbers = ("gpu_memory_utilization", "temperature_celsius", "power_usage_watts")
    shows(
        world,
        made,
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
    assert world.plan(world.refresh(made)) == {}
