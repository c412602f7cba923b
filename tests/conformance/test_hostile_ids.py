"""Test ids that no request can address: refused without being shown, and no object is lost."""

from typing import Any

import pytest
from conformance.described import Described, doubles
from conformance.emulated import Platform
from conformance.settling import assert_nothing_is_lost, assert_settles
from conformance.stacks import EmbeddedStack, thing
from conformance.together_kinds import VOLUME_CLAIM
from conformance.verbs import EngineVerbs, Refused

pytestmark = pytest.mark.slow

HOSTILE = "\nHost *\n    ProxyCommand touch /tmp/owned\u202e"


def make_ids_hostile(platform: Platform, described: Described, answer: Any) -> Any:
    """Return the answer with a tail on the ids of all objects of the kind."""
    objects = platform.objects(described)
    ids = {name["id"] for name in objects} | {part for name in objects for part in name["parts"]}
    # The id of what is inside of something else ends with what the platform calls it.
    ids = {id_.rpartition("/")[2] for id_ in ids}

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: changed(item) for key, item in value.items()}
        if isinstance(value, list):
            return [changed(item) for item in value]
        if isinstance(value, str):
            for id_ in ids:
                value = value.replace(id_, id_ + HOSTILE)
        return value

    return changed(answer)


def assert_not_shown(text: str) -> None:
    assert "ProxyCommand" not in text
    assert "\u202e" not in text


def test_an_object_created_with_a_hostile_id_is_found_again(
    described: Described,
    platform: Platform,
    embedded: EmbeddedStack,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declared = thing(described)
    with platform.answering(lambda *messages: make_ids_hostile(platform, described, messages[2])):
        for _ in range(2):  # the next run makes no second one, either
            result = embedded.up(declared)
            assert not result.ok
            assert_not_shown(" ".join(result.errors))
            messages = " ".join(result.errors)
            assert (
                "unexpected form" in messages
                or "the platform answered about another object" in messages
            )
            assert_not_shown(" ".join(embedded.ids))
        assert platform.created(described) == 1
    if described.kind != VOLUME_CLAIM.kind:  # the mark that it bears says whose it is
        assert_nothing_is_lost(embedded, platform, declared)
    if not described.tells_age:  # it is first seen when the time of the create is over
        (id_,) = platform.ids(described)
        (error,) = embedded.up(declared).errors
        assert f"--adopt {id_}" in error
        monkeypatch.setenv("GPUFORM_ADOPT", id_)
    assert_settles(embedded, platform, declared)
    assert platform.created(described) == 1


def test_an_object_that_gets_a_hostile_id_is_neither_gone_nor_adopted(
    described: Described, platform: Platform, new_call: Any
) -> None:
    host = EngineVerbs(described.lifecycle, new_call, {})
    created = host.create(doubles(described.good))
    with (
        platform.answering(lambda *told: make_ids_hostile(platform, described, told[2])),
        pytest.raises(Refused) as refused,
    ):
        host.read(created.id, created.outputs)
    assert_not_shown(str(refused.value))
