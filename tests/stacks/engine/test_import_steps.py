"""Test what an import reads, refuses and plans, against a provider with fixed answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpuform.providers.values import UNKNOWN, Secret
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.errors import EngineError, GpuformError
from gpuform.schemas.plan import PlanAction
from gpuform.stacks.engine.planning import Op, Step, existing_objects
from gpuform.stacks.engine.provider_host import Created, Diff
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Owners

TYPE = "lab:Machine"
POOL = "gpuform:scp:NodePool"
CLUSTER = "pulumi-python:dynamic/gpuform.tensorone:Cluster"


def build_urn(name: str, type_: str = TYPE) -> str:
    return f"urn:pulumi:dev::lab::{type_}::{name}"


A = build_urn("a")


def build_goal(name: str = "a", id_: str = "m-7", type_: str = TYPE, **inputs: Any) -> Registration:
    return Registration(build_urn(name, type_), type_, name, True, inputs, import_id=id_)


def build_entry(name: str = "a", type_: str = TYPE, **fields: Any) -> ResourceState:
    return ResourceState(build_urn(name, type_), True, type_, **{"id": "m-7", **fields})


@dataclass
class Host:
    """A provider whose answers a test sets."""

    read_result: tuple[Created, Any] | None = None
    answer: Diff = Diff(False, (), delete_before_replace=False)  # noqa: RUF009 - frozen
    bound: bool = False
    made_of: Mapping[str, list[str]] = field(default_factory=dict)
    reads: list[Any] = field(default_factory=list)
    diffs: list[Any] = field(default_factory=list)

    def check(self, urn: str, olds: Any, news: Any, provider: str, **_: Any) -> Any:
        assert (olds, provider) == ({}, "p::1")
        return {**news, "checked": True}, []

    def read(self, *question: Any, **more: Any) -> Any:
        self.reads.append((question, more))
        return self.read_result

    def diff(self, *question: Any) -> Diff:
        self.diffs.append(question)
        return self.answer

    def count_gpus(self, resource: ResourceState) -> int:
        return int(resource.inputs.get("gpus", 0))

    def is_bound(self, urn: str, inputs: Any) -> bool:
        return self.bound

    def list_part_ids(self, resource: ResourceState) -> list[str]:
        return self.made_of.get(resource.id, [])

    def get_part_type(self, resource: ResourceState) -> str:
        return resource.type.replace("NodePool", "GpuNode")


def plan(host: Host, registration: Registration, **goal: Any) -> list[Step]:
    state = ResourceState(registration.urn, True, registration.type, provider="p::1", **goal)
    return existing_objects.build_import_steps(host, registration, None, state, as_of=5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("import_id", "old", "is_needed"),
    [
        ("", None, False),
        ("m-7", None, True),
        ("m-7", build_entry(external=True, id="m-9"), True),
        ("m-7", build_entry(), False),
        ("m-7", build_entry(id="m-9", import_id="m-7"), False),
    ],
)
def test_an_import_is_needed_until_the_stack_has_the_object(
    import_id: str, old: ResourceState | None, is_needed: bool
):
    assert existing_objects.should_import(build_goal(id_=import_id), old) is is_needed


def test_a_resource_with_another_id_cannot_be_imported():
    with pytest.raises(EngineError) as raised:
        existing_objects.should_import(build_goal(), build_entry(id="m-9"))
    assert raised.value.message == f"{A} has the id m-9 in the state, but import_ names m-7"
    assert raised.value.hint == (
        "remove import_, or declare another resource for the object to import"
    )


FOUND = Created("m-7", {"size": 1, "color": "red", "more": 5}, ["still booting"])


def test_an_object_that_matches_its_declaration_is_imported_without_update():
    host = Host((FOUND, {"size": 1}))
    (step,) = plan(host, build_goal(size=1), additional_secret_outputs=["more"])
    assert (step.op, step.urn, step.old) == (Op.IMPORT, A, None)
    assert step.new is not None
    assert (step.new.id, step.new.import_id) == ("m-7", "m-7")
    assert step.new.inputs == {"size": 1, "checked": True}
    assert step.new.outputs == {"size": 1, "color": "red", "more": Secret(5)}
    assert step.new.init_errors == ["still booting"]
    assert step.change is not None
    assert step.change.action is PlanAction.IMPORT
    inputs = {"size": 1, "checked": True}
    assert host.reads == [((A, "m-7", inputs, inputs), {"provider": "p::1", "as_of": 5.0})]
    assert host.diffs[0][:3] == (A, "m-7", step.new.outputs)


@pytest.mark.parametrize(
    ("read_inputs", "inputs"),
    [({"size": 3}, {"size": 3}), (None, {"size": 1, "blob": "x", "checked": True})],
)
def test_differing_properties_are_updated_after_the_import(read_inputs: Any, inputs: Any):
    host = Host((FOUND, read_inputs), Diff(True, (), delete_before_replace=False))
    taken, update = plan(host, build_goal(size=2, blob="x"))
    assert taken.new is not None
    assert taken.new.inputs == inputs
    assert (update.op, update.urn, update.old) == (Op.UPDATE, A, taken.new)
    assert update.new is not None
    assert update.new.inputs == {"size": 2, "blob": "x", "checked": True}
    assert update.new.import_id == "m-7"
    assert update.change is not None
    assert update.change.action is PlanAction.UPDATE
    assert "size" in [change.path for change in update.change.changes]
    assert taken.change is not None
    assert taken.change.changes == ()


def test_an_import_adds_no_gpus_and_its_update_adds_the_difference():
    host = Host((FOUND, {"gpus": 8}), Diff(True, (), delete_before_replace=False))
    changes = [step.change for step in plan(host, build_goal(gpus=12))]
    assert [change and (change.gpus_added, change.gpus_removed) for change in changes] == [
        (0, 0),
        (4, 0),
    ]


def test_the_update_after_an_import_has_the_providers_property_changes():
    fields = [FieldChange("shown", Action.UPDATE, 1, 2)]
    host = Host((FOUND, None), Diff(True, (), delete_before_replace=False, fields=fields))
    _, update = plan(host, build_goal(size=2))
    assert update.change is not None
    assert [change.path for change in update.change.changes] == ["shown"]


def test_a_read_resource_can_be_imported():
    old = build_entry(external=True)
    goal = ResourceState(A, True, TYPE, provider="p::1")
    host = Host((FOUND, None))
    (step,) = existing_objects.build_import_steps(host, build_goal(), old, goal, as_of=0.0)  # type: ignore[arg-type]
    assert step.old is old


def test_importing_a_missing_object_is_refused():
    with pytest.raises(EngineError) as raised:
        plan(Host(None), build_goal())
    assert raised.value.message == (
        f"{A}: import_ names m-7, but the platform does not show that object"
    )
    assert raised.value.hint == (
        "check the id, and that the credentials belong to the owner of the object"
    )


def test_an_import_that_would_force_a_replacement_is_refused():
    replaced = Diff(True, ["size", "rack"], delete_before_replace=False)
    with pytest.raises(EngineError) as raised:
        plan(Host((FOUND, None), replaced), build_goal(size=2))
    assert raised.value.message == (
        f"{A}: the object m-7 differs from its declaration in size, rack, which would replace it"
    )
    assert raised.value.hint == "declare the values that the object has"
    unchanged = replace(replaced, changes=False)
    assert len(plan(Host((FOUND, None), unchanged), build_goal(size=2))) == 1


class OtherStacks:
    """Stand for the other stacks of the backend."""

    def __init__(self, *resources: tuple[str, ResourceState], unreadable: Any = ()) -> None:
        self.resources, self.unreadable = [*resources], [*unreadable]
        self.claims: list[bool] = []

    def find_owners(self, *, claim: bool) -> Owners:
        self.claims.append(claim)
        return Owners(self.resources, self.unreadable)


def build_owned_entry(
    *base: ResourceState, host: Host | None = None, **more: Any
) -> existing_objects.OwnedObjects:
    defaults = {"others": None, "preview": True}
    return existing_objects.OwnedObjects(host or Host(), base, **{**defaults, **more})  # type: ignore[arg-type]


def get_refusal(ledger: existing_objects.OwnedObjects, registration: Registration) -> str:
    with pytest.raises(EngineError) as raised:
        ledger.claim_object(registration)
    assert raised.value.hint == (
        "if the resource was renamed, replace import_ by an alias with the earlier name; "
        "to move the object from another stack, run `gpuform state move`"
    )
    return raised.value.message


def test_an_object_of_the_stack_cannot_be_imported_again():
    ledger = build_owned_entry(build_entry("b"), build_entry("c", id="m-8"))
    assert get_refusal(ledger, build_goal()) == (
        f"{A}: import_ names m-7, which belongs to {build_urn('b')} of this stack"
    )
    ledger.claim_object(build_goal(id_="m-9"))
    ledger.claim_object(build_goal(id_="m-9"))
    assert get_refusal(ledger, build_goal("d", "m-9")) == (
        f"{build_urn('d')}: import_ names m-9, which belongs to {A}"
    )


@pytest.mark.parametrize("fields", [{"external": True}, {"pending_replacement": True}, {"id": ""}])
def test_an_entry_without_its_own_object_does_not_prevent_an_import(fields: Any):
    build_owned_entry(build_entry("b", **fields)).claim_object(
        build_goal(id_=fields.get("id", "m-7"))
    )


@pytest.mark.parametrize("preview", [True, False])
def test_importing_an_object_of_another_stack_is_an_error_with_its_name(preview: bool):
    others = OtherStacks(("org/lab/prod", build_entry("b")))
    ledger = build_owned_entry(others=others, preview=preview)
    assert get_refusal(ledger, build_goal()) == (
        f"{A}: import_ names m-7, which belongs to {build_urn('b')} of stack org/lab/prod"
    )
    ledger.claim_object(build_goal(id_="m-8"))
    assert others.claims == [not preview]


def test_an_unreadable_stack_prevents_the_import():
    ledger = build_owned_entry(others=OtherStacks(unreadable=[EngineError("unreadable")]))
    for _ in range(2):
        with pytest.raises(EngineError, match="unreadable"):
            ledger.claim_object(build_goal())


def test_a_bound_object_may_be_imported_several_times():
    build_owned_entry(build_entry("b"), host=Host(bound=True)).claim_object(build_goal())


@pytest.mark.parametrize(
    ("theirs", "ours", "is_refused"),
    [
        ({"__provider": "x"}, {"__provider": Secret("x")}, True),
        ({"__provider": "x"}, {"__provider": "y"}, False),
        ({}, {"__provider": "y"}, False),
    ],
)
def test_equal_ids_of_different_providers_are_different_objects(
    theirs: Any, ours: Any, is_refused: bool
):
    ledger = build_owned_entry(build_entry("b", inputs=theirs))
    if is_refused:
        get_refusal(ledger, build_goal(**ours))
    else:
        ledger.claim_object(build_goal(**ours))


def test_an_object_has_the_same_identity_in_both_resource_forms():
    dynamic = POOL.replace("gpuform:", "pulumi-python:dynamic/gpuform.")
    ledger = build_owned_entry(build_entry("b", dynamic, inputs={"__provider": "x"}))
    assert "which belongs to" in get_refusal(ledger, build_goal(type_=POOL))
    ledger.claim_object(build_goal(type_=POOL.replace("NodePool", "GpuNode")))


def test_a_part_of_an_owned_object_cannot_be_imported():
    node = POOL.replace("NodePool", "GpuNode")
    host = Host(made_of={"pool-1": ["n-1", "n-2"]})
    ledger = build_owned_entry(build_entry("b", POOL, id="pool-1"), host=host)
    assert "import_ names n-2, which" in get_refusal(ledger, build_goal(id_="n-2", type_=node))
    ledger.claim_object(build_goal(id_="n-2", type_=POOL))
    fresh = build_owned_entry(host=host)
    fresh.claim_object(build_goal("n", "n-1", type_=node))
    with pytest.raises(EngineError, match=f"^{build_urn('b', POOL)}: import_ names n-1, which"):
        fresh.claim_parts(build_entry("b", POOL, id="pool-1"))


def test_parts_of_a_resource_of_another_program_can_be_imported():
    host = Host(made_of={"m-7": ["n-1"]})
    build_owned_entry(build_entry("b"), host=host).claim_object(build_goal(id_="n-1"))


VOLUME = "gpuform:together:SharedVolume"


@pytest.mark.parametrize("region", ["us-central-8", Secret("us-central-8"), UNKNOWN])
def test_inputs_appended_to_an_import_id_are_not_part_of_the_id(region: Any):
    host = Host((FOUND, None))
    (step, *_) = plan(host, build_goal(id_="vol-1@us-central-8", type_=VOLUME, region=region))
    assert host.reads[0][0][:2] == (build_urn("a", VOLUME), "vol-1")
    assert step.new is not None
    assert step.new.import_id == "vol-1@us-central-8"
    assert not existing_objects.should_import(
        build_goal(id_="vol-1@us-central-8", type_=VOLUME), build_entry(type_=VOLUME, id="vol-1")
    )
    ledger = build_owned_entry(build_entry("b", VOLUME, id="vol-1"))
    assert "import_ names vol-1, which" in get_refusal(
        ledger, build_goal(id_="vol-1@x", type_=VOLUME)
    )


@pytest.mark.parametrize("region", ["us-central-4", None])
def test_an_input_in_the_import_id_that_contradicts_the_declaration_is_refused(region: Any):
    with pytest.raises(EngineError) as raised:
        plan(Host((FOUND, None)), build_goal(id_="vol-1@us-central-8", type_=VOLUME, region=region))
    assert raised.value.message == (
        f"{build_urn('a', VOLUME)}: import_ names the region us-central-8, but the program "
        "declares another one"
    )
    assert raised.value.hint == "declare the value after the @, or leave it out"


def test_an_empty_input_in_the_import_id_is_refused_before_any_read():
    host = Host((FOUND, None))
    with pytest.raises(GpuformError, match="vol-1@"):
        plan(host, build_goal(id_="vol-1@ ", type_=VOLUME))
    assert host.reads == []
