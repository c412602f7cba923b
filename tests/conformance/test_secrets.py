"""Test that confidential values of a platform, and the key, are found nowhere in the clear.

Decided for each field: `kube_config` is a secret, so are passwords and scripts that are declared,
and so is whatever no model has: unknown fields, error answers of another form, values of a wrong
type. Names, statuses and ids may be told. Every other text is a plain output at most: it is in no
message and in no log.
"""

import base64
import logging
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from conformance.dynamic_host import StockHost
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription, convert_integers_to_doubles
from conformance.operations import EngineOperations, Operations, Refused, StockOperations
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
from conformance.plugin import PluginHost, PluginOperations
from conformance.stacks import EmbeddedStack, declare_one

pytestmark = [pytest.mark.slow, pytest.mark.sampled(12)]

SECRETS = (KUBE, ENCODED, base64.b64encode(KUBE.encode()).decode(), UNKNOWN, WRONG)

TOLD = {"GpuWorkerNode.host_name", "ControlPlaneNode.host_name", "PhaseTransition.phase"}
"""Free texts that a message may have, to say which node or phase it is about."""


def assert_clean(description: KindDescription, text: str) -> None:
    hidden = [str(description.valid_inputs[name]) for name in description.secret_inputs]
    hidden += [description.key] if description.key_is_secret else []
    for secret in (*SECRETS, *hidden):
        assert secret not in text


def select_public(description: KindDescription, properties: Mapping[str, Any] | None) -> str:
    """Return the properties without secrets."""
    hidden = description.secret_outputs | description.secret_inputs
    return str({name: value for name, value in (properties or {}).items() if name not in hidden})


def is_planted(description: KindDescription, secret: Any) -> bool:
    """Return True if a secret output is or contains the planted text, as sent or decoded."""
    if isinstance(secret, Mapping):
        field_paths = [
            field_path
            for field_path in list_text_fields(description.wire)
            if build_planted_text(field_path) in secret.values()
        ]
        return bool(field_paths)
    return secret == ENCODED or KUBE in secret


def looks_for_jobs_on_delete(description: KindDescription) -> bool:
    """Return whether a delete first looks for jobs, which a planted kubeconfig prevents."""
    return "kube_config" in description.secret_outputs


@pytest.fixture
def capture_output(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    """Return a function that reads all log and print output, at the highest level."""
    with caplog.at_level(logging.DEBUG):

        def read() -> str:
            return caplog.text + "".join(capfd.readouterr())

        yield read


def read_files(directory: Path) -> str:
    """Return the content of a project's files and state, except the program."""
    result = (path for path in directory.rglob("*") if path.is_file())
    return "".join(
        path.read_text(errors="replace") for path in result if path.name != "declared.json"
    )


def read_messages(stack: EmbeddedStack) -> str:
    """Return the messages of the engine's events."""
    texts = [getattr(e, "message", "") or getattr(e, "text", "") for e in stack.events]
    return "\n".join(texts)


def test_the_engine_shows_planted_texts_only_in_outputs(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform, capture_output: Any
) -> None:
    embedded.config = {description.key_config: description.key}
    embedded.secret_keys = [description.key_config]
    output = ""
    with platform.rewrite_answers(lambda *answer: plant_answer(description, *answer[1:])):
        for run in (
            lambda: embedded.apply(declare_one(description)),
            lambda: embedded.apply(declare_one(description, description.in_place.inputs)),
            embedded.refresh,
        ):
            result = run()
            assert result.ok, result.errors
            output += read_messages(embedded)
        on_disk = read_files(embedded.directory)
        outputs = embedded.outputs
        destroyed = embedded.destroy()
        output += read_messages(embedded)
    assert destroyed.ok is not looks_for_jobs_on_delete(description), destroyed.errors
    output += (
        "".join(destroyed.errors) + capture_output() + read_files(embedded.directory / ".gpuform")
    )
    assert "gpuform.http" in output
    assert_clean(description, output + on_disk)
    for name in description.secret_outputs:
        assert is_planted(description, outputs[name])
    assert_clean(description, select_public(description, outputs))
    for field_path in set(list_text_fields(description.wire)) - TOLD:
        assert build_planted_text(field_path) not in output, field_path


def test_pulumis_dynamic_host_shows_planted_texts_only_in_secret_outputs(
    description: KindDescription, stock_host: StockHost, platform: Platform
) -> None:
    verbs = StockOperations(description.lifecycle, stock_host.stub)
    _assert_only_in_secret_outputs(description, verbs, platform)
    assert_clean(
        description, stock_host.printed_text + read_files(stock_host.directory / ".gpuform")
    )


@pytest.mark.slow
def test_the_plugin_shows_planted_texts_only_in_secret_outputs(
    description: KindDescription, plugin: PluginHost, platform: Platform
) -> None:
    """`PluginOperations` checks that these outputs are marked as secret."""
    verbs = PluginOperations(description.lifecycle, plugin.stub)
    _assert_only_in_secret_outputs(description, verbs, platform)
    assert_clean(description, plugin.printed_text + read_files(plugin.directory / ".gpuform"))


def _assert_only_in_secret_outputs(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    with platform.rewrite_answers(lambda *answer: plant_answer(description, *answer[1:])):
        created = verbs.create(convert_integers_to_doubles(description.valid_inputs))
        read_result = verbs.read(created.id, created.outputs)
        changed = convert_integers_to_doubles(description.in_place.inputs)
        outputs = verbs.update(created.id, created.outputs, changed)
        if looks_for_jobs_on_delete(description):
            with pytest.raises(Refused) as refused:
                verbs.delete(created.id, outputs)
            assert_clean(description, describe_error(refused.value))
        else:
            verbs.delete(created.id, outputs)
    for result in (created.outputs, read_result.outputs, outputs):
        for name in description.secret_outputs:
            assert is_planted(description, result[name])
        assert_clean(description, select_public(description, result))
    assert_clean(description, select_public(description, read_result.inputs))


@pytest.fixture(params=["engine", "stock-host", pytest.param("plugin", marks=pytest.mark.slow)])
def host(
    request: pytest.FixtureRequest,
    description: KindDescription,
    stock_host: StockHost,
    plugin: PluginHost,
    new_call: Any,
) -> Operations:
    if request.param == "engine":
        return EngineOperations(description.lifecycle, new_call, {})
    if request.param == "plugin":
        return PluginOperations(description.lifecycle, plugin.stub)
    return StockOperations(description.lifecycle, stock_host.stub)


Processes = tuple[StockHost, PluginHost]


@pytest.fixture
def processes(stock_host: StockHost, plugin: PluginHost) -> Processes:
    return stock_host, plugin


def describe_error(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_value_of_a_wrong_type_is_not_shown(
    description: KindDescription,
    host: Operations,
    platform: Platform,
    capture_output: Any,
    processes: Processes,
) -> None:
    """Replace each field in turn by an object, a list or a text."""
    created = host.create(convert_integers_to_doubles(description.valid_inputs))
    output, refused = "", 0
    for name in description.wire.model_fields:
        for wrong in ({"token": WRONG}, [WRONG], WRONG):
            key = get_wire_name(description.wire, name)
            change = lambda _, process: {**process, key: wrong}  # noqa: B023, E731 - for one round
            with platform.rewrite_answers(
                lambda *answer: alter_objects(description, *answer[1:], change)  # noqa: B023 - as above
            ):
                try:
                    host.read(created.id, created.outputs)
                except Refused as error:
                    refused += 1
                    output += describe_error(error)
    assert refused > len(description.wire.model_fields)
    assert "answered in an unexpected form" in output
    assert_clean(
        description,
        output + capture_output() + "".join(process.printed_text for process in processes),
    )


def build_bodies(description: KindDescription, *, has_declaration: bool) -> Iterator[Any]:
    """Return error answers, for a create also with the declaration."""
    yield from (UNKNOWN, [UNKNOWN])
    yield {"error": {"message": {"token": UNKNOWN}}}
    yield {"error": {"message": [UNKNOWN], "code": {"x": UNKNOWN}}}
    yield {"detail": UNKNOWN, "errors": [{"msg": UNKNOWN}]}
    declared = [
        description.valid_inputs[name] for name in description.secret_inputs if has_declaration
    ]
    for secret in (description.key, *declared):
        yield {"error": {"message": f"{secret} may not do this"}}
        yield {"error": f"{secret}: no"}
        yield {"message": f"Bearer {secret}"}
        yield {"errors": [{"detail": [f"with {secret}"]}]}


@pytest.mark.parametrize(
    "status", [409, *(pytest.param(s, marks=pytest.mark.slow) for s in (400, 401, 403, 404, 500))]
)
def test_an_error_answer_of_another_form_is_not_shown(
    description: KindDescription,
    host: Operations,
    platform: Platform,
    status: int,
    capture_output: Any,
    processes: Processes,
) -> None:
    checked = convert_integers_to_doubles(description.valid_inputs)
    created = host.create(checked)
    changed = convert_integers_to_doubles(description.in_place.inputs)
    other = convert_integers_to_doubles(description.build_numbered_inputs(1))
    assert description.in_place.sends is not None
    assert description.create is not None
    verbs = {
        "read": ("GET", lambda: host.read(created.id, created.outputs).outputs),
        "update": (
            description.in_place.sends.method,
            lambda: host.update(created.id, created.outputs, changed),
        ),
        "create": (description.create.method, lambda: host.create(other).outputs),
        "delete": (
            description.outside_delete.method,
            lambda: host.delete(created.id, created.outputs),
        ),
    }
    output = ""
    for name, (method, verb) in verbs.items():
        for body in build_bodies(description, has_declaration=name == "create"):
            platform.add_fault(method, "", status=status, body=body)
            try:
                output += str((verb() or {}).get("not_ready_reason"))
            except Refused as error:
                output += describe_error(error)
            platform.remove_faults()
    if status != 404:
        assert f"answered {status}" in output
    assert_clean(
        description,
        output + capture_output() + "".join(process.printed_text for process in processes),
    )


def test_the_text_of_an_unexpected_error_is_not_shown(
    description: KindDescription,
    embedded: EmbeddedStack,
    platform: Platform,
    capture_output: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Raise an error with a secret in its text, while waiting and while reading."""

    def raise_secret_error(*_: object) -> None:
        held = {"token": KUBE}
        raise RuntimeError(f"cannot use {held}")

    assert embedded.apply(declare_one(description)).ok
    monkeypatch.setattr(description.lifecycle.operations, "read", raise_secret_error)
    monkeypatch.setattr(description.lifecycle.operations, "wait_until_ready", raise_secret_error)
    refreshed = embedded.refresh()
    updated = embedded.apply(declare_one(description, description.in_place.inputs))
    for result in (refreshed, updated):
        assert not result.ok
        assert "RuntimeError (this is an error in gpuform)" in result.errors[0]
    assert embedded.outputs["ready"] is False
    assert_clean(
        description,
        read_messages(embedded)
        + str(refreshed)
        + capture_output()
        + read_files(embedded.directory),
    )


def test_every_text_of_the_wire_models_is_planted(description: KindDescription) -> None:
    """Check the planting itself: only meant values are left out."""
    total: dict[str, Any] = {"gpu_worker_nodes": [{}], "volumes": [{}]}
    result = str(plant_object(description.wire, total, description.unplanted_fields))
    for string in list_text_fields(description.wire):
        if string not in description.unplanted_fields:
            assert build_planted_text(string) in result, string
