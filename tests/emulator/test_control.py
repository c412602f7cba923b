"""Test the emulator's controls: clock, reset, objects and the request log."""

import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from together import AuthenticationError, Together

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.server import Server
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together import ADMIN_KEY, MEMBER_KEY

VOLUME = {"volume_name": "data", "size_tib": 1, "region": "us-central-8"}


def test_health_needs_no_key(control: Any) -> None:
    assert control.call("GET", "/health") == {"status": "ok"}


def test_the_clock_stands_still_between_calls(control: Any) -> None:
    first = control.call("GET", "/clock")["now"]
    assert control.call("GET", "/clock")["now"] == first
    assert control.advance(1.5) == first + 1.5


def test_many_sleepers_for_one_moment_move_the_clock_once(control: Any) -> None:
    now = control.call("GET", "/clock")["now"]
    for _ in range(10):
        assert control.call("POST", "/clock", {"until": now + 15})["now"] == now + 15
    assert control.call("POST", "/clock", {"until": now})["now"] == now + 15


def test_a_late_waiter_moves_the_clock_by_the_smallest_wait_and_a_past_moment_moves_nothing() -> (
    None
):
    with Store(None) as store:
        clock = Clock(store, start=1000.0, smallest_wait=60.0)
        assert clock.wait_until(1001.0) == 1060.0
        assert clock.wait_until(1030.0) == 1060.0
        assert clock.wait_until(1500.0) == 1500.0


def test_a_waiter_skips_the_time_in_which_no_object_changes() -> None:
    with Store(None) as store:
        clock = Clock(store, start=1_795_000_000.0, smallest_wait=60.0)
        clock.longest_skip = 300.0
        store.put("cluster", "c", '{"phases": [[1795000000.0, "new"], [1795000200.25, "ready"]]}')
        store.put("volume", "v", '{"sizes": [[1795001000, 5]]}')
        assert clock.wait_until(1_795_000_010.0) == 1_795_000_200.25
        # The next change is further away than the longest skip.
        assert clock.wait_until(1_795_000_210.0) == 1_795_000_500.25
        assert clock.wait_until(1_795_000_510.0) == 1_795_000_800.25
        assert clock.wait_until(1_795_000_810.0) == 1_795_001_000.0
        # Without a change to come, only the smallest wait counts.
        assert clock.wait_until(1_795_001_001.0) == 1_795_001_060.0


@pytest.mark.parametrize(
    "body",
    ["{}", '{"advance": -1}', '{"advance": NaN}', '{"until": "x"}', "", "[]", '{"advance": 1e999}'],
)
def test_a_malformed_clock_body_is_refused(emulator: Server, body: str) -> None:
    before = emulator.clock.now()
    answer = httpx.post(f"{emulator.url}/_emulator/clock", content=body, verify=False)
    assert answer.status_code == 422
    assert answer.json()["error"]
    assert emulator.clock.now() == before


@given(st.lists(st.tuples(st.booleans(), st.floats(-1e6, 1e6))))
def test_the_clock_never_moves_back(moves: list[tuple[bool, float]]) -> None:
    with Store(None) as store:
        clock = Clock(store, start=1000.0)
        for is_advance, value in moves:
            before = clock.now()
            after = clock.advance(value) if is_advance else clock.advance_to(value)
            assert after == clock.now() >= before
            assert after == (before + max(value, 0.0) if is_advance else max(before, value))


def test_a_running_clock_advances_by_itself_and_can_be_moved() -> None:
    real = [50.0]
    with Store(None) as store:
        clock = Clock(store, start=1000.0, speed=60.0, real=lambda: real[0])
        assert clock.now() == 1000.0
        real[0] += 2.0
        assert clock.now() == clock.now() == 1120.0
        assert clock.advance(10.0) == 1130.0
        real[0] += 1.0
        assert clock.advance_to(1000.0) == 1190.0
        real[0] -= 40.0  # never back, whatever the machine's clock does
        assert clock.now() == 1190.0


def test_a_new_clock_starts_at_the_real_time_and_a_stored_one_continues() -> None:
    with Store(None) as store:
        assert Clock(store).now() > 1_700_000_000
    with Store(None) as store:
        Clock(store, start=5.0).advance(1)
        assert Clock(store, start=99.0).now() == 6.0


def test_reset_removes_everything_but_the_time(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    fresh = control.call("GET", "/objects")
    together.clusters.create(**cluster_args, shared_volume=VOLUME)
    assert control.call("GET", "/objects") != fresh
    control.add_fault(status=500)
    now = control.advance(1)
    control.call("POST", "/reset")
    assert control.call("GET", "/objects") == fresh
    assert control.call("GET", "/faults") == control.list_requests() == []
    assert control.call("GET", "/clock")["now"] == now
    assert together.clusters.list().clusters == []


def test_objects_lists_existing_objects(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args, shared_volume=VOLUME)
    control.advance(120)
    volume = cluster.volumes[0]
    status = "WaitingForControlPlaneNodes"
    assert control.call("GET", "/objects")["together"] == {
        "clusters": [{"id": cluster.cluster_id, "name": "training", "status": status}],
        "volumes": [{"id": volume.volume_id, "name": "data", "status": "bound"}],
    }


def test_the_log_lists_requests_in_order(
    together: Together, control: Any, cluster_args: dict[str, Any], emulator: Server
) -> None:
    now = emulator.clock.now()
    cluster = together.clusters.create(**cluster_args)
    together.clusters.list(project_id="p")
    together.clusters.delete(cluster.cluster_id)
    base = {"platform": "together", "status": 200, "time": now}
    assert control.list_requests() == [
        {**base, "method": "POST", "path": "/compute/clusters", "query": {}, "body": cluster_args},
        {
            **base,
            "method": "GET",
            "path": "/compute/clusters",
            "query": {"projectId": "p"},
            "body": None,
        },
        {
            **base,
            "method": "DELETE",
            "path": f"/compute/clusters/{cluster.cluster_id}",
            "query": {},
            "body": None,
        },
    ]
    assert control.call("DELETE", "/requests") == control.list_requests() == []


def test_the_log_holds_no_secret(
    together: Together, connect: Any, control: Any, emulator: Server, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args)
    control.advance(3600)
    kube_config = together.clusters.retrieve(cluster.cluster_id).kube_config
    with pytest.raises(AuthenticationError):
        connect(emulator.url, "my-real-key").clusters.list()
    connect(emulator.url, MEMBER_KEY).clusters.list()
    url = f"{emulator.url}/together/v1/compute/clusters/{cluster.cluster_id}"
    httpx.put(
        url,
        params={"api_key": ADMIN_KEY},
        headers={"Authorization": f"Bearer {ADMIN_KEY}"},
        json={"kube_config": kube_config, "deep": [{"token": ADMIN_KEY}]},
        verify=False,
    )
    httpx.put(url, content=b"not json", verify=False)
    log = json.dumps(control.list_requests())
    for secret in (ADMIN_KEY, MEMBER_KEY, "my-real-key", kube_config, "Bearer"):
        assert secret not in log
    assert '"[secret]"' in log
    assert [entry["status"] for entry in control.list_requests()] == [200, 200, 401, 200, 400, 401]


def test_an_unknown_path_is_answered_with_404(emulator: Server) -> None:
    for path in ("/", "/_emulator/nothing", "/togetherness"):
        assert httpx.get(emulator.url + path, verify=False).status_code == 404
