"""What an account of TensorOne has, for programs: clusters, and what clusters tell of the rest.

The credentials are those of the environment, else of the running program's configuration
(`tensorone:apiKey`). Every function raises GpuformError when the platform does not answer.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import lookup_settings
from gpuform.providers.tensorone.client import client_for
from gpuform.schemas.tensorone.wire import (
    Cluster,
    ClusterMetrics,
    Environment,
    Network,
    SeenProject,
    SeenTemplate,
)

WINDOWS: Final = ("1h", "6h", "24h", "7d")
"""What `metrics_window` may be ('Get Cluster Details')."""


def clusters(
    name: str | None = None,
    region: str | None = None,
    status: str | None = None,
    *,
    gpu_type: str | None = None,
    project_id: str | None = None,
    template_id: str | None = None,
) -> Sequence[Cluster]:
    """The clusters that have every value given, by name; without variables and SSH commands.

    Nothing says that a list has every part of a cluster: one that it leaves out is none.
    """
    wanted = (name, region, status, gpu_type, project_id, template_id)
    found = [
        each
        for each in _clusters()
        if all(value in (None, has) for value, has in zip(wanted, _values(each), strict=True))
    ]
    return [_without_secrets(each) for each in sorted(found, key=lambda each: each.name)]


def templates() -> Sequence[SeenTemplate]:
    """The templates that clusters of the account are made from, by id: there is no list of all."""
    found: dict[str, list[Cluster]] = {}
    for each in _clusters():
        if each.template_info.template_id:
            found.setdefault(each.template_info.template_id, []).append(each)
    return [
        SeenTemplate(
            **users[0].template_info.model_dump(),
            cluster_ids=tuple(sorted(each.id for each in users)),
        )
        for _, users in sorted(found.items())
    ]


def projects() -> Sequence[SeenProject]:
    """The projects that clusters of the account are in, by id: there is no list of all."""
    found: dict[str, list[Cluster]] = {}
    for each in _clusters():
        if each.project_info.project_id:
            found.setdefault(each.project_info.project_id, []).append(each)
    return [
        SeenProject(
            **users[0].project_info.model_dump(),
            cluster_ids=tuple(sorted(each.id for each in users)),
        )
        for _, users in sorted(found.items())
    ]


def metrics(cluster_id: str, window: str = "1h") -> ClusterMetrics:
    """What is measured of a cluster now and over a window (1h, 6h, 24h, 7d), and what it costs."""
    if window not in WINDOWS:
        raise GpuformError(f"tensorone: {window!r} is no window: give one of {', '.join(WINDOWS)}")
    found = client_for(lookup_settings()).cluster(cluster_id, window).cluster
    return ClusterMetrics.of(found)


def _clusters() -> Iterator[Cluster]:
    return (each.cluster for each in client_for(lookup_settings()).clusters())


def _values(each: Cluster) -> tuple[str | None, ...]:
    configuration = each.configuration
    region, gpu_type = (
        (configuration.region, configuration.gpu_type) if configuration else (None, None)
    )
    project, template = each.project_info.project_id, each.template_info.template_id
    return (each.name, region, each.status, gpu_type, project, template)


def _without_secrets(each: Cluster) -> Cluster:
    environment, network = each.environment or Environment(), each.network or Network()
    ssh = network.ssh_connection.model_copy(update={"connection_string": None})
    hidden = {
        "environment": environment.model_copy(update={"variables": {}}),
        "network": network.model_copy(update={"ssh_connection": ssh}),
    }
    return each.model_copy(update=hidden)
