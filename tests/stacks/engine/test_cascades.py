"""Replacements in both orders, and what falls with them."""

from gpuform.schemas.plan import PlanAction, PlanReason
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.operations.plans.run_record import RunRecord

TYPE = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::"

# `a` is deleted first when its slot changes; who uses `a` in `rack` or `slot` cannot outlive it.
CHAIN = """
a = Machine('a', slot={!r})
b = Machine('b', rack=a.address)
c = Machine('c', slot=b.address)
Machine('d', uses=c.address)
"""


def asked(lab, verb):
    return [call["id"] for call in calls(lab, verb)]


def calls(lab, verb):
    return [call for call in lab.calls if call["verb"] == verb]


def entries(lab, name) -> list[ResourceState]:
    return [entry for entry in lab.snapshot.resources if entry.urn == f"{TYPE}{name}"]


def test_a_cascade_goes_through_what_falls_and_stops_at_what_does_not(lab):
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
    assert asked(lab, "delete") == ["m-3", "m-2", "m-1"]
    assert len(lab.world) == len(lab.names) == 4


def test_what_falls_is_checked_as_new(lab):
    lab.up(CHAIN.format("x"))
    lab.up(CHAIN.format("y"))
    # `a`: compared with its past, then as new; `b` and `c`: only as new.
    assert len(calls(lab, "check")) == 5


def test_an_order_alone_does_not_make_anything_fall(lab):
    program = """
    a = Machine('a', slot={!r})
    Machine('after', rack='x', opts=ResourceOptions(depends_on=[a]))
    group = pulumi.ComponentResource('lab:index:Group', 'group', opts=ResourceOptions(parent=a))
    Machine('child', rack='x', opts=ResourceOptions(parent=group))
    """
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert outcome.changes == {"same": 4, "replace": 1}
    assert asked(lab, "delete") == ["m-1"]


def test_a_cascade_reaches_past_an_order(lab):
    program = """
    a = Machine('a', slot={!r})
    b = Machine('b', opts=ResourceOptions(depends_on=[a]))
    Machine('late', rack=a.address, opts=ResourceOptions(depends_on=[b]))
    """
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert lab.steps[:2] == [("delete-replaced", "late"), ("delete-replaced", "a")]
    assert outcome.changes == {"same": 2, "replace": 2}


def test_a_replacement_that_creates_first_takes_nothing_along(lab):
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


def test_a_dependent_that_leaves_the_program_falls_all_the_same(lab):
    lab.up(CHAIN.format("x"))
    outcome = lab.up("a = Machine('a', slot='y')\nMachine('c', slot='free')")
    assert lab.steps.index(("delete-replaced", "c")) < lab.steps.index(("create-replacement", "c"))
    assert sorted(lab.steps[-2:]) == [("delete", "d"), ("remove-pending-replace", "b")]
    assert outcome.changes == {"same": 1, "replace": 2, "delete": 1}
    assert sorted(asked(lab, "delete")) == ["m-1", "m-2", "m-3", "m-4"]
    assert sorted(lab.names) == ["a", "c"]


def test_a_dependent_that_uses_something_else_by_now_falls_if_it_comes_later(lab):
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address)")
    lab.up(
        "a = Machine('a', slot='y')\nMachine('b', rack='own', opts=ResourceOptions(depends_on=[a]))"
    )
    assert lab.steps[0] == ("delete-replaced", "b")
    assert asked(lab, "delete") == ["m-2", "m-1"]


def test_a_dependent_that_has_been_done_already_is_spared(lab):
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


def test_two_roots_share_a_dependent_which_falls_once(lab):
    program = """
    a = Machine('a', slot={0!r})
    b = Machine('b', slot={0!r}, opts=ResourceOptions(depends_on=[a]))
    Machine('shared', rack=a.address, uses=b.address)
    """
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert outcome.succeeded
    assert asked(lab, "delete") == ["m-3", "m-1", "m-2"]
    assert outcome.changes == {"same": 1, "replace": 3}
    assert len(lab.world) == 3


def test_a_fallen_dependent_that_would_be_deleted_first_itself(lab):
    """Its own slot changes in the run in which it falls: nothing is deleted twice."""
    program = "a = Machine('a', slot={0!r})\nMachine('b', rack=a.address, slot={0!r})\n"
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert asked(lab, "delete") == ["m-2", "m-1"]
    assert outcome.changes == {"same": 1, "replace": 2}


def test_old_objects_outlive_nothing_that_falls(lab):
    """What waits for its deletion and used the resource is deleted before it."""
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address, refuse='delete')")
    lab.up(
        "a = Machine('a', slot='x')\n"
        "Machine('b', rack='free', refuse='delete', opts=ResourceOptions(depends_on=[a]))"
    )
    assert [(r.id, r.delete) for r in entries(lab, "b")] == [("m-3", False), ("m-2", True)]
    entries(lab, "b")[1].outputs.pop("refuse")
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
    assert asked(lab, "delete") == ["m-2", "m-1"]
    assert lab.names == ["a", "b"]


def test_a_protected_dependent_keeps_the_root(lab):
    lab.up(
        CHAIN.format("x").replace(
            "rack=a.address", "rack=a.address, opts=ResourceOptions(protect=True)"
        )
    )
    before = sorted(lab.world)
    outcome = lab.up(CHAIN.format("y"))
    assert not outcome.succeeded
    assert "requires the deletion of protected resources" in lab.errors[0]
    assert f"{TYPE}b" in lab.errors[0]
    assert calls(lab, "delete") == []
    assert sorted(lab.world) == before


def test_a_retained_dependent_falls_without_its_object(lab):
    program = (
        "a = Machine('a', slot={!r})\n"
        "Machine('b', rack=a.address, opts=ResourceOptions(retain_on_delete=True))\n"
    )
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"))
    assert lab.steps[0] == ("delete-replaced", "b")
    assert asked(lab, "delete") == ["m-1"]
    assert outcome.changes == {"same": 1, "replace": 2}
    assert sorted(lab.world) == ["m-2", "m-3", "m-4"]


def test_a_dependent_that_only_reads_does_not_fall(lab):
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
    assert asked(lab, "delete") == ["m-2"]


def test_what_falls_and_is_declared_no_more_is_shown_as_deleted(lab):
    lab.up("a = Machine('a', slot=1)\nMachine('b', slot=a.address)\n")
    program = "Machine('a', slot=2)"
    outcome = lab.preview(program)
    plan = shown(lab, outcome)
    assert {c.name: (c.action, c.reason) for c in plan.changes if c.action != "same"} == {
        "a": (PlanAction.REPLACE, PlanReason.FIELD_FORCES_REPLACEMENT),
        "b": (PlanAction.DELETE, PlanReason.NOT_IN_PROGRAM),
    }
    assert plan.summary == {"replace": 1, "delete": 1}
    lab.up(program)
    assert asked(lab, "delete") == ["m-2", "m-1"]


def test_what_falls_and_comes_back_is_shown_once(lab):
    lab.up(CHAIN.format("x"))
    plan = shown(lab, lab.preview(CHAIN.format("y")))
    assert sorted(c.name for c in plan.changes if c.action == "replace") == ["a", "b", "c"]
    assert plan.summary.get(PlanAction.DELETE) is None


def shown(lab, outcome):
    """The plan as the commands show it."""
    record = RunRecord()
    for event in lab.events:
        record(event)
    return record.build_plan("lab", "dev", outcome)
