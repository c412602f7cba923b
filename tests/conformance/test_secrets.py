"""Test that confidential values of a platform, and the key, are found nowhere in the clear.

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
    alter_objects,
    build_planted_text,
    get_wire_name,
    list_text_fields,
    plant_answer,
    plant_object,
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


def select_public(described: Described, properties: Mapping[str, Any] | None) -> str:
    """Return the properties that are not secret."""
    hidden = described.secret | described.secret_inputs
    return str({name: value for name, value in (properties or {}).items() if name not in hidden})


def is_planted(described: Described, secret: Any) -> bool:
    """Return True if a secret output is or contains the planted text, as sent or decoded."""
    if isinstance(secret, Mapping):
        field_paths = [
            field_path
            for field_path in list_text_fields(described.wire)
            if build_planted_text(field_path) in secret.values()
        ]
        return bool(field_paths)
    return secret == ENCODED or KUBE in secret


def checks_jobs_on_delete(described: Described) -> bool:
    """Return whether a delete first looks for jobs, which a planted kubeconfig does not let it."""
    return "kube_config" in described.secret


@pytest.fixture
def capture_output(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    """Return a function that reads all that is logged and printed, at the highest level."""
    with caplog.at_level(logging.DEBUG):

        def read() -> str:
            return caplog.text + "".join(capfd.readouterr())

        yield read


def read_files(directory: Path) -> str:
    """Return the content of every file of a project except its program, the state included."""
    result = (path for path in directory.rglob("*") if path.is_file())
    return "".join(
        path.read_text(errors="replace") for path in result if path.name != "declared.json"
    )


def read_messages(stack: EmbeddedStack) -> str:
    """Return the messages of the engine's events."""
    texts = [getattr(e, "message", "") or getattr(e, "text", "") for e in stack.events]
    return "\n".join(texts)


def test_the_engine_shows_planted_texts_only_in_outputs(
    described: Described, embedded: EmbeddedStack, platform: Platform, capture_output: Any
) -> None:
    embedded.config = {described.key_config: described.key}
    embedded.secret_keys = [described.key_config]
    output = ""
    with platform.answering(lambda *answer: plant_answer(described, *answer[1:])):
        for run in (
            lambda: embedded.up(thing(described)),
            lambda: embedded.up(thing(described, described.in_place.inputs)),
            embedded.refresh,
        ):
            result = run()
            assert result.ok, result.errors
            output += read_messages(embedded)
        on_disk = read_files(embedded.directory)
        outputs = embedded.outputs
        destroyed = embedded.destroy()
        output += read_messages(embedded)
    assert destroyed.ok is not checks_jobs_on_delete(described), destroyed.errors
    output += (
        "".join(destroyed.errors) + capture_output() + read_files(embedded.directory / ".gpuform")
    )
    assert "gpuform.http" in output
    assert_clean(described, output + on_disk)
    for name in described.secret:
        assert is_planted(described, outputs[name])
    assert_clean(described, select_public(described, outputs))
    for field_path in set(list_text_fields(described.wire)) - TOLD:
        assert build_planted_text(field_path) not in output, field_path


def test_pulumis_dynamic_host_shows_planted_texts_only_in_secret_outputs(
    described: Described, stock_host: StockHost, platform: Platform
) -> None:
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    _assert_only_in_secret_outputs(described, verbs, platform)
    assert_clean(described, stock_host.printed + read_files(stock_host.directory / ".gpuform"))


@pytest.mark.slow
def test_the_plugin_shows_planted_texts_only_in_secret_outputs(
    described: Described, plugin: PluginHost, platform: Platform
) -> None:
    """`PluginVerbs` checks that these outputs are marked as secret."""
    verbs = PluginVerbs(described.lifecycle, plugin.stub)
    _assert_only_in_secret_outputs(described, verbs, platform)
    assert_clean(described, plugin.printed + read_files(plugin.directory / ".gpuform"))


def _assert_only_in_secret_outputs(described: Described, verbs: Verbs, platform: Platform) -> None:
    with platform.answering(lambda *answer: plant_answer(described, *answer[1:])):
        created = verbs.create(doubles(described.good))
        read_result = verbs.read(created.id, created.outputs)
        changed = doubles(described.in_place.inputs)
        outputs = verbs.update(created.id, created.outputs, changed)
        if checks_jobs_on_delete(described):
            with pytest.raises(Refused) as refused:
                verbs.delete(created.id, outputs)
            assert_clean(described, describe_error(refused.value))
        else:
            verbs.delete(created.id, outputs)
    for result in (created.outputs, read_result.outputs, outputs):
        for name in described.secret:
            assert is_planted(described, result[name])
        assert_clean(described, select_public(described, result))
    assert_clean(described, select_public(described, read_result.inputs))


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


def describe_error(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_value_of_a_wrong_type_is_not_shown(
    described: Described, host: Verbs, platform: Platform, capture_output: Any, processes: Processes
) -> None:
    """Replace each field in turn by an object, a list or a text."""
    created = host.create(doubles(described.good))
    shown_text, refused = "", 0
    for name in described.wire.model_fields:
        for wrong in ({"token": WRONG}, [WRONG], WRONG):
            key = get_wire_name(described.wire, name)
            change = lambda _, process: {**process, key: wrong}  # noqa: B023, E731 - for one round
            with platform.answering(
                lambda *answer: alter_objects(described, *answer[1:], change)  # noqa: B023 - as above
            ):
                try:
                    host.read(created.id, created.outputs)
                except Refused as error:
                    refused += 1
                    shown_text += describe_error(error)
    assert refused > len(described.wire.model_fields)
    assert "answered in an unexpected form" in shown_text
    assert_clean(
        described, shown_text + capture_output() + "".join(process.printed for process in processes)
    )


def build_bodies(described: Described, *, has_declaration: bool) -> Iterator[Any]:
    """Return error answers; those to a create may contain the declaration."""
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
def test_an_error_answer_of_another_form_is_not_shown(
    described: Described,
    host: Verbs,
    platform: Platform,
    status: int,
    capture_output: Any,
    processes: Processes,
) -> None:
    checked = doubles(described.good)
    created = host.create(checked)
    changed = doubles(described.in_place.inputs)
    other = doubles(described.numbered(1))
    assert described.in_place.sends is not None
    assert described.create is not None
    verbs = {
        "read": ("GET", lambda: host.read(created.id, created.outputs).outputs),
        "update": (
            described.in_place.sends.method,
            lambda: host.update(created.id, created.outputs, changed),
        ),
        "create": (described.create.method, lambda: host.create(other).outputs),
        "delete": (
            described.delete_behind.method,
            lambda: host.delete(created.id, created.outputs),
        ),
    }
    shown_text = ""
    for name, (method, verb) in verbs.items():
        for body in build_bodies(described, has_declaration=name == "create"):
            platform.fault(method, "", status=status, body=body)
            try:
                shown_text += str((verb() or {}).get("not_ready_reason"))
            except Refused as error:
                shown_text += describe_error(error)
            platform.heal()
    if status != 404:
        assert f"answered {status}" in shown_text
    assert_clean(
        described, shown_text + capture_output() + "".join(process.printed for process in processes)
    )


def test_the_text_of_an_unexpected_error_is_not_shown(
    described: Described,
    embedded: EmbeddedStack,
    platform: Platform,
    capture_output: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Raise an error with a secret in its text, while waiting and while reading."""

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
        described,
        read_messages(embedded)
        + str(refreshed)
        + capture_output()
        + read_files(embedded.directory),
    )


def test_every_text_of_the_wire_models_is_planted(described: Described) -> None:
    """Check the planting itself: only meant values are left out."""
    total: dict[str, Any] = {"gpu_worker_nodes": [{}], "volumes": [{}]}
    result = str(plant_object(described.wire, total, described.meant))
    for string in list_text_fields(described.wire):
        if string not in described.meant:
            assert build_planted_text(string) in result, string
