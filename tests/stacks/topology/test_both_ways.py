"""Whatever a topology says: without the SDK it comes to the same, in all that can be seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from both_ways import Ran, Ways
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from random_topologies import FAILING, MODULE, topologies

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Snapshot

PROGRAM = '"""A topology."""\n\nfrom gpuform.stacks import run\n\nrun("topology.yaml")  # here\n'
BAD, WRONG = ("", "", "-bad"), ("", "-bad", "-wrong")
FORMS = st.sampled_from(["dynamic", "plugin"])
SETTINGS = settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # an example takes a second
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def crypter() -> PassphraseCrypter:
    return PassphraseCrypter.create_new("test only")


@contextmanager
def ways(crypter: PassphraseCrypter, form: str = "dynamic") -> Iterator[Ways]:
    with TemporaryDirectory() as folder:
        empty = Snapshot("organization/demo/dev", secrets_provider=crypter.provider)
        found = Ways(Path(folder).resolve(), crypter, empty.to_json(crypter))
        found.config = {"gpuform:form": form}
        (found.directory / "__main__.py").write_text(PROGRAM)
        (found.directory / "pool.yaml").write_text(yaml.safe_dump(MODULE, sort_keys=False))
        yield found


def write(found: Ways, topology: dict[str, Any]) -> None:
    text = yaml.safe_dump(topology, sort_keys=False)
    note(text)
    (found.directory / "topology.yaml").write_text(text)


def compare(ran: tuple[Ran, Ran]) -> None:
    with_sdk, without = (each.seen for each in ran)
    for part, first in with_sdk.items():
        second = without[part]
        if isinstance(first, dict):
            keys = {key for key in {*first, *second} if first.get(key) != second.get(key)}
            assert not keys, (part, {key: (first.get(key), second.get(key)) for key in keys})
        assert first == second, part
    assert_in_order(ran[1])


def assert_in_order(ran: Ran) -> None:
    """Each resource is declared after all that it needs."""
    places = {urn: place for place, urn in enumerate(ran.order)}
    for each in ran.outcome.declared:
        needs = {each.parent, *each.dependencies} - {""}
        assert all(places[urn] < places[each.urn] for urn in needs if urn in places)


@pytest.mark.slow
@SETTINGS
@given(before=topologies(), after=topologies(), form=FORMS)
def test_runs_come_to_the_same(
    crypter: PassphraseCrypter, before: dict[str, Any], after: dict[str, Any], form: str
) -> None:
    with ways(crypter, form) as found:
        write(found, before)
        compare(found.both(preview=True))
        compare(found.both())
        compare(found.both(preview=True))
        write(found, after)
        compare(found.both(preview=True))
        compare(found.both())
        for operation in ("refresh", "destroy"):
            compare(found.both(operation, run_program=True, preview=True))
            compare(found.both(operation, run_program=True))


@pytest.mark.slow
@SETTINGS
@given(before=topologies(suffixes=BAD), after=topologies(suffixes=BAD), form=FORMS)
def test_what_needs_a_failure_is_left_out_alike(
    crypter: PassphraseCrypter, before: dict[str, Any], after: dict[str, Any], form: str
) -> None:
    with ways(crypter, form) as found:
        for topology in (before, after):
            write(found, topology)
            compare(found.both(preview=True))
            compare(found.both(continue_on_error=True))


@pytest.mark.slow
@SETTINGS
@given(before=topologies(), after=topologies(suffixes=WRONG), form=FORMS)
def test_previews_tell_all_that_is_refused(
    crypter: PassphraseCrypter, before: dict[str, Any], after: dict[str, Any], form: str
) -> None:
    with ways(crypter, form) as found:
        write(found, before)
        found.both()
        write(found, after)
        compare(found.both(preview=True))


@pytest.mark.slow
@SETTINGS
@given(topology=topologies(failing=True), preview=st.booleans())
def test_failing_expressions_are_told_alike(
    crypter: PassphraseCrypter, topology: dict[str, Any], preview: bool
) -> None:
    """What was under way goes on as far as it can: of that nothing is promised."""
    with ways(crypter) as found:
        write(found, topology)
        with_sdk, without = found.both(preview=preview)
        told, tells = with_sdk.seen["errors"], without.seen["errors"]
        if not told:
            compare((with_sdk, without))
        assert len(told) == len(tells)
        if len({text for text in texts_in(topology) if text in FAILING}) == 1:
            assert [each.partition(": ")[2] for each in told] == [
                each.partition(": ")[2] for each in tells
            ]


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item)
    elif isinstance(value, str):
        yield value
