"""Test replacements in both orders, and the dependents that are replaced with a resource."""

from gpuform.schemas.plan import PlanAction, PlanReason
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.operations.runs.evaluator import RunRecord

TYPE = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::"

# `a` is deleted first when its slot changes; who uses `a` in `rack` or `slot` cannot outlive it.
CHAIN = """
a = Machine('a', slot={!r})
b = Machine('b', rack=a.address)
c = Machine('c', slot=b.address)
Machine('d', uses=c.address)
"""


def list_called_ids(lab, verb):
    return [call["id"] for call in list_calls(lab, verb)]


def list_calls(lab, verb):
    return [call for call in lab.calls if call["verb"] == verb]


def list_entries(lab, name) -> list[ResourceState]:
    return [entry for entry in lab.snapshot.resources if entry.urn == f"{TYPE}{name}"]


def test_delete_first_replaces_dependents_until_one_is_only_updated(lab):
    lab.up(CHAIN.format("x"))
    outcome = lab.up(CHAIN.format("y"))
    assert lab.steps == [
        ("delete-replaced", "c"),
        ("delete-replaced", "b"),
        ("delete-replaced", "a"),
        ("replace", "a"),
        ("create-replacement", "a"),
        ("replace", "b"),
        ("create-replacement", "b"),
        ("replace", "c"),
        ("create-replacement", "c"),
        ("update", "d"),
    ]
    assert outcome.changes == {"same": 1, "replace": 3, "update": 1}
    assert list_called_ids(lab, "delete") == ["m-3", "m-2", "m-1"]
    assert len(lab.platform_objects) == len(lab.names) == 4


def test_replaced_dependents_are_checked_without_old_inputs(lab):
    lab.up(CHAIN.format("x"))
    lab.up(CHAIN.format("y"))
    # `a`: compared with its past, then as new; `b` and `c`: only as new.
    assert len(list_calls(lab, "check")) == 5


def test_depends_on_and_parent_alone_do_not_replace_a_dependent(lab):
    program = """
    a = Machine('a', slot={!r})
    Machine('after', rack='x', opts=ResourceOptions(depends_on=[a]))
    group = pulumi.ComponentResource('lab:index:Group', 'group', opts=ResourceOptions(parent=a))
    Machine('child', rack='x', opts=ResourceOptions(parent=group))
    """
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert outcome.changes == {"same": 4, "replace": 1}
    assert list_called_ids(lab, "delete") == ["m-1"]


def test_dependents_behind_a_depends_on_are_replaced_too(lab):
    program = """
    a = Machine('a', slot={!r})
    b = Machine('b', opts=ResourceOptions(depends_on=[a]))
    Machine('late', rack=a.address, opts=ResourceOptions(depends_on=[b]))
    """
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert lab.steps[:2] == [("delete-replaced", "late"), ("delete-replaced", "a")]
    assert outcome.changes == {"same": 2, "replace": 2}


def test_create_first_replacement_does_not_delete_dependents_first(lab):
    program = "a = Machine('a', rack={!r})\nMachine('b', slot=a.address)\n"
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    # The new address reaches `b`, which is then replaced in its own way.
    assert lab.steps == [
        ("create-replacement", "a"),
        ("replace", "a"),
        ("delete-replaced", "b"),
        ("replace", "b"),
        ("create-replacement", "b"),
        ("delete-replaced", "a"),
    ]
    assert outcome.changes == {"same": 1, "replace": 2}


def test_a_dependent_removed_from_the_program_is_deleted_before_the_replaced_resource(lab):
    lab.up(CHAIN.format("x"))
    outcome = lab.up("a = Machine('a', slot='y')\nMachine('c', slot='free')")
    assert lab.steps.index(("delete-replaced", "c")) < lab.steps.index(("create-replacement", "c"))
    assert sorted(lab.steps[-2:]) == [("delete", "d"), ("remove-pending-replace", "b")]
    assert outcome.changes == {"same": 1, "replace": 2, "delete": 1}
    assert sorted(list_called_ids(lab, "delete")) == ["m-1", "m-2", "m-3", "m-4"]
    assert sorted(lab.names) == ["a", "c"]


def test_a_former_dependent_registered_later_is_deleted_first(lab):
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address)")
    lab.up(
        "a = Machine('a', slot='y')\nMachine('b', rack='own', opts=ResourceOptions(depends_on=[a]))"
    )
    assert lab.steps[0] == ("delete-replaced", "b")
    assert list_called_ids(lab, "delete") == ["m-2", "m-1"]


def test_a_former_dependent_registered_before_is_not_replaced(lab):
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address)")
    lab.up(
        "b = Machine('b', rack='10.0.0.1')\n"
        "Machine('a', slot='y', opts=ResourceOptions(depends_on=[b]))"
    )
    assert lab.steps == [
        ("same", "b"),
        ("delete-replaced", "a"),
        ("replace", "a"),
        ("create-replacement", "a"),
    ]


def test_a_dependent_of_two_replaced_resources_is_replaced_once(lab):
    program = """
    a = Machine('a', slot={0!r})
    b = Machine('b', slot={0!r}, opts=ResourceOptions(depends_on=[a]))
    Machine('shared', rack=a.address, uses=b.address)
    """
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert outcome.succeeded
    assert list_called_ids(lab, "delete") == ["m-3", "m-1", "m-2"]
    assert outcome.changes == {"same": 1, "replace": 3}
    assert len(lab.platform_objects) == 3


def test_a_dependent_that_itself_replaces_delete_first_is_deleted_once(lab):
    program = "a = Machine('a', slot={0!r})\nMachine('b', rack=a.address, slot={0!r})\n"
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert list_called_ids(lab, "delete") == ["m-2", "m-1"]
    assert outcome.changes == {"same": 1, "replace": 2}


def test_an_object_pending_deletion_is_deleted_before_the_resource_it_used(lab):
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address, refuse='delete')")
    lab.up(
        "a = Machine('a', slot='x')\n"
        "Machine('b', rack='free', refuse='delete', opts=ResourceOptions(depends_on=[a]))"
    )
    assert [(r.id, r.delete) for r in list_entries(lab, "b")] == [("m-3", False), ("m-2", True)]
    list_entries(lab, "b")[1].outputs.pop("refuse")
    lab.up(
        "a = Machine('a', slot='y')\n"
        "Machine('b', rack='free', refuse='delete', opts=ResourceOptions(depends_on=[a]))"
    )
    assert lab.steps[:4] == [
        ("delete", "b"),
        ("delete-replaced", "a"),
        ("replace", "a"),
        ("create-replacement", "a"),
    ]
    assert list_called_ids(lab, "delete") == ["m-2", "m-1"]
    assert lab.names == ["a", "b"]


def test_a_protected_dependent_prevents_a_delete_first_replacement(lab):
    lab.up(
        CHAIN.format("x").replace(
            "rack=a.address", "rack=a.address, opts=ResourceOptions(protect=True)"
        )
    )
    before = sorted(lab.platform_objects)
    outcome = lab.up(CHAIN.format("y"))
    assert not outcome.succeeded
    assert "requires the deletion of protected resources" in lab.errors[0]
    assert f"{TYPE}b" in lab.errors[0]
    assert list_calls(lab, "delete") == []
    assert sorted(lab.platform_objects) == before


def test_a_dependent_with_retain_on_delete_is_replaced_and_its_object_kept(lab):
    program = (
        "a = Machine('a', slot={!r})\n"
        "Machine('b', rack=a.address, opts=ResourceOptions(retain_on_delete=True))\n"
    )
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert lab.steps[0] == ("delete-replaced", "b")
    assert list_called_ids(lab, "delete") == ["m-1"]
    assert outcome.changes == {"same": 1, "replace": 2}
    assert sorted(lab.platform_objects) == ["m-2", "m-3", "m-4"]


def test_a_dependent_that_is_only_read_is_not_replaced(lab):
    program = """
    own = Machine('own', slot={!r})
    Machine('read', opts=ResourceOptions(id={!r}, depends_on=[own]))
    """
    lab.up("Machine('other')")
    other = "m-1"
    lab.up(
        "Machine('other', opts=ResourceOptions(retain_on_delete=True))"
        + program.format("x", other).replace("\n    ", "\n")
    )
    lab.up(
        "Machine('other', opts=ResourceOptions(retain_on_delete=True))"
        + program.format("y", other).replace("\n    ", "\n")
    )
    assert ("delete-replaced", "read") not in lab.steps
    assert list_called_ids(lab, "delete") == ["m-2"]


def test_the_plan_shows_an_undeclared_dependent_as_deleted(lab):
    lab.up("a = Machine('a', slot=1)\nMachine('b', slot=a.address)\n")
    program = "Machine('a', slot=2)"
    outcome = lab.preview(program)
    plan = build_plan(lab, outcome)
    assert {c.name: (c.action, c.reason) for c in plan.changes if c.action != "same"} == {
        "a": (PlanAction.REPLACE, PlanReason.FIELD_FORCES_REPLACEMENT),
        "b": (PlanAction.DELETE, PlanReason.NOT_IN_PROGRAM),
    }
    assert plan.summary == {"replace": 1, "delete": 1}
    lab.up(program)
    assert list_called_ids(lab, "delete") == ["m-2", "m-1"]


def test_the_plan_shows_a_replaced_dependent_once(lab):
    lab.up(CHAIN.format("x"))
    plan = build_plan(lab, lab.preview(CHAIN.format("y")))
    assert sorted(c.name for c in plan.changes if c.action == "replace") == ["a", "b", "c"]
    assert plan.summary.get(PlanAction.DELETE) is None


def build_plan(lab, outcome):
    """Return the plan as the commands show plans."""
    record = RunRecord()
    for event in lab.events:
        record(event)
    return record.build_plan("lab", "dev", outcome)
