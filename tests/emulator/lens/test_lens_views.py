"""Test the emulated Lens: the document's examples, and the nodes of the other platforms."""

from typing import Any

import httpx
import pytest
from support.platforms.lens_document import (
    CONSUMERS,
    ERROR,
    GARBLED,
    HEATMAP,
    OVERVIEW,
    pair_with_types,
)
from together import Together


@pytest.fixture
def ask(emulator: Any) -> Any:
    def get(path: str, **params: Any) -> httpx.Response:
        url = f"{emulator.url}/lens/api/clusters/{path}"
        return httpx.get(url, params=params, trust_env=False, verify=False)

    return get


@pytest.fixture
def change_settings(control: Any) -> Any:
    return lambda **given: control.call("POST", "/lens/settings", given)


def drop_trace(answer: Any) -> Any:
    trace = answer["traceId"]
    assert trace.startswith("trace-")
    return {**answer, "traceId": "trace-abc123"}


def test_the_overview_equals_the_documented_one(ask: Any, change_settings: Any) -> None:
    change_settings(overview=OVERVIEW["data"])
    assert pair_with_types(drop_trace(ask("overview").json())) == pair_with_types(OVERVIEW)


def test_the_consumers_equal_the_documented_ones(ask: Any, change_settings: Any) -> None:
    change_settings(consumers=CONSUMERS["data"]["data"], total=50)
    assert pair_with_types(drop_trace(ask("consumers").json())) == pair_with_types(CONSUMERS)


def test_the_heatmap_equals_the_documented_one(ask: Any, change_settings: Any) -> None:
    change_settings(heatmap=HEATMAP["data"])
    assert pair_with_types(drop_trace(ask("gpuHeatmap").json())) == pair_with_types(HEATMAP)


def test_computed_answers_have_the_documented_form(ask: Any, together: Together) -> None:
    for path, example in (("overview", OVERVIEW), ("gpuHeatmap", HEATMAP)):
        assert describe_form(ask(path).json()) == describe_form(example)


def describe_form(value: Any) -> Any:
    """Return the names and types of fields, and the possible items of lists."""
    if isinstance(value, dict):
        return {key: describe_form(item) for key, item in value.items()}
    return "list" if isinstance(value, list) else type(value).__name__


def test_only_running_nodes_are_counted(
    ask: Any, change_settings: Any, together: Together, control: Any, cluster_args: Any
) -> None:
    assert ask("overview").json()["data"]["totalNodes"] == 0
    together.clusters.create(**cluster_args)
    assert ask("overview").json()["data"]["totalNodes"] == 0
    control.advance(3600)
    overview = ask("overview").json()["data"]
    assert (overview["totalNodes"], overview["healthyNodes"], overview["fullyIdleNodes"]) == (
        2,
        2,
        2,
    )
    assert overview["rdmaClusterStat"]["activePorts"] == 16
    assert (overview["allocationRate"], overview["utilization"]) == (0.0, 0.0)

    change_settings(consumers=CONSUMERS["data"]["data"])
    overview = ask("overview").json()["data"]
    assert (overview["busyNodes"], overview["partiallyIdleNodes"], overview["fullyIdleNodes"]) == (
        1,
        1,
        0,
    )
    assert overview["allocationRate"] == 0.75
    assert overview["utilization"] == round((8 * 0.85 + 4 * 0.62) / 12, 4)
    hottest = ask("gpuHeatmap").json()["data"]
    assert len(hottest["power"]["data"]) == 5
    assert hottest["utilization"]["data"][0]["value"] == 85.0
    assert hottest["utilization"]["data"][0]["gpuModel"] == "H100_SXM"
    assert hottest["temperature"]["unit"] == "℃"
    change_settings(garbled=True)
    assert ask("gpuHeatmap").json()["data"]["temperature"]["unit"] == GARBLED


def test_scp_nodes_are_shown_and_broken_ones_are_faulty(ask: Any, control: Any) -> None:
    from emulator.scp.scp_client import ScpClient, build_create_body

    with httpx.Client(trust_env=False, verify=False) as http:
        scp = ScpClient(control.url + "/scp", http)
        ids = scp.create(build_create_body("a-001", "a-002"))
    control.advance(3600)
    control.call("POST", f"/scp/gpu-nodes/{ids[0]}", {"state": "ERROR"})
    overview = ask("overview").json()["data"]
    assert (overview["healthyNodes"], overview["faultyNodes"], overview["fullyIdleNodes"]) == (
        1,
        1,
        1,
    )
    assert overview["rdmaClusterStat"] == {
        "totalPorts": 16,
        "activePorts": 8,
        "bandwidth": "400Gbps",
    }
    control.call("POST", f"/scp/gpu-nodes/{ids[0]}", {"state": "STOPPED"})
    assert ask("overview").json()["data"]["totalNodes"] == 1


def test_consumers_are_listed_in_pages(ask: Any, change_settings: Any) -> None:
    (consumer, _) = CONSUMERS["data"]["data"]
    change_settings(consumers=[{**consumer, "uid": str(at)} for at in range(23)])
    page = ask("consumers").json()["data"]
    assert (len(page["data"]), page["total"]) == (10, 23)
    page = ask("consumers", pageNum=3, pageSize=10).json()["data"]
    assert [consumer["uid"] for consumer in page["data"]] == ["20", "21", "22"]
    assert ask("consumers", pageNum=9).json()["data"] == {"data": [], "total": 23}


@pytest.mark.parametrize("params", [{"pageNum": 0}, {"pageSize": "x"}, {"pageSize": -1}])
def test_invalid_pages_are_refused(ask: Any, params: Any) -> None:
    answer = ask("consumers", **params)
    assert answer.status_code == 400
    assert answer.json()["code"] == 400
    assert set(answer.json()) == set(ERROR)


def test_failures_have_an_http_status_or_200(ask: Any, change_settings: Any, control: Any) -> None:
    control.add_fault(method="GET", path="overview", status=500)
    answer = ask("overview")
    assert answer.status_code == 500
    assert describe_form(answer.json()) == describe_form(ERROR)
    change_settings(failure={"code": 500, "message": ERROR["message"]})
    answer = ask("overview")
    assert answer.status_code == 200
    assert drop_trace(answer.json()) == ERROR


def test_a_fault_sets_a_number_of_the_answer(ask: Any, control: Any) -> None:
    control.add_fault(method="GET", path="overview", status_override="faultyNodes=3")
    assert ask("overview").json()["data"]["faultyNodes"] == 3
    control.add_fault(method="GET", path="overview", status_override="activePorts=5")
    assert ask("overview").json()["data"]["rdmaClusterStat"]["activePorts"] == 5
    assert ask("overview").json()["data"]["faultyNodes"] == 0


def test_lens_is_read_only(emulator: Any) -> None:
    url = f"{emulator.url}/lens/api/clusters/overview"
    assert httpx.post(url, json={}, trust_env=False, verify=False).status_code == 405
