"""Test the emulator's part of MongoDB against mongomock, and its refusals."""

import copy
from typing import Any

import mongomock
import pytest
from hypothesis import given, settings
from mongomock.filtering import filter_applies
from support.strategies.mongo_strategies import DOCUMENTS, FILTERS, UPDATES

from gpuform.providers.emulator.aios.mongo import AiosApiError, apply_update, matches_filter


@pytest.mark.slow
@settings(deadline=None)
@given(DOCUMENTS, FILTERS)
def test_a_filter_finds_what_mongomock_finds(document: dict[str, Any], expected: Any) -> None:
    assert matches_filter(document, expected) == bool(filter_applies(expected, document))


@pytest.mark.slow
@settings(deadline=None)
@given(DOCUMENTS, UPDATES)
def test_an_update_has_the_result_of_mongomock(document: dict[str, Any], update: Any) -> None:
    collection = mongomock.MongoClient().registry.clusters
    collection.insert_one({"_id": "one", **copy.deepcopy(document)})
    collection.update_one({}, copy.deepcopy(update))
    expected = collection.find_one({}, {"_id": 0})
    before = copy.deepcopy(document)
    assert apply_update(document, update) == expected
    assert document == before


@pytest.mark.parametrize(
    ("document", "expected", "result"),
    [
        ({"a": [0, 10]}, {"a": {"$gt": 1, "$lt": 5}}, True),
        ({"n": [{"m": 0}, {"m": 10}]}, {"n.m": {"$gt": 1, "$lt": 5}}, True),
        ({"a": 5}, {"a.b": None}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": "5"}, {"a": {"$gt": 1}}, False),
        ({"n": []}, {"n.m": {"$not": {"$gt": 1}}}, True),
        ({"n": [{"m": 1}, {}]}, {"n.m": {"$exists": False}}, False),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, False),
    ],
)
def test_where_mongomock_differs_the_emulator_follows_mongodb(
    document: Any, expected: Any, result: bool
) -> None:
    assert matches_filter(document, expected) is result


@pytest.mark.parametrize(
    "expected",
    [
        [],
        "id",
        {"$or": []},
        {"$and": {"a": 1}},
        {"$where": "true"},
        {"a": {"$near": 1}},
        {"a": {"$in": 5}},
        {"a": {"$not": 5}},
    ],
)
def test_a_malformed_filter_is_refused(expected: Any) -> None:
    with pytest.raises(AiosApiError) as caught:
        matches_filter({"a": 1}, expected)
    assert caught.value.status == 500


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"$rename": {"a": "b"}}, "Unknown modifier: $rename"),
        ({"$set": 5}, "Modifiers operate on fields"),
        ({"$set": {"a": 1}, "$inc": {"a": 1}}, "conflict at 'a'"),
        ({"$set": {"list.0.x": 1}, "$push": {"list": 1}}, "conflict at 'list'"),
        ({"$set": {"text.x": 1}}, "Cannot create field 'x'"),
        ({"$set": {"list.x": 1}}, "Cannot create field 'x'"),
        ({"$inc": {"text": 1}}, "non-numeric"),
        ({"$inc": {"number": "1"}}, "non-numeric"),
        ({"$push": {"text": 1}}, "non-array"),
        ({"$pull": {"text": 1}}, "non-array"),
        ({"$push": {"list": {"$each": [1], "$slice": 1}}}, "Unrecognized clause"),
    ],
)
def test_an_update_that_mongodb_refuses_is_refused(update: Any, message: str) -> None:
    document = {"text": "t", "number": 1, "list": [{"x": 0}]}
    with pytest.raises(AiosApiError, match="^" + ".*") as caught:
        apply_update(document, update)
    assert message in caught.value.message
    assert document == {"text": "t", "number": 1, "list": [{"x": 0}]}
