"""Test SCP's wire models against the document's answers and requests."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, ValidationError
from support.platforms.scp_document import (
    CREATE,
    ENDPOINTS,
    FABRIC,
    MOVE,
    NODE,
    Endpoint,
    add_newer_fields,
)

from gpuform.schemas.models import WireList
from gpuform.schemas.scp import node_rules, outputs, wire
from gpuform.schemas.scp.outputs import to_unix_time

MODELS: dict[str, type[BaseModel]] = {
    "1.1": wire.NodeAnswer,
    "1.2": wire.AsyncAnswer,
    "1.3": wire.AsyncAnswer,
    "1.4": wire.ClusterFabricList,
    "1.5": wire.ImageList,
    "1.6": wire.ProductList,
    "1.7": wire.GpuNodeList,
    "1.8": wire.VendorPoolList,
    "1.9": wire.NodeAnswer,
    "1.10": wire.AsyncAnswer,
    "1.11": wire.NodeAnswer,
    "1.12": wire.ClusterFabric,
    "1.13": wire.GpuNode,
    "1.14": wire.AsyncAnswer,
    "1.15": wire.AsyncAnswer,
    "1.16": wire.NodeAnswer,
}


def dump_with_secrets(value: Any) -> Any:
    """Return a parsed model as JSON with all secrets."""
    if isinstance(value, BaseModel):
        return {name: dump_with_secrets(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, tuple):
        return [dump_with_secrets(item) for item in value]
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def test_the_document_has_sixteen_endpoints() -> None:
    assert [endpoint.number for endpoint in ENDPOINTS] == [f"1.{number}" for number in range(1, 17)]
    assert MODELS.keys() == {endpoint.number for endpoint in ENDPOINTS}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=str)
def test_exactly_the_documented_fields_are_parsed(endpoint: Endpoint) -> None:
    parsed = dump_with_secrets(MODELS[endpoint.number].model_validate(endpoint.answer))
    assert parsed == add_newer_fields(endpoint.answer)


@pytest.mark.parametrize("model", sorted(set(MODELS.values()), key=lambda model: model.__name__))
def test_an_answer_of_nulls_equals_one_with_ids_only(model: type[BaseModel]) -> None:
    required_value: Any = () if issubclass(model, WireList) else "x"
    required = {n: required_value for n, field in model.model_fields.items() if field.is_required()}
    nulls = dict.fromkeys(model.model_fields)
    assert model.model_validate({**nulls, **required}) == model.model_validate(required)


@pytest.mark.parametrize("model", [wire.GpuNode, wire.ClusterFabric, wire.Image, wire.Product])
def test_an_answer_without_id_is_refused(model: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="id"):
        model.model_validate({"state": "RUNNING"})


def test_unknown_states_are_kept_and_unknown_fields_ignored() -> None:
    read = wire.GpuNode.model_validate({**NODE, "state": "HIBERNATING", "rack": {"a": 1}})
    assert read.state == "HIBERNATING"
    assert wire.ClusterFabric.model_validate({**FABRIC, "pirp_id": 20}).pirp_id == "20"
    assert wire.Image.model_validate({"id": "x", "created_at": "soon"}).created_at == "soon"


@pytest.mark.parametrize(
    "item",
    [
        {"cluster_fabric_id": "f-1", "cluster_fabric_name": "train"},
        {"id": "f-1", "cluster_name": "train"},
    ],
)
def test_fabrics_of_a_pool_are_parsed_under_both_field_names(item: dict[str, str]) -> None:
    pool = wire.VendorPool.model_validate({"node_pool_id": "P", "cluster_fabric_details": [item]})
    (fabric,) = pool.cluster_fabric_details
    assert (fabric.cluster_fabric_id, fabric.cluster_fabric_name) == ("f-1", "train")


def test_no_repr_or_dump_contains_an_init_script() -> None:
    read = wire.GpuNode.model_validate({**NODE, "init_script": "curl hunter2"})
    assert read.init_script.get_secret_value() == "curl hunter2"
    assert "hunter2" not in f"{read} {read!r} {read.model_dump()} {read.model_dump_json()}"
    with pytest.raises(ValidationError) as refused:
        wire.GpuNode.model_validate({**NODE, "init_script": ["hunter2"]})
    assert "hunter2" not in str(refused.value)


_IDS = st.lists(st.text("0123456789abcdef", min_size=1, max_size=32), unique=True)


@given(_IDS, st.text(" \t", max_size=2), st.text(" ", max_size=2))
def test_the_ids_of_a_create_may_have_spaces(ids: list[str], before: str, after: str) -> None:
    answer = wire.AsyncAnswer(resource_id=f"{before},{after}".join(ids))
    assert answer.node_ids == ids


@pytest.mark.parametrize("nothing", ["", " ", ",", " , ,"])
def test_an_empty_resource_id_has_no_node_ids(nothing: str) -> None:
    assert wire.AsyncAnswer(resource_id=nothing).node_ids == []


def test_repeated_ids_are_returned_once() -> None:
    assert wire.AsyncAnswer(resource_id="b, a,b").node_ids == ["b", "a"]


# Requests


def build_documented_create() -> wire.CreateGpuNodes:
    fabric = wire.ClusterFabricDetails(**CREATE["cluster_fabric_details"])
    servers = tuple(wire.ServerDetails(**details) for details in CREATE["server_details"])
    tags = tuple(wire.Tag(**tag) for tag in CREATE["tags"])
    parts = {"cluster_fabric_details": fabric, "server_details": servers, "tags": tags}
    return wire.CreateGpuNodes(**{**CREATE, **parts})


def to_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    return [to_json(item) for item in value] if isinstance(value, list | tuple) else value


def test_the_documented_create_request() -> None:
    assert to_json(build_documented_create().body()) == CREATE


def test_omitted_values_of_a_create_are_sent_as_null() -> None:
    body = wire.CreateGpuNodes(
        cluster_fabric_details=wire.ClusterFabricDetails(
            cluster_fabric_name="train", node_pool_id="P"
        ),
        image_id="I",
        os_user_id="root",
        os_user_password="p",
        region_id="kr-west1",
        server_details=(wire.ServerDetails(gpu_node_name="n-001", server_type_id="S"),),
        subnet_id="s",
        vpc_id="v",
    ).body()
    assert body.keys() == CREATE.keys()
    assert body["cluster_fabric_details"]["cluster_fabric_id"] is None
    assert (body["init_script"], body["lock_enabled"], body["tags"]) == (None, False, ())
    assert body["server_details"][0] == {
        "gpu_node_name": "n-001",
        "server_type_id": "S",
        "ip_address": None,
        "nat_enabled": False,
        "public_ip_address_id": None,
    }


def test_the_repr_of_a_create_request_hides_secrets() -> None:
    rendered = repr(build_documented_create())
    assert "'password'" not in rendered
    assert "'init script'" not in rendered
    assert set(wire.SECRET_MEMBERS) == {"os_user_password", "init_script"}


def test_requests_with_few_fields_are_serialized() -> None:
    assert wire.build_node_selection(("a", "b")) == {"gpu_node_ids": ["a", "b"]}
    assert wire.build_public_nat_ip("ip") == {"public_ip_address_id": "ip"}
    assert wire.build_member_move("from", "to", ["a"]) == {
        "before_cluster_fabric_id": "from",
        "after_cluster_fabric_id": "to",
        "gpu_node_id_list": ["a"],
    }
    assert wire.build_member_move("", "", []).keys() == MOVE.keys()


# States, times, places


def test_every_state_has_one_meaning() -> None:
    sets = (
        outputs.STABLE_NODE_STATES,
        outputs.FAILED_NODE_STATES,
        outputs.DELETING_NODE_STATES,
        outputs.PENDING_NODE_STATES,
    )
    assert sum(len(states) for states in sets) == len(outputs.NodeState)
    assert frozenset().union(*sets) == frozenset(outputs.NodeState)
    assert "EDITING" in outputs.PENDING_NODE_STATES
    assert NODE["state"] in outputs.STABLE_NODE_STATES
    assert FABRIC["state"] in outputs.READY_FABRIC_STATES


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-05-17T00:23:17Z", datetime(2024, 5, 17, 0, 23, 17, tzinfo=UTC)),
        ("2024-05-17T09:23:17+09:00", datetime(2024, 5, 17, 0, 23, 17, tzinfo=UTC)),
        ("2024-07-11 08:56:59", datetime(2024, 7, 11, 8, 56, 59, tzinfo=UTC)),
        ("2024-07-11T08:56:59.5", datetime(2024, 7, 11, 8, 56, 59, 500_000, tzinfo=UTC)),
    ],
)
def test_documented_forms_of_a_time_are_parsed(text: str, moment: datetime) -> None:
    assert to_unix_time(text) == moment.timestamp()


@pytest.mark.parametrize("text", [None, "", "soon", "1715905397", "2024-13-41"])
def test_text_that_is_no_time_converts_to_none(text: str | None) -> None:
    assert to_unix_time(text) is None


def test_regions_have_the_documented_addresses() -> None:
    pairs = [
        (region, environment)
        for environment, regions in node_rules.REGIONS.items()
        for region in regions
    ]
    assert set(pairs) == {
        ("kr-west1", "s"), ("kr-east1", "s"),
        ("kr-south1", "g"), ("kr-south2", "g"), ("kr-south3", "g"),
        ("kr-west1", "e"), ("kr-east1", "e"),
    }  # fmt: skip
    assert {node_rules.build_service_url(*pair) for pair in pairs} == {
        f"https://multinodegpucluster.{region}.{environment}.samsungsdscloud.com"
        for region, environment in pairs
    }


@pytest.mark.parametrize("pair", [("kr-west1", "g"), ("kr-south1", "e"), ("x", "s"), ("", "")])
def test_an_unknown_region_and_environment_is_refused_with_the_list(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="g has kr-south1, kr-south2, kr-south3"):
        node_rules.build_service_url(*pair)


def test_a_region_lists_its_environments() -> None:
    assert node_rules.find_environments("kr-west1") == ["s", "e"]
    assert node_rules.find_environments("kr-south2") == ["g"]
    assert node_rules.find_environments("mars-1") == []


def test_the_documented_versions_are_known() -> None:
    assert outputs.format_version_header(outputs.CURRENT_VERSION) == "multinodegpucluster 1.2"
    ends = {version: f"{end:%Y%m%d}" for version, end in outputs.DEPRECATED_VERSIONS.items()}
    assert ends == {"1.1": "20260331", "1.0": "20251231"}


@pytest.mark.parametrize(
    ("answered", "zone"), [("kr-west1-a", "kr-west1-a"), (None, ""), ({"a": 1}, ""), ("a\nb", "")]
)
def test_a_zone_of_another_form_does_not_make_a_node_unreadable(answered: Any, zone: str) -> None:
    assert wire.GpuNode.model_validate({**NODE, "zone": answered}).zone == zone


def test_only_servers_with_a_zone_have_the_member_zone() -> None:
    servers = [
        wire.ServerDetails(gpu_node_name=name, server_type_id="h100", zone=zone)
        for name, zone in (("a-001", "kr-west1-a"), ("a-002", None))
    ]
    request = wire.CreateGpuNodes(
        cluster_fabric_details=wire.ClusterFabricDetails(cluster_fabric_name="a", node_pool_id="p"),
        image_id="i",
        os_user_id="root",
        os_user_password="x",
        region_id="kr-west1",
        server_details=tuple(servers),
        subnet_id="s",
        vpc_id="v",
    )
    first, second = request.body()["server_details"]
    assert (first["zone"], "zone" in second) == ("kr-west1-a", False)
