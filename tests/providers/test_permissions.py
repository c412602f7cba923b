"""Test that destroying prepaid capacity is refused without a request, unless it is allowed."""

from typing import Any

import pytest

from gpuform.providers import permissions
from gpuform.providers.context import RunContext
from gpuform.providers.errors import GpuformError, NotAllowed
from gpuform.providers.permissions import Permission
from gpuform.providers.together.cluster import ClusterLifecycle

Properties = dict[str, Any]


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("", set()),
        (" , ", set()),
        ("destroy-reserved", {Permission.DESTROY_RESERVED}),
        (" destroy-reserved ,destroy-reserved", {Permission.DESTROY_RESERVED}),
    ],
)
def test_permission_lists_are_parsed(text: str, allowed: set[Permission]) -> None:
    assert permissions.parse_permissions(text) == allowed
    assert RunContext({"GPUFORM_ALLOW": text}).permissions == allowed


@pytest.mark.parametrize("text", ["destroy", "destroy-reserved,everything", "Destroy-Reserved"])
def test_an_unknown_name_is_an_error_that_lists_the_known(text: str) -> None:
    with pytest.raises(GpuformError, match="permission not found") as caught:
        _ = RunContext({"GPUFORM_ALLOW": text}).permissions
    assert str(caught.value).startswith("GPUFORM_ALLOW: ")
    assert "destroy-reserved (delete or replace prepaid" in str(caught.value)


def test_every_permission_has_a_meaning() -> None:
    assert set(permissions.MEANINGS) == set(Permission)


@pytest.fixture
def lifecycle(monkeypatch: pytest.MonkeyPatch) -> ClusterLifecycle:
    monkeypatch.delenv("GPUFORM_ALLOW", raising=False)
    return ClusterLifecycle()


@pytest.fixture
def reserved(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
) -> tuple[str, Properties, Properties]:
    """Create a RESERVED, Ready cluster, and return the id, outputs and checked inputs."""
    declared = {**cluster_inputs, "billing_type": "RESERVED", "duration_days": 30.0}
    with emulator.use_context_of():
        inputs = {**lifecycle.check({}, declared).inputs, "__provider": "pickled"}
        created = lifecycle.create(inputs)
    emulator.http.delete("/_emulator/requests")
    return created.id, {**created.outs, "__provider": "pickled"}, inputs


class TestReserved:
    def test_a_delete_is_refused_with_a_hint(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        reserved: tuple[str, Properties, Properties],
    ) -> None:
        id_, outs, _ = reserved
        with emulator.use_context_of(), pytest.raises(NotAllowed) as caught:
            lifecycle.delete(id_, outs)
        assert "cluster train is RESERVED, which is prepaid" in str(caught.value)
        assert "--allow destroy-reserved" in str(caught.value)
        assert "GPUFORM_ALLOW=destroy-reserved" in str(caught.value)
        assert emulator.list_requests() == []

    def test_a_delete_is_refused_under_pulumis_dynamic_host(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        reserved: tuple[str, Properties, Properties],
    ) -> None:
        id_, outs, _ = reserved
        with pytest.raises(NotAllowed):
            lifecycle.delete(id_, outs)
        assert emulator.list_requests() == []

    def test_an_allowed_delete_succeeds(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        reserved: tuple[str, Properties, Properties],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("GPUFORM_ALLOW", "destroy-reserved")
        id_, outs, _ = reserved
        with emulator.use_context_of():
            lifecycle.delete(id_, outs)
        assert emulator.list_objects("clusters") == []

    def test_a_misspelt_permission_allows_nothing(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        reserved: tuple[str, Properties, Properties],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("GPUFORM_ALLOW", "destroy_reserved")
        id_, outs, _ = reserved
        with emulator.use_context_of(), pytest.raises(GpuformError, match="permission not found"):
            lifecycle.delete(id_, outs)
        assert emulator.list_requests() == []

    def test_a_replacement_is_refused_while_planning(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        reserved: tuple[str, Properties, Properties],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        id_, outs, inputs = reserved
        other = {**inputs, "gpu_type": "H200_SXM"}
        with emulator.use_context_of(preview=True), pytest.raises(NotAllowed) as caught:
            lifecycle.diff(id_, outs, other)
        assert "this change replaces it (gpu_type)" in str(caught.value)
        monkeypatch.setenv("GPUFORM_ALLOW", "destroy-reserved")
        with emulator.use_context_of(preview=True):
            assert lifecycle.diff(id_, outs, other).replaces == ["gpu_type"]

    def test_a_refresh_and_the_stock_host_may_compare(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        reserved: tuple[str, Properties, Properties],
    ) -> None:
        id_, outs, inputs = reserved
        other = {**inputs, "gpu_type": "H200_SXM"}
        with emulator.use_context_of(refreshing=True):
            assert lifecycle.diff(id_, outs, other).replaces == ["gpu_type"]
        assert lifecycle.diff(id_, outs, other).replaces == ["gpu_type"]

    @pytest.mark.slow
    def test_an_in_place_change_needs_no_permission(
        self,
        lifecycle: ClusterLifecycle,
        emulator: Any,
        reserved: tuple[str, Properties, Properties],
    ) -> None:
        id_, outs, inputs = reserved
        larger = {**inputs, "num_gpus": 24.0}
        with emulator.use_context_of():
            assert lifecycle.diff(id_, outs, larger).replaces == []
            updated = lifecycle.update(id_, outs, larger)
        assert updated.outs is not None
        assert updated.outs["num_gpus"] == 24


def test_an_on_demand_cluster_needs_no_permission(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
) -> None:
    with emulator.use_context_of():
        created = lifecycle.create(cluster_inputs)
        lifecycle.delete(created.id, created.outs)
    assert emulator.list_objects("clusters") == []
