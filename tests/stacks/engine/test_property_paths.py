"""Property paths, and the option that ignores changes along them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.stacks.engine.values import PathError, Secret, are_equal, parse, property_paths
from gpuform.stacks.engine.values.property_paths import covers, find_differences, ignore_changes

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
def test_paths(text, path):
    assert parse(text) == path


@pytest.mark.parametrize("text", ["a.", ".a", "a[", "a[0", "a[b]", 'a["b]', "a[]", "a[0]]x["])
def test_what_is_no_path(text):
    with pytest.raises(PathError, match="is not a property path"):
        parse(text)


def quoted(path):
    return "".join(
        f"[{part}]" if isinstance(part, int) else '["' + part.replace('"', r"\"") + '"]'
        for part in path
    )


@settings(deadline=None)
@given(st.lists(st.integers(0, 5) | st.text('ab.[]"* ', min_size=1, max_size=3), min_size=1))
def test_quoting_names_every_key(path):
    if path[0] == "*" or "*" in path:
        path = [part if part != "*" else "**" for part in path]
    assert parse(quoted(path)) == tuple(path)


@settings(deadline=None)
@given(maps)
def test_nothing_differs_from_itself(properties):
    assert list(find_differences(properties, properties)) == []
    assert ignore_changes(properties, properties, ["*"]) == (properties, [])


@pytest.mark.slow
@settings(deadline=None)
@given(maps, maps)
def test_ignoring_every_difference_at_the_top_leaves_none(olds, news):
    paths = [quoted(path[:1]) for path in find_differences(olds, news)]
    result, lost = ignore_changes(olds, news, paths)
    assert lost == []
    assert list(find_differences(olds, result)) == []


@settings(deadline=None)
@given(maps, maps, st.lists(st.sampled_from(["a", "b", "*", "a.b", "a[0]", "a[*]", "a[*].b"])))
def test_ignoring_only_ever_takes_old_values(olds, news, paths):
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
def test_what_a_pattern_covers(pattern, path, is_covered):
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
def test_an_old_value_stays_along_a_path(path, old, new, kept):
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
def test_a_path_that_leads_nowhere_changes_nothing(path, old, new):
    assert ignore_changes({"a": old}, {"a": new}, [path]) == ({"a": new}, [path])


def test_what_is_missing_at_the_top():
    assert ignore_changes({}, {"a": 1, "b": 1}, ["a"]) == ({"b": 1}, [])
    assert ignore_changes({"a": 1}, {"b": 1}, ["a"]) == ({"a": 1, "b": 1}, [])
    assert ignore_changes({}, {}, ["a"]) == ({}, [])


def test_text_that_is_no_path_is_passed_over():
    assert ignore_changes({"a": 1}, {"a": 2}, ["a[", "a"]) == ({"a": 1}, [])
    assert property_paths.get_root("a.b[0]") == "a"
    assert property_paths.get_root("a[") == "a["
    assert property_paths.list_roots(["a.b", "a.c", "b"]) == ["a", "b"]


def ignored(*paths):
    return f", opts=ResourceOptions(ignore_changes={list(paths)!r})"


def program(properties, options=""):
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
def test_what_is_ignored_stays_beside_what_changes(lab, before, after, path, kept):
    lab.up(program(f"{before}, size=1"))
    outcome = lab.up(
        program(
            after.replace("size=1", "").strip() + (", " if "tags" in after else "") + "size=2",
            ignored(path),
        )
    )
    assert outcome.changes == {"same": 1, "update": 1}
    assert lab.state("a").inputs["tags"] == kept
    assert lab.world["m-1"] == {"tags": kept, "size": 2.0}


def test_a_property_that_is_new_is_ignored_too(lab):
    lab.up(program("size=1"))
    assert lab.up(program("size=1, tags={'a': 1}", ignored("tags"))).changes == {"same": 2}
    assert "tags" not in lab.state("a").inputs
    assert lab.state("a").ignore_changes == ["tags"]


def test_a_path_that_leads_nowhere_is_told(lab):
    lab.up(program("tags=[1]"))
    lab.up(program("tags=[2, 2]", ignored("tags[0]", "tags[1]")))
    assert [t for t in lab.told("info") if "ignore_changes" in t] == [
        "ignore_changes: tags[1] does not exist and has no effect"
    ]
    assert lab.state("a").inputs["tags"] == [1.0, 2.0]


def test_a_new_resource_ignores_nothing(lab):
    lab.up(program("size=1", ignored("size")))
    assert lab.world == {"m-1": {"size": 1}}


def test_a_replacement_is_made_of_what_the_program_says(lab):
    """Ignoring is between an object and its past, and the new object has none."""
    lab.up(program("rack='x', size=1"))
    lab.up(program("rack='y', size=2", ignored("size")))
    assert lab.world == {"m-2": {"rack": "y", "size": 2}}


def test_a_change_that_would_replace_is_ignored(lab):
    lab.up(program("rack='x'"))
    assert lab.up(program("rack='y'", ignored("rack"))).changes == {"same": 2}
    assert lab.state("a").inputs["rack"] == "x"


def test_ignoring_ends_when_the_option_goes(lab):
    lab.up(program("size=1"))
    lab.up(program("size=2", ignored("size")))
    assert lab.up(program("size=2")).changes == {"same": 1, "update": 1}


def test_a_component_keeps_what_it_was_given(lab):
    component = (
        "ignoring = ResourceOptions(ignore_changes=['n'])\n"
        "pulumi.ComponentResource('lab:index:Group', 'g', dict(n={}), opts=ignoring)\n"
    )
    lab.up(component.format(1))
    outcome = lab.up(component.format(2))
    assert outcome.changes == {"same": 2}
    assert lab.state("g").inputs == {"n": 2.0}
