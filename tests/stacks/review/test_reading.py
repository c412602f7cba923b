"""Test files for review: plans, previews, and other files."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuform.providers.values import SIGNATURE_KEY, UNKNOWN_TEXT
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.json_schema import build_plan_schema
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.plan_files import read_plan

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*/plan.json"))
TOGETHER = "pulumi-python:dynamic/gpuform.together:Cluster"
THING = "my:mod:Thing"
CLUSTER = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "billing_type": "ON_DEMAND",
}


def get_refusal(content: bytes) -> EngineError:
    with pytest.raises(EngineError) as raised:
        read_plan("plan.json", content)
    assert str(raised.value).startswith("plan.json")
    return raised.value


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.parent.name)
def test_saved_plans_match_the_plan_schema(path: Path) -> None:
    document = json.loads(path.read_text())
    jsonschema.Draft202012Validator(build_plan_schema()).validate(document)
    assert read_plan("plan.json", b"\xef\xbb\xbf" + path.read_bytes()).project == "conformance"


@pytest.mark.parametrize(
    "wrong", [{"format_version": "2"}, {"stack": None}, {"changes": [{}]}, {"more": 1}]
)
def test_the_plan_schema_rejects_other_documents(wrong: dict[str, Any]) -> None:
    document = Plan.from_changes("demo", "dev", []).model_dump(mode="json") | wrong
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(build_plan_schema()).validate(document)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a plan: it is empty"),
        (b"\xff\xfe\x00", "is not a plan: it is not UTF-8 text (byte 0)"),
        (b"{\n  nothing\n}", "plan.json:2:3: this is not JSON"),
        (b"[]", "is not a plan: it is not an object"),
        (b"{}", "is not a plan: project: Field required, and 2 more problems"),
        (b"[" * 100_000, "is not a plan: it is nested too deeply"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "is not a plan: it is nested too deeply"),
        (b'{"manifest": {}, "resourcePlans": {}}', "is a plan file of the Pulumi CLI"),
        (b'{"version": 3, "deployment": {}}', "is an exported state"),
        (b'{"version": 3, "checkpoint": {}}', "is a state file"),
        (b'{"sequence": 0}\n{"sequence": 1}\n', "ends in the middle of a run"),
        (b"{}\n{}\n", "is not a plan: it contains more than one JSON value"),
        (b'{"format_version": "1"}\n{"sequence": 0, "cancelEvent": {}}', "has no steps"),
        (b'{"resource_changes": []}', "is a plan of Terraform or OpenTofu"),
        (b'{"stacks": []}', "is a review, not a plan"),
        (b'{"stacks": [], "waves": []}', "is the schedule of the parts of a plan"),
        (b'{"schedule": "", "plan": {}}', "is a part of a plan of several stacks"),
        (b'{"steps": []}', "has no steps"),
        (b'{"steps": 7}', "has no steps"),
        (b'{"diagnostics": [], "maybeCorrupt": false}', "has no steps"),
        (b'{"steps": [3]}', "is not a preview: steps.0.urn is not the name of a resource"),
    ],
)
def test_invalid_plan_files_are_refused_with_a_position(content: bytes, message: str) -> None:
    error = get_refusal(content)
    assert message in str(error)
    assert error.hint


def test_a_newer_plan_format_is_refused() -> None:
    document = Plan.from_changes("demo", "dev", []).model_dump(mode="json") | {
        "format_version": "2"
    }
    assert "has format_version '2': this gpuform reads '1'" in str(
        get_refusal(json.dumps(document).encode())
    )


def test_a_wrong_value_is_not_shown() -> None:
    document = Plan.from_changes("demo", "dev", []).model_dump(mode="json") | {"stack": ["hunter2"]}
    error = get_refusal(json.dumps(document).encode())
    assert "stack: Input should be a valid string" in str(error)
    assert "hunter2" not in str(error)


def build_step(
    op: str, old: dict[str, Any] | None, new: dict[str, Any] | None, type_: str, **facts: Any
) -> dict[str, Any]:
    urn = f"urn:pulumi:prod::demo::{type_}::train"
    state = {"urn": urn, "custom": True, "type": type_}
    made: dict[str, Any] = {"op": op, "urn": urn, **facts}
    if old is not None:
        made["oldState"] = {**state, "id": "c-1", "inputs": old, "outputs": {**old, "ready": True}}
    if new is not None:
        made["newState"] = {**state, "inputs": new}
    return made


def read_preview(*steps: dict[str, Any], **facts: Any) -> Plan:
    return read_plan("preview.json", json.dumps({"steps": steps, **facts}).encode())


def list_changes(plan: Plan) -> list[tuple[str, str, str, bool]]:
    (change,) = plan.changes
    return [(str(c.action), c.path, c.after, c.forces_replacement) for c in change.changes]


def test_a_previewed_replacement_has_forcing_fields_and_gpus() -> None:
    moved = CLUSTER | {"region": "us-central-4", "num_gpus": 24}
    plan = read_preview(build_step("replace", CLUSTER, moved, TOGETHER, replaceReasons=["region"]))
    (change,) = plan.changes
    assert (plan.project, plan.stack, change.name) == ("demo", "prod", "train")
    assert (change.action, change.reason) == ("replace", "field_forces_replacement")
    assert (change.gpus_removed, change.gpus_added) == (16, 24)
    assert change.changes[0].because == "cannot be changed in place"
    assert list_changes(plan) == [
        ("update", "region", "us-central-4", True),
        ("update", "num_gpus", 24, False),
    ]


def test_the_physical_steps_of_a_replacement_are_one_change() -> None:
    moved = CLUSTER | {"region": "us-central-4"}
    plan = read_preview(
        build_step("create-replacement", CLUSTER, moved, TOGETHER, replaceReasons=["region"]),
        build_step("replace", CLUSTER, moved, TOGETHER, replaceReasons=["region"]),
        build_step("delete-replaced", CLUSTER, None, TOGETHER),
    )
    assert plan.summary == {"replace": 1}
    assert list_changes(plan) == [("update", "region", "us-central-4", True)]


def test_inputs_of_other_resource_types_are_compared() -> None:
    plan = read_preview(
        build_step(
            "replace",
            {"a": 1, "b": 2, "d": {"x": 1}, "__provider": "cos\nsystem\n"},
            {"b": 3, "c": UNKNOWN_TEXT, "d": {"x": 1}, "__provider": "other"},
            THING,
            detailedDiff={"b": {"kind": "update-replace"}},
        )
    )
    assert list_changes(plan) == [
        ("update", "b", 3, True),
        ("add", "c", None, False),
        ("delete", "a", None, False),
    ]
    assert plan.changes[0].changes[1].unknown
    assert plan.changes[0].replace_paths == ("b",)


def test_gaps_of_a_preview_are_listed_as_unchecked() -> None:
    password = {"os_user_password": "[secret]"}
    pool = "pulumi-python:dynamic/gpuform.scp:NodePool"
    changed = build_step("update", password | {"count": 2}, password | {"count": 3}, pool)
    plan = read_preview(
        changed,
        build_step("wonder", None, None, THING),
        diagnostics=[
            {"severity": "info", "message": "not checked: regions: there is no key"},
            {"severity": "error", "message": "no such type", "urn": changed["urn"]},
            {"severity": "warning", "message": "careful"},
        ],
    )
    assert plan.unchecked == (
        "train: Pulumi's operation wonder is unknown to gpuform",
        "train: whether os_user_password changes cannot be seen: the document masks secrets",
        "regions: there is no key",
        "changes of the stack's outputs: the JSON of a preview does not contain them",
    )
    assert plan.errors == ("train: no such type",)
    assert ("update", "count", 3, False) in list_changes(plan)


def test_a_huge_count_is_shown_unchanged() -> None:
    pool = "pulumi-python:dynamic/gpuform.scp:NodePool"
    plan = read_preview(build_step("update", {"count": 2}, {"count": 10**12}, pool))
    assert ("update", "count", 10**12, False) in list_changes(plan)


def test_a_masked_value_changes_if_the_diff_reasons_say_so() -> None:
    old, new = {"a": "[secret]", "b": "[secret]"}, {"a": "[secret]", "c": "[secret]"}
    plan = read_preview(build_step("update", old, new, TOGETHER, diffReasons=["a"]))
    changes_by_path = {c.path: c for c in plan.changes[0].changes}
    assert {path: str(c.action) for path, c in changes_by_path.items()} == {
        "a": "update",
        "b": "delete",
        "c": "add",
    }
    assert all(change.secret for change in changes_by_path.values())


def test_protect_and_retain_on_delete_are_shown_for_a_deletion() -> None:
    deleted = build_step("delete", CLUSTER, None, TOGETHER)
    deleted["oldState"]["protect"] = True
    plan = read_preview(deleted)
    assert plan.changes[0].gpus_removed == 16
    assert any("is protected: Pulumi will refuse" in note for note in plan.unchecked)
    deleted["oldState"] = {**deleted["oldState"], "protect": False, "retainOnDelete": True}
    (change,) = read_preview(deleted).changes
    assert (change.retained, change.gpus_removed) == (True, 0)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"oldState": 3}, "steps.0.oldState is not an object"),
        ({"oldState": {"type": THING}}, "steps.0.oldState: an entry of the state has no urn"),
        (
            {"newState": {"urn": "u", "type": THING, "inputs": {"a": {SIGNATURE_KEY: "x"}}}},
            "steps.0.newState: the state of u is malformed",
        ),
    ],
)
def test_a_malformed_preview_is_refused_with_the_path(broken: dict[str, Any], message: str) -> None:
    update_step = build_step("update", {"a": 1}, {"a": 2}, THING) | broken
    assert message in str(get_refusal(json.dumps({"steps": [update_step]}).encode()))


def test_the_next_command_depends_on_the_kind_of_plan() -> None:
    plan = read_preview(build_step("create", None, CLUSTER, TOGETHER))
    assert StackFacts(plan, "preview.json").command == "gpuform up --stack prod"
    saved = json.loads(SCENARIOS[0].read_text())
    saved |= {"basis": {"state": {}, "config": {}, "program": {}}}
    bound = read_plan("plan.json", json.dumps(saved).encode())
    assert StackFacts(bound, "a b.json").command == "gpuform up --plan 'a b.json' --stack dev"
    assert StackFacts(bound, "-").command == "gpuform up --stack dev"
    saved |= {"basis": {"state": {}, "config": {}, "program": {}, "seal": "2b62"}}
    gate = {
        "name": "size",
        "rule": "max_created",
        "level": "mandatory",
        "permission": "gate:size",
        "findings": ["big"],
    }
    saved |= {"gates": [gate]}
    sealed = read_plan("plan.json", json.dumps(saved).encode())
    assert StackFacts(sealed, "p.json").command == (
        "gpuform up --plan p.json --digest 2b62 --allow gate:size --stack dev"
    )
    assert StackFacts(plan, emulate=True).command == "gpuform up --emulate --stack prod"


def test_the_next_command_of_several_stacks_names_each_missing_permission_once() -> None:
    saved = json.loads(SCENARIOS[0].read_text())
    gate = {"name": "size", "rule": "python", "level": "mandatory", "permission": "gate:size"}
    saved |= {"gates": [gate | {"findings": ["big"]}]}
    saved["changes"][0] |= {"others": ["a node of another stack"]}
    plan = read_plan("plan.json", json.dumps(saved).encode())
    other = plan.model_copy(update={"project": "other"})
    combined = StacksPlan(name="fleet", plans=(plan, other))

    ((_, command),) = Review.from_stacks_plan(combined, "all.json").commands

    assert command == ("gpuform up --all --plan all.json --allow gate:size --allow destroy-others")
