"""Test the requests of Lens's client, and how it parses answers, errors and pages."""

import copy
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from support.platforms.lens_document import CONSUMERS, ERROR, HEATMAP, OVERVIEW, pair_with_types

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import mount_transport
from gpuform.providers.errors import InvalidRequest, MissingCredentials, ServerError
from gpuform.providers.lens import capacity, get_consumers, get_heatmap, get_overview
from gpuform.providers.lens.client import LensClient, get_client, is_configured
from gpuform.providers.operations import Settings
from gpuform.schemas.lens import wire
from gpuform.schemas.lens.conditions import Capacity, describe_violations
from gpuform.schemas.lens.inputs import ConditionInputs

Answer = Callable[[httpx.Request], httpx.Response]
URL = "http://lens.test"
TOKEN = "a-token-for-lens"


def build_client(answer: Answer, token: str | None = None) -> LensClient:
    return LensClient(f"{URL}/api", token, httpx.MockTransport(answer))


def answer_always(content: Any, status: int = 200) -> Answer:
    return lambda _request: httpx.Response(status, json=content)


def dump_answer(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True)


def test_the_client_sends_the_documented_requests() -> None:
    requests = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(str(request.url))
        last = request.url.path.rpartition("/")[2]
        answers = {"overview": OVERVIEW, "gpuHeatmap": HEATMAP}
        page = copy.deepcopy(CONSUMERS)
        page["data"]["total"] = 2
        return httpx.Response(200, json=answers.get(last, page))

    lens = build_client(answer)
    assert pair_with_types(dump_answer(lens.get_overview())) == pair_with_types(OVERVIEW["data"])
    assert lens.get_heatmap().temperature.unit == "℃"
    assert pair_with_types(
        [dump_answer(consumer) for consumer in lens.list_consumers()]
    ) == pair_with_types(CONSUMERS["data"]["data"])
    assert requests == [
        f"{URL}/api/clusters/overview",
        f"{URL}/api/clusters/gpuHeatmap",
        f"{URL}/api/clusters/consumers?pageNum=1&pageSize=100",
    ]


@pytest.mark.parametrize(("number", "size", "requests"), [(0, 10, 1), (10, 10, 1), (23, 10, 6)])
def test_all_pages_are_read(number: int, size: int, requests: int) -> None:
    (consumer, _) = CONSUMERS["data"]["data"]
    everyone = [{**consumer, "uid": str(at)} for at in range(number)]
    queries = []

    def answer(request: httpx.Request) -> httpx.Response:
        page = int(request.url.params["pageNum"])
        queries.append(page)
        data = {"data": everyone[(page - 1) * size : page * size], "total": number}
        return httpx.Response(200, json={"code": 0, "data": data})

    assert [consumer.uid for consumer in build_client(answer).list_consumers(size)] == [
        str(n) for n in range(number)
    ]
    assert len(queries) == requests


@pytest.mark.parametrize(
    ("content", "status", "kind", "message"),
    [
        (ERROR, 500, ServerError, "answered 500: Failed to retrieve cluster overview"),
        (ERROR, 200, ServerError, "answered 200 with code 500: Failed to retrieve"),
        ({**ERROR, "code": 400}, 400, InvalidRequest, "answered 400: Failed"),
        ({**OVERVIEW, "data": [1]}, 200, ServerError, "answered 200 with an unexpected body"),
        ({"code": 0, "traceId": "trace-abc123"}, 200, ServerError, "an unexpected body"),
    ],
)
def test_an_error_names_the_trace_id(content: Any, status: int, kind: type, message: str) -> None:
    with pytest.raises(kind) as caught:
        build_client(answer_always(content, status)).get_overview()
    assert message in caught.value.message  # type: ignore[attr-defined]
    assert caught.value.request_id == "trace-abc123"  # type: ignore[attr-defined]
    assert "traceId trace-abc123" in str(caught.value)


@pytest.mark.parametrize("content", ["<html>", ["planted"], {"traceId": {"planted": 1}}])
def test_an_error_of_another_form_has_no_details(content: Any) -> None:
    with pytest.raises(ServerError) as caught:
        build_client(answer_always(content, 500)).get_overview()
    assert "planted" not in str(caught.value)
    assert caught.value.request_id is None


def test_a_token_is_sent_and_never_shown() -> None:
    sent = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization"))
        return httpx.Response(200, json={**ERROR, "message": f"{TOKEN} is not known"})

    with pytest.raises(ServerError, match=r"code 500: \[secret\] is not known") as caught:
        build_client(answer, TOKEN).get_overview()
    assert sent == [f"Bearer {TOKEN}"]
    assert TOKEN not in repr(vars(caught.value))
    with pytest.raises(ServerError):
        build_client(answer).get_overview()
    assert sent[1] is None


def test_the_address_comes_from_the_environment_or_configuration() -> None:
    assert not is_configured(Settings(environ={}))
    with pytest.raises(MissingCredentials, match="Set LENS_URL") as caught:
        get_client(Settings(environ={})).get_overview()
    assert "lens:url" in str(caught.value)
    for url in (URL, f"{URL}/", f"{URL}/api", f"{URL}/api/"):
        with mount_transport(URL, httpx.MockTransport(answer_always(OVERVIEW))):
            settings = Settings(config={"lens:url": url}.get, environ={})
            assert is_configured(settings)
            assert get_client(settings).get_overview().total_nodes == 10


def test_lookups_return_lens_data_to_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        last = request.url.path.rpartition("/")[2]
        content = {"overview": OVERVIEW, "gpuHeatmap": HEATMAP, "consumers": CONSUMERS}[last]
        if last == "consumers":
            content = {"code": 0, "data": {**CONSUMERS["data"], "total": 2}}
        return httpx.Response(200, json=content)

    monkeypatch.setenv("LENS_URL", URL)
    with mount_transport(URL, httpx.MockTransport(answer)), use_context(ProviderContext()):
        assert get_overview().rdma_cluster_stat.active_ports == 76
        assert [consumer.stat.gpu_request for consumer in get_consumers()] == [8, 4]
        assert get_heatmap().utilization.data[0].value == 98.5
        free = capacity()
        assert (free.nodes, free.free_nodes, free.partly_free_nodes) == (10, 3, 4)
        assert (free.workloads, free.requested_gpus, free.idle_gpus) == (2, 12, 0)
        assert (free.storage_available_tb, free.allocation_rate) == (550, 0.75)


ODD = ["12", True, None, [], {}, float("nan"), float("inf")]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_impossible_number_is_omitted_and_affects_no_other(odd: Any) -> None:
    data = {**OVERVIEW["data"], "healthyNodes": odd, "allocationRate": odd}
    data["storageStat"] = {**data["storageStat"], "utilizationRate": odd, "totalCapacity": 7}
    data["rdmaClusterStat"] = {**data["rdmaClusterStat"], "activePorts": odd}
    parsed = wire.Overview.model_validate(data)
    assert (parsed.healthy_nodes, parsed.allocation_rate) == (None, None)
    assert (parsed.storage_stat.utilization_rate, parsed.storage_stat.total_capacity) == (None, "")
    assert parsed.rdma_cluster_stat.active_ports is None
    before = wire.Overview.model_validate(OVERVIEW["data"])
    assert parsed.total_nodes == before.total_nodes
    assert parsed.storage_stat.available_capacity == before.storage_stat.available_capacity
    condition = ConditionInputs.model_validate({"healthy_nodes": {"at_least": 0}})
    assert (
        describe_violations(condition, parsed)
        == "healthyNodes is not reported (wanted: at least 0)"
    )


@pytest.mark.parametrize("odd", [7, "text", None, []])
def test_a_part_that_is_no_object_has_no_numbers(odd: Any) -> None:
    parsed = wire.Overview.model_validate({**OVERVIEW["data"], "storageStat": odd})
    assert parsed.storage_stat == wire.StorageStat()
    assert parsed.total_nodes == OVERVIEW["data"]["totalNodes"]


@pytest.mark.parametrize("odd", [*ODD, "absent"], ids=repr)
def test_invalid_points_of_a_heatmap_are_omitted(odd: Any) -> None:
    heat = copy.deepcopy(HEATMAP["data"])
    first = heat["temperature"]["data"][0]
    if odd == "absent":
        del first["deviceId"]
    else:
        first["deviceId"] = odd
    parsed = wire.GpuHeatmap.model_validate(heat)
    assert parsed.temperature.data[0].gpu == first["nodeName"]
    hot = ConditionInputs.model_validate({"max_temperature": {"at_most": 1}})
    overview = wire.Overview.model_validate(OVERVIEW["data"])
    assert "maxTemperature=" in describe_violations(hot, overview, parsed)
    heat["temperature"]["data"][-1]["value"] = "hot"
    parsed = wire.GpuHeatmap.model_validate(heat)
    assert (
        describe_violations(hot, overview, parsed)
        == "maxTemperature is not reported (wanted: at most 1)"
    )


@pytest.mark.parametrize("odd", [*ODD, -3], ids=repr)
def test_a_workload_without_reported_utilization_is_busy(odd: Any) -> None:
    (documented_consumer, _) = CONSUMERS["data"]["data"]
    stat = {"gpuRequest": 8, "gpuUtilization": odd}
    consumer = wire.Consumer.model_validate({**documented_consumer, "stat": stat})
    assert Capacity.from_overview(wire.Overview(), [consumer]).idle_gpus == 0


def test_impossible_numbers_are_no_capacity() -> None:
    overview = wire.Overview(total_nodes=-1, allocation_rate=1.5, utilization=0.5)
    (documented_consumer, _) = CONSUMERS["data"]["data"]
    consumer = wire.Consumer.model_validate({**documented_consumer, "stat": {"gpuRequest": "8"}})
    overview = Capacity.from_overview(overview, [consumer])
    assert (overview.nodes, overview.allocation_rate, overview.utilization) == (None, None, 0.5)
    assert (overview.workloads, overview.requested_gpus) == (1, None)
