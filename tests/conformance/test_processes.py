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
from conformance.described import Described
from conformance.emulated import Platform, emulated, product_path
from conformance.kinds import FAST, MADE
from conformance.settling import (
    assert_destroyed,
    assert_nothing_is_imagined,
    assert_nothing_is_lost,
    assert_settles,
)
from conformance.stacks import EmbeddedStack, thing
from processes.limits import LAST_RESORT

from gpuform.providers.emulator.server import environment
from gpuform.providers.environment import RECORD

pytestmark = pytest.mark.sampled(9)


def for_each(kinds: Iterable[Described]) -> pytest.MarkDecorator:
    """Run a test for each of these kinds, slowly for all but one."""
    params = [pytest.param(kind, marks=() if kind is FAST else pytest.mark.slow) for kind in kinds]
    return pytest.mark.parametrize("described", params, ids=str, indirect=True)


for_made = for_each(MADE)
for_waited = for_each(kind for kind in MADE if kind.pending)
"""Those that can be waited for."""

for_leaving = for_each(kind for kind in MADE if kind.leaving)
"""Those whose deletion takes its time."""


@pytest.fixture
def described(request: pytest.FixtureRequest, platform: Platform) -> Described:
    """What differs between kinds is in the other files."""
    placed = platform.prepare(request.param)
    platform.server.clock.advance_to(time.time())
    return placed


@dataclass
class Command:
    """A `gpuform` command on the stack, not yet started."""

    stack: EmbeddedStack
    platform: Platform

    @contextmanager
    def running(self, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
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
            **platform,
        }

    @property
    def locks(self) -> list[Path]:
        return list((self.stack.directory / ".pulumi" / "locks").rglob("*.json"))


@pytest.fixture
def emulator() -> Iterator[Platform]:
    """Start a platform whose clock equals the processes' once it is prepared."""
    with emulated(start=time.time() - 10_000) as platform:
        yield platform


@pytest.fixture
def command(embedded: EmbeddedStack, platform: Platform) -> Command:
    return Command(embedded, platform)


@contextmanager
def set_event_at(
    platform: Platform, method: str, path: str, act: Callable[[], object] = lambda: None
) -> Iterator[threading.Event]:
    """Return an event that the first such request sets after `act`, before it is served."""
    reached = threading.Event()
    begun = threading.Lock()

    def hook(environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] != method or not re.search(path, product_path(environ)):
            return
        if begun.acquire(blocking=False):
            act()
            # It stood still while the process went on, however busy this machine is.
            platform.server.clock.advance_to(time.time())
            reached.set()

    with platform.watching(hook):
        yield reached


def wait_for(condition: Callable[[], object]) -> None:
    """Wait for a condition that another process fulfils."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.02)


UP = ("up", "--yes", "--skip-preview")
DESTROY = ("destroy", "--yes", "--skip-preview")


@pytest.mark.slow
@pytest.mark.sampled(4)
@for_waited
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_waiting_and_keeps_the_id(
    command: Command, described: Described, number: signal.Signals
) -> None:
    stack, platform = command.stack, command.platform
    stack.deployment("update", thing(described))
    platform.fault("GET", described.own, status_override=described.pending, count=None)
    with command.running(*UP) as process:
        wait_for(lambda: stack.recorded_ids)
        process.send_signal(number)
        assert process.wait(LAST_RESORT) == 1
        assert process.stdout is not None
        assert "interrupted" in process.stdout.read().lower()
    assert command.locks == []
    assert platform.ids(described) == {stack.id}
    assert stack.outputs["ready"] is False
    assert "interrupted" in stack.outputs["not_ready_reason"]
    platform.heal()
    assert_nothing_is_imagined(stack, platform, thing(described))
    assert_settles(stack, platform, thing(described))
    assert stack.intents == []
    assert platform.created(described) == 1


@for_made
@pytest.mark.slow
def test_a_signal_while_the_create_is_on_the_wire_lets_it_finish(
    command: Command, described: Described
) -> None:
    stack, platform = command.stack, command.platform
    stack.deployment("update", thing(described))
    sent = threading.Event()
    interrupted = threading.Event()

    def hold() -> None:
        sent.set()
        assert interrupted.wait(LAST_RESORT)

    with (
        set_event_at(platform, described.create.method, described.create.path, hold),
        command.running(*UP) as process,
    ):
        assert sent.wait(LAST_RESORT)
        process.send_signal(signal.SIGINT)
        interrupted.set()
        assert process.wait(LAST_RESORT) == 1
    assert platform.ids(described) == {stack.id}
    assert_settles(stack, platform, thing(described))
    assert platform.created(described) == 1


@pytest.mark.slow
@pytest.mark.sampled(4)
@for_made
def test_a_second_signal_leaves_at_once_and_leaves_a_record(
    command: Command, described: Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, platform = command.stack, command.platform
    stack.deployment("update", thing(described))
    sent = threading.Event()
    event = threading.Event()

    def hold() -> None:
        sent.set()
        assert event.wait(LAST_RESORT)

    with set_event_at(platform, described.create.method, described.create.path, hold) as served:
        with command.running(*UP) as process:
            assert sent.wait(LAST_RESORT)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert any("Interrupted" in line for line in lines)
            process.send_signal(signal.SIGINT)
            assert process.wait(LAST_RESORT) == 8
        event.set()
        assert served.wait(LAST_RESORT)
    assert command.locks == []
    assert [pending_operation.type for pending_operation in stack.snapshot.pending_operations] == [
        "creating"
    ]
    wait_for(lambda: platform.requests(described.create.method))
    assert_nothing_is_lost(stack, platform, thing(described))
    result = stack.destroy()
    if not result.ok:  # the two processes follow two clocks: then a person is asked
        assert "an interrupted create" in result.errors[0]
        monkeypatch.setenv("GPUFORM_ADOPT", ",".join(platform.parts(described)))
        result = stack.destroy()
    assert result.ok, result.errors
    assert platform.ids(described) == set()
    assert platform.created(described) <= 1
    assert_settles(stack, platform, thing(described))


@for_leaving
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_waiting_of_a_destroy(
    command: Command, described: Described, number: signal.Signals
) -> None:
    stack, platform = command.stack, command.platform
    assert stack.up(thing(described)).ok
    with command.running(*DESTROY) as process:
        wait_for(lambda: not platform.ids(described))
        process.send_signal(number)
        assert process.wait(LAST_RESORT) == 1
    assert len(stack.resources) == 1
    assert_destroyed(stack, platform, thing(described))


def kill_at(command: Command, arguments: tuple[str, ...], method: str, path: str) -> None:
    """Kill the command while the platform serves such a request, whose answer is lost."""
    running: list[subprocess.Popen[str]] = []
    started = threading.Event()

    def kill() -> None:
        assert started.wait(LAST_RESORT)
        running[0].kill()
        running[0].wait(LAST_RESORT)

    with (
        set_event_at(command.platform, method, path, kill) as killed,
        command.running(*arguments) as process,
    ):
        running.append(process)
        started.set()
        assert killed.wait(LAST_RESORT)
    wait_for(lambda: command.platform.requests(method, path=path))


def assert_mended(command: Command, described: Described) -> None:
    """Check that nothing is lost and that the next run continues."""
    stack, platform = command.stack, command.platform
    assert_nothing_is_lost(stack, platform, thing(described))
    assert_settles(stack, platform, thing(described))
    assert platform.created(described) <= 1


@for_made
@pytest.mark.slow
def test_an_up_that_is_killed_while_it_sends_is_mended(
    command: Command, described: Described
) -> None:
    command.stack.deployment("update", thing(described))
    kill_at(command, UP, described.create.method, described.create.path)
    assert_mended(command, described)


@for_waited
@pytest.mark.slow
def test_an_up_that_is_killed_while_it_waits_is_mended(
    command: Command, described: Described
) -> None:
    command.stack.deployment("update", thing(described))
    command.platform.fault("GET", described.own, status_override=described.pending, count=None)
    with command.running(*UP) as process:
        wait_for(lambda: command.stack.recorded_ids)
        process.kill()
        process.wait(LAST_RESORT)
    command.platform.heal()
    assert_mended(command, described)


@for_made
@pytest.mark.slow
def test_a_destroy_that_is_killed_is_mended(command: Command, described: Described) -> None:
    stack, platform = command.stack, command.platform
    assert stack.up(thing(described)).ok
    request = described.delete_behind
    kill_at(command, DESTROY, request.method, request.pattern)
    assert_nothing_is_lost(stack, platform, thing(described))
    assert_destroyed(stack, platform, thing(described))
