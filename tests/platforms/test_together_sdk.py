"""Test that gpuform knows every call, parameter and answer of the installed `together` package.

A newer package with a new field fails here, and names the field: support it, or list it in
together.yaml with the reason why not.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

import pytest
from platforms.documented import list_leaf_paths, load_document
from pydantic import BaseModel
from together.resources.clusters.clusters import ClustersResource
from together.resources.clusters.remediations import RemediationsResource
from together.resources.clusters.storage import StorageResource
from together.types import Cluster
from together.types.cluster_list_regions_response import Region
from together.types.clusters.cluster_storage import ClusterStorage
from typing_extensions import is_typeddict

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.together import wire

DOCUMENT = load_document("together").given
RESOURCES = {
    "clusters": ClustersResource,
    "clusters.storage": StorageResource,
    "": RemediationsResource,
}
"""The SDK's classes, by how together.yaml names their methods."""


def _list_methods(resource: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, member in vars(resource).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            yield name, member


def test_every_call_of_the_sdk_is_documented() -> None:
    calls = {call["real client"][1] for call in DOCUMENT["calls"] if "real client" in call}
    sdk_calls = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, resource in RESOURCES.items()
        for name, _ in _list_methods(resource)
    }
    unsupported = {call["sdk"] for call in DOCUMENT["unsupported calls"]}
    assert sdk_calls == calls | unsupported
    assert not calls & unsupported


@pytest.mark.parametrize(
    ("sdk_model", "wire_model"),
    [(Cluster, wire.Cluster), (ClusterStorage, wire.Volume), (Region, wire.Region)],
)
def test_every_field_of_an_answer_is_parsed(
    sdk_model: type[BaseModel], wire_model: type[BaseModel]
) -> None:
    assert set(list_leaf_paths(sdk_model)) - set(list_leaf_paths(wire_model)) == set()


def _list_parameters(annotation: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields of a parameter's TypedDict; the path itself without one."""
    inner = [annotation] if is_typeddict(annotation) else list(_list_typed_dicts(annotation))
    if not inner:
        yield path
    for typed_dict in inner:
        for name, field_type in get_type_hints(typed_dict).items():
            yield from _list_parameters(field_type, f"{path}.{name}")


def _list_typed_dicts(annotation: Any) -> Iterator[Any]:
    for argument in get_args(annotation):
        if is_typeddict(argument):
            yield argument
        else:
            yield from _list_typed_dicts(argument)


@pytest.mark.parametrize(
    ("method", "kind", "own_parameters"),
    [
        (ClustersResource.create, "Cluster", set()),
        (ClustersResource.update, "Cluster", {"cluster_id"}),
        (StorageResource.create, "SharedVolume", set()),
        (StorageResource.update, "SharedVolume", {"volume_id"}),
    ],
    ids=lambda value: getattr(value, "__qualname__", None),
)
def test_every_parameter_of_a_request_is_an_input(
    method: Callable[..., Any], kind: str, own_parameters: set[str]
) -> None:
    transport = {"self", "extra_headers", "extra_query", "extra_body", "timeout"}
    hints = {
        name: hint
        for name, hint in get_type_hints(method).items()
        if name not in transport | own_parameters | {"return"}
    }
    sent = {path for name, hint in hints.items() for path in _list_parameters(hint, name)}
    inputs = set(list_leaf_paths(load_lifecycle_class("together", kind).inputs))
    assert sent - inputs == set()
