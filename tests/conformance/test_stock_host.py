"""Test Pulumi's dynamic host as it uses a lifecycle: four threads, printed tracebacks, no URN."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.described import Described, doubles
from conformance.emulated import Platform
from conformance.kinds import FAST, KINDS, MADE
from conformance.stock import StockHost, running_host
from conformance.verbs import PROVIDER_KEY, Refused, StockVerbs, pickle_lifecycle, to_struct
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import provider_pb2

from gpuform.providers.emulator.server import environment

pytestmark = [pytest.mark.slow, pytest.mark.sampled(9)]

CREATES = 64


@pytest.mark.parametrize(
    "described",
    [
        pytest.param(kind, marks=pytest.mark.sampled(1) if kind is FAST else pytest.mark.exhaustive)
        for kind in MADE
    ],
    ids=str,
    indirect=True,
)
def test_64_slow_creates_run_concurrently(
    described: Described, stock_host: StockHost, platform: Platform
) -> None:
    """Answer none before all were sent, which four threads could never do."""
    StockVerbs(described.lifecycle, stock_host.stub).check(described.good)
    provider = pickle_lifecycle(described.lifecycle)
    requests = [
        provider_pb2.CreateRequest(
            properties=to_struct({**doubles(described.numbered(number)), PROVIDER_KEY: provider})
        )
        for number in range(CREATES)
    ]
    with platform.meeting(described, 1 if described.is_entry else CREATES):
        answers = [stock_host.stub.Create.future(request) for request in requests]
        created = [MessageToDict(answer.result().properties) for answer in answers]
    assert [item["ready"] for item in created] == [True] * CREATES
    assert platform.created(described) == CREATES
    assert list((stock_host.directory / ".gpuform" / "records").glob("*.json")) == []


@pytest.fixture
def unconnected_host(tmp_path: Path) -> Iterator[StockHost]:
    """Start a host without a key, whose platform is not served."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    nowhere = {**environment(f"http://127.0.0.1:{port}"), "GPUFORM_CLOCK": ""}
    keyless = {kind.key_variable: "" for kind in KINDS}
    with running_host(tmp_path / "alone", {**nowhere, **keyless}) as host:
        yield host


def test_a_plan_requires_neither_key_nor_platform(unconnected_host: StockHost) -> None:
    for kind in KINDS:
        described = kind.placed({"{base}": "f" * 32})
        verbs = StockVerbs(described.lifecycle, unconnected_host.stub)
        checked = verbs.check(described.good)
        assert checked.failures == {}
        olds = {**checked.inputs, "ready": True}
        assert verbs.diff("id", olds, checked.inputs).changes is False
        if described.replacing.field:
            replaces = verbs.diff("id", olds, doubles(described.replacing.inputs)).replaces
            assert replaces == [described.replacing.field]
        if described.create:
            with pytest.raises(Refused, match=described.key_variable):
                verbs.create(checked.inputs)


def test_the_key_can_come_from_the_stacks_configuration(
    described: Described, platform: Platform, tmp_path: Path
) -> None:
    """Configure gives the stack's configuration; the environment takes precedence."""
    environ = {**environment(platform.server.url), described.key_variable: ""}
    with running_host(tmp_path / "configured", environ) as host:
        host.configure({described.key_config: described.key})
        created = StockVerbs(described.lifecycle, host.stub).create(doubles(described.good))
        assert platform.ids(described) == {created.id}


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
    described: Described,
    stock_host: StockHost,
    platform: Platform,
    answer: dict[str, Any],
    message: str,
) -> None:
    """The host would otherwise show a provider's traceback."""
    if answer["body"] == {"error": "bad key {key}"}:
        answer = {**answer, "body": {"error": f"bad key {described.key}"}}
    platform.fault(described.create.method, described.create.path, **answer)
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    inputs = {**doubles(described.good), described.name_field: "named-by-a-person"}
    with pytest.raises(Refused) as caught:
        verbs.create(inputs)
    messages = str(caught.value) + stock_host.printed
    assert message in messages
    assert "planted" not in messages
    assert described.key not in messages
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
    assert platform.objects(described) == []


def test_an_unexpected_error_shows_only_its_type(
    described: Described, stock_host: StockHost
) -> None:
    """The host passes on inputs that check never saw."""
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    with pytest.raises(Refused) as caught:
        verbs.update("id", {"ready": True, described.name_field: {"planted": 1}}, {})
    assert "planted" not in str(caught.value)
    assert "direct cause" not in str(caught.value)
    assert "During handling" not in str(caught.value)


def test_a_finished_create_leaves_no_intent(described: Described, stock_host: StockHost) -> None:
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    created = verbs.create(doubles(described.good))
    assert list((stock_host.directory / ".gpuform" / "records").glob("*.json")) == []
    verbs.delete(created.id, created.outputs)


def test_the_object_of_a_lost_answer_is_found_without_a_urn(
    described: Described, stock_host: StockHost, platform: Platform
) -> None:
    platform.fault(described.create.method, described.create.path, drop="after")
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    created = verbs.create(doubles(described.good))
    assert platform.ids(described) == {created.id}
    assert created.outputs["ready"] is True


def test_an_interrupted_create_is_recovered_by_the_next_attempt(
    described: Described, stock_host: StockHost, platform: Platform
) -> None:
    """The answer and the list are lost: the record is kept for later."""
    list_of = described.found_at or f"^{described.create.path}$"
    platform.fault(described.create.method, described.create.path, drop="after")
    platform.fault("GET", list_of, status=503, skip=1, count=None)
    # A PUT that changes nothing reads a record of AIOS as well.
    platform.fault("PUT", list_of, status=503, count=None)
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    with pytest.raises(Refused, match=r"result of creating|create is unknown"):
        verbs.create(doubles(described.good))
    platform.heal()
    if not described.tells_age:
        with pytest.raises(Refused, match="--adopt"):  # nobody saw it in time
            verbs.create(doubles(described.good))
    else:
        created = verbs.create(doubles(described.good))
        assert platform.ids(described) == {created.id}
    assert [write.method for write in platform.writes()] == [described.create.method]
