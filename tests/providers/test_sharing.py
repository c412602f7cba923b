"""Test that waiting for many clusters and reading many volumes needs few requests."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.clocks.lockstep_clock import LockstepClock

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle

Properties = dict[str, Any]

WAITERS = 64


@pytest.mark.slow
@pytest.mark.exact_waits
def test_waiting_for_64_clusters_needs_two_requests_per_poll(
    emulator: Any, cluster_inputs: Properties
) -> None:
    def move(time: float) -> None:
        emulator.http.post("/_emulator/clock", json={"until": time})

    start = emulator.http.get("/_emulator/clock").json()["now"]
    clock = LockstepClock(start, WAITERS, move)

    def create(number: int) -> bool:
        name = f"train-{number}"
        call = ProviderContext(
            urn=name, clock=clock, intents=emulator.intents, on_progress=lambda _text: None
        )
        try:
            with use_context(call):
                created = ClusterLifecycle().create({**cluster_inputs, "cluster_name": name})
        finally:
            clock.remove_thread()
        return bool(created.outs["ready"])

    with ThreadPoolExecutor(WAITERS) as pool:
        assert all(pool.map(create, range(WAITERS)))
    requests_by_time = Counter(
        r["time"] for r in emulator.list_requests("GET") if r["time"] > start
    )
    assert len(requests_by_time) > 40
    # A thread that is late for a beat costs a request more; most beats have one or two.
    assert sum(requests_by_time.values()) <= 2 * len(requests_by_time)
    assert clock.time - start == 1200


@pytest.mark.slow
def test_reading_1000_volumes_needs_a_few_lists(emulator: Any, volume_inputs: Properties) -> None:
    body = {"size_tib": 1, "region": "us-central-8"}
    ids = [
        emulator.send_as_somebody_else(
            "POST", "/clusters/storage/volumes", {**body, "volume_name": f"v{at}"}
        )["volume_id"]
        for at in range(1000)
    ]
    emulator.http.delete("/_emulator/requests")

    def read(id_: str) -> str:
        with emulator.use_context_of(id_):
            return SharedVolumeLifecycle().read(id_, volume_inputs).id

    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(read, ids)) == ids
    assert len(emulator.list_requests()) < 100
