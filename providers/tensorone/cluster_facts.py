"""Report the access, exposure, resource usage, live figures, notices and power of a TensorOne
cluster (documentation, 'Get Cluster Details'). A figure that an answer leaves out is unknown.

From TensorOne's documentation, 'Get Cluster' (`network.ssh_connection`, `network.port_mappings`).

The document shows the rules of a cluster that is there (`network.firewall_rules`), and not what it
opens for a new one.

All are of TensorOne's document ('Get Cluster Details'): `metrics`, `cost`, `auto_terminate`,
`uptime_seconds` and `last_accessed`. Utilization is in percent. A figure that an answer leaves out
is not told.
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_network
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.declared import EXPIRES, names_in, not_known, number_of, placed, text_of
from gpuform.providers.environment import Live
from gpuform.providers.errors import NotFound
from gpuform.providers.lifetime import is_for_idleness, left, written
from gpuform.providers.permissions import Permission
from gpuform.providers.tensorone.client import TensorOneClient
from gpuform.schemas.access import Access, Host, Port, is_host, is_user
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange
from gpuform.schemas.policies.lifetime import has_end
from gpuform.schemas.resource_facts import Billing, Expense, Exposure, Footprint, Notice, NoticeKind
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.statuses import AT_REST, ClusterStatus, unix_time
from gpuform.schemas.tensorone.wire import ClusterMetrics
from gpuform.schemas.values import UNKNOWN, contains_unknown, is_equal

_NO_KUBERNETES = "TensorOne's clusters are hosts of their own, without Kubernetes"


def cluster_access(seen: Mapping[str, Any]) -> Access:
    """The ports as they were when the cluster was last seen."""
    host, urls = _host(seen), seen.get("port_urls") or {}
    return Access(
        name=text_of(seen, "name"),
        no_kubeconfig=_NO_KUBERNETES,
        hosts=(host,) if host else (),
        no_hosts=_why(seen),
        ports=tuple(
            Port.of(number, str(url))
            for number, url in sorted((int(n), url) for n, url in urls.items() if n.isdecimal())
        ),
    )


def _host(seen: Mapping[str, Any]) -> Host | None:
    told = seen.get("ssh_connection") or {}
    address, user = text_of(told, "host"), text_of(told, "username")
    if not is_host(address) or (user and not is_user(user)):
        return None
    status = text_of(seen, "status")
    because = f"it is {status}" if status != ClusterStatus.RUNNING else ""
    port = told.get("port") or 22
    if not isinstance(port, int | float) or not 0 < port < 65536:
        return None
    name = text_of(seen, "name")
    return Host(
        node=name, address=address, port=int(port), user=user, role="machine", because=because
    )


def _why(seen: Mapping[str, Any]) -> str:
    if seen.get("ssh_enabled") is False:
        return "it is declared with ssh_enabled: false"
    if "ssh_command" in seen:
        return "the state is older than this ability: `gpuform refresh` asks where it is"
    return f"the platform tells no SSH connection: it is {text_of(seen, 'status') or 'not there'}"


_OPENING: Final = ("port_mappings", "security_groups")
_OUTWARD: Final = ("outbound", "egress")


def cluster_exposure(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Exposure | None:
    """By what was seen; of a cluster that is not there, only that nothing is to be opened."""
    if not seen:
        opening = any(values.get(name) not in (None, []) for name in _OPENING)
        is_closed = values.get("ssh_enabled") is False and not opening
        text = "TensorOne shows the firewall rules of a cluster once it is there"
        return None if is_closed else Exposure(unknown=text)
    rules = seen.get("firewall_rules")
    if not isinstance(rules, list):
        return Exposure(unknown="they were not seen yet: run `gpuform refresh`")
    ports = tuple(dict.fromkeys(_open_ports(rules)))
    changed = [name for name in _OPENING if _is_changed(values, seen, name)]
    text = f"a change of {' and '.join(changed)} may open some" if changed else ""
    return Exposure(ports=ports, unknown=text) if ports or text else None


def _is_changed(values: Mapping[str, Any], seen: Mapping[str, Any], name: str) -> bool:
    declared, known = values.get(name), seen.get(name)
    if declared is None:
        return False
    if contains_unknown(declared) or not isinstance(known, list):
        return True
    return not is_equal(sorted(declared, key=repr), sorted(known, key=repr))


def _open_ports(rules: list[Any]) -> Iterator[str]:
    """Such as `22/tcp`. A rule that does not say for whom it is, is for all."""
    for rule in rules:
        if not isinstance(rule, Mapping):
            continue
        if str(rule.get("direction") or "").casefold() in _OUTWARD:
            continue
        if _is_all_the_world(str(rule.get("source") or "")):
            ports = rule.get("port_range") or "all ports"
            protocol = rule.get("protocol")
            yield f"{ports}/{protocol}" if protocol else str(ports)


def _is_all_the_world(source: str) -> bool:
    try:
        return ip_network(source.strip(), strict=False).prefixlen == 0
    except ValueError:
        return source.strip().casefold() in ("", "*", "any", "all")


_PRICED: Final = (
    *("region", "gpu_type", "gpu_count", "storage_gb", "cpu_cores", "memory_gb", "state"),
)
"""What a rate is for."""

_LIMITS: Final = ("idle_minutes", "max_runtime_hours", "cost_limit_usd")


def cluster_footprint(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
    """Where a search for capacity may place it elsewhere, what was seen is true."""
    values, seen = {**values, **placed(seen)}, {**seen, **placed(seen)}
    region, gpu_type = text_of(values, "region"), text_of(values, "gpu_type")
    tags = names_in(values, "tags")
    runs = text_of(seen, "status") == "running"
    return Footprint(
        region=region,
        gpu_types=(gpu_type,) if gpu_type else (),
        tags=tags,
        expires=has_end(values) or EXPIRES in tags or _ends(values.get("auto_terminate")),
        running=runs,
        unknown=not_known(
            values, region="region", gpu_types="gpu_type", tags="tags", expires="auto_terminate"
        ),
        expenses=_expenses(values, seen, region, gpu_type),
    )


def _expenses(
    values: Mapping[str, Any], seen: Mapping[str, Any], region: str, gpu_type: str
) -> tuple[Expense, ...]:
    place = {"platform": "tensorone", "region": region}
    rate = seen.get("current_hourly_rate")
    if isinstance(rate, int | float) and _is_as_seen(values, seen):
        is_stopped = text_of(seen, "status") == "stopped"
        billing = Billing.STOPPED if is_stopped else Billing.ON_DEMAND
        count, size = number_of(seen, "gpu_count"), number_of(seen, "storage_gb")
        told = {**place, "currency": text_of(seen, "currency"), "source": "tensorone"}
        whole = {"hourly": float(rate), "gpu_type": gpu_type, "billing": billing}
        return (
            Expense(what="whole", amount=count, **whole, **told),
            Expense(what="storage", amount=size, unit="GB", hourly=0.0, **told),  # in that price
        )
    is_stopped = text_of(values, "state") == "stopped"
    billing = Billing.STOPPED if is_stopped else Billing.ON_DEMAND
    count, size = number_of(values, "gpu_count"), number_of(values, "storage_gb")
    return (
        Expense(what="gpus", amount=count, gpu_type=gpu_type, billing=billing, **place),
        Expense(what="storage", amount=size, unit="GB", **place),
    )


def _is_as_seen(values: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether all that is priced is declared as it is."""
    declared = (name for name in _PRICED if values.get(name) is not None)
    return all(is_equal(values[name], seen.get(name)) for name in declared)


def _ends(limits: Any) -> bool:
    if not isinstance(limits, Mapping) or limits is UNKNOWN:
        return False
    return limits.get("enabled") is not False and any(limits.get(name) for name in _LIMITS)


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


def cluster_notices(seen: Mapping[str, Any], now: float) -> Iterator[Notice]:
    """The end that the platform reckons with, and a template that has another version by now.

    `estimated_termination` and `template_version` are of TensorOne's document ('Get Cluster
    Details'). That a cluster keeps the version which it was made from is our reading.
    """
    at = unix_time(_text(seen, "estimated_termination"))
    if at is not None and at > now and _text(seen, "status") == ClusterStatus.RUNNING:
        text = f"ends by itself in {left(at - now)}, at {written(at)} (auto_terminate)"
        yield Notice(kind=NoticeKind.EXPIRY, text=text, at=written(at))
    made, current = _text(seen, "made_from_version"), _text(seen, "template_version")
    if made and current and made != current:
        which = _text(seen, "template_name") or "its template"
        yield Notice(
            kind=NoticeKind.TEMPLATE,
            text=f"{which} is {current} by now, and it was made from {made}: "
            "`gpuform up --replace` with its name makes it anew",
        )


def _text(seen: Mapping[str, Any], name: str) -> str:
    found = seen.get(name)
    return found if isinstance(found, str) else ""


def state_changes(old: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[FieldChange]:
    """Whether it is to be started or stopped, by what was last seen and what is declared."""
    status, state = old.get("status"), declared.get("state", "running")
    seen = status if status in AT_REST else old.get("state", "running")
    before, by = old.get("state", seen), old.get("stopped_by")
    if state is UNKNOWN:
        because = KNOWN_AFTER_APPLY
        yield FieldChange("state", Action.UPDATE, before, state, because=because)
    elif is_for_idleness(by) and declared.get("idle") is not None and state == "stopped":
        return  # as `gpuform expire` has left it: who declares idle cannot declare that
    elif by and not (is_for_idleness(by) and declared.get("idle") is None):
        yield _after_termination(by, state)
    elif before != state:
        yield FieldChange("state", Action.UPDATE, before, state)
    elif seen != state:
        yield FieldChange("state", Action.UPDATE, seen, state)


def _after_termination(by: str, state: str) -> FieldChange:
    """What is done about a cluster that its own limit has stopped."""
    because = f"stopped by {by}"
    if state == "stopped":
        return FieldChange("state", Action.UPDATE, "running", state, because=because)
    if Permission.START_TERMINATED in permissions.given():
        return FieldChange("state", Action.UPDATE, "stopped", state, because=because)
    because = f"{because}; --allow {Permission.START_TERMINATED} starts it again"
    return FieldChange("state", Action.KEEP, "stopped", "stopped", because=because)


def how_started(path: str, old: Mapping[str, Any], declared: Mapping[str, Any]) -> str:
    """What a change at a start takes, in the plan's words."""
    is_stopped = old.get("status") == ClusterStatus.STOPPED
    if declared.get("state") == "stopped":
        if path == "restore_snapshot":
            return "at the next start"
        return "starts and stops the cluster" if is_stopped else "restarts and stops the cluster"
    return "starts the cluster" if is_stopped else "stops and starts the cluster"
