"""What only Pulumi's own host asks of a lifecycle: four threads, printed tracebacks, no URN."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.described import Described, doubles
from conformance.emulated import Platform
from conformance.kinds import FAST, KINDS, MADE
from conformance.stock import StockHost, running_host
from conformance.verbs import PROVIDER_KEY, Refused, StockVerbs, pickled, struct
from google.protobuf.json_format import MessageToDict
from pulumi.runtime.proto import provider_pb2

from gpuform.providers.emulator.server import environment

pytestmark = [pytest.mark.slow, pytest.mark.sampled(9)]

CREATES = 64


@pytest.mark.parametrize(
    "described",
    [pytest.param(kind, marks=() if kind is FAST else pytest.mark.slow) for kind in MADE],
    ids=str,
    indirect=True,
)
def test_64_slow_creates_are_on_the_wire_together(
    described: Described, stock_host: StockHost, platform: Platform
) -> None:
    """None is answered before all have been sent, which four threads could never do."""
    StockVerbs(described.lifecycle, stock_host.stub).check(described.good)
    provider = pickled(described.lifecycle)
    requests = [
        provider_pb2.CreateRequest(
            properties=struct({**doubles(described.numbered(number)), PROVIDER_KEY: provider})
        )
        for number in range(CREATES)
    ]
    with platform.meeting(described, 1 if described.is_entry else CREATES):
        answers = [stock_host.stub.Create.future(request) for request in requests]
        made = [MessageToDict(answer.result().properties) for answer in answers]
    assert [each["ready"] for each in made] == [True] * CREATES
    assert platform.created(described) == CREATES
    assert list((stock_host.directory / ".gpuform" / "records").glob("*.json")) == []


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[StockHost]:
    """A host without a key, whose platform nobody serves."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    nowhere = {**environment(f"http://127.0.0.1:{port}"), "GPUFORM_CLOCK": ""}
    keyless = {kind.key_variable: "" for kind in KINDS}
    with running_host(tmp_path / "alone", {**nowhere, **keyless}) as host:
        yield host


def test_a_plan_needs_neither_key_nor_platform(alone: StockHost) -> None:
    for kind in KINDS:
        described = kind.placed({"{base}": "f" * 32})
        verbs = StockVerbs(described.lifecycle, alone.stub)
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


def test_the_key_may_come_from_the_stack(
    described: Described, platform: Platform, tmp_path: Path
) -> None:
    """Configure gives the stack's configuration; the environment comes first."""
    environ = {**environment(platform.server.url), described.key_variable: ""}
    with running_host(tmp_path / "configured", environ) as host:
        host.configure({described.key_config: described.key})
        made = StockVerbs(described.lifecycle, host.stub).create(doubles(described.good))
        assert platform.ids(described) == {made.id}


ANSWERS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"status": 400, "body": {"error": {"message": "no such thing"}}}, "no such thing"),
    ({"status": 400, "body": {"error": "bad key {key}"}}, "[secret]"),
    ({"status": 401, "body": ["planted"]}, "answered 401"),
    ({"status": 403, "body": {"detail": {"token": "planted"}}}, "answered 403"),
    ({"status": 409, "body": "planted"}, "answered 409"),
    ({"status": 422, "body": {"error": {"message": {"token": "planted"}}}}, "answered 422"),
)


@pytest.mark.parametrize(("answer", "said"), ANSWERS, ids=lambda value: str(value)[:12])
def test_an_error_is_the_message_and_no_value(
    described: Described,
    stock_host: StockHost,
    platform: Platform,
    answer: dict[str, Any],
    said: str,
) -> None:
    """The host would show the traceback of whatever a provider raises."""
    if answer["body"] == {"error": "bad key {key}"}:
        answer = {**answer, "body": {"error": f"bad key {described.key}"}}
    platform.fault(described.create.method, described.create.path, **answer)
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    inputs = {**doubles(described.good), described.name_field: "named-by-a-person"}
    with pytest.raises(Refused) as caught:
        verbs.create(inputs)
    told = str(caught.value) + stock_host.printed
    assert said in told
    assert "planted" not in told
    assert described.key not in told
    assert "named-by-a-person" not in told
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


def test_what_nobody_foresaw_is_told_by_its_type_alone(
    described: Described, stock_host: StockHost
) -> None:
    """Inputs that check never saw: the host hands them over all the same."""
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    with pytest.raises(Refused) as caught:
        verbs.update("id", {"ready": True, described.name_field: {"planted": 1}}, {})
    assert "planted" not in str(caught.value)
    assert "direct cause" not in str(caught.value)
    assert "During handling" not in str(caught.value)


def test_a_create_that_is_over_in_time_leaves_nothing_on_record(
    described: Described, stock_host: StockHost
) -> None:
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    made = verbs.create(doubles(described.good))
    assert list((stock_host.directory / ".gpuform" / "records").glob("*.json")) == []
    verbs.delete(made.id, made.outputs)


def test_a_lost_answer_is_found_again_without_a_urn(
    described: Described, stock_host: StockHost, platform: Platform
) -> None:
    platform.fault(described.create.method, described.create.path, drop="after")
    verbs = StockVerbs(described.lifecycle, stock_host.stub)
    made = verbs.create(doubles(described.good))
    assert platform.ids(described) == {made.id}
    assert made.outputs["ready"] is True


def test_a_create_that_died_is_settled_by_the_next_attempt(
    described: Described, stock_host: StockHost, platform: Platform
) -> None:
    """The answer is lost and so is the list that would find it: the record stays for later."""
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
        made = verbs.create(doubles(described.good))
        assert platform.ids(described) == {made.id}
    assert [each.method for each in platform.writes()] == [described.create.method]
