"""What an import is told with the id, and what it agrees with."""

import pytest

from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.errors import GpuformError
from gpuform.providers.importing import agreed, given_with, object_id

VOLUME = lifecycle_class("together", "SharedVolume")
CLUSTER = lifecycle_class("together", "Cluster")
GATE = lifecycle_class("lens", "HealthGate")


def test_the_input_stands_behind_an_at() -> None:
    assert object_id(VOLUME, "v-1@us-central-8") == "v-1"
    assert given_with(VOLUME, "v-1@us-central-8") == {"region": "us-central-8"}
    assert given_with(VOLUME, "v-1") == {}
    given = given_with(GATE, "overview@{faulty_nodes: {at_most: 0}}")
    assert given == {"condition": {"faulty_nodes": {"at_most": 0}}}


def test_where_nothing_is_asked_the_id_is_the_whole_text() -> None:
    assert object_id(CLUSTER, "c@1") == "c@1"
    assert given_with(CLUSTER, "c@1") == {}


@pytest.mark.parametrize("text", ["v-1@", "v-1@ "])
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(GpuformError, match="is no region"):
        given_with(VOLUME, text)


def test_what_the_platform_tells_wins() -> None:
    assert agreed(VOLUME, "v-1", {"region": "a"}) == {"region": "a"}
    assert agreed(VOLUME, "v-1@a", {"region": "a"}) == {"region": "a"}
    with pytest.raises(GpuformError, match="is a, not b"):
        agreed(VOLUME, "v-1@b", {"region": "a"})
