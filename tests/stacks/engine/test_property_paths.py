"""Test property paths and the ignore_changes option."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.providers.values import Secret, are_equal
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.property_paths import (
    PathError,
    covers,
    find_differences,
    ignore_changes,
    parse,
)

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
keys = st.text('ab.["]* ', min_size=1, max_size=3)
nested = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3) | inner.map(Secret)
    ),
    max_leaves=8,
)
maps = st.dictionaries(keys, nested, max_size=3)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ("a",)),
        ("a.b.c", ("a", "b", "c")),
        ("a[0].b", ("a", 0, "b")),
        ("a[*]", ("a", "*")),
        ("a.*", ("a", "*")),
        ("*", ("*",)),
        ('a["b c"]', ("a", "b c")),
        ('a["b.c"].d', ("a", "b.c", "d")),
        ('["a"]', ("a",)),
        (r'a["say \"b\""]', ("a", 'say "b"')),
        ("a-b_c", ("a-b_c",)),
    ],
)
def test_property_paths_are_parsed(text, path):
    assert parse(text) == path


@pytest.mark.parametrize("text", ["a.", ".a", "a[", "a[0", "a[b]", 'a["b]', "a[]", "a[0]]x["])
def test_invalid_property_paths_are_rejected(text):
    with pytest.raises(PathError, match="is not a property path"):
        parse(text)


def quote_path(path):
    return "".join(
        f"[{part}]" if isinstance(part, int) else '["' + part.replace('"', r"\"") + '"]'
        for part in path
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 5) | st.text('ab.[]"* ', min_size=1, max_size=3), min_size=1))
def test_any_key_can_be_quoted_in_a_path(path):
    if path[0] == "*" or "*" in path:
        path = [part if part != "*" else "**" for part in path]
    assert parse(quote_path(path)) == tuple(path)


@settings(deadline=None)
@given(maps)
def test_equal_properties_have_no_differences(properties):
    assert list(find_differences(properties, properties)) == []
    assert ignore_changes(properties, properties, ["*"]) == (properties, [])


@pytest.mark.slow
@settings(deadline=None)
@given(maps, maps)
def test_ignoring_all_top_level_differences_leaves_none(olds, news):
    paths = [quote_path(path[:1]) for path in find_differences(olds, news)]
    result, lost = ignore_changes(olds, news, paths)
    assert lost == []
    assert list(find_differences(olds, result)) == []


@settings(deadline=None)
@given(maps, maps, st.lists(st.sampled_from(["a", "b", "*", "a.b", "a[0]", "a[*]", "a[*].b"])))
def test_ignored_properties_only_take_old_values(olds, news, paths):
    given_news = dict(news)
    result, lost = ignore_changes(olds, news, paths)
    assert are_equal(news, given_news)
    assert set(lost) <= set(paths)
    patterns = [parse(path) for path in paths]
    for path in find_differences(news, result):
        assert any(
            covers(pattern, path) or covers(path, pattern) or covers(pattern[: len(path)], path)
            for pattern in patterns
        )


@pytest.mark.parametrize(
    ("pattern", "path", "is_covered"),
    [
        ("a", "a", True),
        ("a", "a.b[0]", True),
        ("a.b", "a", False),
        ("*", "a.b", True),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a.b.d", False),
        ("a[*]", "a[3].x", True),
        ("b", "a", False),
    ],
)
def test_patterns_match_paths(pattern, path, is_covered):
    assert covers(parse(pattern), parse(path)) is is_covered


@pytest.mark.parametrize(
    ("path", "old", "new", "kept"),
    [
        ("a", 1, 2, 1),
        ("a.b", {"b": 1, "c": 1}, {"b": 2, "c": 2}, {"b": 1, "c": 2}),
        ("a[0]", [1, 1], [2, 2], [1, 2]),
        ("a[1].b", [{}, {"b": 1}], [{"b": 5}, {"b": 2}], [{"b": 5}, {"b": 1}]),
        (
            "a[*].b",
            [{"b": 1}, {"b": 1}],
            [{"b": 2, "c": 2}, {"b": 3}],
            [{"b": 1, "c": 2}, {"b": 1}],
        ),
        ("a.*", {"b": 1, "c": 1}, {"b": 2, "d": 2}, {"b": 1, "c": 1}),
        ("a.*.x", {"b": {"x": 1}}, {"b": {"x": 2, "y": 2}}, {"b": {"x": 1, "y": 2}}),
        ("a.b", {}, {"b": 2, "c": 2}, {"c": 2}),
        ("a.b", {"b": 1}, {"c": 2}, {"b": 1, "c": 2}),
        ("a.b.c", {}, {}, {}),
        ("a.b", Secret({"b": 1}), {"b": 2}, {"b": Secret(1)}),
        ("a.b", {"b": 1}, Secret({"b": 2, "c": 2}), Secret({"b": 1, "c": 2})),
        ("a", Secret(1), 2, Secret(1)),
    ],
)
def test_the_old_value_is_kept_at_an_ignored_path(path, old, new, kept):
    assert ignore_changes({"a": old}, {"a": new}, [path]) == ({"a": kept}, [])


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("a[2]", [1, 1, 1], [2, 2]),
        ("a[0]", [], [2]),
        ("a[*]", [1], [2, 2]),
        ("a.b.c", {"b": {"c": 1}}, {}),
        ("a.b.c", {"b": {"c": 1}}, {"b": 2}),
        ("a[0].b", [{"b": 1}], {"b": 2}),
        ("a[*].b", [{"b": 1}], [{"b": 2}, {"b": 2}]),
    ],
)
def test_an_ignored_path_without_a_match_changes_nothing(path, old, new):
    assert ignore_changes({"a": old}, {"a": new}, [path]) == ({"a": new}, [path])


def test_missing_top_level_properties_can_be_ignored():
    assert ignore_changes({}, {"a": 1, "b": 1}, ["a"]) == ({"b": 1}, [])
    assert ignore_changes({"a": 1}, {"b": 1}, ["a"]) == ({"a": 1, "b": 1}, [])
    assert ignore_changes({}, {}, ["a"]) == ({}, [])


def test_an_invalid_ignored_path_is_skipped():
    assert ignore_changes({"a": 1}, {"a": 2}, ["a[", "a"]) == ({"a": 1}, [])
    assert property_paths.get_root("a.b[0]") == "a"
    assert property_paths.get_root("a[") == "a["
    assert property_paths.list_roots(["a.b", "a.c", "b"]) == ["a", "b"]


def ignored(*paths):
    return f", opts=ResourceOptions(ignore_changes={list(paths)!r})"


def build_program(properties, options=""):
    return f"Machine('a', {properties}{options})"


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("before", "after", "path", "kept"),
    [
        ("tags={'a': 1, 'b': 1}", "tags={'a': 2, 'b': 2}", "tags.a", {"a": 1.0, "b": 2.0}),
        ("tags=[1, 1]", "tags=[2, 2]", "tags[0]", [1.0, 2.0]),
        ("tags={'a': 1}", "size=1", "tags", {"a": 1.0}),
    ],
)
def test_ignored_properties_are_kept_while_others_are_updated(lab, before, after, path, kept):
    lab.up(build_program(f"{before}, size=1"))
    outcome = lab.up(
        build_program(
            after.replace("size=1", "").strip() + (", " if "tags" in after else "") + "size=2",
            ignored(path),
        )
    )
    assert outcome.changes == {"same": 1, "update": 1}
    assert lab.state("a").inputs["tags"] == kept
    assert lab.platform_objects["m-1"] == {"tags": kept, "size": 2.0}


def test_a_new_property_can_be_ignored(lab):
    lab.up(build_program("size=1"))
    assert lab.up(build_program("size=1, tags={'a': 1}", ignored("tags"))).changes == {"same": 2}
    assert "tags" not in lab.state("a").inputs
    assert lab.state("a").ignore_changes == ["tags"]


def test_an_ignored_path_without_a_match_is_reported(lab):
    lab.up(build_program("tags=[1]"))
    lab.up(build_program("tags=[2, 2]", ignored("tags[0]", "tags[1]")))
    assert [t for t in lab.list_messages("info") if "ignore_changes" in t] == [
        "ignore_changes: tags[1] does not exist and has no effect"
    ]
    assert lab.state("a").inputs["tags"] == [1.0, 2.0]


def test_a_new_resource_ignores_nothing(lab):
    lab.up(build_program("size=1", ignored("size")))
    assert lab.platform_objects == {"m-1": {"size": 1}}


def test_ignore_changes_does_not_apply_to_a_replacement(lab):
    """The new object of a replacement has no old values to keep."""
    lab.up(build_program("rack='x', size=1"))
    lab.up(build_program("rack='y', size=2", ignored("size")))
    assert lab.platform_objects == {"m-2": {"rack": "y", "size": 2}}


def test_an_ignored_change_forces_no_replacement(lab):
    lab.up(build_program("rack='x'"))
    assert lab.up(build_program("rack='y'", ignored("rack"))).changes == {"same": 2}
    assert lab.state("a").inputs["rack"] == "x"


def test_removing_ignore_changes_applies_the_change(lab):
    lab.up(build_program("size=1"))
    lab.up(build_program("size=2", ignored("size")))
    assert lab.up(build_program("size=2")).changes == {"same": 1, "update": 1}


def test_a_component_keeps_its_ignored_inputs(lab):
    component = (
        "ignoring = ResourceOptions(ignore_changes=['n'])\n"
        "pulumi.ComponentResource('lab:index:Group', 'g', dict(n={}), opts=ignoring)\n"
    )
    lab.up(component.format(1))
    outcome = lab.up(component.format(2))
    assert outcome.changes == {"same": 2}
    assert lab.state("g").inputs == {"n": 2.0}
