"""Test that a run context never changes, and that each thread has the context of its own run."""

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from processes.limits import LAST_RESORT

from gpuform.providers.context import (
    ProviderContext,
    RunContext,
    SystemClock,
    create_thread_pool,
    get_run_context,
    use_context,
    use_run_context,
)
from gpuform.providers.permissions import Permission


def test_a_context_does_not_follow_the_variables_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUFORM_ALLOW", "unlock")
    run = get_run_context()
    monkeypatch.setenv("GPUFORM_ALLOW", "repair")

    assert run.permissions == {Permission.UNLOCK}
    assert get_run_context().permissions == {Permission.REPAIR}


def test_a_context_with_more_permissions_leaves_the_first_one_unchanged() -> None:
    run = RunContext({"GPUFORM_ALLOW": "unlock"})

    more = run.with_permissions({Permission.REPAIR})

    assert run.permissions == {Permission.UNLOCK}
    assert more.permissions == {Permission.UNLOCK, Permission.REPAIR}
    assert more.environ == {"GPUFORM_ALLOW": "repair,unlock"}  # as its child processes get it
    with pytest.raises(TypeError, match="does not support item assignment"):
        run.environ["GPUFORM_ALLOW"] = ""  # type: ignore[index]


def test_a_context_without_further_requests_stays_the_same() -> None:
    run = RunContext({})

    assert run.with_permissions(()) is run
    assert run.with_variables({}) is run


def test_requests_of_a_run_are_read_from_its_variables() -> None:
    run = RunContext(
        {
            "GPUFORM_ADOPT": " a , b",
            "GPUFORM_CREATE_ANEW": "1",
            "GPUFORM_REPAIR": "w1, w2=REBOOT_VM",
            "GPUFORM_REVIEWED_REPAIRS": "k1,k2",
            "GPUFORM_READS_ONLY": "1",
        }
    )

    assert run.adopted_ids == {"a", "b"}
    assert run.creates_anew
    assert run.requested_repairs == {"w1": "", "w2": "REBOOT_VM"}
    assert run.reviewed_repairs == {"k1", "k2"}
    assert run.is_read_only
    assert isinstance(run.clock, SystemClock)


def test_threads_do_not_see_the_context_of_another_thread() -> None:
    barrier = Barrier(2, timeout=LAST_RESORT)

    def read_permissions(name: str) -> frozenset[str]:
        with use_run_context(RunContext({"GPUFORM_ALLOW": name})):
            barrier.wait()
            return ProviderContext().run.permissions

    with ThreadPoolExecutor() as pool:
        seen = list(pool.map(read_permissions, ("unlock", "repair")))

    assert seen == [{"unlock"}, {"repair"}]
    assert "GPUFORM_ALLOW" not in os.environ


def test_threads_of_a_pool_have_the_context_of_their_operation() -> None:
    run = RunContext({"GPUFORM_ALLOW": "unlock"})

    with use_run_context(run), create_thread_pool(2, "test") as pool:
        seen = pool.submit(get_run_context).result()

    assert seen is run


def test_the_context_of_a_call_comes_before_that_of_the_operation() -> None:
    of_call = RunContext({"GPUFORM_ALLOW": "unlock"})

    with use_run_context(RunContext({})), use_context(ProviderContext(run=of_call)):
        assert get_run_context() is of_call
