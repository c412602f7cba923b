"""What a cluster looks like: the platform document's answer, field by field.

Values that nobody can emulate (utilization, temperature, used space) are the document's own while
the cluster works, and nothing while it does not.
"""

from datetime import UTC, datetime
from typing import Any

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


def timestamp(moment: float) -> str:
    """Whole seconds, as in the document."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def merged(found: Json, instead: Json) -> Json:
    """An answer with some of its parts replaced."""
    parts = {
        name: merged(found[name], value)
        if isinstance(value, dict) and isinstance(found.get(name), dict)
        else value
        for name, value in instead.items()
    }
    return {**found, **parts}


def without(found: Json, path: str) -> Json:
    """An answer without one of its members, such as `metrics.current`."""
    name, _, rest = path.partition(".")
    if rest and isinstance(found.get(name), dict):
        return {**found, name: without(found[name], rest)}
    return {key: value for key, value in found.items() if key != name or rest}


class View:
    """A cluster with its snapshots at one moment."""

    def __init__(self, cluster: Cluster, snapshots: list[Snapshot], now: float) -> None:
        self._cluster = cluster
        self._snapshots = snapshots
        self._now = now
        self._status = cluster.status(now)
        self._runs = self._status == "running"
        self._works = self._runs and cluster.idle_since is None
        self._host = cluster.cluster_id.replace("_", "-")

    def shown(self, window: str = "1h", *, metrics: bool = True, costs: bool = True) -> Json:
        cluster, now = self._cluster, self._now
        sessions = cluster.sessions(now)
        return {
            "id": cluster.cluster_id,
            "name": cluster.details.name,
            "description": cluster.details.description,
            "status": self._status,
            "status_details": self._status_details(),
            "configuration": self._configuration(),
            "project_info": {
                "project_id": cluster.project_id,
                "project_name": PROJECT_NAMES.get(cluster.project_id, cluster.project_id),
                **OWNER,
            },
            "template_info": self._template(),
            "network": self._network(),
            **({"metrics": self._metrics(window)} if metrics else {}),
            "cost": self._cost(sessions, is_detailed=costs),
            "storage": self._storage(),
            "environment": {
                "variables": cluster.variables(),
                "secrets": cluster.hidden_variables(),
                "runtime_info": self._runtime(),
            },
            "auto_terminate": self._auto_terminate(),
            "uptime_seconds": int(now - sessions[-1][0]) if self._runs else 0,
            "created_at": timestamp(cluster.created_at),
            "updated_at": timestamp(cluster.updated_at(now)),
            "last_accessed": timestamp(cluster.changed_at),
            "tags": cluster.details.tags,
        }

    def _status_details(self) -> Json:
        health = "healthy" if self._runs else "unknown"
        names = ("gpu_health", "storage_health", "network_health", "docker_health")
        return {
            "message": self._cluster.message
            if self._cluster.message and self._status in {"stopping", "stopped", "error"}
            else _MESSAGES.get(self._status, self._status),
            "last_status_change": timestamp(self._cluster.last_change(self._now)),
            "health_checks": dict.fromkeys(names, health),
        }

    def _configuration(self) -> Json:
        spec = self._cluster.spec
        return {
            **spec.model_dump(exclude={"region"}),
            "storage_type": "nvme",
            "region": spec.region,
            "availability_zone": f"{spec.region}a",
        }

    def _template(self) -> Json:
        template = TEMPLATES.get(self._cluster.template_id or "")
        return {
            "template_id": self._cluster.template_id,
            "template_name": template.name if template else None,
            "template_version": template.version if template else None,
            "docker_image": self._cluster.docker_image,
        }

    def _network(self) -> Json:
        cluster, number = self._cluster, self._cluster.number
        proxy = f"https://{self._host}.tensorone.ai"
        return {
            "private_ip": f"10.0.{number // 200}.{number % 200 + 10}",
            "public_ip": f"203.0.113.{number % 250 + 1}",
            "proxy_url": proxy,
            "ssh_connection": self._ssh() if cluster.has_ssh else None,
            "port_mappings": [
                {
                    **port.model_dump(),
                    "url": f"{proxy}:{port.external_port}",
                    "status": "active" if self._runs else "inactive",
                }
                for port in cluster.details.port_mappings
            ],
            "security_groups": cluster.details.security_groups,
            "firewall_rules": [_SSH_RULE] if cluster.has_ssh else [],
        }

    def _ssh(self) -> Json:
        host = f"ssh-{self._host.removeprefix('cluster-')}.tensorone.ai"
        return {
            "host": host,
            "port": 22,
            "username": "root",
            "status": "connected" if self._runs else "disconnected",
            "connection_string": f"ssh root@{host}",
            "last_connection": timestamp(self._cluster.changed_at),
        }

    def _metrics(self, window: str) -> Json:
        return {
            "current": {"timestamp": timestamp(self._now), **self._current()},
            "historical": {
                "window": window,
                "gpu_utilization": self._used(window),
                "memory_utilization": _course(65.4, 12.1, 94.2, "stable"),
                "cost_efficiency": {
                    "utilization_score": 85.2,
                    "cost_per_compute_hour": round(self._cluster.spec.hourly * 1.053, 2),
                },
            },
            "alerts": [self._alert()] if self._works else [],
        }

    def _used(self, window: str) -> Json:
        """Next to nothing, once it has had no work for the whole window."""
        since = self._cluster.idle_since
        if self._runs and since is not None and self._now - since >= WINDOWS[window]:
            return _course(0.1, 0.0, 0.4, "stable")
        return _course(82.1, 15.3, 98.7, "increasing")

    def _current(self) -> Json:
        spec = self._cluster.spec
        watts = GPU_TYPES[spec.gpu_type].watts * spec.gpu_count
        if not self._works:
            idle = dict.fromkeys(_WORKING, 0.0)
            return {**idle, "power_usage_watts": watts // 10 if self._runs else 0}
        return {**_WORKING, "power_usage_watts": watts * 25 // 32}

    def _alert(self) -> Json:
        return {
            "type": "high_gpu_utilization",
            "severity": "info",
            "message": _BUSY_ALERT,
            "triggered_at": timestamp(self._cluster.last_change(self._now)),
        }

    def _cost(self, sessions: list[tuple[float, float]], *, is_detailed: bool) -> Json:
        cluster, hourly = self._cluster, self._cluster.spec.hourly
        start, end = sessions[-1] if sessions else (cluster.created_at, cluster.created_at)
        return {
            "current_hourly_rate": hourly,
            "currency": CURRENCY,
            "session_cost": cluster.cost(sessions[-1:]),
            "total_lifetime_cost": cluster.cost(sessions),
            **({"cost_breakdown": cluster.spec.costs()} if is_detailed else {}),
            "billing_period": {
                "start": timestamp(start),
                "current": timestamp(end),
                "duration_hours": round((end - start) / 3600, 2),
            },
            "cost_projections": {
                "daily_estimate": round(hourly * 24, 2),
                "weekly_estimate": round(hourly * 24 * 7, 2),
                "monthly_estimate": round(hourly * 24 * 30, 2),
            },
        }

    def _storage(self) -> Json:
        whole = self._cluster.spec.storage_gb
        root = min(ROOT_VOLUME_GB, whole)
        volumes = [_volume("root", root, 45, "/")]
        if whole > root:
            volumes.append(_volume("data", whole - root, 230, "/data"))
        return {
            "volumes": volumes,
            "snapshots": [
                {
                    "id": each.snapshot_id,
                    "name": each.name,
                    "size_gb": each.size_gb,
                    "created_at": timestamp(each.created_at),
                }
                for each in self._snapshots
            ],
        }

    def _runtime(self) -> Json:
        template = TEMPLATES.get(self._cluster.template_id or "")
        return {**RUNTIME, **({"cuda_version": template.cuda_version} if template else {})}

    def _auto_terminate(self) -> Json:
        cluster = self._cluster
        limits = cluster.details.auto_terminate
        hours, start = limits.max_runtime_hours, cluster.statuses[-1][0]
        ends = self._runs and limits.enabled and hours is not None
        return {
            **limits.model_dump(),
            "estimated_termination": timestamp(start + (hours or 0) * 3600) if ends else None,
            "current_idle_minutes": cluster.idle_minutes(self._now),
        }


_WORKING: Json = {
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


def _course(avg: float, least: float, most: float, trend: str) -> Json:
    return {"avg": avg, "min": least, "max": most, "trend": trend}


def _volume(name: str, size: int, used: int, path: str) -> Json:
    return {
        "name": name,
        "size_gb": size,
        "used_gb": min(used, size),
        "mount_path": path,
        "type": "nvme",
        "encrypted": True,
    }
