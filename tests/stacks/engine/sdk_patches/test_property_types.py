"""Test that a resource's property types equal the SDK's, and are computed once for each class."""

import pulumi
import pytest
from pulumi import _types
from pulumi.runtime import rpc

from gpuform.providers.together.resources import Cluster, SharedVolume
from gpuform.stacks.engine import sdk_patches


class Machine(pulumi.CustomResource):
    address: pulumi.Output[str]
    sizes: "pulumi.Output[list[int] | None]"


@pytest.mark.parametrize("resource", [Machine, Cluster, SharedVolume, pulumi.CustomResource])
def test_property_types_equal_those_of_the_sdk(resource):
    theirs = _types.resource_types(resource)
    with sdk_patches.cache_property_types():
        assert _types.resource_types(resource) == theirs
        _types.resource_types(resource).clear()
        assert _types.resource_types(resource) == theirs


def test_property_types_of_a_class_are_read_once(lab, monkeypatch):
    looked = []
    original = _types.resource_types
    monkeypatch.setattr(_types, "resource_types", lambda cls: looked.append(cls) or original(cls))
    assert rpc._types is _types, "the SDK asks elsewhere: `remembered` does nothing"
    assert lab.up("for i in range(9):\n    Machine(f'a{i}')\n").succeeded
    names = [cls.__name__ for cls in looked]
    assert names.count("Machine") == 1
    assert len(names) == len(set(names))


def test_a_program_restores_the_sdk():
    before = _types.resource_types
    with sdk_patches.cache_property_types():
        assert _types.resource_types is not before
    assert _types.resource_types is before
