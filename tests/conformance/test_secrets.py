"""What a platform sends in confidence, and the key, are found nowhere in the clear.

Decided for each field: `kube_config` is a secret, so are passwords and scripts that are declared,
and so is whatever no model has: unknown fields, error answers of another form, values of a wrong
type. Names, statuses and ids may be told. Every
other text is a plain output at most: it is in no message and in no log.
"""

import base64
import logging
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conformance.described import Described, doubles
from conformance.emulated import Platform
from conformance.planting import (
    ENCODED,
    KUBE,
    UNKNOWN,
    WRONG,
    altered,
    mark,
    planted,
    planted_object,
    sent_name,
    strings,
)
from conformance.plugin import PluginHost, PluginVerbs
from conformance.stacks import EmbeddedStack, thing
from conformance.stock import StockHost
from conformance.verbs import EngineVerbs, Refused, StockVerbs, Verbs

pytestmark = [pytest.mark.slow, pytest.mark.sampled(12)]

SECRETS = (KUBE, ENCODED, base64.b64encode(KUBE.encode()).decode(), UNKNOWN, WRONG)

TOLD = {"GpuWorkerNode.host_name", "ControlPlaneNode.host_name", "PhaseTransition.phase"}
"""Free texts that a message may have, to say which node or phase it is about."""


def assert_clean(described: Described, text: str) -> None:
    hidden = [str(described.good[name]) for name in described.secret_inputs]
    hidden += [described.key] if described.key_is_secret else []
    for secret in (*SECRETS, *hidden):
        assert secret not in text


def in_the_open(described: Described, properties: Mapping[str, Any] | None) -> str:
    """The properties that are not secret."""
    hidden = described.secret | described.secret_inputs
    return str({name: value for name, value in (properties or {}).items() if name not in hidden})


def is_planted(described: Described, secret: Any) -> bool:
    """Whether a secret output is what was planted, as it came or decoded, or has it in it."""
    if isinstance(secret, Mapping):
        places = [place for place in strings(described.wire) if mark(place) in secret.values()]
        return bool(places)
    return secret == ENCODED or KUBE in secret


def has_jobs_behind_it(described: Described) -> bool:
    """Return whether a delete first looks for jobs, which a planted kubeconfig does not let it."""
    return "kube_config" in described.secret


@pytest.fixture
def sinks(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[Any]:
    """All that is logged and printed, at the highest level."""
    with caplog.at_level(logging.DEBUG):

        def read() -> str:
            return caplog.text + "".join(capfd.readouterr())

        yield read


def files(directory: Path) -> str:
    """Every file of a project but the program's own, the state among them."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return "".join(
        path.read_text(errors="replace") for path in found if path.name != "declared.json"
    )


def messages(stack: EmbeddedStack) -> str:
    """What the engine's events say in words."""
    texts = [getattr(e, "message", "") or getattr(e, "text", "") for e in stack.events]
    return "\n".join(texts)


def test_the_engine_keeps_what_is_planted_to_its_outputs(
    described: Described, embedded: EmbeddedStack, platform: Platform, sinks: Any
) -> None:
    embedded.config = {described.key_config: described.key}
    embedded.secret_keys = [described.key_config]
    told = ""
    with platform.answering(lambda *answer: planted(described, *answer[1:])):
        for run in (
            lambda: embedded.up(thing(described)),
            lambda: embedded.up(thing(described, described.in_place.inputs)),
            embedded.refresh,
        ):
            result = run()
            assert result.ok, result.errors
            told += messages(embedded)
        on_disk = files(embedded.directory)
        outputs = embedded.outputs
        destroyed = embedded.destroy()
        told += messages(embedded)
    assert destroyed.ok is not has_jobs_behind_it(described), destroyed.errors
    told += "".join(destroyed.errors) + sinks() + files(embedded.directory / ".gpuform")
    assert "gpuform.http" in told
    assert_clean(described, told + on_disk)
    for name in described.secret:
        assert is_planted(described, outputs[name])
    assert_clean(described, in_the_open(described, outputs))
    for place in set(strings(described.wire)) - TOLD:
        assert mark(place) not in told, place


def test_the_stock_host_tells_what_is_planted_in_the_named_outputs_only(
    described: Described, stock_host: StockHost, platform: Platform
) -> None:
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    _told_in_the_named_outputs_only(described, verbs, platform)
    assert_clean(described, stock_host.printed + files(stock_host.directory / ".gpuform"))


@pytest.mark.slow
def test_the_plugin_tells_what_is_planted_in_the_named_outputs_only(
    described: Described, plugin: PluginHost, platform: Platform
) -> None:
    """`PluginVerbs` sees to it that these are marked as secret."""
    verbs = PluginVerbs(described.lifecycle, plugin.stub)
    _told_in_the_named_outputs_only(described, verbs, platform)
    assert_clean(described, plugin.printed + files(plugin.directory / ".gpuform"))


def _told_in_the_named_outputs_only(described: Described, verbs: Verbs, platform: Platform) -> None:
    with platform.answering(lambda *answer: planted(described, *answer[1:])):
        made = verbs.create(doubles(described.good))
        seen = verbs.read(made.id, made.outputs)
        changed = doubles(described.in_place.inputs)
        outputs = verbs.update(made.id, made.outputs, changed)
        if has_jobs_behind_it(described):
            with pytest.raises(Refused) as refused:
                verbs.delete(made.id, outputs)
            assert_clean(described, told_by(refused.value))
        else:
            verbs.delete(made.id, outputs)
    for found in (made.outputs, seen.outputs, outputs):
        for name in described.secret:
            assert is_planted(described, found[name])
        assert_clean(described, in_the_open(described, found))
    assert_clean(described, in_the_open(described, seen.inputs))


@pytest.fixture(params=["engine", "stock-host", pytest.param("plugin", marks=pytest.mark.slow)])
def host(
    request: pytest.FixtureRequest,
    described: Described,
    stock_host: StockHost,
    plugin: PluginHost,
    new_call: Any,
) -> Verbs:
    if request.param == "engine":
        return EngineVerbs(described.lifecycle, new_call, {})
    if request.param == "plugin":
        return PluginVerbs(described.lifecycle, plugin.stub)
    return StockVerbs(described.lifecycle, stock_host.stub)


Processes = tuple[StockHost, PluginHost]


@pytest.fixture
def processes(stock_host: StockHost, plugin: PluginHost) -> Processes:
    return stock_host, plugin


def told_by(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_value_of_a_wrong_type_is_not_told(
    described: Described, host: Verbs, platform: Platform, sinks: Any, processes: Processes
) -> None:
    """Each field in turn is an object, a list, a text where there is none."""
    made = host.create(doubles(described.good))
    told, refused = "", 0
    for name in described.wire.model_fields:
        for wrong in ({"token": WRONG}, [WRONG], WRONG):
            key = sent_name(described.wire, name)
            change = lambda _, each: {**each, key: wrong}  # noqa: B023, E731 - for one round
            with platform.answering(
                lambda *answer: altered(described, *answer[1:], change)  # noqa: B023 - as above
            ):
                try:
                    host.read(made.id, made.outputs)
                except Refused as error:
                    refused += 1
                    told += told_by(error)
    assert refused > len(described.wire.model_fields)
    assert "answered in an unexpected form" in told
    assert_clean(described, told + sinks() + "".join(each.printed for each in processes))


def bodies(described: Described, *, has_declaration: bool) -> Iterator[Any]:
    """Error answers; those to a create may have what was declared."""
    yield from (UNKNOWN, [UNKNOWN])
    yield {"error": {"message": {"token": UNKNOWN}}}
    yield {"error": {"message": [UNKNOWN], "code": {"x": UNKNOWN}}}
    yield {"detail": UNKNOWN, "errors": [{"msg": UNKNOWN}]}
    declared = [described.good[name] for name in described.secret_inputs if has_declaration]
    for secret in (described.key, *declared):
        yield {"error": {"message": f"{secret} may not do this"}}
        yield {"error": f"{secret}: no"}
        yield {"message": f"Bearer {secret}"}
        yield {"errors": [{"detail": [f"with {secret}"]}]}


@pytest.mark.parametrize(
    "status", [409, *(pytest.param(s, marks=pytest.mark.slow) for s in (400, 401, 403, 404, 500))]
)
def test_an_error_answer_of_another_form_is_not_told(
    described: Described,
    host: Verbs,
    platform: Platform,
    status: int,
    sinks: Any,
    processes: Processes,
) -> None:
    checked = doubles(described.good)
    made = host.create(checked)
    changed = doubles(described.in_place.inputs)
    other = doubles(described.numbered(1))
    assert described.in_place.sends is not None
    assert described.create is not None
    verbs = {
        "read": ("GET", lambda: host.read(made.id, made.outputs).outputs),
        "update": (
            described.in_place.sends.method,
            lambda: host.update(made.id, made.outputs, changed),
        ),
        "create": (described.create.method, lambda: host.create(other).outputs),
        "delete": (described.delete_behind.method, lambda: host.delete(made.id, made.outputs)),
    }
    told = ""
    for name, (method, verb) in verbs.items():
        for body in bodies(described, has_declaration=name == "create"):
            platform.fault(method, "", status=status, body=body)
            try:
                told += str((verb() or {}).get("not_ready_reason"))
            except Refused as error:
                told += told_by(error)
            platform.heal()
    if status != 404:
        assert f"answered {status}" in told
    assert_clean(described, told + sinks() + "".join(each.printed for each in processes))


def test_what_nobody_foresaw_keeps_its_text_to_itself(
    described: Described,
    embedded: EmbeddedStack,
    platform: Platform,
    sinks: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bug that raises with a secret in its hands: while waiting, and while reading."""

    def broken(*_: object) -> None:
        held = {"token": KUBE}
        raise RuntimeError(f"cannot use {held}")

    assert embedded.up(thing(described)).ok
    monkeypatch.setattr(described.lifecycle.operations, "read", broken)
    monkeypatch.setattr(described.lifecycle.operations, "wait_until_ready", broken)
    refreshed = embedded.refresh()
    updated = embedded.up(thing(described, described.in_place.inputs))
    for result in (refreshed, updated):
        assert not result.ok
        assert "RuntimeError (this is an error in gpuform)" in result.errors[0]
    assert embedded.outputs["ready"] is False
    assert_clean(
        described, messages(embedded) + str(refreshed) + sinks() + files(embedded.directory)
    )


def test_every_text_of_the_wire_models_is_planted(described: Described) -> None:
    """The planting itself: nothing is left out but what is meant."""
    whole: dict[str, Any] = {"gpu_worker_nodes": [{}], "volumes": [{}]}
    found = str(planted_object(described.wire, whole, described.meant))
    for place in strings(described.wire):
        if place not in described.meant:
            assert mark(place) in found, place
