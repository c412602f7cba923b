"""A health gate: it waits, says what it saw, stays as it was, and is passed anew on request."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lens_document import HEATMAP, OVERVIEW

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.clock import EmulatorClock
from gpuform.providers.context.transport import create_wsgi_transport, mount_transport
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.health_gate import HealthGateLifecycle
from gpuform.providers.records import FolderRecords, Intents

URL = "http://lens-gate.test"
GATE = {"condition": {"healthy_nodes": {"at_least": 9.0}, "faulty_nodes": {"at_most": 1.0}}}


class World:
    """An emulated Lens that shows the document's overview, and one gate."""

    def __init__(self, http: httpx.Client, directory: Path) -> None:
        self.http = http
        self.directory = directory
        self.lifecycle = HealthGateLifecycle()
        self.state: dict[str, Any] = {}
        self.progress: list[str] = []

    def admin(self, method: str, path: str, body: Any) -> Any:
        answer = self.http.request(method, f"/_emulator/{path}", json=body)
        answer.raise_for_status()
        return answer.json()

    def show(self, **overview: Any) -> None:
        self.admin("POST", "lens/settings", {"overview": {**OVERVIEW["data"], **overview}})

    def now(self) -> float:
        return float(self.http.get("/_emulator/clock").json()["now"])

    def requests(self) -> int:
        return len(self.http.get("/_emulator/requests").json())

    def serving(self, timeout: float | None = None) -> Any:
        call = ProviderContext(
            urn="urn:pulumi:dev::p::t::gate",
            timeout=timeout,
            clock=EmulatorClock(URL),
            intents=Intents(FolderRecords(self.directory / "intents")),
            on_progress=self.progress.append,
        )
        return use_context(call)

    def create(self, timeout: float | None = None, **inputs: Any) -> dict[str, Any]:
        with self.serving(timeout):
            made = self.lifecycle.create({**GATE, **inputs, "__provider": "p"})
        assert made.id == "overview"
        self.state = {**made.outs, "__provider": "p"}
        return self.state

    def planned(self, **inputs: Any) -> list[str]:
        news = {**GATE, **inputs, "__provider": "p"}
        return [each.path for each in self.lifecycle.list_changes(self.state, news)]

    def update(self, **inputs: Any) -> dict[str, Any]:
        with self.serving():
            outs = self.lifecycle.update("overview", self.state, {**GATE, **inputs}).outs
        self.state = {**outs, "__provider": "p"}
        return self.state


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    monkeypatch.setenv("LENS_URL", f"{URL}/lens")
    monkeypatch.chdir(tmp_path)
    with Store(None, seed="gate") as store:
        transport = create_wsgi_transport(create_app(store, Clock(store, start=1_800_000_000.0)))
        with (
            mount_transport(URL, transport),
            httpx.Client(base_url=URL, transport=transport) as http,
        ):
            world = World(http, tmp_path)
            world.show()
            yield world


def test_an_open_gate_is_passed_at_once_and_tells_the_overview(world: World) -> None:
    began = world.now()
    outs = world.create()
    assert world.now() == began
    assert outs["ready"] is True
    assert "not_ready_reason" not in outs
    assert outs["overview"]["healthy_nodes"] == 9
    assert outs["overview"]["active_port_rate"] == 0.95


def test_a_gate_waits_until_it_opens(world: World) -> None:
    rule = {"method": "GET", "path": "overview", "count": 4, "status_override": "faultyNodes=3"}
    world.admin("POST", "faults", rule)
    began = world.now()
    assert world.create()["ready"] is True
    assert world.now() - began == 60
    reason = (
        "faultyNodes=3 (wanted: at most 1), "
        "overview: healthyNodes and faultyNodes are 12 together, more than totalNodes, 10"
    )
    assert world.progress == [f"{reason} (0s)"]


def test_a_gate_on_a_hot_gpu_asks_for_the_heatmap(world: World) -> None:
    condition = {"max_temperature": {"at_most": 80.0}, "storage_available_tb": {"at_least": 500.0}}
    assert "max_temperature" not in world.create()["overview"]
    world.admin("POST", "lens/settings", {"heatmap": HEATMAP["data"], "overview": OVERVIEW["data"]})
    outs = world.create(condition=condition, wait_minutes=1.0)
    assert outs["ready"] is False
    said = "last seen: maxTemperature=82.5 on gpu-node-1 0 (wanted: at most 80)"
    assert said in outs["not_ready_reason"]
    cooler = {"max_temperature": {"at_most": 85.0}, "storage_available_tb": {"at_least": 500.0}}
    outs = world.create(condition=cooler)
    assert outs["ready"] is True
    assert outs["overview"]["max_temperature"] == 82.5
    assert outs["overview"]["storage_available_tb"] == 550


@pytest.mark.parametrize("value", ["hot", {}, [1]])
def test_a_text_for_a_temperature_passes_nothing(world: World, value: Any) -> None:
    points = [{"nodeName": "n", "deviceId": 0, "value": value, "gpuModel": "m"}]
    shown = {**HEATMAP["data"], "temperature": {**HEATMAP["data"]["temperature"], "data": points}}
    world.admin("POST", "lens/settings", {"heatmap": shown, "overview": OVERVIEW["data"]})
    condition = {"max_temperature": {"at_most": 1000.0}}
    outs = world.create(condition=condition, wait_minutes=1.0)
    assert outs["ready"] is False


def test_errors_of_lens_are_waited_out(world: World) -> None:
    world.admin("POST", "faults", {"method": "GET", "path": "overview", "count": 8, "status": 500})
    assert world.create()["ready"] is True


@pytest.mark.slow
@pytest.mark.parametrize(("inputs", "waited"), [({}, "30m00s"), ({"wait_minutes": 90.0}, "1h30m")])
def test_the_time_ends_with_what_was_seen(world: World, inputs: Any, waited: str) -> None:
    world.show(healthyNodes=7)
    outs = world.create(**inputs)
    assert outs["ready"] is False
    assert outs["not_ready_reason"] == (
        f"health gate: not done after {waited}; last seen: healthyNodes=7 (wanted: at least 9)"
    )
    assert outs["overview"]["healthy_nodes"] == 7
    assert world.planned(**inputs) == ["ready"]
    world.show()
    assert world.update(**inputs)["ready"] is True


def test_pulumi_s_timeout_ends_it_sooner(world: World) -> None:
    world.show(healthyNodes=7)
    assert "not done after 2m00s" in world.create(timeout=120)["not_ready_reason"]


def refreshed(world: World) -> dict[str, Any]:
    """The outputs after a look, and nothing is planned with them."""
    with world.serving():
        seen = world.lifecycle.read("overview", world.state).outs
    world.state = {**seen, "__provider": "p"}
    assert world.planned() == []
    return seen


def told(seen: dict[str, Any]) -> list[str]:
    return [each.text for each in HealthGateLifecycle.find_observed_news({}, seen)]


def test_unchanged_it_stays_as_it_was_and_a_look_tells_what_is_amiss(world: World) -> None:
    made = {key: value for key, value in world.create().items() if key != "__provider"}
    assert refreshed(world) == made
    assert told(made) == []
    world.show(healthyNodes=2, faultyNodes=1)
    seen = refreshed(world)
    text = "the gate would not pass now: healthyNodes=2 (wanted: at least 9)"
    assert seen == {**made, "amiss_now": text}
    assert told(seen) == [text]
    world.show()
    assert refreshed(world) == made


def test_a_silent_lens_keeps_nobody_from_a_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    world.admin("POST", "faults", {"method": "GET", "path": "overview", "count": 1, "status": 500})
    seen = refreshed(world)
    assert "now is unknown: lens: GET /clusters/overview answered 500" in seen["amiss_now"]
    assert seen["ready"] is True
    monkeypatch.delenv("LENS_URL")
    (text,) = told(refreshed(world))
    assert "is unknown: the address of Lens is missing. Set LENS_URL" in text


def test_a_state_of_an_older_version_plans_nothing(world: World) -> None:
    """It has fewer numbers of the overview, and does not say what is amiss now."""
    world.create()
    kept = ("healthy_nodes", "faulty_nodes")
    overview = {name: world.state["overview"][name] for name in kept}
    world.state = {**world.state, "overview": overview}
    world.state.pop("amiss_now", None)
    assert world.planned() == []
    with world.serving():
        seen = world.lifecycle.read("overview", world.state).outs
    assert seen["ready"] is True
    assert world.planned() == []


def test_a_gate_that_was_not_passed_is_not_looked_at_again(world: World) -> None:
    world.show(healthyNodes=2)
    world.create(wait_minutes=1.0)
    asked = world.requests()
    with world.serving():
        seen = world.lifecycle.read("overview", world.state).outs
    assert "amiss_now" not in seen
    assert world.requests() == asked


def test_other_triggers_and_another_condition_pass_it_anew(world: World) -> None:
    world.create(triggers=["v1"])
    assert world.planned(triggers=["v1"]) == []
    assert world.planned(triggers=["v2"]) == ["triggers"]
    world.show(healthyNodes=10)
    outs = world.update(triggers=["v2"])
    assert (outs["triggers"], outs["overview"]["healthy_nodes"]) == (["v2"], 10)
    stricter = {"condition": {"healthy_nodes": {"at_least": 11.0}}}
    assert "condition.healthy_nodes.at_least" in world.planned(triggers=["v2"], **stricter)
    outs = world.update(triggers=["v2"], **stricter)
    assert outs["ready"] is False
    assert world.planned(triggers=["v2"], **stricter, wait_minutes=5.0) == ["ready"]


def test_a_delete_forgets_it(world: World) -> None:
    world.create()
    asked = world.requests()
    with world.serving():
        world.lifecycle.delete("overview", world.state)
    assert world.requests() == asked


def test_an_import_shows_the_overview_of_now(world: World) -> None:
    with world.serving():
        seen = world.lifecycle.read("overview", {})
        assert seen.outs["overview"]["total_nodes"] == 10
        assert world.lifecycle.read("something", {}).id == ""


def test_without_an_address_there_is_no_gate(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LENS_URL")
    with pytest.raises(GpuformError, match="Set LENS_URL"):
        world.create()


def test_under_a_host_that_cannot_store_a_closed_gate_it_is_an_error(world: World) -> None:
    """Pulumi's own dynamic host would make what depends on it."""
    world.show(faulty_nodes=9, faultyNodes=9)
    with world.serving(timeout=60) as call:
        call.can_store_unready = False
        with pytest.raises(GpuformError, match="wanted: at most 1"):
            world.lifecycle.create({**GATE, "__provider": "p"})
