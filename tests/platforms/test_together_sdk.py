"""Test that gpuform knows every call, parameter and answer of the installed `together` package.

A newer package with a new call or field fails here, and the message names the call or field:
support it, or list it in together.yaml with the reason why not.
"""

import tomllib
from collections.abc import Iterator

import pytest
from platforms import together_sdk
from platforms.documented import list_leaf_paths
from platforms.pages import ROOT, render_pages
from platforms.together_sdk import IGNORED, SUPPORTED, SdkCall, SdkUse, UnknownField, list_sdk_calls
from pydantic import BaseModel, create_model
from together import Together
from together.types import Cluster
from together.types.cluster_list_regions_response import Region
from together.types.clusters.cluster_storage import ClusterStorage
from together.types.clusters.remediation import Remediation

from gpuform.schemas.together import wire

SDK = SdkUse()


def list_uses() -> Iterator[together_sdk.Use]:
    for call in list_sdk_calls():
        yield SDK.describe_call(call)
        yield from (SDK.describe_parameter(call, path) for path in call.parameters)
    for model in SDK.list_answers():
        yield from (SDK.describe_field(model, path) for path in SDK.list_fields(model))


def test_every_call_parameter_and_field_is_supported_shown_or_ignored_with_a_reason() -> None:
    uses = list(list_uses())
    assert len(uses) > 300
    assert all(use.explanation for use in uses)


def test_nothing_is_listed_that_the_sdk_no_longer_has() -> None:
    facts = SDK.facts
    calls = {call.name: set(call.parameters) for call in list_sdk_calls()}
    listed = {call["sdk"] for part in ("calls", "unsupported calls") for call in facts[part]}
    assert listed == calls.keys()
    for name, parameters in facts["sdk"]["parameters"].items():
        assert parameters.keys() - calls[name] == set(), name
    fields = {
        f"{model.__name__}.{path}"
        for model in SDK.list_answers()
        for path in SDK.list_fields(model)
    }
    assert facts["sdk"]["ignored fields"].keys() - fields == set()


@pytest.mark.parametrize(
    ("sdk_model", "wire_model"),
    [
        (Cluster, wire.Cluster),
        (ClusterStorage, wire.Volume),
        (Region, wire.Region),
        (Remediation, wire.Remediation),
    ],
)
def test_every_field_of_an_answer_is_parsed(
    sdk_model: type[BaseModel], wire_model: type[BaseModel]
) -> None:
    assert set(list_leaf_paths(sdk_model)) - set(list_leaf_paths(wire_model)) == set()


def test_the_locked_sdk_is_the_one_that_the_page_names() -> None:
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    (locked,) = (package for package in lock["package"] if package["name"] == "together")
    assert SDK.version == locked["version"]


class _NewerClusters(type(Together(api_key="unused").clusters)):  # type: ignore[misc]
    """The resource of a newer SDK with one more call."""

    def hibernate(self, cluster_id: str) -> Cluster:
        raise NotImplementedError


def test_a_call_of_a_newer_sdk_is_named() -> None:
    (new_call,) = together_sdk.walk_resource("clusters", _NewerClusters)
    with pytest.raises(UnknownField, match=r"the call clusters\.hibernate is not known"):
        SDK.describe_call(new_call)


def test_a_parameter_of_a_newer_sdk_is_named() -> None:
    def update(cluster_id: str, num_gpus: int, power_cap_w: int) -> Cluster:
        raise NotImplementedError

    call = SdkCall("clusters.update", update)
    assert [SDK.describe_parameter(call, path).support for path in call.parameters[:2]] == [
        SUPPORTED
    ] * 2
    with pytest.raises(UnknownField, match=r"parameter power_cap_w of clusters\.update"):
        SDK.describe_parameter(call, call.parameters[-1])


def test_a_field_of_a_newer_sdk_is_named_in_the_test_and_by_the_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newer = create_model("Cluster", __base__=Cluster, rack=(str, ...))
    assert "rack" in SDK.list_fields(newer)
    with pytest.raises(UnknownField, match=r"together: the field Cluster\.rack is not known"):
        SDK.describe_field(newer, "rack")
    monkeypatch.setattr(SdkUse, "list_answers", lambda _: {newer: list_sdk_calls()[:1]})
    with pytest.raises(UnknownField, match="rack"):
        dict(render_pages())


def test_a_field_of_a_newer_answer_of_a_list_is_named() -> None:
    newer = create_model("ClusterListResponse", clusters=(list[Cluster], ...), total=(int, ...))
    assert list(SDK.list_fields(newer)) == ["total"]
    with pytest.raises(UnknownField, match=r"ClusterListResponse\.total"):
        SDK.describe_field(newer, "total")


def test_what_an_unsupported_call_sends_is_ignored() -> None:
    def list_(mode: str) -> Cluster:
        raise NotImplementedError

    unused = SDK.facts["unsupported calls"][0]["sdk"]
    assert SDK.describe_parameter(SdkCall(unused, list_), "mode").support == IGNORED
