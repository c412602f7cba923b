"""What a plan says of a step, from the entries before and after and the provider's answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpuform.schemas.changes import RESUME_PREFIX, Action, FieldChange
from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.stacks.engine.planning.events import build_relations, describe_change, describe_drift
from gpuform.stacks.engine.planning.steps import Op
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import UNKNOWN, Secret

TYPE = "gpuform:lab:Machine"
STACK = "urn:pulumi:dev::lab::pulumi:pulumi:Stack::lab-dev"


def urn_of(name: str, type_: str = TYPE) -> str:
    return f"urn:pulumi:dev::lab::{type_}::{name}"


def entry(name: str = "a", **fields: Any) -> ResourceState:
    return ResourceState(urn_of(name), True, TYPE, **fields)


@dataclass
class Gpus:
    """Counts GPUs by the input `gpus`; None is not known."""

    asked: list[ResourceState] = field(default_factory=list)

    def count_gpus(self, resource: ResourceState) -> int | None:
        self.asked.append(resource)
        count = resource.inputs.get("gpus", 0)
        return count if isinstance(count, int) else None


def diff_of(*fields: FieldChange, **more: Any) -> Diff:
    defaults: dict[str, Any] = {
        "changes": True,
        "replaces": (),
        "delete_before_replace": False,
        "fields": fields or None,
    }
    return Diff(**{**defaults, **more})


def shown(change: ResourceChange) -> list[tuple[str, Action, Any, Any]]:
    return [(each.path, each.action, each.before, each.after) for each in change.changes]


OLD = entry(id="m-1", inputs={"size": 1.0, "gone": "x", "same": True, "gpus": 8})
NEW = entry(inputs={"size": 2.5, "same": True, "added": [1.0, None], "gpus": 12})


def test_a_create_shows_each_input_as_added_and_its_gpus():
    new = entry(inputs={"b": 2.0, "a": {"n": [UNKNOWN]}, "__provider": "code", "gpus": 4})
    change = describe_change(Gpus(), Op.CREATE, None, new)
    assert (change.urn, change.type, change.name) == (urn_of("a"), TYPE, "a")
    assert (change.action, change.reason) == (PlanAction.CREATE, PlanReason.NEW)
    assert shown(change)[0] == ("b", Action.ADD, None, 2)
    assert [(each.path, each.unknown) for each in change.changes] == [
        ("b", False),
        ("a", True),
        ("gpus", False),
    ]
    assert (change.gpus_added, change.gpus_removed) == (4, 0)


def test_an_update_shows_what_differs_in_the_order_of_the_program():
    change = describe_change(Gpus(), Op.UPDATE, OLD, NEW, diff_of(replaces=["size"]))
    assert shown(change) == [
        ("size", Action.UPDATE, 1, 2.5),
        ("added", Action.ADD, None, [1, None]),
        ("gpus", Action.UPDATE, 8, 12),
        ("gone", Action.DELETE, "x", None),
    ]
    assert [each.path for each in change.changes if each.forces_replacement] == ["size"]
    assert isinstance(change.changes[0].before, int)
    assert (change.action, change.reason) == (PlanAction.UPDATE, PlanReason.CHANGED)
    assert change.replace_paths == ()
    assert (change.gpus_added, change.gpus_removed) == (4, 0)


def test_what_is_only_read_brings_and_takes_no_gpus():
    change = describe_change(Gpus(), Op.READ, OLD, NEW)
    assert (change.gpus_added, change.gpus_removed) == (0, 0)


def test_fewer_gpus_are_removed_ones():
    change = describe_change(Gpus(), Op.UPDATE, NEW, OLD)
    assert (change.gpus_added, change.gpus_removed) == (0, 4)


def test_a_count_that_is_not_known_makes_both_numbers_unknown():
    unknown = entry(inputs={"gpus": UNKNOWN})
    for old, new in ((OLD, unknown), (unknown, NEW)):
        change = describe_change(Gpus(), Op.UPDATE, old, new)
        assert (change.gpus_added, change.gpus_removed) == (None, None)


def test_the_providers_own_changes_are_shown_without_its_code():
    repair = NodeRepair.model_construct()
    fields = [
        FieldChange("num_gpus", Action.UPDATE, 8, 16, repair=repair),
        FieldChange("__provider", Action.UPDATE, "x", "y"),
    ]
    change = describe_change(Gpus(), Op.UPDATE, OLD, NEW, diff_of(*fields))
    assert shown(change) == [("num_gpus", Action.UPDATE, 8, 16)]
    assert change.repairs == (repair,)


def test_a_value_of_a_kind_that_plans_do_not_know_is_shown_as_the_program_would():
    change = describe_change(Gpus(), Op.CREATE, None, entry(inputs={"big": (1, 2)}))
    assert [each.after for each in change.changes] == ["(1, 2)"]


@pytest.mark.parametrize("op", [Op.SAME, Op.READ, Op.DELETE])
def test_what_changes_nothing_shows_no_changes(op: Op):
    change = describe_change(Gpus(), op, OLD, None if op is Op.DELETE else NEW)
    assert change.changes == ()


def test_a_same_step_still_shows_what_its_provider_reports():
    fields = diff_of(FieldChange("cpus", Action.KEEP, 1, 1), changes=False)
    assert shown(describe_change(Gpus(), Op.SAME, OLD, NEW, fields)) == [
        ("cpus", Action.KEEP, 1, 1)
    ]


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        (Op.DELETE, PlanReason.NOT_IN_PROGRAM),
        (Op.IMPORT, PlanReason.IMPORTED),
        (Op.READ, PlanReason.READ_BY_PROGRAM),
        (Op.SAME, PlanReason.UNCHANGED),
    ],
)
def test_an_operation_without_a_choice_has_one_reason(op: Op, reason: PlanReason):
    assert describe_change(Gpus(), op, OLD, None if op is Op.DELETE else NEW).reason is reason


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        (diff_of(replaces=["size"]), PlanReason.FIELD_FORCES_REPLACEMENT),
        (diff_of(), PlanReason.DEPENDENCY_REPLACED),
        (None, PlanReason.DEPENDENCY_REPLACED),
        (
            diff_of(replaces=["id"], reason=PlanReason.REPLACEMENT_REQUESTED),
            PlanReason.REPLACEMENT_REQUESTED,
        ),
    ],
)
def test_a_replacement_says_what_forces_it(diff: Diff | None, reason: PlanReason):
    change = describe_change(Gpus(), Op.REPLACE, OLD, NEW, diff)
    assert (change.action, change.reason) == (PlanAction.REPLACE, reason)
    assert change.replace_paths == (tuple(diff.replaces) if diff else ())


def test_a_replacement_counts_all_gpus_of_both_objects():
    change = describe_change(Gpus(), Op.REPLACE, OLD, NEW, diff_of(replaces=["size"]))
    assert (change.gpus_added, change.gpus_removed) == (12, 8)


@pytest.mark.parametrize(
    ("op", "is_retained", "removed"),
    [(Op.DELETE, True, 0), (Op.REPLACE, True, 0), (Op.UPDATE, False, 8), (Op.DELETE, False, 8)],
)
def test_an_object_that_is_retained_gives_up_no_gpus(op: Op, is_retained: bool, removed: int):
    old = replace(OLD, retain_on_delete=is_retained or op is Op.UPDATE)
    new = None if op is Op.DELETE else entry(inputs={})
    change = describe_change(Gpus(), op, old, new)
    assert (change.retained, change.gpus_removed) == (is_retained, removed)


READY = FieldChange("ready", Action.UPDATE, False, True)


@pytest.mark.parametrize(
    ("diff", "init_errors", "reason"),
    [
        (diff_of(READY), [], PlanReason.NOT_READY),
        (diff_of(READY, FieldChange("size", Action.UPDATE, 1, 2)), [], PlanReason.CHANGED),
        (diff_of(changes=False), ["still booting"], PlanReason.NOT_READY),
        (None, ["still booting"], PlanReason.NOT_READY),
        (diff_of(), ["still booting"], PlanReason.CHANGED),
        (diff_of(changes=False), [], PlanReason.CHANGED),
    ],
)
def test_an_update_that_only_waits_says_so(
    diff: Diff | None, init_errors: list[str], reason: PlanReason
):
    old = replace(OLD, init_errors=init_errors)
    assert describe_change(Gpus(), Op.UPDATE, old, NEW, diff).reason is reason


@pytest.mark.parametrize("side", ["inputs", "outputs"])
@pytest.mark.parametrize("holder", ["old", "new"])
def test_a_property_with_a_secret_before_or_after_is_masked(side: str, holder: str):
    values: Mapping[str, Any] = {"config": {"token": Secret("hunter2")}}
    entries = {"old": entry(id="m-1"), "new": entry()}
    entries[holder] = replace(entries[holder], **{side: values})
    fields = diff_of(FieldChange("config.token", Action.UPDATE, "hunter1", "hunter2"))
    change = describe_change(Gpus(), Op.UPDATE, entries["old"], entries["new"], fields)
    assert change.changes[0].secret
    assert "hunter" not in repr(change)


def test_a_secret_that_is_not_known_yet_is_shown_as_unknown():
    (change,) = describe_change(
        Gpus(), Op.CREATE, None, entry(inputs={"t": Secret(UNKNOWN)})
    ).changes
    assert (change.secret, change.unknown) == (True, True)


def test_a_step_without_an_entry_is_a_mistake_of_the_engine():
    with pytest.raises(AssertionError, match=r"^a step has an old or a new state$"):
        describe_change(Gpus(), Op.UPDATE, None, None)


def test_a_resource_names_its_parent_and_what_it_needs_but_not_the_stack():
    under = entry("b", parent=urn_of("group", "lab:Group"), dependencies=[urn_of("z"), urn_of("c")])
    assert build_relations(under) == {
        "parent": urn_of("group", "lab:Group"),
        "dependencies": (urn_of("c"), urn_of("z")),
    }
    for parent in (STACK, ""):
        top = entry("b", parent=parent, provider=f"{urn_of('p')}::id")
        assert build_relations(top) == {"parent": "", "dependencies": ()}
    assert describe_change(Gpus(), Op.UPDATE, under, under).parent == under.parent
    assert describe_drift(Gpus(), under, under, None).dependencies == (urn_of("c"), urn_of("z"))


class TestDrift:
    """A refresh shows what the platform has now in place of what was last known."""

    def test_the_providers_changes_are_turned_round(self):
        fields = [
            FieldChange("size", Action.UPDATE, 2, 1, secret=True, because="of the declaration"),
            FieldChange(
                "ready", Action.UPDATE, True, False, because=f"{RESUME_PREFIX}a node failed"
            ),
            FieldChange("mode", Action.KEEP, 1, 1),
        ]
        change = describe_drift(Gpus(), OLD, NEW, diff_of(*fields))
        assert [(c.path, c.before, c.after, c.secret, c.because) for c in change.changes] == [
            ("size", "[secret]", "[secret]", True, ""),
            ("ready", False, True, False, "a node failed"),
        ]
        assert [each.action for each in change.changes] == [Action.UPDATE, Action.UPDATE]
        assert (change.action, change.reason) == (PlanAction.UPDATE, PlanReason.DRIFT)
        assert (change.urn, change.type, change.name) == (OLD.urn, TYPE, "a")
        assert (change.gpus_added, change.gpus_removed) == (4, 0)

    def test_outputs_are_compared_where_the_provider_shows_no_properties(self):
        old, new = replace(OLD, outputs={"size": 1}), replace(OLD, outputs={"size": 9})
        change = describe_drift(Gpus(), old, new, diff_of())
        assert shown(change) == [("size", Action.UPDATE, 1, 9)]
        assert describe_drift(Gpus(), old, new, diff_of(changes=False)).changes == ()

    @pytest.mark.parametrize(
        ("diff", "action"),
        [
            (None, PlanAction.SAME),
            (diff_of(changes=False), PlanAction.SAME),
            (diff_of(), PlanAction.UPDATE),
            (diff_of(FieldChange("mode", Action.KEEP, 1, 1), changes=False), PlanAction.SAME),
            (diff_of(FieldChange("size", Action.UPDATE, 1, 2), changes=False), PlanAction.UPDATE),
        ],
    )
    def test_an_object_that_is_as_known_stays(self, diff: Diff | None, action: PlanAction):
        assert describe_drift(Gpus(), OLD, OLD, diff).action is action

    @pytest.mark.parametrize("holder", ["old", "new"])
    def test_a_property_with_a_secret_then_or_now_is_masked(self, holder: str):
        entries = {"old": entry(id="m-1"), "new": entry(id="m-1")}
        entries[holder] = replace(entries[holder], outputs={"token": Secret("hunter2")})
        fields = diff_of(FieldChange("token", Action.UPDATE, "hunter1", "hunter2"))
        change = describe_drift(Gpus(), entries["old"], entries["new"], fields)
        assert change.changes[0].secret
        assert "hunter" not in repr(change)

    def test_an_object_that_is_gone_gives_up_its_gpus(self):
        change = describe_drift(Gpus(), OLD, None, None)
        assert (change.action, change.reason) == (PlanAction.DELETE, PlanReason.GONE)
        assert (change.gpus_added, change.gpus_removed, change.changes) == (0, 8, ())
