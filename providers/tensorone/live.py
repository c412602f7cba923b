"""The live figures of TensorOne clusters: use, heat, power, uptime and cost.

All are of TensorOne's document ('Get Cluster Details'): `metrics`, `cost`, `auto_terminate`,
`uptime_seconds` and `last_accessed`. Utilization is in percent. A figure that an answer leaves out
is not told.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpuform.providers.errors import NotFound
from gpuform.providers.lifetime import left
from gpuform.providers.live import Live
from gpuform.providers.tensorone.client import TensorOneClient
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.listed import ClusterMetrics
from gpuform.schemas.tensorone.statuses import ClusterStatus


def clusters_live(client: TensorOneClient, ids: Sequence[str]) -> Mapping[str, Live]:
    """Those of the clusters that are there. One list has all of several; nothing says that a list
    tells what is measured, so one without it is looked at alone."""
    several = client.clusters() if len(ids) > 1 else ()
    listed = {each.cluster.id: each.cluster for each in several}
    found: dict[str, Live] = {}
    for id_ in ids:
        cluster = listed.get(id_)
        if cluster is None or cluster.metrics is None:
            try:
                cluster = client.cluster(id_).cluster
            except NotFound:
                continue
        told = ClusterMetrics.of(cluster)
        runs = cluster.status == ClusterStatus.RUNNING
        lines = ("; ".join(_use(told, runs=runs)), "; ".join(_cost(told)))
        found[id_] = Live(tuple(filter(None, lines)), told.model_dump(mode="json"))
    return found


def _use(told: ClusterMetrics, *, runs: bool) -> Iterator[str]:
    """What it does, while it runs."""
    now = told.metrics.current
    if runs:
        figures = (
            (now.gpu_utilization, "GPUs {:g}%"),
            (now.gpu_memory_utilization, "GPU memory {:g}%"),
            (now.temperature_celsius, "{:g} °C"),
            (now.power_usage_watts, "{:g} W"),
        )
        if parts := [text.format(value) for value, text in figures if value is not None]:
            yield ", ".join(parts)
        idle = told.auto_terminate.current_idle_minutes
        times = ((told.uptime_seconds, "up"), (idle and idle * 60, "idle"))
        if parts := [f"{word} {left(seconds)}" for seconds, word in times if seconds]:
            yield ", ".join(parts)
    if told.last_accessed:
        yield f"last accessed {told.last_accessed}"


def _cost(told: ClusterMetrics) -> Iterator[str]:
    """What it has cost, and how well that was used."""
    cost, well = told.cost, told.metrics.historical.cost_efficiency
    sums = ((cost.session_cost, "this session"), (cost.total_lifetime_cost, "in all"))
    if parts := [f"{_money(value, cost)} {word}" for value, word in sums if value is not None]:
        yield ", ".join(parts)
    if well.cost_per_compute_hour is not None:
        yield f"{_money(well.cost_per_compute_hour, cost)} per compute hour"
    if well.utilization_score is not None:
        yield f"utilization score {well.utilization_score:g}"


def _money(value: float, cost: wire.Cost) -> str:
    return f"{value:,.2f} {cost.currency or ''}".rstrip()
