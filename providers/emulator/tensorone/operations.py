"""What the API does, without HTTP: the documented rules, then the change to the store.

Where the documentation is silent the choice is ours and said at the place.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.providers.emulator.routing import FaultEffects
from gpuform.providers.emulator.tensorone import catalogue
from gpuform.providers.emulator.tensorone.catalogue import ApiError, Settings, conflict, invalid
from gpuform.providers.emulator.tensorone.clusters import (
    Cluster,
    Details,
    Estate,
    Limits,
    Port,
    Snapshot,
    Spec,
)
from gpuform.providers.emulator.tensorone.requests import (
    AutoTerminate,
    Configuration,
    CreateCluster,
    DeleteCluster,
    NewPortMapping,
    StartCluster,
    StopCluster,
    UpdateCluster,
)

_FIRST_PORT = 32001


@dataclass(frozen=True)
class Situation:
    """In which a request finds the platform."""

    estate: Estate
    settings: Settings
    trouble: FaultEffects

    @property
    def now(self) -> float:
        return self.estate.now


def create(at: Situation, body: CreateCluster) -> Cluster:
    """Names are not unique: nothing documents that they are."""
    gpu = catalogue.GPU_TYPES.get(body.gpu_type)
    if gpu is None:
        raise invalid("gpu_type", "Invalid GPU type specified")
    if body.region not in catalogue.REGIONS:
        raise invalid("region", f"must be one of {', '.join(catalogue.REGIONS)}")
    if body.template_id is not None and body.template_id not in catalogue.TEMPLATES:
        raise invalid("template_id", "Unknown template")
    if body.template_id is not None and body.docker_image is not None:
        raise invalid("docker_image", "Not with a template")
    spec = Spec(
        gpu_type=body.gpu_type,
        gpu_count=body.gpu_count,
        cpu_cores=body.cpu_cores or gpu.cores * body.gpu_count,
        memory_gb=body.memory_gb or gpu.memory_gb * body.gpu_count,
        storage_gb=body.storage_gb,
        region=body.region,
    )
    _check_stock(at, spec)
    number = 1 + max((each.number for each in at.estate.clusters()), default=0)
    template = catalogue.TEMPLATES.get(body.template_id or "")
    image = template.docker_image if template else body.docker_image or catalogue.DEFAULT_IMAGE
    planned = Cluster(
        cluster_id=at.estate.new_id("cluster"),
        number=number,
        spec=spec,
        details=_details(body),
        project_id=body.project_id,
        template_id=body.template_id,
        docker_image=image,
        has_ssh=body.ssh_enabled,
        created_at=at.now,
        changed_at=at.now,
        statuses=[],
    )
    stuck, failing = at.trouble.is_stuck, _fails(at, body.name)
    if body.auto_start:
        made = planned.started(at.now, is_new=True, is_stuck=stuck, is_failing=failing)
    else:
        made = planned.created_stopped(at.now, is_stuck=stuck)
    at.estate.keep(made)
    return made


def update(at: Situation, cluster_id: str, body: UpdateCluster) -> Cluster:
    """No page documents it; refused while the cluster is being deleted."""
    cluster = at.estate.cluster(cluster_id)
    _refuse_deleting(cluster, at.now)
    changes: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    if body.port_mappings is not None:
        old = cluster.details.port_mappings
        changes["port_mappings"] = _ports(body.port_mappings, old)
    if body.auto_terminate is not None:
        changes["auto_terminate"] = _limits(cluster.details.auto_terminate, body.auto_terminate)
    kept = {name: value for name, value in changes.items() if value is not None}
    changed = cluster.changed(at.now, details=cluster.details.model_copy(update=kept))
    at.estate.keep(changed)
    return changed


def start(at: Situation, cluster_id: str, body: StartCluster) -> Cluster:
    cluster = at.estate.cluster(cluster_id)
    status = cluster.status(at.now)
    if status != "stopped":
        raise conflict("Cannot start a cluster that is not stopped", status, "stopped")
    if body.restore_from_snapshot is not None:
        at.estate.snapshot(body.restore_from_snapshot)
    spec = _configured(cluster.spec, body.update_configuration)
    _check_stock(at, spec)
    details = cluster.details
    updates: dict[str, Any] = {
        "environment_variables": details.environment_variables | body.environment_updates
    }
    if body.port_mapping_updates is not None:
        updates["port_mappings"] = _ports(body.port_mapping_updates, details.port_mappings)
    if body.auto_terminate_updates is not None:
        limits = _limits(details.auto_terminate, body.auto_terminate_updates)
        updates["auto_terminate"] = limits
    begun = cluster.changed(
        at.now,
        spec=spec,
        details=details.model_copy(update=updates),
        docker_image=body.update_configuration.docker_image or cluster.docker_image,
    ).started(
        at.now,
        is_new=False,
        is_stuck=at.trouble.is_stuck,
        is_failing=_fails(at, details.name),
    )
    at.estate.keep(begun)
    return begun


def stop(at: Situation, cluster_id: str, body: StopCluster) -> Cluster:
    """Ours: one in error can be stopped, too, which nothing documents."""
    cluster = at.estate.cluster(cluster_id)
    status = cluster.status(at.now)
    if status not in {"running", "starting", "pending", "error"}:
        raise conflict("Cannot stop a cluster that does not run", status, "running")
    if body.save_state:
        _save(at, cluster, body.snapshot_name)
    stopped = cluster.stopped(at.now, is_forced=body.force, is_stuck=at.trouble.is_stuck)
    at.estate.keep(stopped)
    return stopped


def delete(at: Situation, cluster_id: str, body: DeleteCluster) -> Cluster:
    """A cluster that is being deleted already stays so."""
    cluster = at.estate.cluster(cluster_id)
    status = cluster.status(at.now)
    if body.confirm_deletion != "DELETE":
        raise invalid("confirm_deletion", 'Must be "DELETE"')
    needs_stopped = at.settings.delete_needs_stopped and not body.force
    if needs_stopped and status not in {"stopped", "error", "deleting"}:
        raise conflict(f"Cannot delete {status} cluster", status, "stopped")
    if status == "deleting":
        return cluster
    if body.create_final_snapshot:
        _save(at, cluster, body.snapshot_name)
    elif body.delete_snapshots or not body.preserve_snapshots:
        at.estate.forget_snapshots(cluster_id)
    leaving = cluster.deleted(at.now, is_stuck=at.trouble.is_stuck)
    at.estate.keep(leaving)
    return leaving


def _details(body: CreateCluster) -> Details:
    return Details(
        name=body.name,
        description=body.description,
        environment_variables=body.environment_variables,
        port_mappings=_ports(body.port_mappings, []),
        security_groups=body.security_groups,
        auto_terminate=_limits(Limits(), body.auto_terminate),
        tags=body.tags,
    )


def _ports(wanted: Sequence[NewPortMapping], old: Sequence[Port]) -> list[Port]:
    """Each with an outer port: the one asked for, the one that it had, or the next free one."""
    kept = {(port.internal_port, port.protocol): port.external_port for port in old}
    made: list[Port] = []
    for each in wanted:
        taken = {port.external_port for port in made} | set(kept.values())
        free = next(port for port in range(_FIRST_PORT, 65536) if port not in taken)
        before = kept.get((each.internal_port, each.protocol), free)
        outer = each.external_port or before
        if outer in {port.external_port for port in made}:
            raise invalid("port_mappings", f"external port {outer} is given twice")
        made.append(Port(**each.model_dump(exclude={"external_port"}), external_port=outer))
    return made


def _limits(old: Limits, body: AutoTerminate) -> Limits:
    """Ours: what is given changes, the rest stays."""
    given = {name: getattr(body, name) for name in body.model_fields_set}
    return old.model_copy(update={k: v for k, v in given.items() if v is not None})


def _configured(spec: Spec, wanted: Configuration) -> Spec:
    given = wanted.model_dump(exclude_none=True, exclude={"docker_image"})
    if given.get("storage_gb", spec.storage_gb) < spec.storage_gb:
        raise invalid("storage_gb", f"storage cannot shrink from {spec.storage_gb} GB")
    return spec.model_copy(update=given)


def _check_stock(at: Situation, spec: Spec) -> None:
    most = catalogue.GPU_TYPES[spec.gpu_type].largest
    if spec.gpu_count > most:
        raise invalid("gpu_count", f"at most {most} {spec.gpu_type} in a cluster")
    free = 0 if at.trouble.is_out_of_stock else at.settings.capacity.get(spec.gpu_type)
    if free is not None and free < spec.gpu_count:
        raise ApiError(
            422,
            "Insufficient resources for requested configuration",
            requested=f"{spec.gpu_count}x NVIDIA {spec.gpu_type}",
            available=f"{free}x NVIDIA {spec.gpu_type}",
        )


def _save(at: Situation, cluster: Cluster, name: str | None) -> None:
    at.estate.keep_snapshot(
        Snapshot(
            snapshot_id=at.estate.new_id("snap"),
            cluster_id=cluster.cluster_id,
            name=name or f"{cluster.details.name}-snapshot",
            size_gb=45,
            created_at=at.now,
        )
    )


def _refuse_deleting(cluster: Cluster, now: float) -> None:
    if cluster.status(now) == "deleting":
        raise conflict("Cannot change a cluster that is being deleted", "deleting", "running")


def _fails(at: Situation, name: str) -> bool:
    failing = at.trouble.failing_pattern
    return failing is not None and re.search(failing, name) is not None
