"""Test the id and inputs of an import, and which of them are valid."""

import pytest

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.errors import GpuformError
from gpuform.providers.importing import merge_import_inputs, parse_import_input, parse_object_id

VOLUME = load_lifecycle_class("together", "SharedVolume")
CLUSTER = load_lifecycle_class("together", "Cluster")
GATE = load_lifecycle_class("lens", "HealthGate")


def test_the_input_follows_an_at_sign() -> None:
    assert parse_object_id(VOLUME, "v-1@us-central-8") == "v-1"
    assert parse_import_input(VOLUME, "v-1@us-central-8") == {"region": "us-central-8"}
    assert parse_import_input(VOLUME, "v-1") == {}
    import_input = parse_import_input(GATE, "overview@{faulty_nodes: {at_most: 0}}")
    assert import_input == {"condition": {"faulty_nodes": {"at_most": 0}}}


def test_without_an_input_the_id_is_the_complete_text() -> None:
    assert parse_object_id(CLUSTER, "c@1") == "c@1"
    assert parse_import_input(CLUSTER, "c@1") == {}


@pytest.mark.parametrize("text", ["v-1@", "v-1@ "])
def test_an_invalid_value_is_refused(text: str) -> None:
    with pytest.raises(GpuformError, match="is not a valid region"):
        parse_import_input(VOLUME, text)


def test_the_platforms_value_takes_precedence() -> None:
    assert merge_import_inputs(VOLUME, "v-1", {"region": "a"}) == {"region": "a"}
    assert merge_import_inputs(VOLUME, "v-1@a", {"region": "a"}) == {"region": "a"}
    with pytest.raises(GpuformError, match="is a, not b"):
        merge_import_inputs(VOLUME, "v-1@b", {"region": "a"})
