"""Fixtures of the conformance suite: the platforms, and the three hosts of every lifecycle."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance.dynamic_host import StockHost, start_host
from conformance.emulated import Platform, start_emulated_platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import CREATED_KINDS
from conformance.operations import EngineOperations, Operations, StockOperations
from conformance.plugin import PluginHost, PluginOperations, start_plugin
from conformance.stacks import CalledStack, EmbeddedStack, Stack

from gpuform.providers.context import ProviderContext, get_clock
from gpuform.providers.emulator.server import environment
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import FolderRecords, Intents
from gpuform.providers.scp import offers
from gpuform.providers.together import regions
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter


@pytest.fixture(scope="session")
def crypter() -> PassphraseCrypter:
    return PassphraseCrypter.create_new("test only")


@pytest.fixture(scope="session")
def emulator() -> Iterator[Platform]:
    """Start one emulator for all tests, because clients keep connections open."""
    with start_emulated_platform(seed="conformance", smallest_wait=20.0) as platform:
        yield platform


@pytest.fixture
def platform(
    emulator: Platform, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Platform]:
    """Empty the emulator, remove its faults, and use it from the project in `tmp_path`."""
    emulator.remove_faults()
    emulator.reset()
    _forget_failed_lookups()
    for name, value in environment(emulator.server.url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield emulator
    emulator.remove_faults()


def _forget_failed_lookups() -> None:
    """Clear failed lookups of other tests, which a process does not repeat."""
    for lists in (offers.cached_lists, regions.cached_lists):
        for answers in lists.answers.values():
            for name in [name for name in answers if isinstance(answers[name], GpuformError)]:
                del answers[name]


@pytest.fixture(params=CREATED_KINDS, ids=str)
def description(request: pytest.FixtureRequest, platform: Platform) -> KindDescription:
    """Return a kind with existing requirements; by default, every creatable kind."""
    return platform.prepare(request.param)


@pytest.fixture(scope="session")
def host_process(
    emulator: Platform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StockHost]:
    """Start one process of Pulumi's dynamic host for all tests, over the emulator."""
    directory = tmp_path_factory.mktemp("host")
    with start_host(directory, environment(emulator.server.url)) as host:
        _run_lookups_once(lambda kind: StockOperations(kind.lifecycle, host.stub))
        yield host


@pytest.fixture
def stock_host(platform: Platform, host_process: StockHost) -> StockHost:
    """Return the host's process, without records of earlier tests."""
    for intent in (host_process.directory / ".gpuform" / "records").glob("*.json"):
        intent.unlink()
    return host_process


@pytest.fixture(scope="session")
def plugin_process(
    emulator: Platform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PluginHost]:
    """Start one process of the provider plugin for all tests, over the emulator."""
    directory = tmp_path_factory.mktemp("plugin")
    with start_plugin(directory, environment(emulator.server.url)) as plugin:
        _run_lookups_once(lambda kind: PluginOperations(kind.lifecycle, plugin.stub))
        yield plugin


def _run_lookups_once(verbs: Callable[[KindDescription], Operations]) -> None:
    """Run a process's lookups before the faults of a test prevent them."""
    for kind in CREATED_KINDS:
        verbs(kind).check(kind.fill_placeholders({"{base}": "f" * 32}).valid_inputs)


@pytest.fixture
def plugin(platform: Platform, plugin_process: PluginHost) -> PluginHost:
    """Return the plugin's process, without records of earlier tests."""
    for intent in (plugin_process.directory / ".gpuform" / "records").glob("*.json"):
        intent.unlink()
    return plugin_process


@pytest.fixture
def new_call(platform: Platform, tmp_path: Path) -> Callable[[str, float | None], ProviderContext]:
    """Return a function that creates contexts of calls over the emulator."""

    def new(urn: str, timeout: float | None) -> ProviderContext:
        intents = Intents(FolderRecords(tmp_path / ".gpuform" / "records"))
        return ProviderContext(
            urn=urn, timeout=timeout, clock=get_clock(os.environ), intents=intents
        )

    return new


HOSTS = ("engine", "stock-host", pytest.param("plugin", marks=pytest.mark.slow))


@pytest.fixture(params=HOSTS)
def verbs(request: pytest.FixtureRequest, description: KindDescription) -> Operations:
    """Return the operations of a kind, under each host."""
    if request.param == "engine":
        return EngineOperations(description.lifecycle, request.getfixturevalue("new_call"), {})
    if request.param == "plugin":
        return PluginOperations(description.lifecycle, request.getfixturevalue("plugin").stub)
    return StockOperations(description.lifecycle, request.getfixturevalue("stock_host").stub)


@pytest.fixture
def embedded(platform: Platform, tmp_path: Path, crypter: PassphraseCrypter) -> EmbeddedStack:
    """Return an empty stack of the embedded engine."""
    return EmbeddedStack(tmp_path, crypter)


@pytest.fixture(params=HOSTS)
def stack(request: pytest.FixtureRequest, description: KindDescription) -> Stack:
    """Return an empty stack of one resource, under each host."""
    if request.param == "engine":
        embedded_stack: EmbeddedStack = request.getfixturevalue("embedded")
        return embedded_stack
    if request.param == "plugin":
        plugin: PluginHost = request.getfixturevalue("plugin")
        return CalledStack(PluginOperations(description.lifecycle, plugin.stub))
    host: StockHost = request.getfixturevalue("stock_host")
    return CalledStack(StockOperations(description.lifecycle, host.stub))
