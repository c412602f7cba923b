"""Describe access, ports, usage, metrics, notices and power changes of a TensorOne cluster.

The lifecycle (`cluster`) calls this module with stored inputs and outputs; only `read_live_figures`
sends requests.

The fields are from TensorOne's documentation ('Get Cluster Details', document 000): `network`,
`metrics`, `cost`, `auto_terminate`, `uptime_seconds` and `last_accessed`. Utilization is in
percent. A figure that an answer omits is unknown. The documentation shows the firewall rules of an
existing cluster, and not which ports the platform opens for a new one.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any, Final

from gpuform.providers.context import get_run_context
from gpuform.providers.environment import Live
from gpuform.providers.errors import NotFound
from gpuform.providers.lifecycle.traits import (
    EXPIRES,
    extract_placement,
    find_number,
    find_text,
    list_member_names,
    list_unknown_fields,
)
from gpuform.providers.lifetime import format_moment, format_remaining_time, is_idleness_cause
from gpuform.providers.permissions import Permission
from gpuform.providers.tensorone.client import TensorOneClient
from gpuform.schemas.access import Access, Host, Port, is_valid_host, is_valid_user
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange
from gpuform.schemas.policies.lifetime import has_expiry
from gpuform.schemas.resource_facts import (
    Billing,
    Expense,
    Exposure,
    NodeHealth,
    NodeRecord,
    Notice,
    NoticeKind,
    ResourceUsage,
)
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.outputs import STABLE_STATUSES, ClusterStatus
from gpuform.schemas.tensorone.wire import ClusterMetrics
from gpuform.schemas.values import UNKNOWN, contains_unknown, is_equal, parse_count, to_unix_time

_NO_KUBERNETES = "TensorOne's clusters are hosts without Kubernetes"


def describe_cluster_access(outputs: Mapping[str, Any]) -> Access:
    """Return how people connect to a cluster: its SSH host and its mapped ports.

    Ports are those of the last observation.
    """
    host, urls = _find_ssh_host(outputs), outputs.get("port_urls") or {}
    return Access(
        name=find_text(outputs, "name"),
        no_kubeconfig=_NO_KUBERNETES,
        hosts=(host,) if host else (),
        no_hosts=_explain_missing_host(outputs),
        ports=tuple(
            Port.from_url(number, str(url))
            for number, url in sorted(
                (int(internal_port), url)
                for internal_port, url in urls.items()
                if internal_port.isdecimal()
            )
        ),
    )


def _find_ssh_host(outputs: Mapping[str, Any]) -> Host | None:
    """Return the SSH host of the outputs; None without a valid host, user or port."""
    connection = outputs.get("ssh_connection") or {}
    address, user = find_text(connection, "host"), find_text(connection, "username")
    # both end up in an SSH configuration: anything but a plain host and user is dropped
    if not is_valid_host(address) or (user and not is_valid_user(user)):
        return None
    status = find_text(outputs, "status")
    reason = f"it is {status}" if status != ClusterStatus.RUNNING else ""
    port = connection.get("port") or 22
    if not isinstance(port, int | float) or not 0 < port < 65536:
        return None
    name = find_text(outputs, "name")
    return Host(
        node=name, address=address, port=int(port), user=user, role="machine", because=reason
    )


def _explain_missing_host(outputs: Mapping[str, Any]) -> str:
    """Return why the outputs have no SSH host."""
    if outputs.get("ssh_enabled") is False:
        return "it is declared with ssh_enabled: false"
    # outputs of older versions of gpuform have the command, but not its parts
    if "ssh_command" in outputs:
        return "the state is older than this feature: run `gpuform refresh`"
    return (
        "the platform reports no SSH connection: the cluster is "
        f"{find_text(outputs, 'status') or 'of unknown status'}"
    )


_PORT_OPENING_FIELDS: Final = ("port_mappings", "security_groups")
_OUTBOUND_DIRECTIONS: Final = ("outbound", "egress")


def describe_cluster_exposure(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> Exposure | None:
    """Return the ports open to every address, and why more may be open; None if neither applies.

    Ports are unknown for a cluster that does not exist yet, unless the declaration opens none, and
    while a declared change of ports or security groups is not applied.
    """
    if not outputs:
        opens_ports = any(inputs.get(name) not in (None, []) for name in _PORT_OPENING_FIELDS)
        is_closed = inputs.get("ssh_enabled") is False and not opens_ports
        reason = "TensorOne reports the firewall rules of a cluster once it exists"
        return None if is_closed else Exposure(unknown=reason)
    rules = outputs.get("firewall_rules")
    if not isinstance(rules, list):
        return Exposure(unknown="the state has no rules yet: run `gpuform refresh`")
    ports = tuple(dict.fromkeys(_list_open_ports(rules)))
    # the observed rules do not show yet what this plan changes
    changed_fields = [name for name in _PORT_OPENING_FIELDS if _may_differ(inputs, outputs, name)]
    reason = (
        f"a change of {' and '.join(changed_fields)} may open some ports" if changed_fields else ""
    )
    return Exposure(ports=ports, unknown=reason) if ports or reason else None


def _may_differ(inputs: Mapping[str, Any], outputs: Mapping[str, Any], name: str) -> bool:
    """Return True if the declared list `name` may differ from the observed one, whatever the order.

    False for an undeclared list; True for an unknown or unobserved one.
    """
    declared, observed = inputs.get(name), outputs.get(name)
    if declared is None:
        return False
    if contains_unknown(declared) or not isinstance(observed, list):
        return True
    return not is_equal(sorted(declared, key=repr), sorted(observed, key=repr))


def _list_open_ports(rules: list[Any]) -> Iterator[str]:
    """Yield the ports that inbound rules open to every address, as `22/tcp`.

    A rule without a source opens its ports to every address. A rule without a direction counts as
    inbound, one without ports as `all ports`.
    """
    for rule in rules:
        if not isinstance(rule, Mapping):
            continue
        if str(rule.get("direction") or "").casefold() in _OUTBOUND_DIRECTIONS:
            continue
        # a rule without a source is taken for a rule for every source
        if _is_any_source(str(rule.get("source") or "")):
            ports = rule.get("port_range") or "all ports"
            protocol = rule.get("protocol")
            yield f"{ports}/{protocol}" if protocol else str(ports)


def _is_any_source(source: str) -> bool:
    """Return True if a firewall rule's source means every address; so does an empty source."""
    try:
        return ip_network(source.strip(), strict=False).prefixlen == 0
    except ValueError:
        return source.strip().casefold() in ("", "*", "any", "all")


_PRICED_FIELDS: Final = (
    *("region", "gpu_type", "gpu_count", "storage_gb", "cpu_cores", "memory_gb", "state"),
)
"""Fields that the platform's hourly rate depends on."""

_TERMINATION_LIMITS: Final = ("idle_minutes", "max_runtime_hours", "cost_limit_usd")


def describe_cluster_usage(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> ResourceUsage:
    """Return the resource usage and the expenses of a cluster.

    The observed region and GPU type count before the declared ones: a search for capacity may have
    placed the cluster elsewhere. The tag `expires` and a limit of auto-termination count as an
    expiry.
    """
    inputs, outputs = (
        {**inputs, **extract_placement(outputs)},
        {**outputs, **extract_placement(outputs)},
    )
    region, gpu_type = find_text(inputs, "region"), find_text(inputs, "gpu_type")
    tags = list_member_names(inputs, "tags")
    is_running = find_text(outputs, "status") == "running"
    return ResourceUsage(
        region=region,
        gpu_types=(gpu_type,) if gpu_type else (),
        tags=tags,
        expires=has_expiry(inputs)
        or EXPIRES in tags
        or _has_termination_limit(inputs.get("auto_terminate")),
        running=is_running,
        unknown=list_unknown_fields(
            inputs, region="region", gpu_types="gpu_type", tags="tags", expires="auto_terminate"
        ),
        expenses=_list_expenses(inputs, outputs, region, gpu_type),
    )


def _list_expenses(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], region: str, gpu_type: str
) -> tuple[Expense, ...]:
    """Return the expenses for GPUs and storage, at the reported rate if valid, else unpriced.

    The reported rate covers both, so that the storage then costs 0.
    """
    location = {"platform": "tensorone", "region": region}
    hourly_rate = outputs.get("current_hourly_rate")
    # The reported rate is for the cluster as it is: after a change of a priced field only the price
    # book has the rate.
    if isinstance(hourly_rate, int | float) and _is_reported_rate_valid(inputs, outputs):
        is_stopped = find_text(outputs, "status") == "stopped"
        billing = Billing.STOPPED if is_stopped else Billing.ON_DEMAND
        count, size = find_number(outputs, "gpu_count"), find_number(outputs, "storage_gb")
        reported_details = {
            **location,
            "currency": find_text(outputs, "currency"),
            "source": "tensorone",
        }
        rate_details = {"hourly": float(hourly_rate), "gpu_type": gpu_type, "billing": billing}
        return (
            Expense(what="whole", amount=count, **rate_details, **reported_details),
            Expense(
                what="storage", amount=size, unit="GB", hourly=0.0, **reported_details
            ),  # the hourly rate of the cluster includes the storage
        )
    is_stopped = find_text(inputs, "state") == "stopped"
    billing = Billing.STOPPED if is_stopped else Billing.ON_DEMAND
    count, size = find_number(inputs, "gpu_count"), find_number(inputs, "storage_gb")
    return (
        Expense(what="gpus", amount=count, gpu_type=gpu_type, billing=billing, **location),
        Expense(what="storage", amount=size, unit="GB", **location),
    )


def _is_reported_rate_valid(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> bool:
    """Return True if every declared field behind the hourly rate equals the observed one."""
    declared_fields = (name for name in _PRICED_FIELDS if inputs.get(name) is not None)
    return all(is_equal(inputs[name], outputs.get(name)) for name in declared_fields)


def _has_termination_limit(limits: Any) -> bool:
    """Return True if auto-termination is not switched off and has at least one limit."""
    if not isinstance(limits, Mapping) or limits is UNKNOWN:
        return False
    return limits.get("enabled") is not False and any(
        limits.get(name) for name in _TERMINATION_LIMITS
    )


def read_live_figures(client: TensorOneClient, ids: Sequence[str]) -> Mapping[str, Live]:
    """Return the metrics and the cost of existing clusters, by id.

    One list serves several clusters. No document says that the list has metrics, so a cluster
    listed without them is read again.

    Raises:
        GpuformError: the platform does not answer.
    """
    readings = client.list_clusters() if len(ids) > 1 else ()
    listed_clusters = {reading.cluster.id: reading.cluster for reading in readings}
    live_by_id: dict[str, Live] = {}
    for id_ in ids:
        cluster = listed_clusters.get(id_)
        if cluster is None or cluster.metrics is None:
            try:
                cluster = client.get_cluster(id_).cluster
            except NotFound:
                continue
        metrics = ClusterMetrics.from_cluster(cluster)
        is_running = cluster.status == ClusterStatus.RUNNING
        lines = (
            "; ".join(_format_use(metrics, is_running=is_running)),
            "; ".join(_format_cost(metrics)),
        )
        live_by_id[id_] = Live(tuple(filter(None, lines)), metrics.model_dump(mode="json"))
    return live_by_id


def _format_use(metrics: ClusterMetrics, *, is_running: bool) -> Iterator[str]:
    """Yield texts about a cluster's use: GPUs, uptime and idle time if running, and last access."""
    current = metrics.metrics.current
    # the last figures of a stopped cluster say nothing about now
    if is_running:
        figures = (
            (current.gpu_utilization, "GPUs {:g}%"),
            (current.gpu_memory_utilization, "GPU memory {:g}%"),
            (current.temperature_celsius, "{:g} °C"),
            (current.power_usage_watts, "{:g} W"),
        )
        if parts := [template.format(value) for value, template in figures if value is not None]:
            yield ", ".join(parts)
        idle = metrics.auto_terminate.current_idle_minutes
        times = ((metrics.uptime_seconds, "up"), (idle and idle * 60, "idle"))
        if parts := [
            f"{label} {format_remaining_time(seconds)}" for seconds, label in times if seconds
        ]:
            yield ", ".join(parts)
    if metrics.last_accessed:
        yield f"last accessed {metrics.last_accessed}"


def _format_cost(metrics: ClusterMetrics) -> Iterator[str]:
    """Yield texts about the cost of a cluster and the efficiency of the spending."""
    cost, efficiency = metrics.cost, metrics.metrics.historical.cost_efficiency
    sums = ((cost.session_cost, "this session"), (cost.total_lifetime_cost, "in all"))
    if parts := [
        f"{_format_money(value, cost)} {label}" for value, label in sums if value is not None
    ]:
        yield ", ".join(parts)
    if efficiency.cost_per_compute_hour is not None:
        yield f"{_format_money(efficiency.cost_per_compute_hour, cost)} per compute hour"
    if efficiency.utilization_score is not None:
        yield f"utilization score {efficiency.utilization_score:g}"


def _format_money(value: float, cost: wire.Cost) -> str:
    """Return an amount with two decimals and the currency."""
    return f"{value:,.2f} {cost.currency or ''}".rstrip()


def find_cluster_notices(outputs: Mapping[str, Any], now: float) -> Iterator[Notice]:
    """Yield notices of the coming auto-termination of a running cluster, and of a newer template.

    `estimated_termination` and `template_version` are from TensorOne's documentation ('Get Cluster
    Details'). That a cluster keeps the version of its creation is our reading.
    """
    ends_at = to_unix_time(_get_text(outputs, "estimated_termination"))
    if (
        ends_at is not None
        and ends_at > now
        and _get_text(outputs, "status") == ClusterStatus.RUNNING
    ):
        message = (
            f"ends by itself in {format_remaining_time(ends_at - now)}, at "
            f"{format_moment(ends_at)} (auto_terminate)"
        )
        yield Notice(kind=NoticeKind.EXPIRY, text=message, at=format_moment(ends_at))
    created_version, current_version = (
        _get_text(outputs, "made_from_version"),
        _get_text(outputs, "template_version"),
    )
    if created_version and current_version and created_version != current_version:
        template_label = _get_text(outputs, "template_name") or "its template"
        yield Notice(
            kind=NoticeKind.TEMPLATE,
            text=f"{template_label} is now {current_version}, but the cluster was created from "
            f"{created_version}: to recreate the cluster, run `gpuform up --replace` with its name",
        )


def _get_text(outputs: Mapping[str, Any], name: str) -> str:
    """Return a text of the outputs; empty for any other value."""
    value = outputs.get(name)
    return value if isinstance(value, str) else ""


def plan_state_changes(
    outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> Iterator[FieldChange]:
    """Yield the change of `state` if the next run starts or stops the cluster.

    A cluster stopped by auto-termination gets the action KEEP without the permission
    `start-terminated`. Nothing is yielded while `gpuform expire` keeps a cluster with a declared
    `idle` stopped. An UNKNOWN declared state gives a change, too.
    """
    status, state = outputs.get("status"), declared.get("state", "running")
    # between two states the last recorded one counts: the cluster is on its way
    observed_state = status if status in STABLE_STATUSES else outputs.get("state", "running")
    recorded_state, stop_reason = outputs.get("state", observed_state), outputs.get("stopped_by")
    if state is UNKNOWN:
        because = KNOWN_AFTER_APPLY
        yield FieldChange("state", Action.UPDATE, recorded_state, state, because=because)
    elif is_idleness_cause(stop_reason) and declared.get("idle") is not None and state == "stopped":
        # `idle` excludes a declared `state: stopped`: only `gpuform expire` sets both
        return
    elif stop_reason and not (is_idleness_cause(stop_reason) and declared.get("idle") is None):
        yield _plan_change_after_termination(stop_reason, state)
    elif recorded_state != state:
        yield FieldChange("state", Action.UPDATE, recorded_state, state)
    elif observed_state != state:
        yield FieldChange("state", Action.UPDATE, observed_state, state)


def _plan_change_after_termination(stop_reason: str, state: str) -> FieldChange:
    """Return the change of `state` for a cluster stopped by auto-termination.

    The action is KEEP if the cluster may not be started. A declared `stopped` is a change from
    `running` that only accepts the stop.
    """
    because = f"stopped by {stop_reason}"
    if state == "stopped":
        return FieldChange("state", Action.UPDATE, "running", state, because=because)
    if Permission.START_TERMINATED in get_run_context().permissions:
        return FieldChange("state", Action.UPDATE, "stopped", state, because=because)
    because = f"{because}; --allow {Permission.START_TERMINATED} starts it again"
    # a start costs money again, which the limit was to prevent: people have to allow it
    return FieldChange("state", Action.KEEP, "stopped", "stopped", because=because)


def describe_start_effect(
    path: str, outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> str:
    """Return the plan's words for the stops and starts by which a change is applied."""
    is_stopped = outputs.get("status") == ClusterStatus.STOPPED
    if declared.get("state") == "stopped":
        if path == "restore_snapshot":
            return "at the next start"
        return "starts and stops the cluster" if is_stopped else "restarts and stops the cluster"
    return "starts the cluster" if is_stopped else "stops and starts the cluster"


def build_node_record(
    object_id: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> NodeRecord:
    """Return a cluster, which is one machine, for an inventory."""
    placed_values = {**inputs, **extract_placement(outputs)}
    status, gpu_health = find_text(outputs, "status"), find_text(outputs, "gpu_health")
    is_broken = bool(outputs.get("faults")) or status == ClusterStatus.ERROR
    is_broken = is_broken or gpu_health not in ("", "healthy")
    is_running = status == ClusterStatus.RUNNING
    health = NodeHealth.HEALTHY if is_running else NodeHealth.UNKNOWN
    return NodeRecord(
        node_id=object_id,
        health_state=NodeHealth.UNHEALTHY if is_broken else health,
        instance_id=object_id,
        created_at=find_text(outputs, "created_at"),
        hardware_type=find_text(placed_values, "gpu_type"),
        gpu_count=parse_count(inputs.get("gpu_count")),
        account_id=find_text(outputs, "owner_id"),
        project_id=find_text({**inputs, **outputs}, "project_id"),
        in_use=is_running if status else None,
        region=find_text(placed_values, "region"),
        name=find_text({**inputs, **outputs}, "name"),
    )
