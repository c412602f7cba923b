"""Hypothesis strategies of registry documents, filters and updates, for mongomock.

Where mongomock itself differs from MongoDB nothing is drawn: paths beyond a scalar, several
conditions on one path through an array, `$exists` through an array whose elements differ, `$not`
where no element is reached, numbers against truth values, an order of anything but numbers and
texts, equal items of one `$addToSet`.
"""

from typing import Any

from hypothesis import strategies as st

Json = Any

TEXTS = st.sampled_from(["", "a", "b", "gpu", "USA"])
NUMBERS = st.one_of(st.integers(-3, 5), st.sampled_from([0.5, 2.0, 4.5]))

NODES = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "memory": NUMBERS,
        "gpus": st.fixed_dictionaries(
            {"count": NUMBERS, "features": st.lists(TEXTS, max_size=3)},
        ),
    }
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "nodes": st.fixed_dictionaries(
            {"count": NUMBERS, "nodeData": st.lists(NODES, min_size=1, max_size=3)}
        ),
        "config": st.fixed_dictionaries({"useGateway": st.booleans()}, optional={"mode": TEXTS}),
        "tags": st.lists(TEXTS, max_size=4),
    },
    optional={"regionId": st.one_of(TEXTS, st.none()), "memory": NUMBERS},
)

TEXT_PATHS = ("id", "config.mode", "tags", "tags.0", "nodes.nodeData.id", "nodes.nodeData.0.id")
NUMBER_PATHS = (
    "memory",
    "nodes.count",
    "nodes.nodeData.memory",
    "nodes.nodeData.gpus.count",
    "nodes.nodeData.1.memory",
    "nothing.here",
)
_MAY_LEAD_NOWHERE = ("tags.0", "nodes.nodeData.1.memory")


def _draw_conditions(path: str, values: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    """Return a strategy of conditions on a path, plain or by an operator."""
    lists = st.lists(values, max_size=3)
    strategies = [values, values.map(lambda value: {"$eq": value})]
    strategies += [values.map(lambda value: {"$ne": value})]
    for name in ("$gt", "$gte", "$lt", "$lte"):
        strategies.append(values.map(lambda value, name=name: {name: value}))
        if path not in _MAY_LEAD_NOWHERE:
            strategies.append(values.map(lambda value, name=name: {"$not": {name: value}}))
    strategies += [lists.map(lambda items, name=name: {name: items}) for name in ("$in", "$nin")]
    if path in ("memory", "config.mode", "id"):
        strategies.append(st.booleans().map(lambda exists: {"$exists": exists}))
    return st.one_of(strategies)


def _draw_path_conditions(
    paths: tuple[str, ...], values: st.SearchStrategy[Json]
) -> st.SearchStrategy[Json]:
    return st.sampled_from(paths).flatmap(
        lambda path: _draw_conditions(path, values).map(lambda condition: {path: condition})
    )


SIMPLE = st.one_of(
    _draw_path_conditions(TEXT_PATHS, TEXTS),
    _draw_path_conditions(NUMBER_PATHS, NUMBERS),
    st.sampled_from([{"regionId": None}, {"regionId": {"$ne": None}}, {}]),
    st.booleans().map(lambda value: {"config.useGateway": value}),
    st.lists(TEXTS, min_size=1, max_size=2).map(lambda texts: {"tags": {"$all": texts}}),
    st.lists(TEXTS, max_size=3).map(lambda texts: {"tags": texts}),
)
FILTERS = st.recursive(
    SIMPLE,
    lambda inner: st.one_of(
        st.sampled_from(["$and", "$or", "$nor"]).flatmap(
            lambda name: st.lists(inner, min_size=1, max_size=3).map(lambda parts: {name: parts})
        ),
        st.tuples(inner, inner).map(lambda both: {**both[0], **both[1]}),
    ),
    max_leaves=6,
)

_FIELDS: dict[str, st.SearchStrategy[Json]] = {
    "id": TEXTS,
    "memory": NUMBERS,
    "regionId": TEXTS,
    "config.mode": TEXTS,
    "config.deep.er": NUMBERS,
    "nodes.nodeData.0.memory": NUMBERS,
    "nodes.nodeData.0.gpus.count": NUMBERS,
    "config": st.fixed_dictionaries({"mode": TEXTS}),
}
_SETS = st.one_of(
    [values.map(lambda value, path=path: {path: value}) for path, values in _FIELDS.items()]
)
_UNSETS = st.sampled_from(["regionId", "memory", "config.mode", "config", "nothing.here"]).map(
    lambda path: {path: ""}
)
_INCS = st.tuples(
    st.sampled_from(["memory", "nodes.count", "nodes.nodeData.0.memory", "made.anew"]), NUMBERS
).map(lambda both: {both[0]: both[1]})
_TAGS = st.one_of(TEXTS, st.lists(TEXTS, max_size=3).map(lambda texts: {"$each": texts}))
_PUSHES = st.one_of(
    _TAGS.map(lambda value: {"tags": value}),
    NODES.map(lambda node: {"nodes.nodeData": node}),
    st.lists(NODES, max_size=2).map(lambda nodes: {"nodes.nodeData": {"$each": nodes}}),
    TEXTS.map(lambda text: {"labels": text}),
)
_PULLS = st.one_of(
    TEXTS.map(lambda text: {"tags": text}),
    st.lists(TEXTS, max_size=2).map(lambda texts: {"tags": {"$in": texts}}),
    TEXTS.map(lambda text: {"nodes.nodeData": {"id": text}}),
    st.lists(TEXTS, max_size=2).map(lambda texts: {"nodes.nodeData": {"id": {"$in": texts}}}),
    NUMBERS.map(lambda number: {"nodes.nodeData": {"memory": {"$gte": number}}}),
    st.just({"nothing": 1}),
)
_UPDATES = {
    "$set": _SETS,
    "$unset": _UNSETS,
    "$inc": _INCS,
    "$push": _PUSHES,
    "$addToSet": st.lists(TEXTS, max_size=3, unique=True).map(
        lambda texts: {"tags": {"$each": texts}}
    ),
    "$pull": _PULLS,
}


def _has_separate_paths(update: dict[str, dict[str, Json]]) -> bool:
    """Return whether the update changes no path twice, nor a path and a part of the path."""
    paths = [path for fields in update.values() for path in fields]
    pairs = ((first, second) for first in paths for second in paths if first is not second)
    return len(set(paths)) == len(paths) and not any(
        f"{first}.".startswith(f"{second}.") for first, second in pairs
    )


UPDATES = st.dictionaries(
    st.sampled_from(sorted(_UPDATES)), st.just(None), min_size=1, max_size=3
).flatmap(
    lambda names: st.fixed_dictionaries({name: _UPDATES[name] for name in names}).filter(
        _has_separate_paths
    )
)
