"""Do what TensorOne's API does, without HTTP: check the documented rules, then change the store.

`routes` calls this module. Where the documentation is silent the choice is ours and named at the
place.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.providers.emulator.routing import FaultEffects
from gpuform.providers.emulator.tensorone import catalogue
from gpuform.providers.emulator.tensorone.catalogue import (
    TensorOneApiError,
    TensorOneSettings,
    make_conflict,
    make_invalid_field,
)
from gpuform.providers.emulator.tensorone.clusters import (
    AutoTerminateLimits,
    Cluster,
    Details,
    Port,
    Snapshot,
    Spec,
    TensorOneInventory,
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
class TensorOneRequestContext:
    """What a request finds: objects, settings and the effects of an injected fault."""

    inventory: TensorOneInventory
    settings: TensorOneSettings
    effects: FaultEffects

    @property
    def now(self) -> float:
        """Return the time of the request by the emulator's clock, in unix seconds."""
        return self.inventory.now


def create_cluster(context: TensorOneRequestContext, body: CreateCluster) -> Cluster:
    """Store and return a new cluster, on the way to `running`, or `stopped` without `auto_start`.

    Names are not unique: nothing documents that they are. Raises `Refusal`: 400 for an invalid
    field, 422 without enough free GPUs.
    """
    gpu = catalogue.GPU_TYPES.get(body.gpu_type)
    if gpu is None:
        raise make_invalid_field("gpu_type", "Invalid GPU type specified")
    if body.region not in catalogue.REGIONS:
        raise make_invalid_field("region", f"must be one of {', '.join(catalogue.REGIONS)}")
    if body.template_id is not None and body.template_id not in catalogue.TEMPLATES:
        raise make_invalid_field("template_id", "Unknown template")
    # Ours: a template names an image of its own.
    if body.template_id is not None and body.docker_image is not None:
        raise make_invalid_field("docker_image", "Not with a template")
    spec = Spec(
        gpu_type=body.gpu_type,
        gpu_count=body.gpu_count,
        cpu_cores=body.cpu_cores or gpu.cores * body.gpu_count,
        memory_gb=body.memory_gb or gpu.memory_gb * body.gpu_count,
        storage_gb=body.storage_gb,
        region=body.region,
    )
    _check_stock(context, spec)
    # One more than the highest present number: addresses and ports come from it.
    number = 1 + max((other.number for other in context.inventory.list_clusters()), default=0)
    template = catalogue.TEMPLATES.get(body.template_id or "")
    image = template.docker_image if template else body.docker_image or catalogue.DEFAULT_IMAGE
    new_cluster = Cluster(
        cluster_id=context.inventory.create_id("cluster"),
        number=number,
        spec=spec,
        details=_build_details(body),
        project_id=body.project_id,
        template_id=body.template_id,
        docker_image=image,
        has_ssh=body.ssh_enabled,
        created_at=context.now,
        changed_at=context.now,
        statuses=[],
    )
    is_stuck, is_failing = context.effects.is_stuck, _is_failing(context, body.name)
    if body.auto_start:
        cluster = new_cluster.plan_start(
            context.now, is_new=True, is_stuck=is_stuck, is_failing=is_failing
        )
    else:
        cluster = new_cluster.plan_stopped_creation(context.now, is_stuck=is_stuck)
    context.inventory.save_cluster(cluster)
    return cluster


def update_cluster(
    context: TensorOneRequestContext, cluster_id: str, body: UpdateCluster
) -> Cluster:
    """Replace the details in the body at once and return the cluster (ours: undocumented).

    Members that are missing or null stay; of `auto_terminate`, each limit by itself. Ports keep
    their external port. Raises `Refusal`: 404, 409 for a cluster being deleted, 400 for a port
    given twice.
    """
    cluster = context.inventory.get_cluster(cluster_id)
    _refuse_deleting(cluster, context.now)
    # Fields that are missing in the body keep their value; null counts as missing.
    changes: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    if body.port_mappings is not None:
        old_ports = cluster.details.port_mappings
        changes["port_mappings"] = _assign_ports(body.port_mappings, old_ports)
    if body.auto_terminate is not None:
        changes["auto_terminate"] = _merge_limits(
            cluster.details.auto_terminate, body.auto_terminate
        )
    new_details = {name: value for name, value in changes.items() if value is not None}
    changed = cluster.apply_changes(
        context.now, details=cluster.details.model_copy(update=new_details)
    )
    context.inventory.save_cluster(changed)
    return changed


def start_cluster(context: TensorOneRequestContext, cluster_id: str, body: StartCluster) -> Cluster:
    """Begin to start a stopped cluster, with the changes of the body, and return the cluster.

    Environment variables and limits of the body are merged into the old ones; port mappings replace
    the old ones. A snapshot to restore only has to exist. Raises `Refusal`: 404 for a missing
    cluster or snapshot, 409 in another status, 400 for invalid changes, 422 without enough free
    GPUs.
    """
    cluster = context.inventory.get_cluster(cluster_id)
    status = cluster.get_status(context.now)
    if status != "stopped":
        raise make_conflict("Cannot start a cluster that is not stopped", status, "stopped")
    # Only whether it exists: nothing of its content is emulated.
    if body.restore_from_snapshot is not None:
        context.inventory.get_snapshot(body.restore_from_snapshot)
    spec = _apply_configuration(cluster.spec, body.update_configuration)
    _check_stock(context, spec)
    details = cluster.details
    updates: dict[str, Any] = {
        "environment_variables": details.environment_variables | body.environment_updates
    }
    if body.port_mapping_updates is not None:
        updates["port_mappings"] = _assign_ports(body.port_mapping_updates, details.port_mappings)
    if body.auto_terminate_updates is not None:
        limits = _merge_limits(details.auto_terminate, body.auto_terminate_updates)
        updates["auto_terminate"] = limits
    started = cluster.apply_changes(
        context.now,
        spec=spec,
        details=details.model_copy(update=updates),
        docker_image=body.update_configuration.docker_image or cluster.docker_image,
    ).plan_start(
        context.now,
        is_new=False,
        is_stuck=context.effects.is_stuck,
        is_failing=_is_failing(context, details.name),
    )
    context.inventory.save_cluster(started)
    return started


def stop_cluster(context: TensorOneRequestContext, cluster_id: str, body: StopCluster) -> Cluster:
    """Begin to stop a cluster, with a snapshot if asked for, and return the cluster.

    Raises `Refusal`: 404, 409 unless running, starting, pending or in error (the last is ours).
    """
    cluster = context.inventory.get_cluster(cluster_id)
    status = cluster.get_status(context.now)
    if status not in {"running", "starting", "pending", "error"}:
        raise make_conflict("Cannot stop a cluster that does not run", status, "running")
    if body.save_state:
        _save_snapshot(context, cluster, body.snapshot_name)
    stopped = cluster.plan_stop(
        context.now, is_forced=body.force, is_stuck=context.effects.is_stuck
    )
    context.inventory.save_cluster(stopped)
    return stopped


def delete_cluster(
    context: TensorOneRequestContext, cluster_id: str, body: DeleteCluster
) -> Cluster:
    """Begin to delete a cluster, and store or delete snapshots as the body says.

    A final snapshot also keeps the earlier ones. Returns the cluster; a second delete changes
    nothing. Raises `Refusal`: 404, 400 without the confirmation, 409 unless stopped or in error if
    the setting `delete_needs_stopped` is on and `force` is not.
    """
    cluster = context.inventory.get_cluster(cluster_id)
    status = cluster.get_status(context.now)
    if body.confirm_deletion != "DELETE":
        raise make_invalid_field("confirm_deletion", 'Must be "DELETE"')
    # The documentation says both that a running cluster is deleted and that it has to be stopped.
    needs_stopped = context.settings.delete_needs_stopped and not body.force
    if needs_stopped and status not in {"stopped", "error", "deleting"}:
        raise make_conflict(f"Cannot delete {status} cluster", status, "stopped")
    if status == "deleting":
        return cluster
    if body.create_final_snapshot:
        _save_snapshot(context, cluster, body.snapshot_name)
    # A final snapshot is kept even where the body asks for the deletion of snapshots (ours).
    elif body.delete_snapshots or not body.preserve_snapshots:
        context.inventory.delete_snapshots(cluster_id)
    deleted = cluster.plan_deletion(context.now, is_stuck=context.effects.is_stuck)
    context.inventory.save_cluster(deleted)
    return deleted


def _build_details(body: CreateCluster) -> Details:
    """Return the details of a new cluster: the body's values, ports assigned, default limits."""
    return Details(
        name=body.name,
        description=body.description,
        environment_variables=body.environment_variables,
        port_mappings=_assign_ports(body.port_mappings, []),
        security_groups=body.security_groups,
        auto_terminate=_merge_limits(AutoTerminateLimits(), body.auto_terminate),
        tags=body.tags,
    )


def _assign_ports(mappings: Sequence[NewPortMapping], old: Sequence[Port]) -> list[Port]:
    """Return the mappings with external ports: requested, old, or the next free ones.

    The old port is that of the same internal port and protocol in `old`. Raises `Refusal` 400 for
    an external port given twice.
    """
    old_numbers = {(port.internal_port, port.protocol): port.external_port for port in old}
    ports: list[Port] = []
    for mapping in mappings:
        taken = {port.external_port for port in ports} | set(old_numbers.values())
        free = next(port for port in range(_FIRST_PORT, 65536) if port not in taken)
        default_port = old_numbers.get((mapping.internal_port, mapping.protocol), free)
        external_port = mapping.external_port or default_port
        if external_port in {port.external_port for port in ports}:
            raise make_invalid_field(
                "port_mappings", f"external port {external_port} is given twice"
            )
        ports.append(
            Port(**mapping.model_dump(exclude={"external_port"}), external_port=external_port)
        )
    return ports


def _merge_limits(old: AutoTerminateLimits, body: AutoTerminate) -> AutoTerminateLimits:
    """Return `old` with the limits of the body; missing and null ones stay (ours)."""
    new_limits = {name: getattr(body, name) for name in body.model_fields_set}
    return old.model_copy(update={k: v for k, v in new_limits.items() if v is not None})


def _apply_configuration(spec: Spec, configuration: Configuration) -> Spec:
    """Return the hardware with the present values of the body.

    Raises `Refusal` 400 for less storage.
    """
    new_values = configuration.model_dump(exclude_none=True, exclude={"docker_image"})
    if new_values.get("storage_gb", spec.storage_gb) < spec.storage_gb:
        raise make_invalid_field("storage_gb", f"storage cannot shrink from {spec.storage_gb} GB")
    return spec.model_copy(update=new_values)


def _check_stock(context: TensorOneRequestContext, spec: Spec) -> None:
    """Raise `Refusal` for more GPUs than a cluster may have (400) or than are free (422).

    The setting `capacity` has the free GPUs of a type, which clusters do not use up; types without
    the setting are always free. With an injected fault of capacity no GPU is free.
    """
    max_gpus = catalogue.GPU_TYPES[spec.gpu_type].max_per_cluster
    if spec.gpu_count > max_gpus:
        raise make_invalid_field("gpu_count", f"at most {max_gpus} {spec.gpu_type} in a cluster")
    # A fault takes everything; else only types with a setting are limited.
    free = 0 if context.effects.is_out_of_stock else context.settings.capacity.get(spec.gpu_type)
    if free is not None and free < spec.gpu_count:
        raise TensorOneApiError(
            422,
            "Insufficient resources for requested configuration",
            requested=f"{spec.gpu_count}x NVIDIA {spec.gpu_type}",
            available=f"{free}x NVIDIA {spec.gpu_type}",
        )


def _save_snapshot(context: TensorOneRequestContext, cluster: Cluster, name: str | None) -> None:
    """Store a snapshot of a cluster under `name` or a default name."""
    context.inventory.save_snapshot(
        Snapshot(
            snapshot_id=context.inventory.create_id("snap"),
            cluster_id=cluster.cluster_id,
            name=name or f"{cluster.details.name}-snapshot",
            size_gb=45,
            created_at=context.now,
        )
    )


def _refuse_deleting(cluster: Cluster, now: float) -> None:
    """Raise `Refusal` 409 if the cluster is being deleted."""
    if cluster.get_status(now) == "deleting":
        raise make_conflict("Cannot change a cluster that is being deleted", "deleting", "running")


def _is_failing(context: TensorOneRequestContext, name: str) -> bool:
    """Return whether an injected fault's pattern matches the name of a cluster to start."""
    pattern = context.effects.failing_pattern
    return pattern is not None and re.search(pattern, name) is not None
