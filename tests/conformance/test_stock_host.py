"""Test Pulumi's dynamic host as it uses a lifecycle: four threads, printed tracebacks, no URN."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.dynamic_host import StockHost, start_host
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription, convert_integers_to_doubles
from conformance.kinds import CREATED_KINDS, FAST_KIND, KINDS
from conformance.operations import (
    PROVIDER_KEY,
    Refused,
    StockOperations,
    pickle_lifecycle,
    to_struct,
)
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import provider_pb2
from support.servers.ports import reserve_port

from gpuform.providers.emulator.server import environment

pytestmark = [pytest.mark.slow, pytest.mark.sampled(9)]

CREATES = 64


@pytest.mark.parametrize(
    "description",
    [
        pytest.param(
            kind, marks=pytest.mark.sampled(1) if kind is FAST_KIND else pytest.mark.exhaustive
        )
        for kind in CREATED_KINDS
    ],
    ids=str,
    indirect=True,
)
def test_64_slow_creates_run_concurrently(
    description: KindDescription, stock_host: StockHost, platform: Platform
) -> None:
    """Answer none before all were sent, which four threads could never do."""
    StockOperations(description.lifecycle, stock_host.stub).check(description.valid_inputs)
    provider = pickle_lifecycle(description.lifecycle)
    requests = [
        provider_pb2.CreateRequest(
            properties=to_struct(
                {
                    **convert_integers_to_doubles(description.build_numbered_inputs(number)),
                    PROVIDER_KEY: provider,
                }
            )
        )
        for number in range(CREATES)
    ]
    with platform.hold_creates(description, 1 if description.is_entry else CREATES):
        answers = [stock_host.stub.Create.future(request) for request in requests]
        created = [MessageToDict(answer.result().properties) for answer in answers]
    assert [item["ready"] for item in created] == [True] * CREATES
    assert platform.count_creates(description) == CREATES
    assert list((stock_host.directory / ".gpuform" / "records").glob("*.json")) == []


@pytest.fixture
def unconnected_host(tmp_path: Path) -> Iterator[StockHost]:
    """Start a host without a key, whose platform is not served."""
    keyless = {kind.key_variable: "" for kind in KINDS}
    with reserve_port() as port:
        nowhere = {**environment(f"http://127.0.0.1:{port}"), "GPUFORM_CLOCK": ""}
        with start_host(tmp_path / "alone", {**nowhere, **keyless}) as host:
            yield host


def test_a_plan_requires_neither_key_nor_platform(unconnected_host: StockHost) -> None:
    for kind in KINDS:
        description = kind.fill_placeholders({"{base}": "f" * 32})
        verbs = StockOperations(description.lifecycle, unconnected_host.stub)
        checked = verbs.check(description.valid_inputs)
        assert checked.failures == {}
        olds = {**checked.inputs, "ready": True}
        assert verbs.diff("id", olds, checked.inputs).changes is False
        if description.replacing.field:
            replaces = verbs.diff(
                "id", olds, convert_integers_to_doubles(description.replacing.inputs)
            ).replaces
            assert replaces == [description.replacing.field]
        if description.create:
            with pytest.raises(Refused, match=description.key_variable):
                verbs.create(checked.inputs)


def test_the_key_can_come_from_the_stacks_configuration(
    description: KindDescription, platform: Platform, tmp_path: Path
) -> None:
    """Configure gives the stack's configuration; the environment takes precedence."""
    environ = {**environment(platform.server.url), description.key_variable: ""}
    with start_host(tmp_path / "configured", environ) as host:
        host.configure({description.key_config: description.key})
        created = StockOperations(description.lifecycle, host.stub).create(
            convert_integers_to_doubles(description.valid_inputs)
        )
        assert platform.list_ids(description) == {created.id}


ANSWERS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"status": 400, "body": {"error": {"message": "no such thing"}}}, "no such thing"),
    ({"status": 400, "body": {"error": "bad key {key}"}}, "[secret]"),
    ({"status": 401, "body": ["planted"]}, "answered 401"),
    ({"status": 403, "body": {"detail": {"token": "planted"}}}, "answered 403"),
    ({"status": 409, "body": "planted"}, "answered 409"),
    ({"status": 422, "body": {"error": {"message": {"token": "planted"}}}}, "answered 422"),
)


@pytest.mark.parametrize(("answer", "message"), ANSWERS, ids=lambda value: str(value)[:12])
def test_an_error_shows_its_message_and_no_value(
    description: KindDescription,
    stock_host: StockHost,
    platform: Platform,
    answer: dict[str, Any],
    message: str,
) -> None:
    """The host would otherwise show a provider's traceback."""
    if answer["body"] == {"error": "bad key {key}"}:
        answer = {**answer, "body": {"error": f"bad key {description.key}"}}
    platform.add_fault(description.create.method, description.create.path, **answer)
    verbs = StockOperations(description.lifecycle, stock_host.stub)
    inputs = {
        **convert_integers_to_doubles(description.valid_inputs),
        description.name_field: "named-by-a-person",
    }
    with pytest.raises(Refused) as caught:
        verbs.create(inputs)
    messages = str(caught.value) + stock_host.printed_text
    assert message in messages
    assert "planted" not in messages
    assert description.key not in messages
    assert "named-by-a-person" not in messages
    for chained in (
        "Traceback",
        "direct cause",
        "During handling",
        "httpx",
        "pydantic",
        "tenacity",
        "client.py",
    ):
        assert chained not in str(caught.value)
    assert platform.list_objects(description) == []


def test_an_unexpected_error_shows_only_its_type(
    description: KindDescription, stock_host: StockHost
) -> None:
    """The host passes on inputs that check never saw."""
    verbs = StockOperations(description.lifecycle, stock_host.stub)
    with pytest.raises(Refused) as caught:
        verbs.update("id", {"ready": True, description.name_field: {"planted": 1}}, {})
    assert "planted" not in str(caught.value)
    assert "direct cause" not in str(caught.value)
    assert "During handling" not in str(caught.value)


def test_a_finished_create_leaves_no_intent(
    description: KindDescription, stock_host: StockHost
) -> None:
    verbs = StockOperations(description.lifecycle, stock_host.stub)
    created = verbs.create(convert_integers_to_doubles(description.valid_inputs))
    assert list((stock_host.directory / ".gpuform" / "records").glob("*.json")) == []
    verbs.delete(created.id, created.outputs)


def test_the_object_of_a_lost_answer_is_found_without_a_urn(
    description: KindDescription, stock_host: StockHost, platform: Platform
) -> None:
    platform.add_fault(description.create.method, description.create.path, drop="after")
    verbs = StockOperations(description.lifecycle, stock_host.stub)
    created = verbs.create(convert_integers_to_doubles(description.valid_inputs))
    assert platform.list_ids(description) == {created.id}
    assert created.outputs["ready"] is True


def test_an_interrupted_create_is_recovered_by_the_next_attempt(
    description: KindDescription, stock_host: StockHost, platform: Platform
) -> None:
    """The answer and the list are lost: the record is kept for later."""
    list_of = description.list_path or f"^{description.create.path}$"
    platform.add_fault(description.create.method, description.create.path, drop="after")
    platform.add_fault("GET", list_of, status=503, skip=1, count=None)
    # A PUT that changes nothing reads a record of AIOS as well.
    platform.add_fault("PUT", list_of, status=503, count=None)
    verbs = StockOperations(description.lifecycle, stock_host.stub)
    with pytest.raises(Refused, match=r"result of creating|create is unknown"):
        verbs.create(convert_integers_to_doubles(description.valid_inputs))
    platform.remove_faults()
    if not description.reports_creation_time:
        with pytest.raises(Refused, match="--adopt"):  # nobody saw it in time
            verbs.create(convert_integers_to_doubles(description.valid_inputs))
    else:
        created = verbs.create(convert_integers_to_doubles(description.valid_inputs))
        assert platform.list_ids(description) == {created.id}
    assert [write.method for write in platform.list_writes()] == [description.create.method]
