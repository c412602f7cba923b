"""Show a cluster as the platform document's answer does, field by field.

`routes` calls this module. Values that nobody can emulate (utilization, temperature, used space)
are the document's own while the cluster works, and nothing while it does not.
"""

from typing import Any

from gpuform.providers.emulator.clock import format_timestamp
from gpuform.providers.emulator.tensorone.catalogue import (
    CURRENCY,
    GPU_TYPES,
    OWNER,
    PROJECT_NAMES,
    ROOT_VOLUME_GB,
    RUNTIME,
    TEMPLATES,
)
from gpuform.providers.emulator.tensorone.clusters import Cluster, Snapshot

Json = dict[str, Any]

WINDOWS = {"1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600, "7d": 7 * 86400}
"""The windows of the metrics, in seconds."""

_BUSY_ALERT = "GPU utilization consistently above 85%"
_MESSAGES = {
    "pending": "Cluster is waiting for resources",
    "starting": "Cluster is starting",
    "running": "Cluster is running normally",
    "stopping": "Cluster is stopping",
    "stopped": "Cluster is stopped",
    "error": "Cluster has failed",
    "deleting": "Cluster is being deleted",
}


def remove_member(content: Json, path: str) -> Json:
    """Return `content` without the member at a dotted path (`metrics.current`), if there is one."""
    name, _, rest = path.partition(".")
    if rest and isinstance(content.get(name), dict):
        return {**content, name: remove_member(content[name], rest)}
    return {key: value for key, value in content.items() if key != name or rest}


class ClusterView:
    """A cluster with its snapshots at one moment."""

    def __init__(self, cluster: Cluster, snapshots: list[Snapshot], now: float) -> None:
        self._cluster = cluster
        self._snapshots = snapshots
        self._now = now
        self._status = cluster.get_status(now)
        self._is_running = self._status == "running"
        self._is_working = self._is_running and cluster.idle_since is None
        self._host = cluster.cluster_id.replace("_", "-")

    def to_json(self, window: str = "1h", *, metrics: bool = True, costs: bool = True) -> Json:
        """Return the document's answer for the cluster.

        Args:
            window: the window of the metrics' history, a key of WINDOWS.
            metrics: whether metrics are included.
            costs: whether the costs are broken down.
        """
        cluster, now = self._cluster, self._now
        sessions = cluster.list_sessions(now)
        return {
            "id": cluster.cluster_id,
            "name": cluster.details.name,
            "description": cluster.details.description,
            "status": self._status,
            "status_details": self._build_status_details(),
            "configuration": self._build_configuration(),
            "project_info": {
                "project_id": cluster.project_id,
                "project_name": PROJECT_NAMES.get(cluster.project_id, cluster.project_id),
                **OWNER,
            },
            "template_info": self._build_template(),
            "network": self._build_network(),
            **({"metrics": self._build_metrics(window)} if metrics else {}),
            "cost": self._build_cost(sessions, is_detailed=costs),
            "storage": self._build_storage(),
            "environment": {
                "variables": cluster.get_visible_variables(),
                "secrets": cluster.list_secret_variables(),
                "runtime_info": self._build_runtime(),
            },
            "auto_terminate": self._build_auto_terminate(),
            "uptime_seconds": int(now - sessions[-1][0]) if self._is_running else 0,
            "created_at": format_timestamp(cluster.created_at),
            "updated_at": format_timestamp(cluster.get_updated_at(now)),
            "last_accessed": format_timestamp(cluster.changed_at),
            "tags": cluster.details.tags,
        }

    def _build_status_details(self) -> Json:
        """Return the message for the status, the time of its change, and the health checks."""
        health = "healthy" if self._is_running else "unknown"
        names = ("gpu_health", "storage_health", "network_health", "docker_health")
        return {
            "message": self._cluster.message
            # A message explains why the cluster stopped; it is void once the cluster runs again.
            if self._cluster.message and self._status in {"stopping", "stopped", "error"}
            else _MESSAGES.get(self._status, self._status),
            "last_status_change": format_timestamp(self._cluster.get_last_change(self._now)),
            "health_checks": dict.fromkeys(names, health),
        }

    def _build_configuration(self) -> Json:
        """Return the answer's `configuration`: the cluster's sizes, storage and place."""
        spec = self._cluster.spec
        return {
            **spec.model_dump(exclude={"region"}),
            "storage_type": "nvme",
            "region": spec.region,
            "availability_zone": f"{spec.region}a",
        }

    def _build_template(self) -> Json:
        """Return the answer's `template`; name and version are None without a known template."""
        template = TEMPLATES.get(self._cluster.template_id or "")
        return {
            "template_id": self._cluster.template_id,
            "template_name": template.name if template else None,
            "template_version": template.version if template else None,
            "docker_image": self._cluster.docker_image,
        }

    def _build_network(self) -> Json:
        """Return the answer's `network`: addresses, SSH, ports and rules of the cluster.

        The addresses are computed from the cluster's number.

        `ssh_connection` is None for a cluster without SSH. Ports are active while the cluster is
        running.
        """
        cluster, number = self._cluster, self._cluster.number
        proxy = f"https://{self._host}.tensorone.ai"
        return {
            "private_ip": f"10.0.{number // 200}.{number % 200 + 10}",
            # An address for documentation (RFC 5737), which leads nowhere.
            "public_ip": f"203.0.113.{number % 250 + 1}",
            "proxy_url": proxy,
            "ssh_connection": self._build_ssh() if cluster.has_ssh else None,
            "port_mappings": [
                {
                    **port.model_dump(),
                    "url": f"{proxy}:{port.external_port}",
                    "status": "active" if self._is_running else "inactive",
                }
                for port in cluster.details.port_mappings
            ],
            "security_groups": cluster.details.security_groups,
            "firewall_rules": [_SSH_RULE] if cluster.has_ssh else [],
        }

    def _build_ssh(self) -> Json:
        """Return how to log in to the cluster by SSH, `connected` while the cluster is running."""
        host = f"ssh-{self._host.removeprefix('cluster-')}.tensorone.ai"
        return {
            "host": host,
            "port": 22,
            "username": "root",
            "status": "connected" if self._is_running else "disconnected",
            "connection_string": f"ssh root@{host}",
            "last_connection": format_timestamp(self._cluster.changed_at),
        }

    def _build_metrics(self, window: str) -> Json:
        """Return the present and past figures of a cluster, with an alert while the GPUs are busy.

        `window` is how far the past reaches, as in the request's query: `1h`.
        """
        return {
            "current": {"timestamp": format_timestamp(self._now), **self._build_current_metrics()},
            "historical": {
                "window": window,
                "gpu_utilization": self._build_gpu_history(window),
                "memory_utilization": _build_history(65.4, 12.1, 94.2, "stable"),
                "cost_efficiency": {
                    "utilization_score": 85.2,
                    "cost_per_compute_hour": round(self._cluster.spec.hourly * 1.053, 2),
                },
            },
            "alerts": [self._build_alert()] if self._is_working else [],
        }

    def _build_gpu_history(self, window: str) -> Json:
        """Return the history of GPU use: next to none if idle for all of the window, else busy."""
        since = self._cluster.idle_since
        if self._is_running and since is not None and self._now - since >= WINDOWS[window]:
            return _build_history(0.1, 0.0, 0.4, "stable")
        return _build_history(82.1, 15.3, 98.7, "increasing")

    def _build_current_metrics(self) -> Json:
        """Return the document's metrics for a working cluster; zeros for any other.

        A running cluster without work still draws some power.
        """
        spec = self._cluster.spec
        watts = GPU_TYPES[spec.gpu_type].watts * spec.gpu_count
        if not self._is_working:
            idle = dict.fromkeys(_BUSY_METRICS, 0.0)
            # GPUs without work still draw a tenth of their power (ours).
            return {**idle, "power_usage_watts": watts // 10 if self._is_running else 0}
        return {**_BUSY_METRICS, "power_usage_watts": watts * 25 // 32}

    def _build_alert(self) -> Json:
        """Return the alert of high GPU use, triggered when the cluster's present status began."""
        return {
            "type": "high_gpu_utilization",
            "severity": "info",
            "message": _BUSY_ALERT,
            "triggered_at": format_timestamp(self._cluster.get_last_change(self._now)),
        }

    def _build_cost(self, sessions: list[tuple[float, float]], *, is_detailed: bool) -> Json:
        """Return price, cost of the last session and of all `sessions`, and estimates, in USD."""
        cluster, hourly = self._cluster, self._cluster.spec.hourly
        start, end = sessions[-1] if sessions else (cluster.created_at, cluster.created_at)
        return {
            "current_hourly_rate": hourly,
            "currency": CURRENCY,
            "session_cost": cluster.compute_cost(sessions[-1:]),
            "total_lifetime_cost": cluster.compute_cost(sessions),
            **({"cost_breakdown": cluster.spec.compute_costs()} if is_detailed else {}),
            "billing_period": {
                "start": format_timestamp(start),
                "current": format_timestamp(end),
                "duration_hours": round((end - start) / 3600, 2),
            },
            "cost_projections": {
                "daily_estimate": round(hourly * 24, 2),
                "weekly_estimate": round(hourly * 24 * 7, 2),
                "monthly_estimate": round(hourly * 24 * 30, 2),
            },
        }

    def _build_storage(self) -> Json:
        """Return a root volume of up to 100 GB, a data volume of the rest, and the snapshots."""
        size_gb = self._cluster.spec.storage_gb
        # The first 100 GB are the root volume, as in the document; the rest is /data.
        root_gb = min(ROOT_VOLUME_GB, size_gb)
        volumes = [_build_volume("root", root_gb, 45, "/")]
        if size_gb > root_gb:
            volumes.append(_build_volume("data", size_gb - root_gb, 230, "/data"))
        return {
            "volumes": volumes,
            "snapshots": [
                {
                    "id": snapshot.snapshot_id,
                    "name": snapshot.name,
                    "size_gb": snapshot.size_gb,
                    "created_at": format_timestamp(snapshot.created_at),
                }
                for snapshot in self._snapshots
            ],
        }

    def _build_runtime(self) -> Json:
        """Return the cluster's software versions, with the CUDA version of a known template."""
        template = TEMPLATES.get(self._cluster.template_id or "")
        return {**RUNTIME, **({"cuda_version": template.cuda_version} if template else {})}

    def _build_auto_terminate(self) -> Json:
        """Return the limits, the idle minutes, and when the longest run time ends, if ever."""
        cluster = self._cluster
        limits = cluster.details.auto_terminate
        hours, start = limits.max_runtime_hours, cluster.statuses[-1][0]
        has_end = self._is_running and limits.enabled and hours is not None
        return {
            **limits.model_dump(),
            "estimated_termination": format_timestamp(start + (hours or 0) * 3600)
            if has_end
            else None,
            "current_idle_minutes": cluster.compute_idle_minutes(self._now),
        }


_BUSY_METRICS: Json = {
    "gpu_utilization": 87.3,
    "gpu_memory_utilization": 94.2,
    "cpu_utilization": 52.1,
    "memory_utilization": 68.4,
    "storage_utilization": 45.2,
    "network_rx_mbps": 125.3,
    "network_tx_mbps": 89.7,
    "temperature_celsius": 72.5,
}
_SSH_RULE: Json = {
    "direction": "inbound",
    "protocol": "tcp",
    "port_range": "22",
    "source": "0.0.0.0/0",
    "description": "SSH Access",
}


def _build_history(average: float, minimum: float, maximum: float, trend: str) -> Json:
    """Return a series' figures in the answer's form. `trend` is a word such as `stable`."""
    return {"avg": average, "min": minimum, "max": maximum, "trend": trend}


def _build_volume(name: str, size: int, used: int, path: str) -> Json:
    """Return a volume in the answer's form, in GB; `used` is at most `size`."""
    return {
        "name": name,
        "size_gb": size,
        "used_gb": min(used, size),
        "mount_path": path,
        "type": "nvme",
        "encrypted": True,
    }
