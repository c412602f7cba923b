"""Test deleted_with, replace_with, replacement_trigger and replace_on_changes."""

import pytest

from gpuform.schemas.plan import PlanReason

WITH = "a = Machine('a', {})\nMachine('b', uses='own', opts=ResourceOptions({}=a))\n"


def list_deleted_ids(lab):
    return [call["id"] for call in lab.calls if call["verb"] == "delete"]


def test_deleted_with_skips_the_delete_call_when_both_are_deleted(lab):
    lab.up(WITH.format("size=1", "deleted_with"))
    assert lab.state("b").deleted_with == lab.state("a").urn
    outcome = lab.up("")
    assert outcome.changes == {"same": 1, "delete": 2}
    assert list_deleted_ids(lab) == ["m-1"]
    assert lab.names == []


def test_a_chain_of_deleted_with_needs_only_the_first_delete_call(lab):
    lab.up(
        "a = Machine('a')\n"
        "b = Machine('b', opts=ResourceOptions(deleted_with=a))\n"
        "Machine('c', opts=ResourceOptions(deleted_with=b))\n"
    )
    outcome = lab.run("destroy")
    assert outcome.changes == {"delete": 4}
    assert list_deleted_ids(lab) == ["m-1"]
    assert lab.snapshot.resources == []


def test_deleted_with_calls_delete_when_the_other_resource_stays(lab):
    lab.up(WITH.format("size=1", "deleted_with"))
    lab.up("Machine('a', size=1)")
    assert list_deleted_ids(lab) == ["m-2"]


def test_a_resource_stays_when_its_deleted_with_resource_is_deleted(lab):
    lab.up(WITH.format("size=1", "deleted_with"))
    outcome = lab.up("Machine('b', uses='own')")
    assert outcome.changes == {"same": 2, "delete": 1}
    assert list_deleted_ids(lab) == ["m-1"]
    assert lab.state("b").deleted_with == ""


def test_children_inherit_deleted_with_from_their_component(lab):
    lab.up(
        "a = Machine('a')\n"
        "with_a = ResourceOptions(deleted_with=a)\n"
        "g = pulumi.ComponentResource('lab:index:Group', 'g', opts=with_a)\n"
        "Machine('b', opts=ResourceOptions(parent=g))\n"
    )
    assert lab.state("b").deleted_with == lab.state("a").urn
    lab.run("destroy")
    assert list_deleted_ids(lab) == ["m-1"]


@pytest.mark.parametrize("field", ["rack", "slot"])
def test_a_resource_is_replaced_with_its_deleted_with_resource(lab, field):
    lab.up(WITH.format(f"{field}='x'", "deleted_with"))
    preview = lab.preview(WITH.format(f"{field}='y'", "deleted_with"))
    assert preview.changes == {"same": 1, "replace": 2}
    (change,) = [c for c in preview.planned if c.name == "b"]
    assert change.reason is PlanReason.DEPENDENCY_REPLACED
    outcome = lab.up(WITH.format(f"{field}='y'", "deleted_with"))
    assert outcome.changes == {"same": 1, "replace": 2}
    assert list_deleted_ids(lab) == ["m-1"]
    falls = field == "slot"
    assert (lab.steps[0] == ("delete-replaced", "b")) is falls
    assert len(lab.names) == 2


def test_an_update_of_the_deleted_with_resource_has_no_effect(lab):
    lab.up(WITH.format("size=1", "deleted_with"))
    outcome = lab.up(WITH.format("size=2", "deleted_with"))
    assert outcome.changes == {"same": 2, "update": 1}


@pytest.mark.parametrize("field", ["rack", "slot"])
def test_replace_with_replaces_both_resources(lab, field):
    program = WITH.replace("opts=ResourceOptions({}=a)", "opts=ResourceOptions({}=[a])")
    lab.up(program.format(f"{field}='x'", "replace_with"))
    assert lab.state("b").replace_with == [lab.state("a").urn]
    outcome = lab.up(program.format(f"{field}='y'", "replace_with"))
    assert outcome.changes == {"same": 1, "replace": 2}
    if field == "slot":
        assert lab.steps[:2] == [("delete-replaced", "b"), ("delete-replaced", "a")]
    else:
        assert lab.steps[:4] == [
            ("create-replacement", "a"),
            ("replace", "a"),
            ("create-replacement", "b"),
            ("replace", "b"),
        ]
    assert sorted(list_deleted_ids(lab)) == ["m-1", "m-2"]


def test_an_update_of_the_replace_with_resource_has_no_effect(lab):
    program = WITH.replace("opts=ResourceOptions({}=a)", "opts=ResourceOptions({}=[a])")
    lab.up(program.format("size=1", "replace_with"))
    assert lab.up(program.format("size=2", "replace_with")).changes == {"same": 2, "update": 1}
    assert lab.up(WITH.format("size=2", "depends_on")).changes == {"same": 3}
    assert lab.state("b").replace_with == []


def test_replace_with_is_transitive(lab):
    program = (
        "a = Machine('a', rack={!r})\n"
        "b = Machine('b', opts=ResourceOptions(replace_with=[a]))\n"
        "Machine('c', opts=ResourceOptions(replace_with=[b]))\n"
    )
    lab.up(program.format("x"))
    assert lab.up(program.format("y")).changes == {"same": 1, "replace": 3}


def build_triggered_program(value, properties="size=1"):
    return f"Machine('a', {properties}, opts=ResourceOptions(replacement_trigger={value}))"


@pytest.mark.parametrize(
    ("before", "after", "is_replaced"),
    [
        ("None", "1", False),
        ("1", "None", False),
        ("1", "1", False),
        ("1", "2", True),
        ("{'a': [1]}", "{'a': [1]}", False),
        ("{'a': [1]}", "{'a': [2]}", True),
        ("pulumi.Output.secret('x')", "pulumi.Output.secret('x')", False),
        ("pulumi.Output.secret('x')", "'x'", False),
        ("pulumi.Output.secret('x')", "pulumi.Output.secret('y')", True),
        ("1", "'1'", True),
    ],
)
def test_a_changed_replacement_trigger_replaces_the_resource(lab, before, after, is_replaced):
    lab.up(build_triggered_program(before))
    planned = lab.preview(build_triggered_program(after)).changes
    outcome = lab.up(build_triggered_program(after))
    assert outcome.changes == planned
    assert outcome.changes == ({"same": 1, "replace": 1} if is_replaced else {"same": 2})
    assert lab.up(build_triggered_program(after)).changes == {"same": 2}


def test_an_unknown_replacement_trigger_is_planned_as_a_replacement(lab):
    program = "t = Machine('t', size={})\n"
    trigger = program + "Machine('a', opts=ResourceOptions(replacement_trigger={}))\n"
    lab.up(trigger.format(1, "t.address"))
    preview = lab.preview(trigger.format(2, "t.address"))
    (change,) = [c for c in preview.planned if c.name == "a"]
    assert change.reason is PlanReason.REPLACEMENT_REQUESTED
    # The address is what it was.
    assert lab.up(trigger.format(2, "t.address")).changes == {"same": 2, "update": 1}


def test_a_secret_replacement_trigger_is_saved_as_a_secret(lab):
    lab.up(build_triggered_program("pulumi.Output.secret('hush')"))
    assert b"hush" not in lab.written[-1]
    assert lab.state("a").replacement_trigger.value == "hush"


LAZY = "Machine('a', lazy={}, tags={}, opts=ResourceOptions(replace_on_changes={!r}{}))"
FIRST = ", delete_before_replace=True"


@pytest.mark.parametrize(
    ("paths", "changes"),
    [
        (["lazy"], {"same": 1, "update": 1}),
        (["tags"], {"same": 1, "replace": 1}),
        (["tags.a"], {"same": 1, "replace": 1}),
        (["tags.b"], {"same": 1, "update": 1}),
        (["tags.*"], {"same": 1, "replace": 1}),
        (["*"], {"same": 1, "replace": 1}),
        (["lazy", "tags"], {"same": 1, "replace": 1}),
        ([], {"same": 1, "update": 1}),
    ],
)
def test_replace_on_changes_turns_updates_into_replacements(lab, paths, changes):
    lab.up(LAZY.format(1, "{'a': 1, 'b': 1}", paths, ""))
    assert lab.up(LAZY.format(1, "{'a': 2, 'b': 1}", paths, "")).changes == changes
    assert lab.state("a").replace_on_changes == paths


def test_replace_on_changes_respects_delete_before_replace(lab):
    lab.up(LAZY.format(1, "{}", ["lazy"], FIRST))
    lab.up(LAZY.format(2, "{}", ["lazy"], FIRST))
    assert lab.steps[0] == ("delete-replaced", "a")


def test_replace_on_changes_has_no_effect_on_a_provider_with_its_own_diff(lab):
    """Pulumi's host for dynamic providers does not pass on which properties a diff reported."""
    program = "Machine('a', size={}, opts=ResourceOptions(replace_on_changes=['size', '*']))"
    lab.up(program.format(1))
    assert lab.up(program.format(2)).changes == {"same": 1, "update": 1}


def test_an_invalid_replace_on_changes_path_is_an_error(lab):
    lab.up(LAZY.format(1, "{}", [], ""))
    outcome = lab.up(LAZY.format(2, "{}", ["tags["], ""))
    assert not outcome.succeeded
    assert "replace_on_changes: 'tags[' is not a property path" in lab.errors[0]


@pytest.mark.parametrize(
    ("paths", "changes"),
    [
        (["#initerror"], {"same": 1, "replace": 1}),
        (["*"], {"same": 1, "replace": 1}),
        (["size"], {"same": 1, "update": 1}),
    ],
)
def test_replace_on_changes_replaces_an_object_that_is_not_ready(lab, paths, changes):
    program = "Machine('a', size=1{}, opts=ResourceOptions(replace_on_changes={!r}))"
    lab.up(program.format(", slow=1", paths))
    assert lab.state("a").init_errors == ["still booting"]
    lab.snapshot.resources[-1].inputs.pop("slow")
    lab.snapshot.resources[-1].outputs.pop("slow")
    outcome = lab.up(program.format("", paths))
    assert outcome.changes == changes
    assert lab.state("a").init_errors == []
