"""Test health gates: waiting, progress, unchanged gates, and gates that are passed again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.platforms.lens_document import HEATMAP, OVERVIEW
from support.platforms.provider_contexts import change_context

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import (
    EmulatorClock,
    create_wsgi_transport,
    mount_transport,
)
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.health_gate import HealthGateLifecycle
from gpuform.providers.records import FolderRecords, Intents

URL = "http://lens-gate.test"
GATE = {"condition": {"healthy_nodes": {"at_least": 9.0}, "faulty_nodes": {"at_most": 1.0}}}


class EmulatedGate:
    """An emulated Lens that shows the document's overview, and one health gate."""

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
            created = self.lifecycle.create({**GATE, **inputs, "__provider": "p"})
        assert created.id == "overview"
        self.state = {**created.outs, "__provider": "p"}
        return self.state

    def planned(self, **inputs: Any) -> list[str]:
        news = {**GATE, **inputs, "__provider": "p"}
        return [change.path for change in self.lifecycle.list_changes(self.state, news)]

    def update(self, **inputs: Any) -> dict[str, Any]:
        with self.serving():
            outs = self.lifecycle.update("overview", self.state, {**GATE, **inputs}).outs
        self.state = {**outs, "__provider": "p"}
        return self.state


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[EmulatedGate]:
    monkeypatch.setenv("LENS_URL", f"{URL}/lens")
    monkeypatch.chdir(tmp_path)
    with Store(None, seed="gate") as store:
        transport = create_wsgi_transport(create_app(store, Clock(store, start=1_800_000_000.0)))
        with (
            mount_transport(URL, transport),
            httpx.Client(base_url=URL, transport=transport) as http,
        ):
            gate = EmulatedGate(http, tmp_path)
            gate.show()
            yield gate


def test_a_gate_that_holds_is_passed_at_once_and_outputs_the_overview(gate: EmulatedGate) -> None:
    began = gate.now()
    outs = gate.create()
    assert gate.now() == began
    assert outs["ready"] is True
    assert "not_ready_reason" not in outs
    assert outs["overview"]["healthy_nodes"] == 9
    assert outs["overview"]["active_port_rate"] == 0.95


def test_a_gate_waits_until_its_condition_holds(gate: EmulatedGate) -> None:
    rule = {"method": "GET", "path": "overview", "count": 4, "status_override": "faultyNodes=3"}
    gate.admin("POST", "faults", rule)
    began = gate.now()
    assert gate.create()["ready"] is True
    assert gate.now() - began == 60
    reason = (
        "faultyNodes=3 (wanted: at most 1), "
        "overview: healthyNodes and faultyNodes are 12 together, more than totalNodes, 10"
    )
    assert gate.progress == [f"{reason} (0s)"]


def test_a_temperature_condition_requests_the_heatmap(gate: EmulatedGate) -> None:
    condition = {"max_temperature": {"at_most": 80.0}, "storage_available_tb": {"at_least": 500.0}}
    assert "max_temperature" not in gate.create()["overview"]
    gate.admin("POST", "lens/settings", {"heatmap": HEATMAP["data"], "overview": OVERVIEW["data"]})
    outs = gate.create(condition=condition, wait_minutes=1.0)
    assert outs["ready"] is False
    message = "last seen: maxTemperature=82.5 on gpu-node-1 0 (wanted: at most 80)"
    assert message in outs["not_ready_reason"]
    cooler = {"max_temperature": {"at_most": 85.0}, "storage_available_tb": {"at_least": 500.0}}
    outs = gate.create(condition=cooler)
    assert outs["ready"] is True
    assert outs["overview"]["max_temperature"] == 82.5
    assert outs["overview"]["storage_available_tb"] == 550


@pytest.mark.parametrize("value", ["hot", {}, [1]])
def test_a_temperature_that_is_text_passes_no_gate(gate: EmulatedGate, value: Any) -> None:
    points = [{"nodeName": "n", "deviceId": 0, "value": value, "gpuModel": "m"}]
    heatmap = {**HEATMAP["data"], "temperature": {**HEATMAP["data"]["temperature"], "data": points}}
    gate.admin("POST", "lens/settings", {"heatmap": heatmap, "overview": OVERVIEW["data"]})
    condition = {"max_temperature": {"at_most": 1000.0}}
    outs = gate.create(condition=condition, wait_minutes=1.0)
    assert outs["ready"] is False


def test_a_gate_waits_while_lens_fails(gate: EmulatedGate) -> None:
    gate.admin("POST", "faults", {"method": "GET", "path": "overview", "count": 8, "status": 500})
    assert gate.create()["ready"] is True


@pytest.mark.slow
@pytest.mark.parametrize(("inputs", "waited"), [({}, "30m00s"), ({"wait_minutes": 90.0}, "1h30m")])
def test_the_timeout_error_reports_the_last_numbers(
    gate: EmulatedGate, inputs: Any, waited: str
) -> None:
    gate.show(healthyNodes=7)
    outs = gate.create(**inputs)
    assert outs["ready"] is False
    assert outs["not_ready_reason"] == (
        f"health gate: not done after {waited}; last seen: healthyNodes=7 (wanted: at least 9)"
    )
    assert outs["overview"]["healthy_nodes"] == 7
    assert gate.planned(**inputs) == ["ready"]
    gate.show()
    assert gate.update(**inputs)["ready"] is True


def test_a_shorter_custom_timeout_ends_the_wait(gate: EmulatedGate) -> None:
    gate.show(healthyNodes=7)
    assert "not done after 2m00s" in gate.create(timeout=120)["not_ready_reason"]


def refresh_gate(gate: EmulatedGate) -> dict[str, Any]:
    """Refresh the gate, check for an empty plan, and return the outputs."""
    with gate.serving():
        read_result = gate.lifecycle.read("overview", gate.state).outs
    gate.state = {**read_result, "__provider": "p"}
    assert gate.planned() == []
    return read_result


def list_notices(observed: dict[str, Any]) -> list[str]:
    return [notice.text for notice in HealthGateLifecycle.hooks.find_observed_news({}, observed)]


def test_a_refresh_of_an_unchanged_gate_reports_violations_as_a_notice(gate: EmulatedGate) -> None:
    created = {key: value for key, value in gate.create().items() if key != "__provider"}
    assert refresh_gate(gate) == created
    assert list_notices(created) == []
    gate.show(healthyNodes=2, faultyNodes=1)
    observed = refresh_gate(gate)
    message = "the gate would not pass now: healthyNodes=2 (wanted: at least 9)"
    assert observed == {**created, "amiss_now": message}
    assert list_notices(observed) == [message]
    gate.show()
    assert refresh_gate(gate) == created


def test_a_refresh_succeeds_while_lens_does_not_answer(
    gate: EmulatedGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.create()
    gate.admin("POST", "faults", {"method": "GET", "path": "overview", "count": 1, "status": 500})
    observed = refresh_gate(gate)
    assert "now is unknown: lens: GET /clusters/overview answered 500" in observed["amiss_now"]
    assert observed["ready"] is True
    monkeypatch.delenv("LENS_URL")
    (message,) = list_notices(refresh_gate(gate))
    assert "is unknown: the address of Lens is missing. Set LENS_URL" in message


def test_a_state_of_an_older_version_plans_no_change(gate: EmulatedGate) -> None:
    """Older states have fewer numbers of the overview, and no current violations."""
    gate.create()
    retained = ("healthy_nodes", "faulty_nodes")
    overview = {name: gate.state["overview"][name] for name in retained}
    gate.state = {**gate.state, "overview": overview}
    gate.state.pop("amiss_now", None)
    assert gate.planned() == []
    with gate.serving():
        read_result = gate.lifecycle.read("overview", gate.state).outs
    assert read_result["ready"] is True
    assert gate.planned() == []


def test_a_refresh_of_a_gate_that_was_not_passed_sends_no_request(gate: EmulatedGate) -> None:
    gate.show(healthyNodes=2)
    gate.create(wait_minutes=1.0)
    requests = gate.requests()
    with gate.serving():
        read_result = gate.lifecycle.read("overview", gate.state).outs
    assert "amiss_now" not in read_result
    assert gate.requests() == requests


def test_changed_triggers_or_conditions_pass_the_gate_again(gate: EmulatedGate) -> None:
    gate.create(triggers=["v1"])
    assert gate.planned(triggers=["v1"]) == []
    assert gate.planned(triggers=["v2"]) == ["triggers"]
    gate.show(healthyNodes=10)
    outs = gate.update(triggers=["v2"])
    assert (outs["triggers"], outs["overview"]["healthy_nodes"]) == (["v2"], 10)
    stricter = {"condition": {"healthy_nodes": {"at_least": 11.0}}}
    assert "condition.healthy_nodes.at_least" in gate.planned(triggers=["v2"], **stricter)
    outs = gate.update(triggers=["v2"], **stricter)
    assert outs["ready"] is False
    assert gate.planned(triggers=["v2"], **stricter, wait_minutes=5.0) == ["ready"]


def test_a_delete_sends_no_request(gate: EmulatedGate) -> None:
    gate.create()
    requests = gate.requests()
    with gate.serving():
        gate.lifecycle.delete("overview", gate.state)
    assert gate.requests() == requests


def test_an_import_outputs_the_current_overview(gate: EmulatedGate) -> None:
    with gate.serving():
        read_result = gate.lifecycle.read("overview", {})
        assert read_result.outs["overview"]["total_nodes"] == 10
        assert gate.lifecycle.read("something", {}).id == ""


def test_a_missing_address_is_an_error(gate: EmulatedGate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LENS_URL")
    with pytest.raises(GpuformError, match="Set LENS_URL"):
        gate.create()


def test_a_closed_gate_is_an_error_under_pulumis_dynamic_host(gate: EmulatedGate) -> None:
    """Pulumi's dynamic host would otherwise create the gate's dependents."""
    gate.show(faulty_nodes=9, faultyNodes=9)
    with gate.serving(timeout=60) as call:
        change_context(call, can_store_unready=False)
        with pytest.raises(GpuformError, match="wanted: at most 1"):
            gate.lifecycle.create({**GATE, "__provider": "p"})
