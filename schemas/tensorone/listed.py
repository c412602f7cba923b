"""What look-ups find, in the platform's own words."""

from typing import Self

from pydantic import Field

from gpuform.schemas.models import WireModel
from gpuform.schemas.tensorone.wire import (
    AutoTerminate,
    Cluster,
    Cost,
    Metrics,
    ProjectInfo,
    StorageVolume,
    TemplateInfo,
    Told,
    Words,
)


class SeenTemplate(TemplateInfo):
    """A template, by what clusters tell of it."""

    cluster_ids: tuple[str, ...] = Field(default=(), description="The clusters made from it.")


class SeenProject(ProjectInfo):
    """A project and its owner, by what clusters tell of it."""

    cluster_ids: tuple[str, ...] = Field(default=(), description="Its clusters.")


class ClusterMetrics(WireModel):
    """What changes of a cluster all the time."""

    metrics: Metrics = Metrics()
    cost: Cost = Cost()
    volumes: tuple[StorageVolume, ...] = ()
    auto_terminate: AutoTerminate = AutoTerminate()
    uptime_seconds: Told = None
    last_accessed: Words = None
    last_connection: Words = None

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """That of a cluster; a part that its answer leaves out is empty."""
        network = cluster.network
        return cls(
            metrics=cluster.metrics or Metrics(),
            cost=cluster.cost or Cost(),
            volumes=cluster.storage.volumes,
            auto_terminate=cluster.auto_terminate or AutoTerminate(),
            uptime_seconds=cluster.uptime_seconds,
            last_accessed=cluster.last_accessed,
            last_connection=network.ssh_connection.last_connection if network else None,
        )
