"""Providers are pickled as the SDK does it, however many there are."""

import pickle

import pytest
from pulumi.dynamic import ResourceProvider, dynamic

from gpuform.stacks.engine import sdk_patches


def create_provider() -> ResourceProvider:
    """Return a provider that is pickled by value, as providers in a program's main module are."""

    class Here(ResourceProvider):
        def create(self, props):
            return {"b": 1, "a": props}

    return Here()


@pytest.mark.slow
def test_any_number_of_providers_can_be_pickled():
    with sdk_patches.unwrap_pickler():
        texts = {dynamic.serialize_provider(create_provider()) for _ in range(1500)}
    assert len(texts) == 1


def test_a_program_restores_the_pickler():
    before = pickle._Pickler._batch_setitems, pickle._Pickler.save_dict, dynamic.serialize_provider
    with sdk_patches.unwrap_pickler():
        dynamic.serialize_provider(create_provider())
    after = pickle._Pickler._batch_setitems, pickle._Pickler.save_dict, dynamic.serialize_provider
    assert after == before
    assert pickle.loads(pickle.dumps({"b": 1, "a": 2})) == {"b": 1, "a": 2}
