"""Patches are applied to the SDK that they know, and leave every other one as it is."""

from importlib.metadata import version

import pytest
from pulumi import StackReference, _types
from pulumi.dynamic import dynamic
from pulumi.runtime import resource, rpc, stack

from gpuform.stacks.engine.sdk_patches import (
    PATCHES,
    TRIED,
    Patch,
    apply_patches,
    find_inactive_patches,
)


def unknown_sdk_function(*_given, **_named):
    """Stand for a function of a later SDK that no patch knows."""


PLACES = {
    "one wait for all outputs": (stack, "wait_for_rpcs", (stack, "asyncio")),
    "a pickler without added wrappers": (
        dynamic,
        "serialize_provider",
        (dynamic, "serialize_provider"),
    ),
    "types of a resource class computed once": (
        rpc,
        "resolve_outputs",
        (_types, "resource_types"),
    ),
    "single unknown outputs of a stack reference": (
        StackReference,
        "get_output",
        (StackReference, "get_output"),
    ),
    "cached positions of declarations": (resource, "_get_stack_trace", (resource, "traceback")),
}
"""By patch: the function of the SDK that it knows, and what it changes."""


def change_source(name):
    module, attribute = PLACES[name][2]
    return getattr(module, attribute)


@pytest.mark.skipif(version("pulumi") not in TRIED, reason="this SDK has not been tried")
def test_every_patch_knows_the_installed_sdk():
    assert find_inactive_patches() == []


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_patch_is_applied_while_a_program_runs(patch):
    before = change_source(patch.name)
    with apply_patches():
        assert change_source(patch.name) is not before
    assert change_source(patch.name) is before


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
@pytest.mark.parametrize("is_there", [True, False], ids=["other", "missing"])
def test_an_unknown_sdk_is_not_patched(patch, is_there, monkeypatch):
    module, attribute, _ = PLACES[patch.name]
    if is_there:
        monkeypatch.setattr(module, attribute, unknown_sdk_function)
    else:
        monkeypatch.delattr(module, attribute)
    before = {patch_.name: change_source(patch_.name) for patch_ in PATCHES if patch_ is not patch}
    assert find_inactive_patches() == [patch]
    original = getattr(*PLACES[patch.name][2], None)
    with apply_patches():
        assert getattr(*PLACES[patch.name][2], None) is original
        assert all(change_source(name) is not was for name, was in before.items())


def test_a_program_runs_with_an_unpatched_sdk(lab, monkeypatch):
    monkeypatch.setattr(Patch, "knows_sdk", lambda _: False)
    assert find_inactive_patches() == list(PATCHES)
    assert lab.up("for i in range(3):\n    Machine(f'a{i}')\n").succeeded
