"""Test the command as a real process: interrupted, terminated, killed at work and in waits.

The process has the machine's own clock, so that it waits like a user's; tests only watch what it
asks of the platform.
"""

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conformance import scp_kinds
from conformance.emulated import Platform, get_platform_path, start_emulated_platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import CREATED_KINDS, FAST_KIND
from conformance.recovery_checks import (
    assert_destroy_leaves_nothing,
    assert_next_run_recovers,
    assert_no_object_is_lost,
    assert_state_objects_exist,
)
from conformance.stacks import EmbeddedStack, declare_one
from processes.limits import LAST_RESORT
from processes.patient import read_until

from gpuform.providers.emulator.server import environment
from gpuform.providers.environment import RECORD

pytestmark = pytest.mark.sampled(9)


def for_each(kinds: Iterable[KindDescription]) -> pytest.MarkDecorator:
    """Run a test for each of these kinds, all but one as slow tests."""
    params = [
        pytest.param(kind, marks=() if kind is FAST_KIND else pytest.mark.slow) for kind in kinds
    ]
    return pytest.mark.parametrize("description", params, ids=str, indirect=True)


for_created = for_each(CREATED_KINDS)
for_waited = for_each(kind for kind in CREATED_KINDS if kind.pending_status)
"""Those that can be waited for."""

for_slowly_deleted = for_each(kind for kind in CREATED_KINDS if kind.deleting_statuses)
"""Those whose deletion takes its time."""


@pytest.fixture
def description(request: pytest.FixtureRequest, platform: Platform) -> KindDescription:
    """Prepare a kind's requirements, and return the kind with their ids."""
    placed = platform.prepare(request.param)
    platform.server.clock.advance_to(time.time())
    return placed


@dataclass
class Command:
    """A `gpuform` command on the stack, not yet started."""

    stack: EmbeddedStack
    platform: Platform

    @contextmanager
    def start(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
        directory = self.stack.directory
        (directory / "Pulumi.yaml").write_text("name: conformance\nruntime: python\n")
        settings = f"encryptionsalt: {self.stack.crypter.salt_state}\n"
        (directory / "Pulumi.dev.yaml").write_text(settings)
        # This process follows the platform's clock, and the platform is an emulator to it alone.
        self.stack.records.delete(RECORD)
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuform.stacks.cli", *arguments, "--stack", "dev"],
            cwd=directory,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()
            self.stack.records.delete(RECORD)

    @property
    def environ(self) -> dict[str, str]:
        platform = environment(self.platform.server.url)
        del platform["GPUFORM_CLOCK"]
        return {
            "PATH": "",
            "HOME": str(self.stack.directory),
            "PULUMI_HOME": str(self.stack.directory / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.stack.directory}",
            "PULUMI_CONFIG_PASSPHRASE": "test only",
            **scp_kinds.VARIABLES,
            **platform,
        }

    @property
    def locks(self) -> list[Path]:
        return list((self.stack.directory / ".pulumi" / "locks").rglob("*.json"))


@pytest.fixture
def emulator() -> Iterator[Platform]:
    """Start a platform whose clock equals the processes' clock after preparation."""
    with start_emulated_platform(start=time.time() - 10_000) as platform:
        yield platform


@pytest.fixture
def command(embedded: EmbeddedStack, platform: Platform) -> Command:
    return Command(embedded, platform)


@contextmanager
def hold_request(
    platform: Platform, method: str, path: str, act: Callable[[], object] = lambda: None
) -> Iterator[threading.Event]:
    """Return an event, set after `act` by the first matching request in advance of the answer."""
    reached = threading.Event()
    begun = threading.Lock()

    def hook(environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] != method or not re.search(path, get_platform_path(environ)):
            return
        if begun.acquire(blocking=False):
            act()
            # It stood still while the process went on, however busy this machine is.
            platform.server.clock.advance_to(time.time())
            reached.set()

    with platform.watch_requests(hook):
        yield reached


def wait_for(
    condition: Callable[[], object], process: "subprocess.Popen[str] | None" = None
) -> None:
    """Wait for a condition in another process; fail if `process` has ended without a kill."""
    pause = threading.Event()
    while not condition():
        if process is not None and process.poll() not in (None, -signal.SIGKILL):
            assert condition(), process.communicate()[0]
        pause.wait(0.02)


UP = ("up", "--yes", "--skip-preview")
DESTROY = ("destroy", "--yes", "--skip-preview")


@pytest.mark.slow
@pytest.mark.sampled(4)
@for_waited
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_wait_of_an_up_keeps_the_id(
    command: Command, description: KindDescription, number: signal.Signals
) -> None:
    stack, platform = command.stack, command.platform
    stack.build_deployment("update", declare_one(description))
    platform.add_fault(
        "GET", description.object_path, status_override=description.pending_status, count=None
    )
    with command.start(*UP) as process:
        wait_for(lambda: stack.recorded_ids, process)
        process.send_signal(number)
        assert process.wait(LAST_RESORT) == 1
        assert process.stdout is not None
        assert "interrupted" in process.stdout.read().lower()
    assert command.locks == []
    assert platform.list_ids(description) == {stack.id}
    assert stack.outputs["ready"] is False
    assert "interrupted" in stack.outputs["not_ready_reason"]
    platform.remove_faults()
    assert_state_objects_exist(stack, platform, declare_one(description))
    assert_next_run_recovers(stack, platform, declare_one(description))
    assert stack.intents == []
    assert platform.count_creates(description) == 1


@for_created
@pytest.mark.slow
def test_a_signal_during_the_create_request_lets_it_finish(
    command: Command, description: KindDescription
) -> None:
    stack, platform = command.stack, command.platform
    stack.build_deployment("update", declare_one(description))
    sent = threading.Event()
    interrupted = threading.Event()

    def hold() -> None:
        sent.set()
        assert interrupted.wait(LAST_RESORT)

    with (
        hold_request(platform, description.create.method, description.create.path, hold),
        command.start(*UP) as process,
    ):
        wait_for(sent.is_set, process)
        process.send_signal(signal.SIGINT)
        # An answer before the signal is counted could end the run first, as if nobody interrupted.
        read_until(process, "Interrupted")
        interrupted.set()
        assert process.wait(LAST_RESORT) == 1
    assert platform.list_ids(description) == {stack.id}
    assert_next_run_recovers(stack, platform, declare_one(description))
    assert platform.count_creates(description) == 1


@pytest.mark.slow
@pytest.mark.sampled(4)
@for_created
def test_a_second_signal_ends_the_process_at_once_and_keeps_a_record(
    command: Command, description: KindDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, platform = command.stack, command.platform
    stack.build_deployment("update", declare_one(description))
    sent = threading.Event()
    event = threading.Event()

    def hold() -> None:
        sent.set()
        assert event.wait(LAST_RESORT)

    with hold_request(platform, description.create.method, description.create.path, hold) as served:
        with command.start(*UP) as process:
            wait_for(sent.is_set, process)
            process.send_signal(signal.SIGINT)
            read_until(process, "Interrupted")
            process.send_signal(signal.SIGINT)
            assert process.wait(LAST_RESORT) == 8
        event.set()
        assert served.wait(LAST_RESORT)
    assert command.locks == []
    assert [pending_operation.type for pending_operation in stack.snapshot.pending_operations] == [
        "creating"
    ]
    wait_for(lambda: platform.list_requests(description.create.method))
    assert_no_object_is_lost(stack, platform, declare_one(description))
    result = stack.destroy()
    if not result.ok:  # the two processes follow two clocks: then a person is asked
        assert "an interrupted create" in result.errors[0]
        monkeypatch.setenv("GPUFORM_ADOPT", ",".join(platform.list_parts(description)))
        result = stack.destroy()
    assert result.ok, result.errors
    assert platform.list_ids(description) == set()
    assert platform.count_creates(description) <= 1
    assert_next_run_recovers(stack, platform, declare_one(description))


@for_slowly_deleted
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_wait_of_a_destroy_keeps_the_resource(
    command: Command, description: KindDescription, number: signal.Signals
) -> None:
    stack, platform = command.stack, command.platform
    assert stack.apply(declare_one(description)).ok
    with command.start(*DESTROY) as process:
        wait_for(lambda: not platform.list_ids(description), process)
        process.send_signal(number)
        assert process.wait(LAST_RESORT) == 1
    assert len(stack.resources) == 1
    assert_destroy_leaves_nothing(stack, platform, declare_one(description))


def kill_during_request(
    command: Command, arguments: tuple[str, ...], method: str, path: str
) -> None:
    """Kill the command while the platform serves a matching request, whose answer is lost."""
    running: list[subprocess.Popen[str]] = []
    started = threading.Event()

    def kill() -> None:
        assert started.wait(LAST_RESORT)
        running[0].kill()
        running[0].wait(LAST_RESORT)

    with (
        hold_request(command.platform, method, path, kill) as killed,
        command.start(*arguments) as process,
    ):
        running.append(process)
        started.set()
        wait_for(killed.is_set, process)
    wait_for(lambda: command.platform.list_requests(method, path=path))


def assert_recovered(command: Command, description: KindDescription) -> None:
    """Assert that no object is lost and the next run continues."""
    stack, platform = command.stack, command.platform
    assert_no_object_is_lost(stack, platform, declare_one(description))
    assert_next_run_recovers(stack, platform, declare_one(description))
    assert platform.count_creates(description) <= 1


@for_created
@pytest.mark.slow
def test_an_up_killed_while_it_sends_is_recovered(
    command: Command, description: KindDescription
) -> None:
    command.stack.build_deployment("update", declare_one(description))
    kill_during_request(command, UP, description.create.method, description.create.path)
    assert_recovered(command, description)


@for_waited
@pytest.mark.slow
def test_an_up_killed_while_it_waits_is_recovered(
    command: Command, description: KindDescription
) -> None:
    command.stack.build_deployment("update", declare_one(description))
    command.platform.add_fault(
        "GET", description.object_path, status_override=description.pending_status, count=None
    )
    with command.start(*UP) as process:
        wait_for(lambda: command.stack.recorded_ids, process)
        process.kill()
        process.wait(LAST_RESORT)
    command.platform.remove_faults()
    assert_recovered(command, description)


@for_created
@pytest.mark.slow
def test_a_killed_destroy_is_recovered(command: Command, description: KindDescription) -> None:
    stack, platform = command.stack, command.platform
    assert stack.apply(declare_one(description)).ok
    request = description.outside_delete
    kill_during_request(command, DESTROY, request.method, request.pattern)
    assert_no_object_is_lost(stack, platform, declare_one(description))
    assert_destroy_leaves_nothing(stack, platform, declare_one(description))
