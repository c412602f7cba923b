"""A platform that answers a create before lists and lookups show the cluster: one is made."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import GpuformError, NotFound
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.tensorone.client import ClusterReading, TensorOneClient

Json = dict[str, Any]


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Clusters are shown so many seconds after their create, and none until a second moment."""
    seconds = [8.0]
    shown_at: dict[str, float] = {}
    create, listed, cluster = (
        TensorOneClient.create,
        TensorOneClient.list_clusters_with_age,
        TensorOneClient.get_cluster,
    )

    def create_late(self: TensorOneClient, body: Any) -> Any:
        made = create(self, body)
        shown_at[made.id] = get_current_context().clock.now() + seconds[0]
        return made

    def is_shown(id_: str) -> bool:
        return get_current_context().clock.now() >= max(shown_at.get(id_, 0.0), *seconds[1:], 0.0)

    def list_shown(self: TensorOneClient) -> tuple[Sequence[ClusterReading], float | None]:
        found, as_of = listed(self)
        return [each for each in found if is_shown(each.cluster.id)], as_of

    def show(self: TensorOneClient, id_: str, metrics_window: str = "") -> ClusterReading:
        if not is_shown(id_):
            raise NotFound("not found", method="GET", path=f"/clusters/{id_}", status=404)
        return cluster(self, id_, metrics_window)

    monkeypatch.setattr(TensorOneClient, "create", create_late)
    monkeypatch.setattr(TensorOneClient, "list_clusters_with_age", list_shown)
    monkeypatch.setattr(TensorOneClient, "get_cluster", show)
    return seconds


@pytest.mark.parametrize("seconds", [8.0, 50.0])
def test_the_first_up_makes_one_cluster_and_knows_it(
    world: Any, inputs: Json, late: list[float], seconds: float
) -> None:
    late[0] = seconds
    thing = world.create(inputs)
    assert thing.outs["ready"] is True
    assert [each.id for each in creates(world)] == [thing.id]


def test_a_run_that_ends_before_the_cluster_shows_is_continued(
    world: Any, inputs: Json, late: list[float]
) -> None:
    with pytest.raises(GpuformError):
        world.create(inputs, timeout=5)
    assert len(world.intents.list_all()) == 1
    thing = world.create(inputs)
    assert thing.outs["ready"] is True
    assert [each.id for each in creates(world)] == [thing.id]


def creates(world: Any) -> list[Any]:
    """The clusters that there are."""
    return [each.cluster for each in world.client.list_clusters()]


class TestHiddenForAMoment:
    """A replica that lags behind shows neither in its list nor alone what exists."""

    @pytest.fixture
    def cluster(self, world: Any, inputs: Json, late: list[float]) -> Any:
        late[0] = 0.0
        return world.create(inputs)

    @pytest.fixture
    def hide(self, world: Any, cluster: Any, late: list[float]) -> Any:
        """Hide the cluster for so many seconds from now."""

        def hide(seconds: float) -> None:
            late.append(world.clock.now() + seconds)

        return hide

    def test_a_refresh_keeps_it(self, world: Any, cluster: Any, hide: Any) -> None:
        hide(50.0)
        refreshed = world.refresh(cluster)
        assert refreshed is not None
        assert refreshed.outs["ready"] is True

    def test_a_destroy_deletes_it(self, world: Any, cluster: Any, hide: Any) -> None:
        hide(50.0)
        world.delete(cluster)
        world.clock.sleep(60, get_current_context().cancelled)
        assert creates(world) == []

    def test_a_destroy_without_the_time_to_look_again_fails(
        self, world: Any, cluster: Any, hide: Any
    ) -> None:
        hide(50.0)
        with pytest.raises(NotEnoughEvidence, match="cannot forget an object"):
            world.delete(cluster, timeout=5)

    def test_a_preview_waits_for_nothing(self, world: Any, cluster: Any, hide: Any) -> None:
        hide(50.0)
        began = world.clock.now()
        assert world.refresh(cluster, preview=True) is None
        assert world.clock.now() == began

    def test_what_does_not_come_back_is_gone(self, world: Any, cluster: Any, hide: Any) -> None:
        hide(100_000.0)
        began = world.clock.now()
        assert world.refresh(cluster) is None
        assert 60 <= world.clock.now() - began < 70

    def test_what_the_platform_has_accepted_to_delete_is_gone_at_once(
        self, world: Any, cluster: Any
    ) -> None:
        world.delete(cluster)
        assert not any("looking again" in each for each in world.told)
