"""Test the context of a provider call: its clock, deadline, cancellation and messages."""

import logging
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import httpx
import pytest
from processes.limits import LAST_RESORT
from support.platforms.provider_contexts import change_context
from support.servers.ports import reserve_port

from gpuform.providers.context import (
    ProviderContext,
    SystemClock,
    get_clock,
    get_current_context,
    use_context,
)
from gpuform.providers.context.run_context import EmulatorClock, mount_transport
from gpuform.providers.emulator.server import serve
from gpuform.providers.errors import Cancelled, Unreachable


def test_the_call_of_an_engine_is_the_current_one_inside_the_block(call: ProviderContext) -> None:
    with use_context(call):
        assert get_current_context() is call
        inner = ProviderContext(urn="inner")
        with use_context(inner):
            assert get_current_context() is inner
        assert get_current_context() is call
    assert get_current_context() is not call


def test_a_thread_has_its_own_call(call: ProviderContext) -> None:
    result: list[ProviderContext] = []
    with use_context(call):
        thread = threading.Thread(target=lambda: result.append(get_current_context()))
        thread.start()
        thread.join()
    assert result[0] is not call


def test_under_the_stock_host_a_call_has_defaults(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GPUFORM_CLOCK", raising=False)
    monkeypatch.chdir(tmp_path)
    default = get_current_context()
    assert (default.urn, default.preview, default.timeout) == (None, False, None)
    assert isinstance(default.clock, SystemClock)
    assert default.intents.records.place == str(tmp_path / ".gpuform" / "records")
    with caplog.at_level(logging.INFO, "gpuform"):
        default.on_warning("careful")
        default.on_progress("going on")
    assert caplog.messages == ["careful", "going on"]


def test_hidden_messages_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    messages: list[str] = []
    call = ProviderContext(
        on_progress=messages.append, on_warning=messages.append, on_skipped_check=messages.append
    )
    call.add_secrets([None, 8, "4711-0815", {"key": ['q"7-zebra', "short"]}])
    for tell in (call.on_progress, call.on_warning, call.on_skipped_check):
        tell('is it {"key": "q\\"7-zebra"} or 4711-081?')
    assert messages == ['is it {"key": "[secret]"} or [secret]?'] * 3
    assert "4711" not in repr(call)


def test_a_context_never_changes_and_its_copies_share_the_progress() -> None:
    messages: list[str] = []
    call = ProviderContext(on_warning=messages.append)
    with pytest.raises(FrozenInstanceError):
        call.urn = "other"  # type: ignore[misc]
    copy = replace(call, stored_properties={"ready": True})
    copy.add_secrets(["my-secret-key"])
    copy.progress.init_errors.append("still booting")
    call.on_warning("my-secret-key")
    copy.on_warning("my-secret-key")
    assert call.progress.init_errors == ["still booting"]
    assert messages == ["[secret]"] * 2


def test_the_engine_timeout_overrides_the_default(call: ProviderContext) -> None:
    call.start_deadline(60)
    assert call.compute_remaining_seconds() == 60
    change_context(call, timeout=5)
    call.start_deadline(60)
    assert call.compute_remaining_seconds() == 5


def test_a_sleep_ends_at_the_deadline(call: ProviderContext) -> None:
    call.start_deadline(10)
    call.sleep(7)
    call.sleep(7)
    assert call.clock.pauses == [7, 3]  # type: ignore[attr-defined]
    assert call.compute_remaining_seconds() == 0


def test_a_cancelled_call_does_not_sleep(call: ProviderContext) -> None:
    call.cancelled.set()
    with pytest.raises(Cancelled):
        call.sleep(5)
    assert call.clock.pauses == []  # type: ignore[attr-defined]


def test_cancelling_ends_a_real_sleep() -> None:
    cancelled = threading.Event()
    thread = threading.Thread(target=SystemClock().sleep, args=(3600, cancelled))
    thread.start()
    cancelled.set()
    thread.join(LAST_RESORT)
    assert not thread.is_alive()


def test_the_emulator_clock_moves_by_sleeping_and_follows_others() -> None:
    with serve(start=1000.0) as server:
        clock, other = EmulatorClock(server.url), EmulatorClock(server.url)
        never = threading.Event()
        assert clock.now() == 1000.0
        clock.sleep(30, never)
        assert clock.now() == 1030.0
        other.sleep(10, never)
        assert other.now() == 1040.0
        assert clock.now() == 1030.0
        clock.sleep(0, never)
        assert clock.now() == 1040.0
        cancelled = threading.Event()
        cancelled.set()
        clock.sleep(30, cancelled)
        assert server.clock.now() == 1040.0
        clock.close()
        other.close()


def test_an_unreachable_emulator_is_an_error(free_port: int) -> None:
    clock = EmulatorClock(f"http://127.0.0.1:{free_port}")
    with pytest.raises(Unreachable, match="GPUFORM_CLOCK"):
        clock.now()
    clock.close()


@pytest.mark.parametrize(("broken", "is_reached"), [(2, True), (3, False)])
def test_a_broken_connection_to_the_emulator_is_retried(broken: int, is_reached: bool) -> None:
    requests: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.content)
        if len(requests) <= broken:
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(200, json={"now": 30.0})

    with mount_transport("http://clock.test", httpx.MockTransport(answer)):
        clock = EmulatorClock("http://clock.test")
        with nullcontext() if is_reached else pytest.raises(Unreachable, match="ReadError"):
            assert clock.now() == 30.0
        clock.close()
    assert len(requests) == 3


@pytest.fixture
def free_port() -> Iterator[int]:
    with reserve_port() as port:
        yield port


def test_the_environment_chooses_the_clock() -> None:
    assert isinstance(get_clock({}), SystemClock)
    assert isinstance(get_clock({"GPUFORM_CLOCK": ""}), SystemClock)
    first = get_clock({"GPUFORM_CLOCK": "http://127.0.0.1:1"})
    assert isinstance(first, EmulatorClock)
    assert get_clock({"GPUFORM_CLOCK": "http://127.0.0.1:1"}) is first
