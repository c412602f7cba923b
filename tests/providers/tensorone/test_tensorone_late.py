"""Test a platform that answers a create before it shows the cluster: one cluster is created."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import GpuformError, NotFound
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.tensorone.client import ClusterReading, TensorOneClient

Json = dict[str, Any]


@pytest.fixture
def delay_visibility(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Show clusters some seconds after the create, and hide them again later."""
    seconds = [8.0]
    shown_at: dict[str, float] = {}
    create, listed, cluster = (
        TensorOneClient.create,
        TensorOneClient.list_clusters_with_age,
        TensorOneClient.get_cluster,
    )

    def create_late(self: TensorOneClient, body: Any) -> Any:
        created = create(self, body)
        shown_at[created.id] = get_current_context().clock.now() + seconds[0]
        return created

    def is_shown(id_: str) -> bool:
        return get_current_context().clock.now() >= max(shown_at.get(id_, 0.0), *seconds[1:], 0.0)

    def list_shown(self: TensorOneClient) -> tuple[Sequence[ClusterReading], float | None]:
        listed_clusters, as_of = listed(self)
        return [
            listed_cluster
            for listed_cluster in listed_clusters
            if is_shown(listed_cluster.cluster.id)
        ], as_of

    def show(self: TensorOneClient, id_: str, metrics_window: str = "") -> ClusterReading:
        if not is_shown(id_):
            raise NotFound("not found", method="GET", path=f"/clusters/{id_}", status=404)
        return cluster(self, id_, metrics_window)

    monkeypatch.setattr(TensorOneClient, "create", create_late)
    monkeypatch.setattr(TensorOneClient, "list_clusters_with_age", list_shown)
    monkeypatch.setattr(TensorOneClient, "get_cluster", show)
    return seconds


@pytest.mark.parametrize("seconds", [8.0, 50.0])
def test_the_first_up_creates_one_cluster_and_records_it(
    platform: Any, inputs: Json, delay_visibility: list[float], seconds: float
) -> None:
    delay_visibility[0] = seconds
    cluster = platform.create(inputs)
    assert cluster.outs["ready"] is True
    assert [create.id for create in list_clusters(platform)] == [cluster.id]


@pytest.mark.exact_waits
def test_a_run_that_ends_before_the_cluster_is_visible_is_resumed(
    platform: Any, inputs: Json, delay_visibility: list[float]
) -> None:
    with pytest.raises(GpuformError):
        platform.create(inputs, timeout=5)
    assert len(platform.intents.list_all()) == 1
    cluster = platform.create(inputs)
    assert cluster.outs["ready"] is True
    assert [create.id for create in list_clusters(platform)] == [cluster.id]


def list_clusters(platform: Any) -> list[Any]:
    """Return the existing clusters."""
    return [cluster.cluster for cluster in platform.client.list_clusters()]


class TestTemporarilyHidden:
    """A lagging replica omits an existing object from its lists and lookups."""

    @pytest.fixture
    def cluster(self, platform: Any, inputs: Json, delay_visibility: list[float]) -> Any:
        delay_visibility[0] = 0.0
        return platform.create(inputs)

    @pytest.fixture
    def hide(self, platform: Any, cluster: Any, delay_visibility: list[float]) -> Any:
        """Hide the cluster for the given seconds from now."""

        def hide(seconds: float) -> None:
            delay_visibility.append(platform.clock.now() + seconds)

        return hide

    def test_a_refresh_keeps_it(self, platform: Any, cluster: Any, hide: Any) -> None:
        hide(50.0)
        refreshed = platform.refresh(cluster)
        assert refreshed is not None
        assert refreshed.outs["ready"] is True

    def test_a_destroy_deletes_it(self, platform: Any, cluster: Any, hide: Any) -> None:
        hide(50.0)
        platform.delete(cluster)
        platform.clock.sleep(60, get_current_context().cancelled)
        assert list_clusters(platform) == []

    @pytest.mark.exact_waits
    def test_a_destroy_without_time_for_another_look_fails(
        self, platform: Any, cluster: Any, hide: Any
    ) -> None:
        hide(50.0)
        with pytest.raises(NotEnoughEvidence, match="cannot forget an object"):
            platform.delete(cluster, timeout=5)

    def test_an_update_waits_for_it(
        self, platform: Any, inputs: Json, cluster: Any, hide: Any
    ) -> None:
        hide(50.0)
        updated = platform.update(cluster, {**inputs, "description": "shown late"})
        assert updated.outs["ready"] is True

    def test_a_preview_does_not_wait(self, platform: Any, cluster: Any, hide: Any) -> None:
        hide(50.0)
        began = platform.clock.now()
        assert platform.refresh(cluster, preview=True) is None
        assert platform.clock.now() == began

    @pytest.mark.exact_waits
    def test_a_cluster_that_stays_hidden_is_gone(
        self, platform: Any, cluster: Any, hide: Any
    ) -> None:
        hide(100_000.0)
        began = platform.clock.now()
        assert platform.refresh(cluster) is None
        assert 60 <= platform.clock.now() - began < 70

    def test_a_cluster_with_an_accepted_deletion_is_gone_at_once(
        self, platform: Any, cluster: Any
    ) -> None:
        platform.delete(cluster)
        assert not any("looking again" in message for message in platform.messages)
