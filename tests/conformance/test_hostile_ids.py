"""Test ids that no request can address: refused without being shown, and no object is lost."""

from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription, convert_integers_to_doubles
from conformance.operations import EngineOperations, Refused
from conformance.recovery_checks import assert_next_run_recovers, assert_no_object_is_lost
from conformance.stacks import EmbeddedStack, declare_one
from conformance.together_kinds import VOLUME_CLAIM

pytestmark = pytest.mark.slow

HOSTILE = "\nHost *\n    ProxyCommand touch /tmp/owned\u202e"


def make_ids_hostile(platform: Platform, description: KindDescription, answer: Any) -> Any:
    """Return the answer with a tail on the ids of all objects of the kind."""
    objects = platform.list_objects(description)
    ids = {name["id"] for name in objects} | {part for name in objects for part in name["parts"]}
    # The id of what is inside of something else ends with what the platform calls it.
    ids = {id_.rpartition("/")[2] for id_ in ids}

    def replace_ids(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: replace_ids(item) for key, item in value.items()}
        if isinstance(value, list):
            return [replace_ids(item) for item in value]
        if isinstance(value, str):
            for id_ in ids:
                value = value.replace(id_, id_ + HOSTILE)
        return value

    return replace_ids(answer)


def assert_not_shown(text: str) -> None:
    assert "ProxyCommand" not in text
    assert "\u202e" not in text


def test_an_object_created_with_a_hostile_id_is_found_again(
    description: KindDescription,
    platform: Platform,
    embedded: EmbeddedStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declared = declare_one(description)
    with platform.rewrite_answers(
        lambda *messages: make_ids_hostile(platform, description, messages[2])
    ):
        for _ in range(2):  # the next run makes no second one, either
            result = embedded.apply(declared)
            assert not result.ok
            assert_not_shown(" ".join(result.errors))
            messages = " ".join(result.errors)
            assert (
                "unexpected form" in messages
                or "the platform answered about another object" in messages
            )
            assert_not_shown(" ".join(embedded.ids))
        assert platform.count_creates(description) == 1
    if description.kind != VOLUME_CLAIM.kind:  # the mark that it bears says whose it is
        assert_no_object_is_lost(embedded, platform, declared)
    if (
        not description.reports_creation_time
    ):  # it is first seen when the time of the create is over
        (id_,) = platform.list_ids(description)
        (error,) = embedded.apply(declared).errors
        assert f"--adopt {id_}" in error
        monkeypatch.setenv("GPUFORM_ADOPT", id_)
    assert_next_run_recovers(embedded, platform, declared)
    assert platform.count_creates(description) == 1


def test_an_object_that_gets_a_hostile_id_is_neither_gone_nor_adopted(
    description: KindDescription, platform: Platform, new_call: Any
) -> None:
    host = EngineOperations(description.lifecycle, new_call, {})
    created = host.create(convert_integers_to_doubles(description.valid_inputs))
    with (
        platform.rewrite_answers(
            lambda *exchange: make_ids_hostile(platform, description, exchange[2])
        ),
        pytest.raises(Refused) as refused,
    ):
        host.read(created.id, created.outputs)
    assert_not_shown(str(refused.value))
