"""Test that a newer image of the same kind gives a notice and plans nothing."""

from dataclasses import replace
from typing import Any

import pytest

from gpuform.providers.emulator.scp.catalogue import IMAGES
from gpuform.providers.http import PlanningLists
from gpuform.providers.scp import offers
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.providers.scp.offers import find_newer_image
from gpuform.schemas.scp import wire

Properties = dict[str, Any]
RHEL = "IMAGE-7XFMaJpLsapKvskFMjCtmm"
NEWER = "IMAGE-" + "N" * 22


@pytest.fixture(autouse=True)
def nothing_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the cached lists, as in a new process."""
    monkeypatch.setattr(offers, "cached_lists", PlanningLists())


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add an image of a later RHEL to the platform's offers."""
    image = replace(IMAGES[RHEL], image_id=NEWER, name="RHEL 8.10 for BM", os_version="8.10")
    monkeypatch.setitem(IMAGES, NEWER, image)


def test_a_newer_image_is_noticed_after_a_refresh_and_plans_nothing(
    environment: Any,
    pool_inputs: Properties,
    node_inputs: Properties,
    request: pytest.FixtureRequest,
) -> None:
    pool = environment.create("NodePool", pool_inputs, name="pool")
    solo = environment.create(
        "GpuNode", {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}
    )
    request.getfixturevalue("newer")
    for resource, kind in ((pool, NodePoolLifecycle), (solo, GpuNodeLifecycle)):
        assert "newer_image" not in resource.outs
        assert [*kind.hooks.list_notices(resource.inputs, resource.outs, 0)] == []
        offers.cached_lists.answers.clear()
        refreshed = environment.refresh(resource)
        assert refreshed.outs["newer_image"] == {"id": NEWER, "name": "RHEL 8.10 for BM"}
        assert environment.list_changes(refreshed) == {}
        (notice,) = kind.hooks.list_notices(refreshed.inputs, refreshed.outs, 0)
        assert (notice.kind, NEWER in notice.text) == ("image", True)
        assert environment.refresh(refreshed).outs == refreshed.outs


def test_the_notice_stays_after_an_update_and_without_an_answer(
    environment: Any, pool_inputs: Properties, newer: None
) -> None:
    pool = environment.create("NodePool", {**pool_inputs, "count": 2})
    assert pool.outs["newer_image"]["id"] == NEWER
    pool = environment.update(pool, {**pool_inputs, "count": 3})
    assert pool.outs["newer_image"]["id"] == NEWER
    offers.cached_lists.answers.clear()
    environment.inject_fault("GET", "images", status=503, count=None)
    assert environment.refresh(pool).outs["newer_image"]["id"] == NEWER
    pool.outs["newer_image"] = {"name": 3}
    assert "newer_image" not in environment.refresh(pool).outs


def test_many_resources_share_one_list_of_images(environment: Any, pool_inputs: Properties) -> None:
    pool = environment.create("NodePool", pool_inputs)
    offers.cached_lists.answers.clear()
    environment.count_requests()
    for _ in range(3):
        environment.refresh(pool)
    paths = [request["path"] for request in environment.call_emulator("GET", "requests")]
    assert len([path for path in paths if path.endswith("/images")]) == 1


def find_image(id_: str, **fields: Any) -> wire.Image:
    usual = {"name": "RHEL 8.8 for BM", "os_distro": "RHEL", "scp_image_type": "STANDARD"}
    return wire.Image.model_validate({"id": id_, "scp_os_version": "8.8", **usual, **fields})


@pytest.mark.parametrize(
    ("fields", "is_newer"),
    [
        ({"scp_os_version": "8.10"}, True),
        ({"scp_os_version": "9", "name": "RHEL 9 for BM"}, True),
        ({"scp_os_version": "8.8"}, False),
        ({"scp_os_version": "8.7"}, False),
        ({"scp_os_version": "9", "os_distro": "ROCKY"}, False),
        ({"scp_os_version": "9", "scp_image_type": "CUSTOM"}, False),
        ({"scp_os_version": "9", "name": "RHEL 9 for VM"}, False),
        ({"scp_os_version": "latest"}, False),
        ({"scp_os_version": ""}, False),
        ({"scp_os_version": None}, False),
        ({"scp_os_version": "9." * 9999}, False),
    ],
)
def test_a_higher_version_of_the_same_kind_is_newer(fields: Properties, is_newer: bool) -> None:
    newer_image = find_newer_image([find_image("own"), find_image("other", **fields)], "own")
    assert (newer_image is not None) == is_newer


def test_images_that_cannot_be_compared_give_no_notice() -> None:
    later = find_image("other", scp_os_version="9")
    assert find_newer_image([later], "own") is None
    assert find_newer_image([find_image("own", scp_os_version="x"), later], "own") is None
    blank = {"os_distro": None, "scp_image_type": None}
    assert (
        find_newer_image(
            [find_image("own", **blank), find_image("o", scp_os_version="9", **blank)], "own"
        )
        is None
    )


@pytest.mark.parametrize("bad", ["IMAGE", ["IMAGE"], {}, {"id": None}, None, 3])
def test_a_malformed_stored_image_gives_no_notice(bad: Any) -> None:
    assert [*NodePoolLifecycle.hooks.list_notices({}, {"newer_image": bad}, 0)] == []
