"""Test the planned change of a step, built from the old and new entries and the provider's diff."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpuform.providers.values import UNKNOWN, Secret
from gpuform.schemas.changes import RESUME_PREFIX, Action, FieldChange
from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.stacks.engine.planning.events import build_relations, describe_change, describe_drift
from gpuform.stacks.engine.planning.steps import Op
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.state import ResourceState

TYPE = "gpuform:lab:Machine"
STACK = "urn:pulumi:dev::lab::pulumi:pulumi:Stack::lab-dev"


def build_urn(name: str, type_: str = TYPE) -> str:
    return f"urn:pulumi:dev::lab::{type_}::{name}"


def build_entry(name: str = "a", **fields: Any) -> ResourceState:
    return ResourceState(build_urn(name), True, TYPE, **fields)


@dataclass
class GpuCounter:
    """A provider that counts GPUs by the input `gpus`; None is an unknown count."""

    asked: list[ResourceState] = field(default_factory=list)

    def count_gpus(self, resource: ResourceState) -> int | None:
        self.asked.append(resource)
        count = resource.inputs.get("gpus", 0)
        return count if isinstance(count, int) else None


def build_diff(*fields: FieldChange, **more: Any) -> Diff:
    defaults: dict[str, Any] = {
        "changes": True,
        "replaces": (),
        "delete_before_replace": False,
        "fields": fields or None,
    }
    return Diff(**{**defaults, **more})


def list_property_changes(change: ResourceChange) -> list[tuple[str, Action, Any, Any]]:
    return [
        (
            property_change.path,
            property_change.action,
            property_change.before,
            property_change.after,
        )
        for property_change in change.changes
    ]


OLD = build_entry(id="m-1", inputs={"size": 1.0, "gone": "x", "same": True, "gpus": 8})
NEW = build_entry(inputs={"size": 2.5, "same": True, "added": [1.0, None], "gpus": 12})


def test_a_create_has_each_input_as_added_and_its_gpus():
    new = build_entry(inputs={"b": 2.0, "a": {"n": [UNKNOWN]}, "__provider": "code", "gpus": 4})
    change = describe_change(GpuCounter(), Op.CREATE, None, new)
    assert (change.urn, change.type, change.name) == (build_urn("a"), TYPE, "a")
    assert (change.action, change.reason) == (PlanAction.CREATE, PlanReason.NEW)
    assert list_property_changes(change)[0] == ("b", Action.ADD, None, 2)
    assert [
        (property_change.path, property_change.unknown) for property_change in change.changes
    ] == [
        ("b", False),
        ("a", True),
        ("gpus", False),
    ]
    assert (change.gpus_added, change.gpus_removed) == (4, 0)


def test_an_update_lists_changed_properties_in_program_order():
    change = describe_change(GpuCounter(), Op.UPDATE, OLD, NEW, build_diff(replaces=["size"]))
    assert list_property_changes(change) == [
        ("size", Action.UPDATE, 1, 2.5),
        ("added", Action.ADD, None, [1, None]),
        ("gpus", Action.UPDATE, 8, 12),
        ("gone", Action.DELETE, "x", None),
    ]
    assert [
        property_change.path
        for property_change in change.changes
        if property_change.forces_replacement
    ] == ["size"]
    assert isinstance(change.changes[0].before, int)
    assert (change.action, change.reason) == (PlanAction.UPDATE, PlanReason.CHANGED)
    assert change.replace_paths == ()
    assert (change.gpus_added, change.gpus_removed) == (4, 0)


def test_a_read_adds_and_removes_no_gpus():
    change = describe_change(GpuCounter(), Op.READ, OLD, NEW)
    assert (change.gpus_added, change.gpus_removed) == (0, 0)


def test_an_update_adds_the_gpus_that_an_interrupted_create_has_not_added():
    diff = build_diff(
        FieldChange("gpus", Action.UPDATE, 4, 12), FieldChange("ready", Action.UPDATE, False, True)
    )
    change = describe_change(GpuCounter(), Op.UPDATE, OLD, NEW, diff)
    assert (change.gpus_added, change.gpus_removed) == (8, 0)
    assert describe_change(GpuCounter(), Op.REPLACE, OLD, NEW, diff).gpus_added == 12


def test_a_smaller_gpu_count_is_shown_as_removed_gpus():
    change = describe_change(GpuCounter(), Op.UPDATE, NEW, OLD)
    assert (change.gpus_added, change.gpus_removed) == (0, 4)


def test_an_unknown_gpu_count_makes_both_numbers_unknown():
    unknown = build_entry(inputs={"gpus": UNKNOWN})
    for old, new in ((OLD, unknown), (unknown, NEW)):
        change = describe_change(GpuCounter(), Op.UPDATE, old, new)
        assert (change.gpus_added, change.gpus_removed) == (None, None)


def test_property_changes_omit_the_pickled_provider():
    repair = NodeRepair.model_construct()
    fields = [
        FieldChange("num_gpus", Action.UPDATE, 8, 16, repair=repair),
        FieldChange("__provider", Action.UPDATE, "x", "y"),
    ]
    change = describe_change(GpuCounter(), Op.UPDATE, OLD, NEW, build_diff(*fields))
    assert list_property_changes(change) == [("num_gpus", Action.UPDATE, 8, 16)]
    assert change.repairs == (repair,)


def test_a_value_of_an_unknown_type_is_shown_as_its_repr():
    change = describe_change(GpuCounter(), Op.CREATE, None, build_entry(inputs={"big": {1}}))
    assert [property_change.after for property_change in change.changes] == ["{1}"]


@pytest.mark.parametrize("op", [Op.SAME, Op.READ, Op.DELETE])
def test_operations_without_effect_have_no_property_changes(op: Op):
    change = describe_change(GpuCounter(), op, OLD, None if op is Op.DELETE else NEW)
    assert change.changes == ()


def test_a_same_step_has_the_changes_that_its_provider_reports():
    fields = build_diff(FieldChange("cpus", Action.KEEP, 1, 1), changes=False)
    assert list_property_changes(describe_change(GpuCounter(), Op.SAME, OLD, NEW, fields)) == [
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
def test_each_operation_has_its_reason(op: Op, reason: PlanReason):
    assert describe_change(GpuCounter(), op, OLD, None if op is Op.DELETE else NEW).reason is reason


@pytest.mark.parametrize(
    ("diff", "reason"),
    [
        (build_diff(replaces=["size"]), PlanReason.FIELD_FORCES_REPLACEMENT),
        (build_diff(), PlanReason.DEPENDENCY_REPLACED),
        (None, PlanReason.DEPENDENCY_REPLACED),
        (
            build_diff(replaces=["id"], reason=PlanReason.REPLACEMENT_REQUESTED),
            PlanReason.REPLACEMENT_REQUESTED,
        ),
    ],
)
def test_a_replacement_has_the_reason_that_forces_it(diff: Diff | None, reason: PlanReason):
    change = describe_change(GpuCounter(), Op.REPLACE, OLD, NEW, diff)
    assert (change.action, change.reason) == (PlanAction.REPLACE, reason)
    assert change.replace_paths == (tuple(diff.replaces) if diff else ())


def test_a_replacement_counts_all_gpus_of_both_objects():
    change = describe_change(GpuCounter(), Op.REPLACE, OLD, NEW, build_diff(replaces=["size"]))
    assert (change.gpus_added, change.gpus_removed) == (12, 8)


@pytest.mark.parametrize(
    ("op", "is_retained", "removed"),
    [(Op.DELETE, True, 0), (Op.REPLACE, True, 0), (Op.UPDATE, False, 8), (Op.DELETE, False, 8)],
)
def test_a_retained_object_removes_no_gpus(op: Op, is_retained: bool, removed: int):
    old = replace(OLD, retain_on_delete=is_retained or op is Op.UPDATE)
    new = None if op is Op.DELETE else build_entry(inputs={})
    change = describe_change(GpuCounter(), op, old, new)
    assert (change.retained, change.gpus_removed) == (is_retained, removed)


READY = FieldChange("ready", Action.UPDATE, False, True)


@pytest.mark.parametrize(
    ("diff", "init_errors", "reason"),
    [
        (build_diff(READY), [], PlanReason.NOT_READY),
        (build_diff(READY, FieldChange("size", Action.UPDATE, 1, 2)), [], PlanReason.CHANGED),
        (build_diff(changes=False), ["still booting"], PlanReason.NOT_READY),
        (None, ["still booting"], PlanReason.NOT_READY),
        (build_diff(), ["still booting"], PlanReason.CHANGED),
        (build_diff(changes=False), [], PlanReason.CHANGED),
    ],
)
def test_an_update_of_an_object_that_is_not_ready_has_that_reason(
    diff: Diff | None, init_errors: list[str], reason: PlanReason
):
    old = replace(OLD, init_errors=init_errors)
    assert describe_change(GpuCounter(), Op.UPDATE, old, NEW, diff).reason is reason


@pytest.mark.parametrize("side", ["inputs", "outputs"])
@pytest.mark.parametrize("holder", ["old", "new"])
def test_a_property_with_a_secret_before_or_after_is_masked(side: str, holder: str):
    values: Mapping[str, Any] = {"config": {"token": Secret("hunter2")}}
    entries = {"old": build_entry(id="m-1"), "new": build_entry()}
    entries[holder] = replace(entries[holder], **{side: values})
    fields = build_diff(FieldChange("config.token", Action.UPDATE, "hunter1", "hunter2"))
    change = describe_change(GpuCounter(), Op.UPDATE, entries["old"], entries["new"], fields)
    assert change.changes[0].secret
    assert "hunter" not in repr(change)


def test_an_unknown_secret_is_shown_as_unknown():
    (change,) = describe_change(
        GpuCounter(), Op.CREATE, None, build_entry(inputs={"t": Secret(UNKNOWN)})
    ).changes
    assert (change.secret, change.unknown) == (True, True)


def test_a_step_without_an_entry_is_an_internal_error():
    with pytest.raises(AssertionError, match=r"^a step has an old or a new state$"):
        describe_change(GpuCounter(), Op.UPDATE, None, None)


def test_a_change_has_parent_and_dependencies_without_the_stack():
    under = build_entry(
        "b", parent=build_urn("group", "lab:Group"), dependencies=[build_urn("z"), build_urn("c")]
    )
    assert build_relations(under) == {
        "parent": build_urn("group", "lab:Group"),
        "dependencies": (build_urn("c"), build_urn("z")),
    }
    for parent in (STACK, ""):
        top = build_entry("b", parent=parent, provider=f"{build_urn('p')}::id")
        assert build_relations(top) == {"parent": "", "dependencies": ()}
    assert describe_change(GpuCounter(), Op.UPDATE, under, under).parent == under.parent
    assert describe_drift(GpuCounter(), under, under, None).dependencies == (
        build_urn("c"),
        build_urn("z"),
    )


class TestDrift:
    """A refresh shows the platform's current values in place of the saved ones."""

    def test_the_providers_changes_are_inverted(self):
        fields = [
            FieldChange("size", Action.UPDATE, 2, 1, secret=True, because="of the declaration"),
            FieldChange(
                "ready", Action.UPDATE, True, False, because=f"{RESUME_PREFIX}a node failed"
            ),
            FieldChange("mode", Action.KEEP, 1, 1),
        ]
        change = describe_drift(GpuCounter(), OLD, NEW, build_diff(*fields))
        assert [(c.path, c.before, c.after, c.secret, c.because) for c in change.changes] == [
            ("size", "[secret]", "[secret]", True, ""),
            ("ready", False, True, False, "a node failed"),
        ]
        assert [property_change.action for property_change in change.changes] == [
            Action.UPDATE,
            Action.UPDATE,
        ]
        assert (change.action, change.reason) == (PlanAction.UPDATE, PlanReason.DRIFT)
        assert (change.urn, change.type, change.name) == (OLD.urn, TYPE, "a")
        assert (change.gpus_added, change.gpus_removed) == (4, 0)

    def test_outputs_are_compared_if_the_provider_reports_no_properties(self):
        old, new = replace(OLD, outputs={"size": 1}), replace(OLD, outputs={"size": 9})
        change = describe_drift(GpuCounter(), old, new, build_diff())
        assert list_property_changes(change) == [("size", Action.UPDATE, 1, 9)]
        assert describe_drift(GpuCounter(), old, new, build_diff(changes=False)).changes == ()

    @pytest.mark.parametrize(
        ("diff", "action"),
        [
            (None, PlanAction.SAME),
            (build_diff(changes=False), PlanAction.SAME),
            (build_diff(), PlanAction.UPDATE),
            (build_diff(FieldChange("mode", Action.KEEP, 1, 1), changes=False), PlanAction.SAME),
            (
                build_diff(FieldChange("size", Action.UPDATE, 1, 2), changes=False),
                PlanAction.UPDATE,
            ),
        ],
    )
    def test_an_object_without_drift_is_unchanged(self, diff: Diff | None, action: PlanAction):
        assert describe_drift(GpuCounter(), OLD, OLD, diff).action is action

    @pytest.mark.parametrize("holder", ["old", "new"])
    def test_a_property_with_a_secret_then_or_now_is_masked(self, holder: str):
        entries = {"old": build_entry(id="m-1"), "new": build_entry(id="m-1")}
        entries[holder] = replace(entries[holder], outputs={"token": Secret("hunter2")})
        fields = build_diff(FieldChange("token", Action.UPDATE, "hunter1", "hunter2"))
        change = describe_drift(GpuCounter(), entries["old"], entries["new"], fields)
        assert change.changes[0].secret
        assert "hunter" not in repr(change)

    def test_a_missing_object_removes_its_gpus(self):
        change = describe_drift(GpuCounter(), OLD, None, None)
        assert (change.action, change.reason) == (PlanAction.DELETE, PlanReason.GONE)
        assert (change.gpus_added, change.gpus_removed, change.changes) == (0, 8, ())
