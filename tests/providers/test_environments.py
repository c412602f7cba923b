"""Test which clock a provider's call uses: an emulator's only for the emulator's resources."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from gpuform.providers.context import ProviderContext, SystemClock, synchronize_clock
from gpuform.providers.context.run_context import EmulatorClock
from gpuform.providers.emulator.server import serve
from gpuform.providers.environment import (
    StackEnvironment,
    WrongEnvironment,
    enter_environment,
    read_environment,
    record_environment,
)
from gpuform.providers.operations import Settings
from gpuform.providers.records import EphemeralRecords, FolderRecords, Intents

REAL = "https://api.together.ai/v1"


def build_context(records: FolderRecords | EphemeralRecords) -> ProviderContext:
    return ProviderContext(clock=SystemClock(), intents=Intents(records))


@pytest.mark.parametrize("beside_the_project", [True, False])
def test_a_real_platform_is_not_used_with_an_emulators_clock(
    tmp_path: Path, beside_the_project: bool
) -> None:
    """Under `pulumi up`, gpuform has no command line and perhaps no state."""
    records = FolderRecords(tmp_path) if beside_the_project else EphemeralRecords()
    settings = Settings(environ={"TOGETHER_BASE_URL": REAL, "GPUFORM_CLOCK": "http://127.0.0.1:1"})
    with pytest.raises(WrongEnvironment, match="GPUFORM_CLOCK names an emulator's clock") as raised:
        enter_environment(build_context(records), "together", settings)
    assert "unset GPUFORM_CLOCK" in (raised.value.hint or "")
    assert read_environment(records) is None


def test_a_stack_records_its_emulator_and_is_refused_on_another_one() -> None:
    records = EphemeralRecords()
    with serve() as ours, serve() as other:
        enter_environment(build_context(records), "together", Settings(environ=ours.environment))
        assert read_environment(records) == StackEnvironment(True, emulator=ours.store.identity)
        with pytest.raises(WrongEnvironment, match=f"lives on emulator {ours.store.identity}"):
            enter_environment(
                build_context(records), "together", Settings(environ=other.environment)
            )


def test_an_emulator_is_identified_by_its_data_and_not_by_its_port(tmp_path: Path) -> None:
    records, store = EphemeralRecords(), tmp_path / "emulator.db"
    with serve(store_path=store) as first:
        enter_environment(build_context(records), "together", Settings(environ=first.environment))
    with serve(store_path=tmp_path / "other.db"), serve(store_path=store) as again:
        enter_environment(build_context(records), "together", Settings(environ=again.environment))


def test_a_record_without_an_emulator_records_the_first_one_with_a_warning() -> None:
    records = EphemeralRecords()
    record_environment(records, StackEnvironment(True))
    messages: list[str] = []
    with serve() as server:
        call = ProviderContext(
            clock=SystemClock(), intents=Intents(records), on_warning=messages.append
        )
        for _ in range(2):
            enter_environment(call, "together", Settings(environ=server.environment))
    assert len(messages) == 1
    assert server.store.identity in messages[0]


def test_a_second_emulator_at_the_address_of_the_first_is_another_one() -> None:
    with serve() as first:
        clock = EmulatorClock(first.url)
        port, identity = int(first.url.rpartition(":")[2]), clock.get_identity()
    with closing(clock), serve(port):
        assert clock.get_identity() != identity


def test_the_clock_of_a_second_emulator_at_the_address_of_the_first_may_be_behind() -> None:
    with serve(start=2000.0, seed="same") as first:
        clock = EmulatorClock(first.url)
        clock.sleep(60, threading.Event())
        port = int(first.url.rpartition(":")[2])
    with closing(clock), serve(port, start=1000.0, seed="same") as second:
        assert synchronize_clock(clock).now() == 1000.0
        clock.sleep(30, threading.Event())
        assert second.clock.now() == 1030.0
