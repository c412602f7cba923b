"""Test since when a node is not Ready: a time during its existence, or none."""

from contextlib import closing

import pytest
from hostile.fakes.kubernetes import Kubernetes, format_time, render_kubeconfig, serve_cluster
from support.clocks.fake_clock import FakeClock

from gpuform.providers.context import ProviderContext
from gpuform.providers.context import use_context as serving_call
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import list_node_states

NOW = 1_780_000_000.0
HOUR = 3600.0


@pytest.mark.parametrize(
    ("created", "since", "is_believed"),
    [
        (format_time(NOW - 2 * HOUR), format_time(NOW - HOUR), True),
        (format_time(NOW - 2 * HOUR), format_time(NOW), True),
        (format_time(NOW - 2 * HOUR), format_time(NOW - 3 * HOUR), False),
        (format_time(NOW - 2 * HOUR), format_time(NOW + HOUR), False),
        (format_time(NOW - 2 * HOUR), "0001-01-01T00:00:00Z", False),
        (format_time(NOW - 2 * HOUR), "1970-01-01T00:00:00Z", False),
        (format_time(NOW - 2 * HOUR), "soon", False),
        (format_time(NOW - 2 * HOUR), 5, False),
        (format_time(NOW - 2 * HOUR), None, False),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z", False),
        ("0001-01-01T00:00:00Z", format_time(NOW - HOUR), False),
        (None, format_time(NOW - HOUR), False),
    ],
)
def test_a_not_ready_time_before_the_nodes_creation_or_in_the_future_is_ignored(
    created: str | None, since: object, is_believed: bool
) -> None:
    clock = FakeClock()
    clock.time = NOW
    fake = Kubernetes(clock)
    fake.add_node("w0", ready=False, created=created, since=since)
    with (
        serve_cluster(fake) as address,
        closing(get_kubernetes_client(render_kubeconfig(address), "train")) as client,
        serving_call(ProviderContext(clock=clock)),
    ):
        state = list_node_states(client)["w0"]
    assert (state.is_ready, state.not_ready_since) == (False, since if is_believed else "")
