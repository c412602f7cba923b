"""Convert a TensorOne cluster to inputs and outputs, and find how it differs from its declaration.

The lifecycle (`cluster`), the steps in `start_stop` and the repairs in `repairing` call this
module, which sends no request.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import START_FIELDS, ClusterInputs
from gpuform.schemas.tensorone.outputs import (
    FAILED_STATUSES,
    STABLE_STATUSES,
    AlertOutputs,
    ClusterOutputs,
    ClusterStatus,
    CostBreakdownOutputs,
    FirewallRuleOutputs,
    SnapshotOutputs,
    SshConnectionOutputs,
    VolumeOutputs,
)

_LIMIT_FIELDS: Final = ("enabled", "idle_minutes", "max_runtime_hours", "cost_limit_usd")
_PORT_FIELDS: Final = ("internal_port", "protocol", "description")


def extract_inputs(cluster: wire.Cluster, known_inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the input fields as reported by the platform; None for an unreported field.

    Without a reported network, ports and security groups are missing. `state` is None between two
    states.

    Args:
        cluster: the cluster as the platform reports it.
        known_inputs: the last declaration, or empty for an import. An import leaves out what the
            platform chooses by itself: cores, memory, outer ports, a template's image.
    """
    configuration = cluster.configuration or wire.Configuration()
    platform_choices = {"cpu_cores": configuration.cpu_cores, "memory_gb": configuration.memory_gb}
    docker_image, template_id = (
        cluster.template_info.docker_image,
        cluster.template_info.template_id,
    )
    return {
        "name": cluster.name or None,
        "description": cluster.description,
        "gpu_type": configuration.gpu_type,
        "gpu_count": configuration.gpu_count,
        "storage_gb": configuration.storage_gb,
        "region": configuration.region,
        "project_id": cluster.project_info.project_id,
        **(platform_choices if known_inputs else {}),
        "template_id": template_id,
        # a template decides the image: on import it is no declaration of its own
        "docker_image": docker_image if known_inputs or template_id is None else None,
        "environment_variables": _extract_variables(cluster),
        **_extract_network(cluster.network, known_inputs),
        "auto_terminate": _extract_limits(cluster.auto_terminate, is_declared=bool(known_inputs)),
        "tags": cluster.tags,
        "state": cluster.status if cluster.status in STABLE_STATUSES else None,
    }


def merge_tags(
    declared: Mapping[str, str], observed: Mapping[str, str], known: Mapping[str, str]
) -> dict[str, str]:
    """Return the declared tags and the tags of others, which an update has to send again.

    Args:
        declared: the tags as declared now.
        observed: the tags as the platform reports them.
        known: the tags of the last declaration; those that are no longer declared are left out.
    """
    return {key: value for key, value in observed.items() if key not in known} | dict(declared)


def find_start_changes(cluster: wire.Cluster, inputs: ClusterInputs) -> dict[str, Any]:
    """Return the declared values of fields that differ on the platform and change by a start only.

    A field that the platform does not report is left out.
    """
    observed, declared = extract_inputs(cluster, {"is": "known"}), inputs.dump_declared()
    return {
        name: declared[name]
        for name in START_FIELDS
        # a field that the platform does not report cannot differ
        if name in declared and observed[name] not in (None, declared[name])
    }


def get_gpu_count(cluster: wire.Cluster) -> int | None:
    """Return how many GPUs the platform reports; None if unknown."""
    return cluster.configuration.gpu_count if cluster.configuration else None


def count_declined_gpus(cluster: wire.Cluster, inputs: ClusterInputs) -> int:
    """Return how many GPUs a start as declared removes; 0 also if their number is unknown."""
    return max(0, (get_gpu_count(cluster) or 0) - inputs.gpu_count)


def build_outputs(
    cluster: wire.Cluster,
    not_ready_reason: str | None,
    stopped_by: str | None,
    restored_snapshot: str | None,
    *,
    created_version: str | None = None,
) -> ClusterOutputs:
    """Return the outputs of a cluster.

    Args:
        cluster: the cluster as the platform reports it.
        not_ready_reason: why the cluster is not ready, or None if it is.
        stopped_by: why something else than the declaration stopped the cluster.
        restored_snapshot: the snapshot that the cluster was last started from.
        created_version: the first observed version of its template; None takes the present one.
    """
    configuration = cluster.configuration or wire.Configuration()
    environment = cluster.environment or wire.Environment()
    runtime_info = environment.runtime_info
    metrics = cluster.metrics or wire.Metrics()
    return ClusterOutputs(
        ready=not_ready_reason is None,
        not_ready_reason=not_ready_reason,
        status=cluster.status,
        placed_region=configuration.region,
        placed_gpu_type=configuration.gpu_type,
        status_message=cluster.status_details.message,
        last_status_change=cluster.status_details.last_status_change,
        stopped_by=stopped_by,
        restored_snapshot=restored_snapshot,
        **_build_address_outputs(cluster.network or wire.Network()),
        project_name=cluster.project_info.project_name,
        owner_id=cluster.project_info.owner_id,
        owner_email=cluster.project_info.owner_email,
        template_name=cluster.template_info.template_name,
        template_version=cluster.template_info.template_version,
        made_from_version=created_version or cluster.template_info.template_version,
        # The used space is a figure in constant change.
        volumes=[
            VolumeOutputs(**volume.model_dump(exclude={"used_gb"}))
            for volume in cluster.storage.volumes
        ],
        estimated_termination=cluster.auto_terminate
        and cluster.auto_terminate.estimated_termination,
        availability_zone=configuration.availability_zone,
        storage_type=configuration.storage_type,
        **cluster.status_details.health_checks.model_dump(),
        alerts=[AlertOutputs(**alert.model_dump()) for alert in metrics.alerts],
        **_build_cost_outputs(cluster.cost or wire.Cost()),
        snapshots=[
            SnapshotOutputs(**snapshot.model_dump()) for snapshot in cluster.storage.snapshots
        ],
        hidden_variables=list(environment.secrets),
        **runtime_info.model_dump(),
        created_at=cluster.created_at,
        updated_at=cluster.updated_at,
    )


def find_failure(cluster: wire.Cluster) -> str | None:
    """Return why the cluster cannot change status without help, or None.

    The platform's message is cut to 200 characters.
    """
    if cluster.status not in FAILED_STATUSES:
        return None
    # the text is the platform's: one line, cut to what a plan can show
    message = " ".join((cluster.status_details.message or "").split())
    return f"its status is {cluster.status}" + (f": {message[:200]}" if message else "")


def find_failed_checks(cluster: wire.Cluster, required: Sequence[str]) -> str | None:
    """Return which required health checks of a running cluster are not healthy, or None.

    The documentation ('Get Cluster Details') has no other word for a passed check. None, too, for a
    cluster that does not run. A check that is not reported is not healthy.
    """
    if cluster.status != ClusterStatus.RUNNING:
        return None
    health_words = cluster.status_details.health_checks.model_dump()
    required_words = {f"{name}_health": health_words.get(f"{name}_health") for name in required}
    failed_checks = [
        f"{name} is {word or 'not reported'}"
        for name, word in required_words.items()
        if word != "healthy"
    ]
    return f"{', '.join(failed_checks)} (require_healthy)" if failed_checks else None


def _extract_variables(cluster: wire.Cluster) -> dict[str, str] | None:
    """Return the environment variables with the values that the platform reports.

    None if the platform reports no environment.
    """
    if cluster.environment is None:
        return None
    variables = cluster.environment.variables.items()
    return {name: value.get_secret_value() for name, value in variables}


def _extract_network(
    network: wire.Network | None, known_inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return port mappings and security groups as inputs; empty without a reported network."""
    if network is None:
        return {}
    return {
        "port_mappings": _match_ports(known_inputs.get("port_mappings"), network.port_mappings),
        # an empty list is a value: the cluster has no groups
        "security_groups": list(network.security_groups),
    }


def _match_ports(
    declared: Sequence[Mapping[str, Any]] | None, actual: Sequence[wire.PortMapping]
) -> list[dict[str, Any]]:
    """Return the existing ports as inputs: the declared ones in declared order, then the others.

    A declared port has its declared fields only.
    """
    unmatched_ports = {(port.internal_port, port.protocol or "tcp"): port for port in actual}
    matched_ports = []
    for declared_port in declared or ():
        # only the declared fields are compared: the platform chooses the outer port
        actual_port = unmatched_ports.pop(
            (declared_port.get("internal_port", 0), declared_port.get("protocol") or "tcp"), None
        )
        if actual_port is not None:
            matched_ports.append(actual_port.model_dump(include=set(declared_port)))
    return [
        *matched_ports,
        *(
            other_port.model_dump(include=set(_PORT_FIELDS))
            for other_port in unmatched_ports.values()
        ),
    ]


def _extract_limits(
    limits: wire.AutoTerminate | None, *, is_declared: bool
) -> dict[str, Any] | None:
    """Return the limits of auto-termination; None if unreported, or switched off and undeclared."""
    # limits that are switched off are the default, which nobody has to declare
    if limits is None or not (limits.enabled or is_declared):
        return None
    return limits.model_dump(include=set(_LIMIT_FIELDS), exclude_none=True)


def _build_address_outputs(network: wire.Network) -> dict[str, Any]:
    """Build the outputs for addresses, ports, firewall rules and SSH; None where unreported."""
    ssh = network.ssh_connection
    command = ssh.connection_string
    return {
        "private_ip": network.private_ip,
        "public_ip": network.public_ip,
        "proxy_url": network.proxy_url,
        "port_urls": {
            str(port.internal_port): port.url for port in network.port_mappings if port.url
        },
        "firewall_rules": [
            FirewallRuleOutputs(**rule.model_dump()) for rule in network.firewall_rules
        ],
        "ssh_command": command.get_secret_value() if command else None,
        "ssh_connection": SshConnectionOutputs(
            host=ssh.host, port=ssh.port or 22, username=ssh.username
        )
        if ssh.host
        else None,
    }


def _build_cost_outputs(cost: wire.Cost) -> dict[str, Any]:
    """Build the outputs for the hourly rate, the costs and their projections."""
    cost_parts = cost.cost_breakdown.model_dump()
    is_reported = any(part_cost is not None for part_cost in cost_parts.values())
    return {
        "cost_breakdown": CostBreakdownOutputs(**cost_parts) if is_reported else None,
        "current_hourly_rate": cost.current_hourly_rate,
        "currency": cost.currency,
        **cost.cost_projections.model_dump(),
    }
