"""Test that impossible or contradictory answers of Lens pass no health gate."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.clocks.fake_clock import FakeClock
from support.platforms.lens_document import HEATMAP, OVERVIEW

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import mount_transport
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.client import LensClient
from gpuform.providers.lens.health_gate import HealthGateLifecycle

from .lens_stand_in import build_success

URL = "http://lens-contradicts.test"


def try_gate(condition: Any, answers: dict[str, Any]) -> tuple[bool, str]:
    """Create a gate on these answers of Lens; return whether the gate passed, and the reason."""

    def answer(request: httpx.Request) -> httpx.Response:
        body = answers[request.url.path.rpartition("/")[2]]
        return httpx.Response(200, content=body) if isinstance(body, bytes) else build_success(body)

    inputs = {"condition": condition, "wait_minutes": 1.0, "__provider": "p"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENS_URL", URL)
        call = ProviderContext(
            urn="urn:pulumi:dev::p::t::gate", clock=FakeClock(is_platforms=False)
        )
        with mount_transport(URL, httpx.MockTransport(answer)), use_context(call):
            outs = HealthGateLifecycle().create(inputs).outs
    return outs["ready"], outs.get("not_ready_reason", "")


def build_overview(**fields: Any) -> dict[str, Any]:
    """Return the document's overview with the given fields, `storageStat` and others merged in."""
    overview = dict(OVERVIEW["data"])
    for name, value in fields.items():
        overview[name] = {**overview[name], **value} if isinstance(value, dict) else value
    return overview


FAULTY = {"faulty_nodes": {"at_most": 5.0}}
HEALTHY_RATE = {"healthy_node_rate": {"at_least": 0.9}}
PORT_RATE = {"active_port_rate": {"at_least": 0.9}}
FREE = {"storage_available_tb": {"at_least": 100.0}}
USED = {"storage_utilization_rate": {"at_most": 0.8}}

CONTRADICTIONS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "sentinels of nodes": (
        HEALTHY_RATE,
        {"healthyNodes": -1, "totalNodes": -1},
        "overview: totalNodes is -1, below 0",
    ),
    "sentinels of ports": (
        PORT_RATE,
        {"rdmaClusterStat": {"activePorts": -1, "totalPorts": -1}},
        "overview: rdmaClusterStat.totalPorts is -1, below 0",
    ),
    "a sentinel below a bound from above": (FAULTY, {"faultyNodes": -1}, "faultyNodes is -1"),
    "a sentinel beside what is asked": (FAULTY, {"healthyNodes": -1}, "healthyNodes is -1"),
    "zeros of a Lens that has just started": (
        FAULTY,
        dict.fromkeys(
            ("totalNodes", "healthyNodes", "faultyNodes", "fullyIdleNodes", "busyNodes"), 0
        ),
        "overview: totalNodes is 0",
    ),
    "no total": (FAULTY, {"totalNodes": None}, "overview: totalNodes is not reported"),
    "more healthy nodes than there are": (
        {"healthy_nodes": {"at_least": 9.0}},
        {"healthyNodes": 12},
        "overview: healthyNodes is 12, more than totalNodes, 10",
    ),
    "more idle nodes than there are": (
        {"fully_idle_nodes": {"at_least": 3.0}},
        {"fullyIdleNodes": 11},
        "overview: fullyIdleNodes is 11, more than totalNodes, 10",
    ),
    "healthy and faulty at once": (
        FAULTY,
        {"faultyNodes": 4},
        "healthyNodes and faultyNodes are 13 together, more than totalNodes, 10",
    ),
    "idle and busy at once": (
        {"fully_idle_nodes": {"at_least": 3.0}},
        {"fullyIdleNodes": 10},
        "fullyIdleNodes and partiallyIdleNodes and busyNodes are 16 together",
    ),
    "a rate below zero": (
        {"allocation_rate": {"at_most": 0.9}},
        {"allocationRate": -1},
        "overview: allocationRate is -1, which is not from 0 to 1",
    ),
    "a rate above one beside what is asked": (
        FAULTY,
        {"utilization": 1.5},
        "overview: utilization is 1.5, which is not from 0 to 1",
    ),
    "nothing allotted, and busy nodes": (
        {"allocation_rate": {"at_most": 0.9}},
        {"allocationRate": 0},
        "overview: allocationRate is 0, and busyNodes is 2",
    ),
    "all idle, and allotted": (
        {"fully_idle_nodes": {"at_least": 3.0}},
        {"fullyIdleNodes": 10, "partiallyIdleNodes": 0, "busyNodes": 0},
        "overview: allocationRate is 0.75, and all nodes are fullyIdleNodes",
    ),
    "more active ports than ports": (
        PORT_RATE,
        {"rdmaClusterStat": {"activePorts": 90}},
        "overview: rdmaClusterStat.activePorts is 90, more than rdmaClusterStat.totalPorts, 80",
    ),
    "more free storage than there is": (
        FREE,
        {"storageStat": {"availableCapacity": "1200TB"}},
        "overview: storageStat.availableCapacity is 1200 TB, more than totalCapacity, 1000 TB",
    ),
    "used and free storage above the total": (
        FREE,
        {"storageStat": {"availableCapacity": "900TB"}},
        "usedCapacity and availableCapacity are 1350 TB of 1000 TB",
    ),
    "a rate of storage that is not its sizes'": (
        USED,
        {"storageStat": {"usedCapacity": "950TB", "availableCapacity": "50TB"}},
        "overview: storageStat.utilizationRate is 0.45, and 950 of 1000 TB are used",
    ),
    "no storage at all": (
        USED,
        {"storageStat": {"totalCapacity": "0TB", "usedCapacity": "0TB", "utilizationRate": 0}},
        "overview: storageStat.totalCapacity is 0",
    ),
    "free storage of an unknown total": (
        FREE,
        {"storageStat": {"totalCapacity": ""}},
        "overview: storageStat.totalCapacity is not reported",
    ),
    "bits for bytes": (
        FREE,
        {"storageStat": {"availableCapacity": "550Tb"}},
        "storageAvailableTb is not reported",
    ),
    "bytes for bits": (
        {"rdma_bandwidth_gbps": {"at_least": 300.0}},
        {"rdmaClusterStat": {"bandwidth": "400GBps"}},
        "rdmaBandwidthGbps is not reported",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_contradictory_overview_passes_no_gate(name: str) -> None:
    condition, fields, because = CONTRADICTIONS[name]
    assert try_gate(condition, {"overview": OVERVIEW["data"]})[0], "the document's overview does"
    is_open, reason = try_gate(condition, {"overview": build_overview(**fields)})
    assert not is_open
    assert because in reason


def test_a_contradiction_outside_the_condition_does_not_keep_a_gate_closed() -> None:
    broken = build_overview(storageStat={"utilizationRate": -1}, rdmaClusterStat={"totalPorts": -1})
    assert try_gate(FAULTY, {"overview": broken}) == (True, "")


@pytest.mark.parametrize("values", [[-1.0, 60.0], [0.0, 0.0], [60.0, 60.0]])
def test_an_impossible_heatmap_passes_no_gate(values: list[float]) -> None:
    same = values[0] == values[1]
    points = [
        {"nodeName": "n", "deviceId": 0 if same else at, "value": value, "gpuModel": "m"}
        for at, value in enumerate(values)
    ]
    heatmap = {**HEATMAP["data"], "temperature": {**HEATMAP["data"]["temperature"], "data": points}}
    answers = {"overview": OVERVIEW["data"], "gpuHeatmap": heatmap}
    is_open, reason = try_gate({"max_temperature": {"at_most": 90.0}}, answers)
    assert not is_open
    assert "gpuHeatmap: temperature: GPU n 0 " in reason


def build_body(code: str, data: Any = OVERVIEW["data"]) -> bytes:
    return f'{{"code": {code}, "message": "build_success", "data": {json.dumps(data)}}}'.encode()


@pytest.mark.parametrize("code", ["false", '"0"', "0.0", "null", "[]", "-1", "200"])
def test_a_code_that_is_not_the_number_zero_is_no_success(code: str) -> None:
    assert not try_gate(FAULTY, {"overview": build_body(code)})[0]
    client = LensClient(
        f"{URL}/api",
        None,
        httpx.MockTransport(lambda _: httpx.Response(200, content=build_body(code))),
    )
    with pytest.raises(GpuformError):
        client.get_overview()


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "true", '"9"'])
def test_a_value_that_is_no_number_passes_no_gate(number: str) -> None:
    content = build_body("0").replace(b'"faultyNodes": 1', f'"faultyNodes": {number}'.encode())
    is_open, reason = try_gate(FAULTY, {"overview": content})
    assert not is_open
    assert "faultyNodes is not reported" in reason


odd = st.sampled_from([-1, 0, 1, 9, 10, 11, 99, 0.5, 1.5, -0.1, None, "9", True, {}, "0TB", "9PB"])
fields = st.dictionaries(
    st.sampled_from([*OVERVIEW["data"], "storageStat", "rdmaClusterStat"]), odd, max_size=6
)


@given(fields=fields, healthy=st.integers(0, 10), faulty=st.integers(0, 10))
def test_only_possible_numbers_pass_a_gate(
    fields: dict[str, Any], healthy: int, faulty: int
) -> None:
    """Check against a model: counts of one cluster, each within the total."""
    overview = {**OVERVIEW["data"], "healthyNodes": healthy, "faultyNodes": faulty, **fields}
    condition = {"healthy_nodes": {"at_least": 1.0}, "faulty_nodes": {"at_most": 3.0}}
    is_open, _ = try_gate(condition, {"overview": overview})
    total, well, ill = (overview[name] for name in ("totalNodes", "healthyNodes", "faultyNodes"))
    if is_open:
        assert all(type(number) in (int, float) for number in (total, well, ill))
        assert 1 <= well <= total
        assert 0 <= ill <= 3
        assert well + ill <= total
        for name in ("allocationRate", "utilization"):
            rate = overview[name]
            assert type(rate) not in (int, float) or 0 <= rate <= 1


def drop_connection(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("the connection was closed", request=request)


ERRING: dict[str, Any] = {
    "dropped": drop_connection,
    "error": lambda _: httpx.Response(500, json={"code": 500, "message": "timeout"}),
    "error in 200": lambda _: httpx.Response(200, json={"code": 500, "message": "timeout"}),
    "no data": lambda _: build_success(None),
    "zeros": lambda _: build_success(dict.fromkeys(OVERVIEW["data"], 0)),
    "in part": lambda _: build_success({"faultyNodes": 0}),
    "sentinels": lambda _: build_success(dict.fromkeys(OVERVIEW["data"], -1)),
    "a list": lambda _: build_success([]),
}


@given(course=st.lists(st.sampled_from(sorted(ERRING)), max_size=12))
def test_a_gate_is_passed_by_the_first_credible_answer(course: list[str]) -> None:
    """Earlier answers of any kind neither pass the gate nor end the wait."""
    remaining = list(course)

    def answer(request: httpx.Request) -> httpx.Response:
        return ERRING[remaining.pop(0)](request) if remaining else build_success(OVERVIEW["data"])

    condition = {"healthy_nodes": {"at_least": 9.0}, "faulty_nodes": {"at_most": 5.0}}
    inputs = {"condition": condition, "wait_minutes": 30.0, "__provider": "p"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LENS_URL", URL)
        call = ProviderContext(
            urn="urn:pulumi:dev::p::t::gate", clock=FakeClock(is_platforms=False)
        )
        with mount_transport(URL, httpx.MockTransport(answer)), use_context(call):
            outs = HealthGateLifecycle().create(inputs).outs
    assert outs["ready"] is True
    assert remaining == []
    assert outs["overview"]["healthy_nodes"] == 9
