"""Test runs whose lock was taken over: they send no further change."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.platforms.provider_contexts import change_context

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.slurm.processes import CommandRunner, LocalCommandRunner
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle

Properties = dict[str, Any]

UPDATE = "^/compute/clusters/[^/]+$"
VOLUME = {"volume_name": "data", "size_tib": 1, "region": "us-central-8"}
CHANGES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass
class Lock:
    """The stack's lock; `is_lost` once the process has slept too long."""

    is_lost: bool = False

    def check(self) -> None:
        if self.is_lost:
            raise GpuformError("the lock was lost: another process has taken over")


@pytest.fixture
def lock() -> Lock:
    return Lock()


def _sleep_past_lease(call: ProviderContext, lock: Lock) -> ProviderContext:
    """Return a context whose first pause is longer than the lock's lease."""
    inner = call.clock

    class Sleeper:
        is_platforms = True
        now = staticmethod(inner.now)

        @staticmethod
        def sleep(seconds: float, cancelled: Any) -> None:
            inner.sleep(seconds, cancelled)
            lock.is_lost = lock.is_lost or seconds > 0

    change_context(call, clock=Sleeper(), check_lock=lock.check)
    return call


def _list_writes(emulator: Any) -> list[str]:
    return [
        request["method"] for request in emulator.list_requests() if request["method"] in CHANGES
    ]


def test_an_update_that_waited_for_capacity_is_not_sent(
    emulator: Any, lock: Lock, cluster_inputs: Properties
) -> None:
    waiting = {**cluster_inputs, "on_no_capacity": {"wait_minutes": 30.0}}
    lifecycle = ClusterLifecycle()
    with use_context(emulator.create_context()):
        created = lifecycle.create(waiting)
    emulator.add_fault("PUT", UPDATE, capacity=True, count=1)
    before = _list_writes(emulator)
    larger, lost = {**waiting, "num_gpus": 24}, pytest.raises(GpuformError, match="lock was lost")
    with use_context(_sleep_past_lease(emulator.create_context(), lock)), lost:
        lifecycle.update(created.id, dict(created.outs or {}), larger)
    assert _list_writes(emulator)[len(before) :] == ["PUT"]


@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_changes_are_not_sent_and_reads_are(emulator: Any, lock: Lock, verb: str) -> None:
    lifecycle = SharedVolumeLifecycle()
    with use_context(emulator.create_context("other")):
        created = lifecycle.create(VOLUME)
    outs, before = dict(created.outs or {}), _list_writes(emulator)
    call = emulator.create_context()
    lock.is_lost = True
    change_context(call, check_lock=lock.check)
    acts: dict[str, Callable[[], object]] = {
        "create": lambda: lifecycle.create({**VOLUME, "volume_name": "another"}),
        "update": lambda: lifecycle.update(created.id, outs, {**VOLUME, "size_tib": 2}),
        "delete": lambda: lifecycle.delete(created.id, outs),
    }
    with use_context(call):
        with pytest.raises(GpuformError, match="the lock was lost"):
            acts[verb]()
        assert lifecycle.read(created.id, outs).id == created.id
    assert _list_writes(emulator) == before


def test_no_changing_scheduler_command_is_run(lock: Lock, call: ProviderContext) -> None:
    commands: CommandRunner = LocalCommandRunner()
    lock.is_lost = True
    change_context(call, check_lock=lock.check)
    with use_context(call):
        assert commands.run(["true"]).exit_code == 0
        with pytest.raises(GpuformError, match="the lock was lost"):
            commands.run(["true"], is_change=True)
