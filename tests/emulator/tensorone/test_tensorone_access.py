"""Test keys, limits, lists, cached answers and faults of the emulated TensorOne."""

from datetime import UTC, datetime
from typing import Any

import pytest
from emulator.tensorone.tensorone_client import NEW_SECONDS, TensorOneClient, build_create_body

from gpuform.providers.emulator.tensorone import FREE_KEY, KEY, PRO_KEY, READER_KEY

HOUR = 3600


@pytest.fixture
def hour(control: Any) -> None:
    """Move the clock to the beginning of a rate limit window."""
    now = control.call("GET", "/clock")["now"]
    control.advance(HOUR - now % HOUR)


def test_requests_need_a_known_key_and_the_right_permission(tensorone: TensorOneClient) -> None:
    assert tensorone.require_refusal("GET", "", key="of-nobody")["error"] == "UNAUTHORIZED"
    assert tensorone.send("GET", "", key=READER_KEY).status_code == 200
    error = tensorone.require_refusal("POST", "", build_create_body(), key=READER_KEY)
    assert (error["error"], error["details"]["required_permission"]) == (
        "FORBIDDEN",
        "clusters:write",
    )
    assert tensorone.require_refusal("GET", "/c/logs")["error"] == "RESOURCE_NOT_FOUND"


@pytest.mark.parametrize(
    ("key", "reads", "creates"), [(FREE_KEY, 100, 20), (PRO_KEY, 1000, 100), (KEY, 10_000, 1000)]
)
@pytest.mark.usefixtures("hour")
def test_the_headers_of_every_answer_show_the_closer_limit(
    tensorone: TensorOneClient, control: Any, key: str, reads: int, creates: int
) -> None:
    now = int(control.call("GET", "/clock")["now"])
    requests = [
        ("GET", "", None, reads),
        ("POST", "", build_create_body(), creates),
        ("GET", "/x", None, 0),
    ]
    for method, path, body, limit in requests:
        headers = tensorone.send(method, path, body, key=key).headers
        if limit:
            assert headers["X-RateLimit-Limit"] == str(limit)
            assert headers["X-RateLimit-Remaining"] == str(limit - 1)
        assert headers["X-RateLimit-Reset"] == str(now + HOUR)
        assert headers["X-RateLimit-Window"] == str(HOUR)


@pytest.mark.usefixtures("hour")
def test_the_free_tier_writes_20_times_an_hour(tensorone: TensorOneClient, control: Any) -> None:
    control.advance(600)
    for number in range(20):
        method, path = ("POST", "") if number % 2 else ("PUT", "/x")
        assert tensorone.send(method, path, {}, key=FREE_KEY).status_code in {400, 404}
    answer = tensorone.send("DELETE", "/x", {}, key=FREE_KEY)
    error = answer.json()
    assert (answer.status_code, error["error"]) == (429, "RATE_LIMIT_EXCEEDED")
    assert answer.headers["Retry-After"] == "3000"
    details = error["details"]
    assert (details["limit"], details["remaining"], details["retry_after"]) == (20, 0, 3000)
    assert details["reset_at"].endswith(":00:00Z")
    assert tensorone.send("GET", "", key=FREE_KEY).status_code == 200
    assert tensorone.send("DELETE", "/x", {}).status_code == 404, "another key has its own limits"
    control.advance(3000)
    assert tensorone.send("DELETE", "/x", {}, key=FREE_KEY).status_code == 404


def test_a_list_is_filtered_sorted_and_paged(tensorone: TensorOneClient, control: Any) -> None:
    control.call("GET", "/clock")
    for name, more in {
        "alpha": {"gpu_count": 1},
        "beta": {"gpu_type": "T4", "region": "eu-west-1", "description": "for Alpha"},
        "gamma": {"project_id": "proj_1", "auto_start": False},
        "delta": {"template_id": "tmpl_pytorch_latest", "gpu_count": 8},
    }.items():
        tensorone.create(name=name, **more)
        control.advance(100)
    now = control.call("GET", "/clock")["now"]
    moment = _iso(now - 250)
    chosen: list[tuple[dict[str, Any], list[str]]] = [
        ({}, ["delta", "gamma", "beta", "alpha"]),
        ({"sort_order": "asc"}, ["alpha", "beta", "gamma", "delta"]),
        ({"sort_by": "name", "sort_order": "asc"}, ["alpha", "beta", "delta", "gamma"]),
        ({"sort_by": "gpu_count"}, ["delta", "beta", "gamma", "alpha"]),
        ({"status": "stopped"}, ["gamma"]),
        ({"gpu_type": "T4"}, ["beta"]),
        ({"region": "eu-west-1"}, ["beta"]),
        ({"project_id": "proj_1"}, ["gamma"]),
        ({"template_id": "tmpl_pytorch_latest"}, ["delta"]),
        ({"search": "ALPHA"}, ["beta", "alpha"]),
        ({"min_gpu_count": 4, "max_gpu_count": 4}, ["gamma", "beta"]),
        ({"created_after": moment}, ["delta", "gamma"]),
        ({"created_before": moment}, ["beta", "alpha"]),
        ({"page": 2, "limit": 3}, ["alpha"]),
        ({"page": 9}, []),
    ]
    for query, names in chosen:
        assert tensorone.list_names(**query) == names, query
    pagination = tensorone.request("GET", "", page=2, limit=3)["pagination"]
    assert pagination == {"page": 2, "limit": 3, "total": 4, "total_pages": 2}


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": 101}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"page": 0}, "page"),
        ({"sort_by": "color"}, "sort_by"),
        ({"sort_order": "up"}, "sort_order"),
        ({"created_after": "yesterday"}, "created_after"),
        ({"min_gpu_count": "x"}, "min_gpu_count"),
    ],
)
def test_a_malformed_list_query_is_refused(
    tensorone: TensorOneClient, query: dict[str, Any], field: str
) -> None:
    tensorone.create()
    assert tensorone.require_refusal("GET", "", **query)["details"]["field"] == field


def test_parts_of_an_answer_can_be_left_out(tensorone: TensorOneClient, running: str) -> None:
    path = f"/{running}"
    cluster = tensorone.request(
        "GET", path, include_metrics="false", include_cost_breakdown="false"
    )
    assert "metrics" not in cluster
    assert "cost_breakdown" not in cluster["cost"]
    assert tensorone.request("GET", path)["metrics"]["historical"]["window"] == "1h"
    for query in ({"metrics_window": "1y"}, {"include_metrics": "no"}):
        assert tensorone.require_refusal("GET", path, **query)["error"] == "VALIDATION_ERROR"


def test_a_cached_answer_is_repeated_until_it_expires(
    tensorone: TensorOneClient, control: Any, running: str
) -> None:
    control.call("POST", "/tensorone/settings", {"cache_seconds": 30})
    path = f"/{running}"
    first = tensorone.send("GET", path).json()
    assert first["meta"]["cache_hit"] is False
    control.advance(10)
    tensorone.request("PUT", path, {"tags": {"a": "1"}})
    old = tensorone.send("GET", path).json()
    assert old["data"] == first["data"]
    assert (old["meta"]["cache_hit"], old["meta"]["data_freshness_seconds"]) == (True, 10)
    control.advance(20)
    new = tensorone.send("GET", path).json()
    assert (new["meta"]["cache_hit"], new["data"]["tags"]) == (False, {"a": "1"})
    tensorone.request("DELETE", path, {"confirm_deletion": "DELETE"})
    control.advance(60)
    assert tensorone.require_refusal("GET", path)["code"] == 404


def test_a_create_beyond_the_capacity_is_refused(tensorone: TensorOneClient, control: Any) -> None:
    control.call("POST", "/tensorone/settings", {"capacity": {"A100": 2}})
    error = tensorone.require_refusal("POST", "", build_create_body())
    assert (error["code"], error["error"]) == (422, "SEMANTIC_ERROR")
    assert error["details"] == {"requested": "4x NVIDIA A100", "available": "2x NVIDIA A100"}
    tensorone.create(gpu_count=2)
    control.add_fault(method="POST", path="/clusters$", capacity=True)
    assert tensorone.require_refusal("POST", "", build_create_body())["code"] == 422


def test_faults_change_statuses_and_refuse_requests(
    tensorone: TensorOneClient, control: Any
) -> None:
    control.add_fault(method="POST", path="/clusters$", failing="^bad")
    bad = tensorone.create(name="bad-one")
    control.add_fault(method="POST", path="/clusters$", stuck=True)
    stuck = tensorone.create()
    control.advance(NEW_SECONDS * 10)
    assert (tensorone.get_status(bad), tensorone.get_status(stuck)) == ("error", "pending")
    cluster = tensorone.request("GET", f"/{bad}")
    assert cluster["status_details"]["message"] == "The container did not start"
    control.add_fault(method="GET", path=f"{bad}$", status_override="starting")
    assert [tensorone.get_status(bad) for _ in range(2)] == ["starting", "error"]
    control.add_fault(method="GET", path="/clusters", status=503, headers={"Retry-After": "5"})
    answer = tensorone.send("GET", "")
    assert (answer.status_code, answer.json()["error"]) == (503, "SERVICE_UNAVAILABLE")
    assert "X-RateLimit-Limit" not in answer.headers, "it was not counted"


def test_settings_are_shown_changed_and_reset(control: Any) -> None:
    before = control.call("GET", "/tensorone/settings")
    changed = control.call("POST", "/tensorone/settings", {"cache_seconds": 5})
    assert changed == {**before, "cache_seconds": 5.0}
    control.call("POST", "/reset")
    assert control.call("GET", "/tensorone/settings") == before
