"""Resources that are found under another name, type or parent, and the state afterwards."""

import json

import pytest

from gpuform.stacks.engine.state import Selection, UrnPatterns

STACK = "urn:pulumi:dev::lab::pulumi:pulumi:Stack::lab-dev"
MACHINE = "pulumi-python:dynamic/lab:Machine"
GROUP = "lab:index:Group"

HEAD = """
from pulumi import Alias, ComponentResource as Component, ROOT_STACK_RESOURCE


def group(name, **options):
    return Component('lab:index:Group', name, opts=ResourceOptions(**options))


"""


def text(*lines):
    return HEAD + "\n".join(lines)


def urn(name, *parents):
    return "urn:pulumi:dev::lab::" + "$".join([*parents, MACHINE]) + f"::{name}"


def entries(lab):
    """As they are on disk."""
    resources = json.loads(lab.written[-1])["checkpoint"]["latest"]["resources"]
    return {entry["urn"]: entry for entry in resources if "providers" not in entry["urn"]}


@pytest.mark.parametrize(
    ("before", "after", "found_as"),
    [
        ("Machine('old')", "aliases=[Alias(name='old')]", "new"),
        ("Machine('old')", f"aliases=['{urn('old')}']", "new"),
        (
            "Machine('new', opts=ResourceOptions(parent=group('g')))",
            "aliases=[Alias(parent=g)]",
            "new",
        ),
        (
            "Machine('old', opts=ResourceOptions(parent=group('g')))",
            "aliases=[Alias(name='old', parent=g)]",
            "new",
        ),
        (
            "Machine('new', opts=ResourceOptions(parent=group('g')))",
            f"aliases=[Alias(parent='urn:pulumi:dev::lab::{GROUP}::g')]",
            "new",
        ),
        ("Machine('old')", "aliases=[Alias(name='none'), Alias(name='old')]", "new"),
    ],
)
def test_what_is_found_by_an_alias_stays(lab, before, after, found_as):
    lab.up(text(before))
    program = text("g = group('g')", f"Machine('new', opts=ResourceOptions({after}))")
    preview = lab.preview(program)
    outcome = lab.up(program)
    assert outcome.succeeded
    assert lab.steps == [("same", "new")]
    assert preview.changes == outcome.changes
    assert outcome.changes.get("delete", 0) == 0
    assert lab.world == {"m-1": {}}
    entry = entries(lab)[urn(found_as)]
    assert entry["id"] == "m-1"
    assert entry["parent"] == STACK
    assert "aliases" not in entry
    # Without the alias it is itself from now on.
    assert lab.up(text("g = group('g')", "Machine('new')")).changes == {"same": 3}


@pytest.mark.parametrize(
    ("alias", "refusal"),
    [
        ("'old'", "invalid alias URN: 'old'"),
        ("'urn:pulumi:dev::lab::old'", "invalid alias URN: 'urn:pulumi:dev::lab::old'"),
        ("Alias(parent='g')", "invalid parent alias URN: 'g'"),
    ],
)
def test_an_alias_that_is_no_urn_is_refused_and_the_old_resource_stays(lab, alias, refusal):
    lab.up("Machine('old')")
    program = text(f"Machine('new', opts=ResourceOptions(aliases=[{alias}]))")
    for run in (lab.preview, lab.up):
        outcome = run(program)
        assert not outcome.succeeded
        assert any(f"resource 'new': {refusal}" in error for error in lab.errors)
        assert lab.world == {"m-1": {}}
        assert entries(lab)[urn("old")]["id"] == "m-1"


def test_what_moves_into_a_component(lab):
    lab.up("Machine('a')")
    for alias in ("Alias(parent=None)", "Alias(parent=ROOT_STACK_RESOURCE)"):
        outcome = lab.up(
            text(
                "g = group('g')", f"Machine('a', opts=ResourceOptions(parent=g, aliases=[{alias}]))"
            )
        )
        assert outcome.succeeded
        assert lab.steps == [("same", "a")]
    assert [*entries(lab)] == [STACK, f"urn:pulumi:dev::lab::{GROUP}::g", urn("a", GROUP)]


def test_another_type_of_component_keeps_its_children(lab):
    lab.up(text("g = group('g')", "Machine('a', opts=ResourceOptions(parent=g))"))
    outcome = lab.up(
        text(
            "was = [Alias(type_='lab:index:Group')]",
            "g = Component('lab:index:Team', 'g', opts=ResourceOptions(aliases=was))",
            "Machine('a', opts=ResourceOptions(parent=g))",
        )
    )
    assert outcome.changes == {"same": 3}
    assert [*entries(lab)][1:] == [
        "urn:pulumi:dev::lab::lab:index:Team::g",
        urn("a", "lab:index:Team"),
    ]


def test_children_are_found_through_a_renamed_component_with_its_name_in_theirs(lab):
    program = (
        "g = group('{0}'{1})",
        "inner = Component('lab:index:Inner', '{0}-inner', opts=ResourceOptions(parent=g))",
        "Machine('{0}-inner-a', opts=ResourceOptions(parent=inner))",
        "Machine('b', opts=ResourceOptions(parent=inner))",
    )
    lab.up(text(*program).format("old", ""))
    before = sorted(lab.world)
    outcome = lab.up(text(*program).format("new", ", aliases=[Alias(name='old')]"))
    assert outcome.changes == {"same": 5}
    assert sorted(lab.world) == before
    inner = f"{GROUP}$lab:index:Inner"
    assert [*entries(lab)][1:] == [
        f"urn:pulumi:dev::lab::{GROUP}::new",
        f"urn:pulumi:dev::lab::{inner}::new-inner",
        *sorted([urn("new-inner-a", inner), urn("b", inner)], key=[*entries(lab)].index),
    ]


def test_a_child_is_found_by_its_own_alias_within_its_parents(lab):
    lab.up(text("g = group('old')", "Machine('a', opts=ResourceOptions(parent=g))"))
    outcome = lab.up(
        text(
            "g = group('new', aliases=[Alias(name='old')])",
            "Machine('b', opts=ResourceOptions(parent=g, aliases=[Alias(name='a')]))",
        )
    )
    assert outcome.changes == {"same": 3}


def test_an_alias_that_finds_nothing_is_of_no_account(lab):
    outcome = lab.up(text("Machine('a', opts=ResourceOptions(aliases=[Alias(name='never')]))"))
    assert outcome.changes == {"create": 2}
    lab.up("Machine('a')")
    assert lab.steps == [("same", "a")]


def test_the_name_of_today_comes_before_an_alias(lab):
    lab.up("Machine('a')\nMachine('b')")
    outcome = lab.up(text("Machine('a', opts=ResourceOptions(aliases=[Alias(name='b')]))"))
    assert outcome.changes == {"same": 2, "delete": 1}
    assert sorted(lab.steps) == [("delete", "b"), ("same", "a")]


def test_two_that_claim_one_are_refused(lab):
    lab.up("Machine('a')")
    outcome = lab.up(
        text(
            "Machine('b', opts=ResourceOptions(aliases=[Alias(name='a')]))",
            "Machine('c', opts=ResourceOptions(aliases=[Alias(name='a')]))",
        )
    )
    assert not outcome.succeeded
    assert len(lab.errors) == 1


def test_an_alias_and_a_change_in_one_run(lab):
    lab.up("Machine('a', size=1)")
    outcome = lab.up(text("Machine('b', size=2, opts=ResourceOptions(aliases=[Alias(name='a')]))"))
    assert lab.steps == [("update", "b")]
    assert outcome.changes == {"same": 1, "update": 1}
    assert lab.state("b").id == "m-1"


@pytest.mark.parametrize(
    ("field", "steps"),
    [
        ("rack", [("create-replacement", "b"), ("replace", "b"), ("delete-replaced", "a")]),
        ("slot", [("delete-replaced", "a"), ("replace", "b"), ("create-replacement", "b")]),
    ],
)
def test_an_alias_and_a_replacement_in_one_run(lab, field, steps):
    lab.up(f"Machine('a', {field}='x')")
    outcome = lab.up(
        text(f"Machine('b', {field}='y', opts=ResourceOptions(aliases=[Alias(name='a')]))")
    )
    assert lab.steps == steps
    assert outcome.changes == {"same": 1, "replace": 1}
    assert sorted(lab.world) == ["m-2"]
    assert lab.names == ["b"]


def test_an_object_that_waits_for_its_deletion_under_its_old_name(lab):
    lab.up("Machine('a', rack='x', refuse='delete')")
    alias = "opts=ResourceOptions(aliases=[Alias(name='a')])"
    lab.up(text(f"Machine('b', rack='y', refuse='delete', {alias})"))
    assert sorted((e.urn.rsplit("::", 1)[1], e.delete) for e in lab.snapshot.resources[2:]) in (
        [("a", True), ("b", False)],
        [("b", False), ("b", True)],
    )
    (old,) = [e for e in lab.snapshot.resources if e.delete]
    old.outputs["refuse"] = ""
    outcome = lab.up(text(f"Machine('b', rack='y', refuse='delete', {alias})"))
    assert outcome.changes == {"same": 2}
    assert [c["id"] for c in lab.calls if c["verb"] == "delete"] == ["m-1"]
    assert lab.names == ["b"]


def test_a_failed_create_after_a_deletion_is_found_by_the_alias_again(lab):
    lab.up("Machine('a', slot='x')")
    program = "Machine('b', slot='y'{}, opts=ResourceOptions(aliases=[Alias(name='a')]))"
    lab.up(text(program.format(", refuse='create'")))
    assert lab.world == {}
    outcome = lab.up(text(program.format("")))
    assert outcome.changes == {"same": 1, "replace": 1}
    assert [c["verb"] for c in lab.calls].count("delete") == 0
    assert lab.names == ["b"]


def test_references_follow_what_is_renamed(lab):
    """Also those of resources that this run does not come to."""
    lab.up("a = Machine('a')\nMachine('z', uses=a.address, opts=ResourceOptions(deleted_with=a))")
    lab.up(
        text(
            "b = Machine('b', opts=ResourceOptions(aliases=[Alias(name='a')]))",
            "Machine('never', refuse='create')",
            "late = Machine('late', refuse='create')",
            "after = ResourceOptions(deleted_with=b, depends_on=[late])",
            "Machine('z', uses=b.address, opts=after)",
        )
    )
    z = entries(lab)[urn("z")]
    assert z["dependencies"] == [urn("b")]
    assert z["propertyDependencies"]["uses"] == [urn("b")]
    assert z["deletedWith"] == urn("b")


def test_what_fails_before_it_is_done_keeps_its_old_name(lab):
    lab.up("Machine('a', size=1)")
    lab.up(text("Machine('b', size=-1, opts=ResourceOptions(aliases=[Alias(name='a')]))"))
    assert lab.names == ["a"]
    lab.up(
        text(
            "Machine('b', size=2, refuse='update', opts=ResourceOptions(aliases=[Alias(name='a')]))"
        )
    )
    assert lab.names == ["a"]
    lab.up(text("Machine('b', size=2, opts=ResourceOptions(aliases=[Alias(name='a')]))"))
    assert lab.names == ["b"]


def test_what_is_left_out_by_the_targets_is_found_later(lab):
    lab.up("Machine('a')\nMachine('t', size=1)")
    program = text(
        "Machine('b', size=2, opts=ResourceOptions(aliases=[Alias(name='a')]))",
        "Machine('t', size=2)",
    )
    outcome = lab.up(program, selection=Selection(targets=UrnPatterns(["t"])))
    assert outcome.changes == {"same": 2, "update": 1}
    assert sorted(lab.names) == ["a", "t"]
    assert lab.up(program).changes == {"same": 2, "update": 1}
    assert sorted(lab.names) == ["b", "t"]


def test_a_read_is_found_under_another_parent(lab):
    lab.up("Machine('own', opts=ResourceOptions(retain_on_delete=True))")
    own = "Machine('own', opts=ResourceOptions(retain_on_delete=True))"
    lab.up(text(own, "g = group('old')", "Machine('r', opts=ResourceOptions(id='m-1', parent=g))"))
    outcome = lab.up(
        text(
            own,
            "g = group('new', aliases=[Alias(name='old')])",
            "Machine('r', opts=ResourceOptions(id='m-1', parent=g))",
        )
    )
    assert outcome.changes == {"same": 3}
    assert lab.names == ["own", "r"]
