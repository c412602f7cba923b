"""Test aliases: resources found under an old name, type or parent, and the state afterwards."""

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


def build_program(*lines):
    return HEAD + "\n".join(lines)


def build_urn(name, *parents):
    return "urn:pulumi:dev::lab::" + "$".join([*parents, MACHINE]) + f"::{name}"


def read_saved_entries(lab):
    """Return the saved entries by URN, without providers."""
    resources = json.loads(lab.written[-1])["checkpoint"]["latest"]["resources"]
    return {entry["urn"]: entry for entry in resources if "providers" not in entry["urn"]}


@pytest.mark.parametrize(
    ("before", "after", "found_as"),
    [
        ("Machine('old')", "aliases=[Alias(name='old')]", "new"),
        ("Machine('old')", f"aliases=['{build_urn('old')}']", "new"),
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
def test_a_resource_found_by_an_alias_is_not_recreated(lab, before, after, found_as):
    lab.up(build_program(before))
    program = build_program("g = group('g')", f"Machine('new', opts=ResourceOptions({after}))")
    preview = lab.preview(program)
    outcome = lab.up(program)
    assert outcome.succeeded
    assert lab.steps == [("same", "new")]
    assert preview.changes == outcome.changes
    assert outcome.changes.get("delete", 0) == 0
    assert lab.platform_objects == {"m-1": {}}
    entry = read_saved_entries(lab)[build_urn(found_as)]
    assert entry["id"] == "m-1"
    assert entry["parent"] == STACK
    assert "aliases" not in entry
    # Without the alias it is itself from now on.
    assert lab.up(build_program("g = group('g')", "Machine('new')")).changes == {"same": 3}


@pytest.mark.parametrize(
    ("alias", "refusal"),
    [
        ("'old'", "invalid alias URN: 'old'"),
        ("'urn:pulumi:dev::lab::old'", "invalid alias URN: 'urn:pulumi:dev::lab::old'"),
        ("Alias(parent='g')", "invalid parent alias URN: 'g'"),
    ],
)
def test_an_invalid_alias_is_an_error_and_deletes_nothing(lab, alias, refusal):
    lab.up("Machine('old')")
    program = build_program(f"Machine('new', opts=ResourceOptions(aliases=[{alias}]))")
    for run in (lab.preview, lab.up):
        outcome = run(program)
        assert not outcome.succeeded
        assert any(f"resource 'new': {refusal}" in error for error in lab.errors)
        assert lab.platform_objects == {"m-1": {}}
        assert read_saved_entries(lab)[build_urn("old")]["id"] == "m-1"


def test_a_resource_moves_into_a_component_by_an_alias_of_its_parent(lab):
    lab.up("Machine('a')")
    for alias in ("Alias(parent=None)", "Alias(parent=ROOT_STACK_RESOURCE)"):
        outcome = lab.up(
            build_program(
                "g = group('g')", f"Machine('a', opts=ResourceOptions(parent=g, aliases=[{alias}]))"
            )
        )
        assert outcome.succeeded
        assert lab.steps == [("same", "a")]
    assert [*read_saved_entries(lab)] == [
        STACK,
        f"urn:pulumi:dev::lab::{GROUP}::g",
        build_urn("a", GROUP),
    ]


def test_children_of_a_component_with_a_type_alias_are_not_recreated(lab):
    lab.up(build_program("g = group('g')", "Machine('a', opts=ResourceOptions(parent=g))"))
    outcome = lab.up(
        build_program(
            "was = [Alias(type_='lab:index:Group')]",
            "g = Component('lab:index:Team', 'g', opts=ResourceOptions(aliases=was))",
            "Machine('a', opts=ResourceOptions(parent=g))",
        )
    )
    assert outcome.changes == {"same": 3}
    assert [*read_saved_entries(lab)][1:] == [
        "urn:pulumi:dev::lab::lab:index:Team::g",
        build_urn("a", "lab:index:Team"),
    ]


def test_children_whose_names_contain_a_renamed_parents_name_are_not_recreated(lab):
    program = (
        "g = group('{0}'{1})",
        "inner = Component('lab:index:Inner', '{0}-inner', opts=ResourceOptions(parent=g))",
        "Machine('{0}-inner-a', opts=ResourceOptions(parent=inner))",
        "Machine('b', opts=ResourceOptions(parent=inner))",
    )
    lab.up(build_program(*program).format("old", ""))
    before = sorted(lab.platform_objects)
    outcome = lab.up(build_program(*program).format("new", ", aliases=[Alias(name='old')]"))
    assert outcome.changes == {"same": 5}
    assert sorted(lab.platform_objects) == before
    inner = f"{GROUP}$lab:index:Inner"
    assert [*read_saved_entries(lab)][1:] == [
        f"urn:pulumi:dev::lab::{GROUP}::new",
        f"urn:pulumi:dev::lab::{inner}::new-inner",
        *sorted(
            [build_urn("new-inner-a", inner), build_urn("b", inner)],
            key=[*read_saved_entries(lab)].index,
        ),
    ]


def test_aliases_of_a_child_and_of_its_parent_are_combined(lab):
    lab.up(build_program("g = group('old')", "Machine('a', opts=ResourceOptions(parent=g))"))
    outcome = lab.up(
        build_program(
            "g = group('new', aliases=[Alias(name='old')])",
            "Machine('b', opts=ResourceOptions(parent=g, aliases=[Alias(name='a')]))",
        )
    )
    assert outcome.changes == {"same": 3}


def test_an_alias_without_a_match_has_no_effect(lab):
    outcome = lab.up(
        build_program("Machine('a', opts=ResourceOptions(aliases=[Alias(name='never')]))")
    )
    assert outcome.changes == {"create": 2}
    lab.up("Machine('a')")
    assert lab.steps == [("same", "a")]


def test_the_current_urn_wins_over_an_alias(lab):
    lab.up("Machine('a')\nMachine('b')")
    outcome = lab.up(build_program("Machine('a', opts=ResourceOptions(aliases=[Alias(name='b')]))"))
    assert outcome.changes == {"same": 2, "delete": 1}
    assert sorted(lab.steps) == [("delete", "b"), ("same", "a")]


def test_two_resources_with_an_alias_of_the_same_entry_are_an_error(lab):
    lab.up("Machine('a')")
    outcome = lab.up(
        build_program(
            "Machine('b', opts=ResourceOptions(aliases=[Alias(name='a')]))",
            "Machine('c', opts=ResourceOptions(aliases=[Alias(name='a')]))",
        )
    )
    assert not outcome.succeeded
    assert len(lab.errors) == 1


def test_a_renamed_resource_is_updated_in_the_same_run(lab):
    lab.up("Machine('a', size=1)")
    outcome = lab.up(
        build_program("Machine('b', size=2, opts=ResourceOptions(aliases=[Alias(name='a')]))")
    )
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
def test_a_renamed_resource_is_replaced_in_the_same_run(lab, field, steps):
    lab.up(f"Machine('a', {field}='x')")
    outcome = lab.up(
        build_program(f"Machine('b', {field}='y', opts=ResourceOptions(aliases=[Alias(name='a')]))")
    )
    assert lab.steps == steps
    assert outcome.changes == {"same": 1, "replace": 1}
    assert sorted(lab.platform_objects) == ["m-2"]
    assert lab.names == ["b"]


def test_the_old_object_of_a_renamed_and_replaced_resource_is_deleted_later(lab):
    lab.up("Machine('a', rack='x', refuse='delete')")
    alias = "opts=ResourceOptions(aliases=[Alias(name='a')])"
    lab.up(build_program(f"Machine('b', rack='y', refuse='delete', {alias})"))
    assert sorted((e.urn.rsplit("::", 1)[1], e.delete) for e in lab.snapshot.resources[2:]) in (
        [("a", True), ("b", False)],
        [("b", False), ("b", True)],
    )
    (old,) = [e for e in lab.snapshot.resources if e.delete]
    old.outputs["refuse"] = ""
    outcome = lab.up(build_program(f"Machine('b', rack='y', refuse='delete', {alias})"))
    assert outcome.changes == {"same": 2}
    assert [c["id"] for c in lab.calls if c["verb"] == "delete"] == ["m-1"]
    assert lab.names == ["b"]


def test_a_replacement_of_a_renamed_resource_is_completed_after_a_failed_create(lab):
    lab.up("Machine('a', slot='x')")
    program = "Machine('b', slot='y'{}, opts=ResourceOptions(aliases=[Alias(name='a')]))"
    lab.up(build_program(program.format(", refuse='create'")))
    assert lab.platform_objects == {}
    outcome = lab.up(build_program(program.format("")))
    assert outcome.changes == {"same": 1, "replace": 1}
    assert [c["verb"] for c in lab.calls].count("delete") == 0
    assert lab.names == ["b"]


def test_references_to_a_renamed_resource_are_updated(lab):
    """References of resources that the run does not reach are updated too."""
    lab.up("a = Machine('a')\nMachine('z', uses=a.address, opts=ResourceOptions(deleted_with=a))")
    lab.up(
        build_program(
            "b = Machine('b', opts=ResourceOptions(aliases=[Alias(name='a')]))",
            "Machine('never', refuse='create')",
            "late = Machine('late', refuse='create')",
            "after = ResourceOptions(deleted_with=b, depends_on=[late])",
            "Machine('z', uses=b.address, opts=after)",
        )
    )
    z = read_saved_entries(lab)[build_urn("z")]
    assert z["dependencies"] == [build_urn("b")]
    assert z["propertyDependencies"]["uses"] == [build_urn("b")]
    assert z["deletedWith"] == build_urn("b")


def test_a_renamed_resource_whose_update_fails_keeps_its_old_name(lab):
    lab.up("Machine('a', size=1)")
    lab.up(build_program("Machine('b', size=-1, opts=ResourceOptions(aliases=[Alias(name='a')]))"))
    assert lab.names == ["a"]
    lab.up(
        build_program(
            "Machine('b', size=2, refuse='update', opts=ResourceOptions(aliases=[Alias(name='a')]))"
        )
    )
    assert lab.names == ["a"]
    lab.up(build_program("Machine('b', size=2, opts=ResourceOptions(aliases=[Alias(name='a')]))"))
    assert lab.names == ["b"]


def test_an_untargeted_renamed_resource_is_renamed_by_a_later_run(lab):
    lab.up("Machine('a')\nMachine('t', size=1)")
    program = build_program(
        "Machine('b', size=2, opts=ResourceOptions(aliases=[Alias(name='a')]))",
        "Machine('t', size=2)",
    )
    outcome = lab.up(program, selection=Selection(targets=UrnPatterns(["t"])))
    assert outcome.changes == {"same": 2, "update": 1}
    assert sorted(lab.names) == ["a", "t"]
    assert lab.up(program).changes == {"same": 2, "update": 1}
    assert sorted(lab.names) == ["b", "t"]


def test_a_read_resource_is_found_below_a_renamed_parent(lab):
    lab.up("Machine('own', opts=ResourceOptions(retain_on_delete=True))")
    own = "Machine('own', opts=ResourceOptions(retain_on_delete=True))"
    lab.up(
        build_program(
            own, "g = group('old')", "Machine('r', opts=ResourceOptions(id='m-1', parent=g))"
        )
    )
    outcome = lab.up(
        build_program(
            own,
            "g = group('new', aliases=[Alias(name='old')])",
            "Machine('r', opts=ResourceOptions(id='m-1', parent=g))",
        )
    )
    assert outcome.changes == {"same": 3}
    assert lab.names == ["own", "r"]
