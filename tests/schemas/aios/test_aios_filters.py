"""Test the check that records match a query, against mongomock."""

from typing import Any

import pytest
from hypothesis import given, settings
from mongomock.filtering import filter_applies
from support.platforms.aios_document import CLUSTER, QUERY
from support.strategies.mongo_strategies import DOCUMENTS, FILTERS

from gpuform.schemas.aios.wire import find_filter_problems, matches_filter


@settings(deadline=None)
@given(DOCUMENTS, FILTERS)
def test_a_record_matches_a_filter_exactly_if_it_does_in_mongomock(
    document: dict[str, Any], query_filter: Any
) -> None:
    assert list(find_filter_problems(query_filter)) == []
    assert matches_filter(document, query_filter) == bool(filter_applies(query_filter, document))


def test_the_example_query_finds_the_example() -> None:
    assert matches_filter(CLUSTER, QUERY)
    assert not matches_filter({**CLUSTER, "gpus": {"count": 1}}, QUERY)


@pytest.mark.parametrize(
    ("document", "query_filter", "passes"),
    [
        ({"n": [{"m": 0}, {"m": 10}]}, {"n.m": {"$gt": 1, "$lt": 5}}, True),
        ({"a": 5}, {"a.b": {"$exists": False}}, True),
        ({"a": True}, {"a": 1}, False),
        ({"a": None}, {"a": {"$in": [None]}}, True),
        ({}, {"a": {"$eq": None}}, True),
        ({"a": [1, 2]}, {"a": [1, 2]}, True),
        ({"a": "x"}, {"a": {"$gt": 1}}, False),
    ],
)
def test_filters_match_like_mongodb(document: Any, query_filter: Any, passes: bool) -> None:
    assert matches_filter(document, query_filter) is passes


@pytest.mark.parametrize(
    ("query_filter", "path"),
    [
        ({"$where": "true"}, "filter.$where"),
        ({"$or": []}, "filter.$or"),
        ({"$and": [{"a": {"$near": 1}}]}, "filter.$and[0].a.$near"),
        ({"a": {"$in": 5}}, "filter.a.$in"),
        ({"a": {"$not": 5}}, "filter.a.$not"),
        ({"a": {"$not": {"$regex": "x"}}}, "filter.a.$not.$regex"),
        (["a"], "filter"),
    ],
)
def test_unsupported_operators_are_reported(query_filter: Any, path: str) -> None:
    (problem,) = find_filter_problems(query_filter)
    assert problem.path == path
