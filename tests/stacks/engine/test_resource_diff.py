"""Test whether a resource is unchanged, updated or replaced, and the entry of its goal."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest

from gpuform.providers.values import UNKNOWN, Secret
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import PlanReason
from gpuform.stacks.engine.planning import steps
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState

TYPE = "lab:Machine"
URN = f"urn:pulumi:dev::lab::{TYPE}::a"
OTHER = f"urn:pulumi:dev::lab::{TYPE}::b"


def build_entry(**more: Any) -> ResourceState:
    return ResourceState(URN, True, TYPE, **{"id": "m-1", "provider": "p::1", **more})


@dataclass
class Host:
    """A provider with one diff answer that records the requests."""

    answer: Diff = Diff(None, (), delete_before_replace=False)  # noqa: RUF009 - frozen
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def diff(self, *question: Any) -> Diff:
        self.asked.append(question)
        return self.answer


def compare(old: ResourceState, goal: ResourceState, **answer: Any) -> Diff:
    defaults: dict[str, Any] = {"changes": None, "replaces": (), "delete_before_replace": False}
    return steps.compare_with_goal(Host(Diff(**{**defaults, **answer})), old, goal)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("old", "goal", "key", "reason"),
    [
        ({"replacement_trigger": 1}, {"replacement_trigger": 2}, "replacement_trigger", 1),
        ({"replacement_trigger": Secret(1)}, {"replacement_trigger": UNKNOWN}, None, 1),
        ({}, {"replacement_trigger": UNKNOWN}, None, 1),
        ({}, {"replace_with": [OTHER]}, "replace_with", 2),
        ({}, {"deleted_with": OTHER}, "deleted_with", 2),
        ({"provider": ""}, {}, "provider", 3),
        ({}, {"provider": ""}, "provider", 3),
    ],
)
def test_engine_rules_force_a_replacement_without_a_provider_diff(
    old: Any, goal: Any, key: str, reason: int
):
    reasons = [
        PlanReason.REPLACEMENT_REQUESTED,
        PlanReason.DEPENDENCY_REPLACED,
        PlanReason.FIELD_FORCES_REPLACEMENT,
    ]
    diff = steps.find_forced_replacement(build_entry(**old), build_entry(**goal), {OTHER})
    key = key or "replacement_trigger"
    assert diff == Diff(True, [key], delete_before_replace=False, reason=reasons[reason - 1])


@pytest.mark.parametrize(
    ("old", "goal"),
    [
        ({}, {}),
        ({"replacement_trigger": 1}, {"replacement_trigger": Secret(1)}),
        ({}, {"replacement_trigger": 1}),
        ({"replacement_trigger": 1}, {}),
        ({}, {"replace_with": ["urn:of-somebody"], "deleted_with": "urn:of-somebody"}),
        ({"provider": "p::1"}, {"provider": "p::2"}),
    ],
)
def test_other_differences_are_left_to_the_provider(old: Any, goal: Any):
    assert steps.find_forced_replacement(build_entry(**old), build_entry(**goal), {OTHER}) is None


def test_a_requested_replacement_is_a_change_of_the_id():
    diff = steps.build_replacement_diff(["id"], PlanReason.REPLACEMENT_REQUESTED)
    assert diff == Diff(
        True, ["id"], delete_before_replace=False, reason=PlanReason.REPLACEMENT_REQUESTED
    )


def test_an_unknown_replacement_trigger_is_an_error_outside_of_previews():
    steps.refuse_unknown_trigger(build_entry(replacement_trigger=1))
    with pytest.raises(EngineError, match=f"^{URN}: replacement_trigger is unknown"):
        steps.refuse_unknown_trigger(build_entry(replacement_trigger=[UNKNOWN]))


def test_diff_gets_the_old_outputs_and_the_new_inputs():
    host = Host(Diff(True, ["size"], delete_before_replace=True))
    old, goal = build_entry(outputs={"size": 1}), build_entry(inputs={"size": 2}, provider="p::2")
    assert steps.compare_with_goal(host, old, goal) == host.answer  # type: ignore[arg-type]
    assert host.asked == [(URN, "m-1", {"size": 1}, {"size": 2}, "p::2")]


def test_a_component_is_compared_by_its_inputs_only():
    component = replace(build_entry(inputs={"size": 1}), custom=False)
    host = Host()
    for size, changes in ((1, False), (2, True)):
        goal = replace(component, inputs={"size": size}, replace_on_changes=["size"])
        diff = steps.compare_with_goal(host, component, goal)  # type: ignore[arg-type]
        assert diff == Diff(changes, (), delete_before_replace=False)
    assert host.asked == []


def test_inputs_are_compared_if_the_providers_diff_is_undecided():
    old = build_entry(inputs={"size": 1, "color": "red"}, outputs={"size": 5})
    assert compare(old, build_entry(inputs={"size": 1, "color": "red"})).changes is False
    assert compare(old, build_entry(inputs={"size": 2, "color": "red"})).changes is True
    ignored = build_entry(inputs={"size": 2, "color": "red"}, ignore_changes=["size"])
    assert compare(old, ignored).changes is False


def test_replace_on_changes_turns_an_update_into_a_replacement():
    old = build_entry(inputs={"size": {"n": 1}, "color": "red"})
    goal = build_entry(
        inputs={"size": {"n": 2}, "color": "blue"}, replace_on_changes=["size.n", "rack"]
    )
    assert compare(old, goal, replaces=["id"]).replaces == ["id", "size"]
    assert compare(old, goal, replaces=["size"]).replaces == ["size"]
    assert compare(old, goal, changes=True).replaces == ()
    only_color = replace(goal, inputs={"size": {"n": 1}, "color": "blue"})
    assert compare(old, only_color).replaces == ()


@pytest.mark.parametrize(
    ("pattern", "init_errors", "changes", "replaces"),
    [
        ("#initerror", ["still booting"], True, ["#initerror"]),
        ("*", ["still booting"], True, ["#initerror"]),
        ("#initerror", [], False, ()),
        ("size", ["still booting"], False, ()),
    ],
)
def test_replace_on_changes_applies_to_init_errors(
    pattern: str, init_errors: list[str], changes: bool, replaces: Any
):
    old = build_entry(inputs={"size": 1}, init_errors=init_errors)
    diff = compare(old, build_entry(inputs={"size": 1}, replace_on_changes=[pattern]))
    assert (diff.changes, diff.replaces) == (changes, replaces)


def test_an_invalid_path_is_an_error_with_its_option():
    with pytest.raises(EngineError, match=r"^replace_on_changes: .*size"):
        compare(build_entry(), build_entry(replace_on_changes=["size["]))


REGISTRATION = Registration(
    URN,
    TYPE,
    "a",
    True,
    {"size": 1},
    parent="urn:parent",
    dependencies=("urn:d",),
    property_dependencies={"size": ("urn:d",)},
    protect=True,
    retain_on_delete=True,
    ignore_changes=("color",),
    replace_on_changes=("rack",),
    additional_secret_outputs=("token",),
    custom_timeouts={"create": 60.0},
    source_position="file:1",
    stack_trace=("file:1",),
    hide_diff=("blob",),
    import_id="m-9",
    deleted_with="urn:w",
    replace_with=("urn:r",),
    replacement_trigger=7,
)


def test_an_entry_has_all_declared_options():
    goal = steps.registration_to_goal(REGISTRATION, "p::1")
    declared = {
        field.name: getattr(REGISTRATION, field.name)
        for field in fields(ResourceState)
        if hasattr(REGISTRATION, field.name)
    }
    expected = {**declared, "property_dependencies": {"size": ["urn:d"]}, "provider": "p::1"}
    expected = {k: list(v) if isinstance(v, tuple) else v for k, v in expected.items()}
    assert goal == ResourceState(**expected)
    assert goal.dependencies is not REGISTRATION.dependencies


def test_an_entry_without_options_has_none():
    goal = steps.registration_to_goal(Registration(URN, TYPE, "a", False, {}), "")
    assert goal == ResourceState(URN, False, TYPE)


def test_the_entry_of_a_read_is_external():
    read = Read(
        URN,
        TYPE,
        "a",
        "m-7",
        {"size": 1},
        parent="urn:parent",
        dependencies=("urn:d",),
        additional_secret_outputs=("token",),
        source_position="file:1",
        stack_trace=("file:1",),
    )
    assert steps.read_to_goal(read, "p::1") == ResourceState(
        URN,
        True,
        TYPE,
        id="m-7",
        inputs={"size": 1},
        parent="urn:parent",
        external=True,
        dependencies=["urn:d"],
        provider="p::1",
        additional_secret_outputs=["token"],
        source_position="file:1",
        stack_trace=["file:1"],
    )


@pytest.mark.parametrize("own", [None, False, True])
@pytest.mark.parametrize("of_parent", [None, False, True])
def test_unset_options_are_inherited_from_the_parent(own: bool | None, of_parent: bool | None):
    bare = Registration(URN, TYPE, "a", True, {}, protect=own, retain_on_delete=own)
    parent = replace(bare, urn=OTHER, protect=of_parent, retain_on_delete=of_parent)
    parent = replace(parent, deleted_with="urn:w")
    inherited = steps.inherit_options(bare, parent)
    decided = of_parent if own is None else own
    assert (inherited.protect, inherited.retain_on_delete) == (decided, decided)
    assert inherited.deleted_with == "urn:w"
    child = steps.inherit_options(replace(bare, deleted_with="urn:own"), parent)
    assert child.deleted_with == "urn:own"
    read = Read(OTHER, TYPE, "b", "m-1", {})
    for other in (None, read):
        assert steps.inherit_options(bare, other) == bare
