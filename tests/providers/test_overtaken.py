"""A run whose lock is another's by now: nothing more of it reaches a platform."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

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
    """The stack's lock; `is_lost` from the moment on that the process slept."""

    is_lost: bool = False

    def check(self) -> None:
        if self.is_lost:
            raise GpuformError("the lock was lost: another process has taken over")


@pytest.fixture
def lock() -> Lock:
    return Lock()


def _sleeping_past_it(call: ProviderContext, lock: Lock) -> ProviderContext:
    """Whose first pause is longer than its lease."""
    inner = call.clock

    class Sleeper:
        is_platforms = True
        now = staticmethod(inner.now)

        @staticmethod
        def sleep(seconds: float, cancelled: Any) -> None:
            inner.sleep(seconds, cancelled)
            lock.is_lost = lock.is_lost or seconds > 0

    call.clock, call.check_lock = Sleeper(), lock.check
    return call


def _sent(emulator: Any) -> list[str]:
    return [each["method"] for each in emulator.requests() if each["method"] in CHANGES]


def test_an_update_that_waited_for_capacity_is_not_sent(
    emulator: Any, lock: Lock, cluster_inputs: Properties
) -> None:
    waiting = {**cluster_inputs, "on_no_capacity": {"wait_minutes": 30.0}}
    lifecycle = ClusterLifecycle()
    with use_context(emulator.call()):
        made = lifecycle.create(waiting)
    emulator.fault("PUT", UPDATE, capacity=True, count=1)
    before = _sent(emulator)
    larger, lost = {**waiting, "num_gpus": 24}, pytest.raises(GpuformError, match="lock was lost")
    with use_context(_sleeping_past_it(emulator.call(), lock)), lost:
        lifecycle.update(made.id, dict(made.outs or {}), larger)
    assert _sent(emulator)[len(before) :] == ["PUT"]


@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_no_change_is_sent_and_looks_are(emulator: Any, lock: Lock, verb: str) -> None:
    lifecycle = SharedVolumeLifecycle()
    with use_context(emulator.call("other")):
        made = lifecycle.create(VOLUME)
    outs, before = dict(made.outs or {}), _sent(emulator)
    call = emulator.call()
    lock.is_lost, call.check_lock = True, lock.check
    acts: dict[str, Callable[[], object]] = {
        "create": lambda: lifecycle.create({**VOLUME, "volume_name": "another"}),
        "update": lambda: lifecycle.update(made.id, outs, {**VOLUME, "size_tib": 2}),
        "delete": lambda: lifecycle.delete(made.id, outs),
    }
    with use_context(call):
        with pytest.raises(GpuformError, match="the lock was lost"):
            acts[verb]()
        assert lifecycle.read(made.id, outs).id == made.id
    assert _sent(emulator) == before


def test_no_command_of_a_scheduler_is_run_that_changes_anything(
    lock: Lock, call: ProviderContext
) -> None:
    commands: CommandRunner = LocalCommandRunner()
    lock.is_lost, call.check_lock = True, lock.check
    with use_context(call):
        assert commands.run(["true"]).exit_code == 0
        with pytest.raises(GpuformError, match="the lock was lost"):
            commands.run(["true"], is_change=True)
