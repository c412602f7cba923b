"""What an import asks, refuses and plans, against a provider with set answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.plan import PlanAction
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import Op, Step, importing
from gpuform.stacks.engine.provider_host import Created, Diff
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Owners
from gpuform.stacks.engine.values import UNKNOWN, Secret

TYPE = "lab:Machine"
POOL = "gpuform:scp:NodePool"
CLUSTER = "pulumi-python:dynamic/gpuform.tensorone:Cluster"


def urn_of(name: str, type_: str = TYPE) -> str:
    return f"urn:pulumi:dev::lab::{type_}::{name}"


A = urn_of("a")


def declared(name: str = "a", id_: str = "m-7", type_: str = TYPE, **inputs: Any) -> Registration:
    return Registration(urn_of(name, type_), type_, name, True, inputs, import_id=id_)


def entry(name: str = "a", type_: str = TYPE, **fields: Any) -> ResourceState:
    return ResourceState(urn_of(name, type_), True, type_, **{"id": "m-7", **fields})


@dataclass
class Host:
    """A provider whose every answer a test sets."""

    found: tuple[Created, Any] | None = None
    answer: Diff = Diff(False, (), delete_before_replace=False)  # noqa: RUF009 - frozen
    bound: bool = False
    made_of: Mapping[str, list[str]] = field(default_factory=dict)
    reads: list[Any] = field(default_factory=list)
    diffs: list[Any] = field(default_factory=list)

    def check(self, urn: str, olds: Any, news: Any, provider: str) -> Any:
        assert (olds, provider) == ({}, "p::1")
        return {**news, "checked": True}, []

    def read(self, *question: Any, **more: Any) -> Any:
        self.reads.append((question, more))
        return self.found

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
    return importing.build_import_steps(host, registration, None, state, as_of=5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("import_id", "old", "is_wanted"),
    [
        ("", None, False),
        ("m-7", None, True),
        ("m-7", entry(external=True, id="m-9"), True),
        ("m-7", entry(), False),
        ("m-7", entry(id="m-9", import_id="m-7"), False),
    ],
)
def test_an_import_is_wanted_until_the_stack_has_the_object(
    import_id: str, old: ResourceState | None, is_wanted: bool
):
    assert importing.should_import(declared(id_=import_id), old) is is_wanted


def test_a_resource_of_another_object_cannot_import():
    with pytest.raises(EngineError) as raised:
        importing.should_import(declared(), entry(id="m-9"))
    assert raised.value.message == f"{A} has the id m-9 in the state, but import_ names m-7"
    assert raised.value.hint == (
        "remove import_, or declare another resource for the object to import"
    )


FOUND = Created("m-7", {"size": 1, "color": "red", "more": 5}, ["still booting"])


def test_an_object_as_declared_is_taken_over_and_not_changed():
    host = Host((FOUND, {"size": 1}))
    (step,) = plan(host, declared(size=1), additional_secret_outputs=["more"])
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
def test_what_differs_is_updated_after_the_import(read_inputs: Any, inputs: Any):
    host = Host((FOUND, read_inputs), Diff(True, (), delete_before_replace=False))
    taken, update = plan(host, declared(size=2, blob="x"))
    assert taken.new is not None
    assert taken.new.inputs == inputs
    assert (update.op, update.urn, update.old) == (Op.UPDATE, A, taken.new)
    assert update.new is not None
    assert update.new.inputs == {"size": 2, "blob": "x", "checked": True}
    assert update.new.import_id == "m-7"
    assert update.change is not None
    assert update.change.action is PlanAction.UPDATE
    assert "size" in [each.path for each in update.change.changes]
    assert taken.change is not None
    assert taken.change.changes == ()


def test_an_import_brings_no_gpus_and_its_update_those_that_differ():
    host = Host((FOUND, {"gpus": 8}), Diff(True, (), delete_before_replace=False))
    changes = [step.change for step in plan(host, declared(gpus=12))]
    assert [each and (each.gpus_added, each.gpus_removed) for each in changes] == [(0, 0), (4, 0)]


def test_the_update_after_an_import_shows_the_providers_own_fields():
    fields = [FieldChange("shown", Action.UPDATE, 1, 2)]
    host = Host((FOUND, None), Diff(True, (), delete_before_replace=False, fields=fields))
    _, update = plan(host, declared(size=2))
    assert update.change is not None
    assert [each.path for each in update.change.changes] == ["shown"]


def test_an_object_that_was_only_read_becomes_the_stacks_own():
    old = entry(external=True)
    goal = ResourceState(A, True, TYPE, provider="p::1")
    host = Host((FOUND, None))
    (step,) = importing.build_import_steps(host, declared(), old, goal, as_of=0.0)  # type: ignore[arg-type]
    assert step.old is old


def test_an_object_that_does_not_exist_is_refused():
    with pytest.raises(EngineError) as raised:
        plan(Host(None), declared())
    assert raised.value.message == (
        f"{A}: import_ names m-7, but the platform does not show that object"
    )
    assert raised.value.hint == "check the id, and that the credentials are those of its owner"


def test_an_object_that_the_declaration_would_replace_is_refused():
    replaced = Diff(True, ["size", "rack"], delete_before_replace=False)
    with pytest.raises(EngineError) as raised:
        plan(Host((FOUND, None), replaced), declared(size=2))
    assert raised.value.message == (
        f"{A}: the object m-7 differs from its declaration in size, rack, which would replace it"
    )
    assert raised.value.hint == "declare the object's own values"
    unchanged = replace(replaced, changes=False)
    assert len(plan(Host((FOUND, None), unchanged), declared(size=2))) == 1


class Others:
    """Other stacks of the backend."""

    def __init__(self, *resources: tuple[str, ResourceState], unreadable: Any = ()) -> None:
        self.resources, self.unreadable = [*resources], [*unreadable]
        self.claims: list[bool] = []

    def find_owners(self, *, claim: bool) -> Owners:
        self.claims.append(claim)
        return Owners(self.resources, self.unreadable)


def owned(*base: ResourceState, host: Host | None = None, **more: Any) -> importing.OwnedObjects:
    defaults = {"others": None, "preview": True}
    return importing.OwnedObjects(host or Host(), base, **{**defaults, **more})  # type: ignore[arg-type]


def refusal(ledger: importing.OwnedObjects, registration: Registration) -> str:
    with pytest.raises(EngineError) as raised:
        ledger.claim_object(registration)
    assert raised.value.hint == (
        "instead of import_, give the resource that name as an alias; to move an object "
        "from another stack, run `gpuform state move`"
    )
    return raised.value.message


def test_an_object_of_the_stack_is_not_imported_a_second_time():
    ledger = owned(entry("b"), entry("c", id="m-8"))
    assert refusal(ledger, declared()) == (
        f"{A}: import_ names m-7, which belongs to {urn_of('b')} of this stack"
    )
    ledger.claim_object(declared(id_="m-9"))
    ledger.claim_object(declared(id_="m-9"))
    assert refusal(ledger, declared("d", "m-9")) == (
        f"{urn_of('d')}: import_ names m-9, which belongs to {A}"
    )


@pytest.mark.parametrize("fields", [{"external": True}, {"pending_replacement": True}, {"id": ""}])
def test_an_entry_without_an_object_of_its_own_keeps_nothing(fields: Any):
    owned(entry("b", **fields)).claim_object(declared(id_=fields.get("id", "m-7")))


@pytest.mark.parametrize("preview", [True, False])
def test_an_object_of_another_stack_is_refused_by_the_stacks_name(preview: bool):
    others = Others(("org/lab/prod", entry("b")))
    ledger = owned(others=others, preview=preview)
    assert refusal(ledger, declared()) == (
        f"{A}: import_ names m-7, which belongs to {urn_of('b')} of stack org/lab/prod"
    )
    ledger.claim_object(declared(id_="m-8"))
    assert others.claims == [not preview]


def test_a_stack_that_cannot_be_read_stops_the_import():
    ledger = owned(others=Others(unreadable=[EngineError("unreadable")]))
    for _ in range(2):
        with pytest.raises(EngineError, match="unreadable"):
            ledger.claim_object(declared())


def test_any_number_of_resources_may_stand_for_what_is_only_bound():
    owned(entry("b"), host=Host(bound=True)).claim_object(declared())


@pytest.mark.parametrize(
    ("theirs", "ours", "is_refused"),
    [
        ({"__provider": "x"}, {"__provider": Secret("x")}, True),
        ({"__provider": "x"}, {"__provider": "y"}, False),
        ({}, {"__provider": "y"}, False),
    ],
)
def test_ids_of_other_providers_are_other_objects(theirs: Any, ours: Any, is_refused: bool):
    ledger = owned(entry("b", inputs=theirs))
    if is_refused:
        refusal(ledger, declared(**ours))
    else:
        ledger.claim_object(declared(**ours))


def test_an_own_resource_is_the_same_in_both_forms():
    dynamic = POOL.replace("gpuform:", "pulumi-python:dynamic/gpuform.")
    ledger = owned(entry("b", dynamic, inputs={"__provider": "x"}))
    assert "which belongs to" in refusal(ledger, declared(type_=POOL))
    ledger.claim_object(declared(type_=POOL.replace("NodePool", "GpuNode")))


def test_the_parts_of_an_object_are_not_imported_beside_it():
    node = POOL.replace("NodePool", "GpuNode")
    host = Host(made_of={"pool-1": ["n-1", "n-2"]})
    ledger = owned(entry("b", POOL, id="pool-1"), host=host)
    assert "import_ names n-2, which" in refusal(ledger, declared(id_="n-2", type_=node))
    ledger.claim_object(declared(id_="n-2", type_=POOL))
    fresh = owned(host=host)
    fresh.claim_object(declared("n", "n-1", type_=node))
    with pytest.raises(EngineError, match=f"^{urn_of('b', POOL)}: import_ names n-1, which"):
        fresh.claim_parts(entry("b", POOL, id="pool-1"))


def test_the_parts_of_another_programs_resource_are_nobodys():
    host = Host(made_of={"m-7": ["n-1"]})
    owned(entry("b"), host=host).claim_object(declared(id_="n-1"))


VOLUME = "gpuform:together:SharedVolume"


@pytest.mark.parametrize("region", ["us-central-8", Secret("us-central-8"), UNKNOWN])
def test_an_input_behind_the_id_is_no_part_of_it(region: Any):
    host = Host((FOUND, None))
    (step, *_) = plan(host, declared(id_="vol-1@us-central-8", type_=VOLUME, region=region))
    assert host.reads[0][0][:2] == (urn_of("a", VOLUME), "vol-1")
    assert step.new is not None
    assert step.new.import_id == "vol-1@us-central-8"
    assert not importing.should_import(
        declared(id_="vol-1@us-central-8", type_=VOLUME), entry(type_=VOLUME, id="vol-1")
    )
    ledger = owned(entry("b", VOLUME, id="vol-1"))
    assert "import_ names vol-1, which" in refusal(ledger, declared(id_="vol-1@x", type_=VOLUME))


@pytest.mark.parametrize("region", ["us-central-4", None])
def test_an_input_behind_the_id_that_is_declared_otherwise_is_refused(region: Any):
    with pytest.raises(EngineError) as raised:
        plan(Host((FOUND, None)), declared(id_="vol-1@us-central-8", type_=VOLUME, region=region))
    assert raised.value.message == (
        f"{urn_of('a', VOLUME)}: import_ names the region us-central-8, but the program "
        "declares another one"
    )
    assert raised.value.hint == "declare the value after the @, or leave it out"


def test_an_empty_input_behind_the_id_is_refused_before_anything_is_read():
    host = Host((FOUND, None))
    with pytest.raises(EngineError, match="vol-1@"):
        plan(host, declared(id_="vol-1@ ", type_=VOLUME))
    assert host.reads == []
