"""Test `gpu_type: H100` in place of a server type's id, which is found once and kept."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from gpuform.providers.emulator.scp.catalogue import PRODUCTS
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import PlanningLists
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.lifecycle.traits import to_properties, to_pulumi
from gpuform.providers.scp import offers
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.schemas.values import UNKNOWN

Properties = dict[str, Any]
KINDS: dict[str, type[Lifecycle[Any, Any]]] = {
    "NodePool": NodePoolLifecycle,
    "GpuNode": GpuNodeLifecycle,
}
H100, A100 = "f90e8ef54cc2451b825608e9f95f7bcb", "1b6d4f0c83a94e57b2c90a7d5e16f348"
SECOND = "0" * 31 + "2"
RUNS_ALL = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd"


@pytest.fixture(autouse=True)
def nothing_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the cached lists, as in a new process."""
    monkeypatch.setattr(offers, "cached_lists", PlanningLists())


@pytest.fixture
def by_gpu(pool_inputs: Properties) -> Properties:
    """Declare a pool of two H100 servers by their GPU type."""
    made = {k: v for k, v in pool_inputs.items() if k != "server_type_id"}
    return {**made, "count": 2, "image_id": RUNS_ALL, "gpu_type": "H100"}


@pytest.fixture
def second_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add another server type with H100 to the platform's offers."""
    other = replace(PRODUCTS[H100], product_id=SECOND, name="g4v256_metal")
    monkeypatch.setitem(PRODUCTS, SECOND, other)


def check_inputs(
    environment: Any, inputs: Properties, old: Properties | None = None, kind: str = "NodePool"
) -> tuple[Properties, dict[str, str]]:
    """Return the checked inputs and the failures of the check."""
    with environment.use_context("thing"):
        check_result = KINDS[kind]().check(old or {}, inputs)
    return dict(check_result.inputs), {
        failure.property: failure.reason for failure in check_result.failures
    }


@dataclass
class Made:
    """A resource as the state has it: its checked inputs, and its outputs."""

    kind: str
    id: str
    inputs: Properties
    outs: Properties
    name: str = "thing"

    @property
    def servers(self) -> set[str]:
        return {node["server_type"] for node in self.outs["gpu_nodes"].values()}


def create_by_gpu(environment: Any, inputs: Properties, kind: str = "NodePool") -> Made:
    inputs, wrong = check_inputs(environment, inputs, kind=kind)
    assert wrong == {}
    with environment.use_context("thing"):
        created = KINDS[kind]().create(inputs)
    return Made(kind, created.id, inputs, created.outs)


def test_the_gpu_type_selects_the_server_type_and_a_later_plan_is_empty(
    environment: Any, by_gpu: Properties
) -> None:
    inputs, wrong = check_inputs(environment, by_gpu)
    assert (inputs["server_type_id"], inputs["gpu_type"], wrong) == (H100, "H100", {})
    pool = create_by_gpu(environment, by_gpu)
    assert pool.outs["server_type_id"] == H100
    assert pool.servers == {"g2v192m1920_metal"}
    again, wrong = check_inputs(environment, by_gpu, pool.inputs)
    assert (again, wrong) == (pool.inputs, {})
    assert environment.list_changes(pool, again) == {}
    refreshed = environment.refresh(pool)
    assert (refreshed.outs["server_type_id"], refreshed.outs["gpu_type"]) == (H100, "H100")
    assert environment.list_changes(refreshed, again) == {}


def test_one_list_is_requested_for_all_and_none_for_a_kept_id(
    environment: Any, by_gpu: Properties
) -> None:
    environment.count_requests()
    for _ in range(3):
        check_inputs(environment, by_gpu)
    asked = [
        request
        for request in environment.call_emulator("GET", "requests")
        if "products" in request["path"]
    ]
    # One list of all types, and one of those that run the image.
    assert len(asked) == 2


def test_a_second_type_replaces_nothing_and_is_refused_for_new_resources(
    environment: Any, by_gpu: Properties, request: pytest.FixtureRequest
) -> None:
    pool = create_by_gpu(environment, by_gpu)
    request.getfixturevalue("second_type")
    offers.cached_lists.answers.clear()
    again, wrong = check_inputs(environment, by_gpu, pool.inputs)
    assert (again["server_type_id"], wrong) == (H100, {})
    assert environment.list_changes(pool, again) == {}
    more = {**by_gpu, "count": 3}
    grown = environment.update(pool, check_inputs(environment, more, pool.inputs)[0])
    assert [node["server_type"] for node in grown.nodes.values()] == ["g2v192m1920_metal"] * 3
    _, wrong = check_inputs(environment, by_gpu)
    assert list(wrong) == ["gpu_type"]
    for part in (f"{H100} (g2v192m1920_metal)", f"{SECOND} (g4v256_metal)", "server_type_id"):
        assert part in wrong["gpu_type"]


def test_a_second_type_that_is_out_of_stock_is_ignored(
    environment: Any, by_gpu: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = replace(PRODUCTS[H100], product_id=SECOND, state="UNAVAILABLE")
    monkeypatch.setitem(PRODUCTS, SECOND, empty)
    assert check_inputs(environment, by_gpu)[0]["server_type_id"] == H100
    monkeypatch.setitem(PRODUCTS, H100, replace(PRODUCTS[H100], gpu_model="H200"))
    offers.cached_lists.answers.clear()
    _, wrong = check_inputs(environment, by_gpu)
    assert "is UNAVAILABLE" in wrong["gpu_type"]


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ("H10O", "did you mean H100? The platform has A100, B200, H100"),
        ("Voodoo2", "use one of A100, B200, H100"),
        ("B200", "is UNAVAILABLE"),
    ],
)
def test_an_unknown_gpu_is_refused(
    environment: Any, by_gpu: Properties, gpu: str, message: str
) -> None:
    _, wrong = check_inputs(environment, {**by_gpu, "gpu_type": gpu})
    assert list(wrong) == ["gpu_type"]
    assert message in wrong["gpu_type"]


def test_exactly_one_of_gpu_type_and_server_type_id_is_declared(
    environment: Any, by_gpu: Properties
) -> None:
    _, wrong = check_inputs(environment, {**by_gpu, "server_type_id": H100})
    assert wrong == {"gpu_type": "conflicts with server_type_id: keep one of the two"}
    _, wrong = check_inputs(environment, {k: v for k, v in by_gpu.items() if k != "gpu_type"})
    assert list(wrong) == ["server_type_id"]
    assert "or a gpu_type" in wrong["server_type_id"]
    _, wrong = check_inputs(environment, {**by_gpu, "gpu_type": ""})
    assert list(wrong) == ["gpu_type"]


def test_gpu_type_in_place_of_its_server_type_id_plans_nothing(
    environment: Any, by_gpu: Properties, pool_inputs: Properties
) -> None:
    pool = create_by_gpu(environment, by_gpu)
    by_id = {k: v for k, v in by_gpu.items() if k != "gpu_type"} | {"server_type_id": H100}
    assert environment.list_changes(pool, check_inputs(environment, by_id, pool.inputs)[0]) == {}
    own = {"gpu_node_name_prefix": "old", "cluster_fabric_name": "old-one"}
    old = create_by_gpu(environment, {**pool_inputs, **own})
    named = {k: v for k, v in old.inputs.items() if k != "server_type_id"} | {"gpu_type": "H100"}
    again, wrong = check_inputs(environment, named, old.inputs)
    assert wrong == {}
    assert environment.list_changes(old, again) == {}


def test_the_id_of_the_state_stays_where_several_types_have_the_gpu(
    environment: Any, by_gpu: Properties, second_type: None
) -> None:
    old = {k: v for k, v in by_gpu.items() if k != "gpu_type"} | {"server_type_id": SECOND}
    assert check_inputs(environment, by_gpu, old)[0]["server_type_id"] == SECOND


def test_another_gpu_replaces_the_nodes(environment: Any, by_gpu: Properties) -> None:
    pool = create_by_gpu(environment, by_gpu)
    other, wrong = check_inputs(environment, {**by_gpu, "gpu_type": "A100"}, pool.inputs)
    assert (other["server_type_id"], wrong) == (A100, {})
    assert environment.diff(pool, other) == ["server_type_id"]


def test_an_unknown_gpu_type_is_not_checked(environment: Any, by_gpu: Properties) -> None:
    inputs, wrong = check_inputs(environment, to_pulumi({**by_gpu, "gpu_type": UNKNOWN}))
    assert wrong == {}
    assert to_properties(inputs)["server_type_id"] is UNKNOWN
    assert environment.count_requests()["GET"] <= 3  # the image and the pool alone


def test_the_type_is_looked_up_by_the_create_if_the_plan_got_no_answer(
    environment: Any, by_gpu: Properties
) -> None:
    environment.inject_fault("GET", "/v1/gpu-nodes/products", status=503, count=None)
    inputs, wrong = check_inputs(environment, by_gpu)
    assert (wrong, "server_type_id" in inputs) == ({}, False)
    assert "were not checked with SCP" in environment.unchecked[0]
    environment.remove_faults()
    with environment.use_context("thing"):
        created = NodePoolLifecycle().create(inputs)
    assert Made("NodePool", created.id, inputs, created.outs).servers == {"g2v192m1920_metal"}
    offers.cached_lists.answers.clear()
    later, _ = check_inputs(environment, by_gpu, inputs)
    assert later["server_type_id"] == H100
    changes = NodePoolLifecycle().list_changes(created.outs, later)
    assert [(change.path, change.replaces, change.is_sent) for change in changes] == [
        ("server_type_id", False, False)
    ]


def test_without_an_answer_a_change_to_gpu_type_is_refused(
    environment: Any, by_gpu: Properties
) -> None:
    environment.inject_fault("GET", "/v1/gpu-nodes/products", status=503, count=None)
    inputs_with_id = {**by_gpu, "server_type_id": H100}
    assert check_inputs(environment, by_gpu, inputs_with_id) == (inputs_with_id, {})
    for old in (
        {**inputs_with_id, "gpu_type": "A100"},
        {k: v for k, v in inputs_with_id.items() if k != "gpu_type"},
    ):
        _, wrong = check_inputs(environment, by_gpu, old)
        assert list(wrong) == ["gpu_type"]
        assert "plan again" in wrong["gpu_type"]


def test_a_single_node_is_found_by_its_gpu(
    environment: Any, by_gpu: Properties, node_inputs: Properties, second_type: None
) -> None:
    pool = create_by_gpu(environment, {**by_gpu, "gpu_type": "A100"})
    inputs = {k: v for k, v in node_inputs.items() if k != "server_type_id"}
    inputs |= {"cluster_fabric_id": pool.outs["cluster_fabric_id"], "image_id": RUNS_ALL}
    _, wrong = check_inputs(environment, {**inputs, "gpu_type": "H100"}, kind="GpuNode")
    assert "2 server types have H100" in wrong["gpu_type"]
    node = create_by_gpu(environment, {**inputs, "gpu_type": "A100"}, "GpuNode")
    assert node.outs["server_type"] == "g1v128m1024_metal"
    with (
        environment.use_context("other"),
        pytest.raises(GpuformError, match="gpu_type: 2 server types"),
    ):
        GpuNodeLifecycle().create({**inputs, "gpu_node_name": "other", "gpu_type": "H100"})


def test_prices_and_gates_get_the_declared_gpu_name(by_gpu: Properties) -> None:
    both = {**by_gpu, "server_type_id": H100}
    footprint = NodePoolLifecycle.hooks.compute_resource_usage(both, {})
    assert footprint.gpu_types == ("H100",)
    assert footprint.expenses[0].gpu_type == "H100"
    unknown = NodePoolLifecycle.hooks.compute_resource_usage({**both, "gpu_type": UNKNOWN}, {})
    assert "gpu_types" in unknown.unknown
    by_id = {k: v for k, v in both.items() if k != "gpu_type"}
    assert NodePoolLifecycle.hooks.compute_resource_usage(by_id, {}).gpu_types == (H100,)
