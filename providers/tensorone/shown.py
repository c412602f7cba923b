"""A cluster as the platform shows it, in the names of inputs and outputs."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import CONFIGURED, ClusterInputs
from gpuform.schemas.tensorone.outputs import (
    AlertOutputs,
    ClusterOutputs,
    CostBreakdownOutputs,
    FirewallRuleOutputs,
    SnapshotOutputs,
    SshConnectionOutputs,
    VolumeOutputs,
)
from gpuform.schemas.tensorone.statuses import AT_REST, FAILED, ClusterStatus

_LIMITS: Final = ("enabled", "idle_minutes", "max_runtime_hours", "cost_limit_usd")
_PORT: Final = ("internal_port", "protocol", "description")


def inputs_of(cluster: wire.Cluster, known: Mapping[str, Any]) -> dict[str, Any]:
    """What the platform returns of a declaration; None is what it does not say.

    `known` is what was declared, or nothing when the object is imported: then what the platform
    chooses by itself (cores, memory, outer ports, a template's image) is left out.
    """
    configuration = cluster.configuration or wire.Configuration()
    chosen = {"cpu_cores": configuration.cpu_cores, "memory_gb": configuration.memory_gb}
    image, template = cluster.template_info.docker_image, cluster.template_info.template_id
    return {
        "name": cluster.name or None,
        "description": cluster.description,
        "gpu_type": configuration.gpu_type,
        "gpu_count": configuration.gpu_count,
        "storage_gb": configuration.storage_gb,
        "region": configuration.region,
        "project_id": cluster.project_info.project_id,
        **(chosen if known else {}),
        "template_id": template,
        "docker_image": image if known or template is None else None,
        "environment_variables": _variables(cluster),
        **_network(cluster.network, known),
        "auto_terminate": _limits(cluster.auto_terminate, is_declared=bool(known)),
        "tags": cluster.tags,
        "state": cluster.status if cluster.status in AT_REST else None,
    }


def differences(cluster: wire.Cluster, want: ClusterInputs) -> dict[str, Any]:
    """What is declared and the platform has otherwise, of that which changes at a start alone."""
    seen, declared = inputs_of(cluster, {"is": "known"}), want.dump_declared()
    return {
        name: declared[name]
        for name in CONFIGURED
        if name in declared and seen[name] not in (None, declared[name])
    }


def outputs_of(
    cluster: wire.Cluster,
    reason: str | None,
    stopped_by: str | None,
    restored: str | None,
    *,
    made_from: str | None = None,
) -> ClusterOutputs:
    """The outputs, with `reason` why it is not ready.

    `made_from` is the version of its template that was seen first, if one was.
    """
    configuration = cluster.configuration or wire.Configuration()
    environment = cluster.environment or wire.Environment()
    runtime = environment.runtime_info
    metrics = cluster.metrics or wire.Metrics()
    return ClusterOutputs(
        ready=reason is None,
        not_ready_reason=reason,
        status=cluster.status,
        placed_region=configuration.region,
        placed_gpu_type=configuration.gpu_type,
        status_message=cluster.status_details.message,
        last_status_change=cluster.status_details.last_status_change,
        stopped_by=stopped_by,
        restored_snapshot=restored,
        **_addresses(cluster.network or wire.Network()),
        project_name=cluster.project_info.project_name,
        owner_id=cluster.project_info.owner_id,
        owner_email=cluster.project_info.owner_email,
        template_name=cluster.template_info.template_name,
        template_version=cluster.template_info.template_version,
        made_from_version=made_from or cluster.template_info.template_version,
        volumes=[_volume(each) for each in cluster.storage.volumes],
        estimated_termination=cluster.auto_terminate
        and cluster.auto_terminate.estimated_termination,
        availability_zone=configuration.availability_zone,
        storage_type=configuration.storage_type,
        **cluster.status_details.health_checks.model_dump(),
        alerts=[AlertOutputs(**each.model_dump()) for each in metrics.alerts],
        **_costs(cluster.cost or wire.Cost()),
        snapshots=[SnapshotOutputs(**each.model_dump()) for each in cluster.storage.snapshots],
        hidden_variables=list(environment.secrets),
        **runtime.model_dump(),
        created_at=cluster.created_at,
        updated_at=cluster.updated_at,
    )


def _volume(volume: wire.StorageVolume) -> VolumeOutputs:
    """Without how much of it is used, which changes all the time."""
    return VolumeOutputs(**volume.model_dump(exclude={"used_gb"}))


def failure(cluster: wire.Cluster) -> str | None:
    """Why it will not come to rest by itself, if so."""
    if cluster.status not in FAILED:
        return None
    message = " ".join((cluster.status_details.message or "").split())
    return f"its status is {cluster.status}" + (f": {message[:200]}" if message else "")


def unhealthy(cluster: wire.Cluster, required: Sequence[str]) -> str | None:
    """Which of the required checks of a running cluster are not healthy, if any.

    The platform's document ('Get Cluster Details') has no other word for a good one.
    """
    if cluster.status != ClusterStatus.RUNNING:
        return None
    words = cluster.status_details.health_checks.model_dump()
    found = {f"{name}_health": words.get(f"{name}_health") for name in required}
    bad = [f"{name} is {word or 'not told'}" for name, word in found.items() if word != "healthy"]
    return f"{', '.join(bad)} (require_healthy)" if bad else None


def _variables(cluster: wire.Cluster) -> dict[str, str] | None:
    """Those whose values are shown."""
    if cluster.environment is None:
        return None
    found = cluster.environment.variables.items()
    return {name: value.get_secret_value() for name, value in found}


def _network(network: wire.Network | None, known: Mapping[str, Any]) -> dict[str, Any]:
    if network is None:
        return {}
    return {
        "port_mappings": _ports(known.get("port_mappings"), network.port_mappings),
        "security_groups": list(network.security_groups),
    }


def _ports(
    declared: Sequence[Mapping[str, Any]] | None, actual: Sequence[wire.PortMapping]
) -> list[dict[str, Any]]:
    """The declared ones that there are, in their order and with their fields; then the others."""
    left = {(each.internal_port, each.protocol or "tcp"): each for each in actual}
    found = []
    for each in declared or ():
        seen = left.pop((each.get("internal_port", 0), each.get("protocol") or "tcp"), None)
        if seen is not None:
            found.append(seen.model_dump(include=set(each)))
    return [*found, *(each.model_dump(include=set(_PORT)) for each in left.values())]


def _limits(limits: wire.AutoTerminate | None, *, is_declared: bool) -> dict[str, Any] | None:
    if limits is None or not (limits.enabled or is_declared):
        return None
    return limits.model_dump(include=set(_LIMITS), exclude_none=True)


def _addresses(network: wire.Network) -> dict[str, Any]:
    ssh = network.ssh_connection
    command = ssh.connection_string
    return {
        "private_ip": network.private_ip,
        "public_ip": network.public_ip,
        "proxy_url": network.proxy_url,
        "port_urls": {
            str(each.internal_port): each.url for each in network.port_mappings if each.url
        },
        "firewall_rules": [
            FirewallRuleOutputs(**each.model_dump()) for each in network.firewall_rules
        ],
        "ssh_command": command.get_secret_value() if command else None,
        "ssh_connection": SshConnectionOutputs(
            host=ssh.host, port=ssh.port or 22, username=ssh.username
        )
        if ssh.host
        else None,
    }


def _costs(cost: wire.Cost) -> dict[str, Any]:
    parts = cost.cost_breakdown.model_dump()
    is_told = any(each is not None for each in parts.values())
    return {
        "cost_breakdown": CostBreakdownOutputs(**parts) if is_told else None,
        "current_hourly_rate": cost.current_hourly_rate,
        "currency": cost.currency,
        **cost.cost_projections.model_dump(),
    }
