"""Test that any topology has equal effects with and without the Pulumi SDK."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st
from support.topologies.random_topologies import FAILING_EXPRESSIONS, MODULE, topologies
from support.topologies.sdk_comparison import ObservedRun, RunComparison

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
def ways(crypter: PassphraseCrypter, form: str = "dynamic") -> Iterator[RunComparison]:
    with TemporaryDirectory() as folder:
        empty = Snapshot("organization/demo/dev", secrets_provider=crypter.provider)
        both_ways = RunComparison(Path(folder).resolve(), crypter, empty.to_json(crypter))
        both_ways.config = {"gpuform:form": form}
        (both_ways.directory / "__main__.py").write_text(PROGRAM)
        (both_ways.directory / "pool.yaml").write_text(yaml.safe_dump(MODULE, sort_keys=False))
        yield both_ways


def write_topology(both_ways: RunComparison, topology: dict[str, Any]) -> None:
    topology_yaml = yaml.safe_dump(topology, sort_keys=False)
    note(topology_yaml)
    (both_ways.directory / "topology.yaml").write_text(topology_yaml)


def compare(ran: tuple[ObservedRun, ObservedRun]) -> None:
    with_sdk, without = (run.comparable for run in ran)
    for part, first in with_sdk.items():
        second = without[part]
        if isinstance(first, dict):
            keys = {key for key in {*first, *second} if first.get(key) != second.get(key)}
            assert not keys, (part, {key: (first.get(key), second.get(key)) for key in keys})
        assert first == second, part
    assert_in_order(ran[1])


def assert_in_order(ran: ObservedRun) -> None:
    """Assert that each resource is declared after its dependencies."""
    positions = {urn: position for position, urn in enumerate(ran.registration_order)}
    for declaration in ran.outcome.declared:
        needs = {declaration.parent, *declaration.dependencies} - {""}
        assert all(positions[urn] < positions[declaration.urn] for urn in needs if urn in positions)


@pytest.mark.slow
@SETTINGS
@given(before=topologies(), after=topologies(), form=FORMS)
def test_runs_come_to_the_same(
    crypter: PassphraseCrypter, before: dict[str, Any], after: dict[str, Any], form: str
) -> None:
    with ways(crypter, form) as both_ways:
        write_topology(both_ways, before)
        compare(both_ways.run_both(preview=True))
        compare(both_ways.run_both())
        compare(both_ways.run_both(preview=True))
        write_topology(both_ways, after)
        compare(both_ways.run_both(preview=True))
        compare(both_ways.run_both())
        for operation in ("refresh", "destroy"):
            compare(both_ways.run_both(operation, run_program=True, preview=True))
            compare(both_ways.run_both(operation, run_program=True))


@pytest.mark.slow
@SETTINGS
@given(before=topologies(suffixes=BAD), after=topologies(suffixes=BAD), form=FORMS)
def test_what_needs_a_failure_is_left_out_alike(
    crypter: PassphraseCrypter, before: dict[str, Any], after: dict[str, Any], form: str
) -> None:
    with ways(crypter, form) as both_ways:
        for topology in (before, after):
            write_topology(both_ways, topology)
            compare(both_ways.run_both(preview=True))
            ran = both_ways.run_both(continue_on_error=True)
            # With the SDK a failing expression may end the program before a resource that fails is
            # registered. Such expressions have a test of their own.
            assume(not any(".yaml:" in error for run in ran for error in run.comparable["errors"]))
            compare(ran)


@pytest.mark.slow
@SETTINGS
@given(before=topologies(), after=topologies(suffixes=WRONG), form=FORMS)
def test_previews_tell_all_that_is_refused(
    crypter: PassphraseCrypter, before: dict[str, Any], after: dict[str, Any], form: str
) -> None:
    with ways(crypter, form) as both_ways:
        write_topology(both_ways, before)
        both_ways.run_both()
        write_topology(both_ways, after)
        compare(both_ways.run_both(preview=True))


@pytest.mark.slow
@SETTINGS
@given(topology=topologies(failing=True), preview=st.booleans())
def test_failing_expressions_are_told_alike(
    crypter: PassphraseCrypter, topology: dict[str, Any], preview: bool
) -> None:
    """Compare only errors, because operations in progress end at different points."""
    with ways(crypter) as both_ways:
        write_topology(both_ways, topology)
        with_sdk, without = both_ways.run_both(preview=preview)
        sdk_errors, tells = with_sdk.comparable["errors"], without.comparable["errors"]
        if not sdk_errors:
            compare((with_sdk, without))
        assert len(sdk_errors) == len(tells)
        if (
            len(
                {
                    topology_yaml
                    for topology_yaml in list_texts(topology)
                    if topology_yaml in FAILING_EXPRESSIONS
                }
            )
            == 1
        ):
            assert sorted(message.partition(": ")[2] for message in sdk_errors) == sorted(
                message.partition(": ")[2] for message in tells
            )


def list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from list_texts(item)
    elif isinstance(value, str):
        yield value
