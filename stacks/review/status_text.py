"""Render the status of a stack: its resources, and what Lens measures on nodes and GPUs.

Called by `gpuform status`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from gpuform.providers.catalog import Summary
from gpuform.providers.environment import Live
from gpuform.schemas.lens.conditions import Capacity, to_celsius
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Heatmap, Overview
from gpuform.schemas.plan import Amount, StackCost
from gpuform.schemas.resource_facts import Billing, NodeRecord, Notice, ResourceUsage
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.timeline import AgendaEntry
from gpuform.stacks.pricing import sum_costs
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import format_money, format_stack_cost, render_notices
from gpuform.stacks.review.value_text import counted

if TYPE_CHECKING:
    from gpuform.stacks.fleet_metrics import FleetFacts

MAX_LISTED = 5
"""How many GPUs and consumers are listed."""

HOT_CELSIUS = 80.0
"""Cooler GPUs are not listed: GPUs of servers slow down from 85 to 90 °C."""

_COLUMNS = ("NAME", "TYPE", "STATE", "READY", "GPUS", "COST")
_OWNER = "OWNER"
"""The last column, shown if a platform names owners."""


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """Hold the status of one resource.

    `problem` says why the resource could not be read, or that it `is_gone`. `footprint` is its
    priced usage, or None if unknown. `live` are the platform's current measurements, None if not
    asked or not measured; `live_problem` says why they could not be read. `nodes` are its GPU
    nodes, for the JSON document only.
    """

    name: str
    type: str
    id: str
    summary: Summary
    problem: str = ""
    footprint: ResourceUsage | None = None
    is_gone: bool = False
    live: Live | None = None
    live_problem: str = ""
    nodes: Sequence[NodeRecord] = ()


@dataclass(frozen=True, slots=True)
class LensStatus:
    """Hold what Lens reports, or the `problem` that prevented reading Lens."""

    overview: Overview | None = None
    heatmap: GpuHeatmap | None = None
    consumers: Sequence[Consumer] = ()
    problem: str = ""

    @property
    def capacity(self) -> Capacity | None:
        """Return the free capacity and the users of GPUs; None without an overview."""
        return (
            None if self.overview is None else Capacity.from_overview(self.overview, self.consumers)
        )

    @property
    def node_counts(self) -> dict[str, int]:
        """Return the number of nodes by state, without numbers missing in Lens."""
        overview = self.overview
        if overview is None:
            return {}
        counts = {
            "healthy": overview.healthy_nodes,
            "faulty": overview.faulty_nodes,
            "idle": overview.fully_idle_nodes,
            "partially_idle": overview.partially_idle_nodes,
            "busy": overview.busy_nodes,
        }
        return {state: count for state, count in counts.items() if count is not None}

    @property
    def top_consumers(self) -> list[Consumer]:
        """Return the `MAX_LISTED` consumers with most GPUs, the busiest first among equals."""

        def rank(consumer: Consumer) -> tuple[float, float, str]:
            return (
                -(consumer.stat.gpu_request or 0),
                -(consumer.stat.gpu_utilization or 0.0),
                consumer.name,
            )

        return sorted(self.consumers, key=rank)[:MAX_LISTED]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Hold the status of one stack.

    `monitoring` is None if Lens is not configured, `cost` if no cost is known. The state is `age`
    seconds old; with `is_live` the platforms were asked. `running_change` describes the command
    that changes the stack now. `unsettled` are creates that were interrupted and may have left
    objects. `fleet` is what metrics are collected from. `agenda` is the stack's calendar, for the
    JSON document and for `gpuform calendar`.
    """

    stack: str
    resources: Sequence[ResourceStatus]
    monitoring: LensStatus | None = None
    cost: StackCost | None = None
    notices: Sequence[Notice] = ()
    age: float = 0.0
    is_live: bool = False
    running_change: str = ""
    emulated: bool = False
    unsettled: Sequence[str] = ()
    fleet: "FleetFacts | None" = None
    agenda: Sequence[AgendaEntry] = ()

    @property
    def unread_names(self) -> Sequence[str]:
        """Return the names of unreadable resources, and `Lens` after a failed request."""
        names = [
            resource.name
            for resource in self.resources
            if resource.problem and not resource.is_gone
        ]
        is_silent = self.monitoring is not None and bool(self.monitoring.problem)
        return [*names, *(["Lens"] if is_silent else [])]


def render_status(status: StatusReport, *, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield warnings, source and age, the resource table with totals, and the Lens block.

    Unresolved creates and notices come before the Lens block.
    """
    if status.emulated:
        message = f"Stack {status.stack} lives on the emulator: its resources are not real."
        yield paint("warning", message)
    if status.running_change:
        yield paint("warning", escape_invisible(f"{status.running_change}."))
    yield f"{_describe_source(status)}:"
    yield ""
    if status.resources:
        yield from _render_resource_table(status.resources, paint)
        yield ""
        yield _format_totals(status)
        for message in status.cost.unknown if status.cost else ():
            yield paint("warning", f"    cost unknown: {escape_invisible(message)}")
    else:
        yield f"Stack {status.stack} has no resources."
    if status.unsettled:
        yield ""
        for message in status.unsettled:
            yield paint("warning", escape_invisible(f"unresolved: {message}"))
        yield f"    `gpuform refresh --stack {status.stack}` or `pulumi up` resolves this create"
    if status.notices:
        yield ""
        yield from render_notices(status.notices, paint)
    if status.monitoring is not None:
        yield ""
        yield from _render_lens(status.monitoring, paint)


def build_status_document(status: StatusReport) -> dict[str, Any]:
    """Build the JSON document. The Lens part has Lens's own names and units."""
    return {
        "stack": status.stack,
        "emulated": status.emulated,
        "source": "platforms" if status.is_live else "state",
        "age_seconds": status.age,
        "at_work": status.running_change,
        "resources": [_resource_to_json(resource) for resource in status.resources],
        "notices": [notice.model_dump(mode="json") for notice in status.notices],
        "calendar": [line.model_dump(mode="json") for line in status.agenda],
        "unsettled": list(status.unsettled),
        "cost": None if status.cost is None else status.cost.model_dump(mode="json"),
        "lens": None if status.monitoring is None else _lens_to_json(status.monitoring),
    }


def _describe_source(status: StatusReport) -> str:
    """Describe where the figures come from: `As of 3 h ago, from the state`.

    Figures of platforms are of now; unread resources are named with the age of the state.
    """
    stored = f"as of {_format_age(status.age)}, from the state"
    if not status.is_live:
        return f"A{stored[1:]}"
    unread = [
        escape_invisible(resource.name)
        for resource in status.resources
        if resource.problem and not resource.is_gone
    ]
    if not unread:
        return "As of now, from the platforms"
    more = f" and {len(unread) - MAX_LISTED} more" if len(unread) > MAX_LISTED else ""
    return f"As of now, from the platforms; {', '.join(unread[:MAX_LISTED])}{more} {stored}"


def _format_age(seconds: float) -> str:
    """Format an age in whole days, hours or minutes: `3 d ago`, `less than a minute ago`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "less than a minute ago"


def _render_resource_table(resources: Sequence[ResourceStatus], paint: Paint) -> Iterator[str]:
    """Yield the table; reasons, alerts, problems and figures follow a resource's row."""
    rows = [(*_COLUMNS, _OWNER), *map(_build_row, resources)]
    # Without owners, the column would be empty.
    if not any(resource_status.summary.owner for resource_status in resources):
        rows = [row[: len(_COLUMNS)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    yield paint("bold", lines[0])
    for line, resource in zip(lines[1:], resources, strict=True):
        summary = resource.summary
        yield paint("warning", line) if summary.ready is False else line
        notes = [f"not ready: {escape_invisible(summary.reason)}"] if summary.ready is False else []
        notes += [f"alert: {escape_invisible(alert)}" for alert in summary.alerts]
        prefix = "" if resource.is_gone else "could not be read: "
        notes += [f"{prefix}{resource.problem}"] if resource.problem else []
        for note in notes:
            yield from (
                paint("warning", f"    {escape_invisible(line)}") for line in note.split("\n")
            )
        for live_line in resource.live.lines if resource.live else ():
            yield f"    now: {escape_invisible(live_line)}"
        if resource.live_problem:
            live_line = resource.live_problem.splitlines()[0]
            yield paint("warning", f"    could not read its figures: {escape_invisible(live_line)}")


def _build_row(resource: ResourceStatus) -> tuple[str, ...]:
    """Build the cells of a resource, the owner last; `-` for an empty or unknown value."""
    summary = resource.summary
    ready = {True: "yes", False: "no", None: "-"}[summary.ready]
    gpus = str(summary.gpus) if summary.gpus else "-"
    name, state = escape_invisible(resource.name), escape_invisible(summary.state or "-")
    owner = escape_invisible(summary.owner or "-")
    return (
        name,
        escape_invisible(resource.type),
        state,
        ready,
        gpus,
        _format_resource_cost(resource),
        owner,
    )


def _format_resource_cost(resource: ResourceStatus) -> str:
    """Format the hourly cost; `-` without expenses. Stopped and prepaid amounts are named."""
    usage = resource.footprint
    if usage is None or not usage.expenses:
        return "-"
    cost = sum_costs([(resource.name, usage)])
    if not cost.amounts:
        return "unknown" if cost.unknown else "0/h"
    amounts = [
        f"{format_money(amount.hourly, amount.currency)}/h{_format_billing(amount)}"
        for amount in cost.amounts
    ]
    return " + ".join([*amounts, *(["unknown"] if cost.unknown else [])])


def _format_billing(amount: Amount) -> str:
    """Return a space and the billing of an amount; empty for on-demand billing."""
    return "" if amount.billing is Billing.ON_DEMAND else f" {amount.billing}"


def _format_totals(status: StatusReport) -> str:
    """Format the number of resources, of GPUs and of resources not ready, and the costs."""
    parts = [counted(len(status.resources), "resource")]
    gpus = sum(resource.summary.gpus for resource in status.resources)
    parts += [counted(gpus, "GPU")] if gpus else []
    parts += [escape_invisible(format_stack_cost(status.cost))] if status.cost else []
    waiting = sum(resource.summary.ready is False for resource in status.resources)
    parts += [f"{waiting} not ready"] if waiting else []
    return ", ".join(parts)


def _render_lens(lens: LensStatus, paint: Paint) -> Iterator[str]:
    """Yield Lens's figures, with at most `MAX_LISTED` GPUs, or the problem of the request."""
    yield paint("bold", "Lens:")
    if lens.problem:
        for line in f"could not be read: {lens.problem}".split("\n"):
            yield paint("warning", f"    {escape_invisible(line)}")
    if lens.overview is not None:
        yield from _render_overview(lens.overview)
    if lens.capacity is not None:
        yield _format_capacity(lens.capacity)
    if lens.heatmap is not None:
        yield from _render_hot_gpus(lens.heatmap.temperature)
    if lens.consumers:
        yield "    top consumers:"
        for consumer in lens.top_consumers:
            yield escape_invisible(
                f"        {consumer.namespace}/{consumer.name}  {consumer.kind}  {consumer.use}"
            )


def _render_hot_gpus(temperatures: Heatmap) -> Iterator[str]:
    """Yield at most `MAX_LISTED` GPUs with a high or unknown temperature."""
    degrees = [to_celsius(point.value, temperatures.unit) for point in temperatures.data]
    hot_points = [
        point
        for point, celsius in zip(temperatures.data, degrees, strict=True)
        if celsius is None or celsius >= HOT_CELSIUS
    ]
    if hot_points:
        yield "    hottest GPUs:"
    for point in hot_points[:MAX_LISTED]:
        value = "?" if point.value is None else f"{point.value:g}"
        yield escape_invisible(
            f"        {point.gpu}  {point.gpu_model}  {value} {temperatures.unit}"
        )


def _render_overview(overview: Overview) -> Iterator[str]:
    """Yield the numbers of nodes, GPUs and ports; `?` for an unknown one."""

    def format_number(number: float | None) -> str:
        return "?" if number is None else f"{number:g}"

    def format_rate(number: float | None) -> str:
        return "?" if number is None else f"{number:.0%}"

    ports = overview.rdma_cluster_stat
    yield (
        f"    nodes: {format_number(overview.total_nodes)}, "
        f"{format_number(overview.healthy_nodes)} healthy, "
        f"{format_number(overview.faulty_nodes)} faulty; "
        f"{format_number(overview.fully_idle_nodes)} idle, "
        f"{format_number(overview.partially_idle_nodes)} partially idle, "
        f"{format_number(overview.busy_nodes)} busy"
    )
    yield (
        f"    GPUs: {format_rate(overview.allocation_rate)} allotted, "
        f"{format_rate(overview.utilization)} used; "
        f"RDMA ports: {format_number(ports.active_ports)} "
        f"of {format_number(ports.total_ports)} active"
    )


def _format_capacity(capacity: Capacity) -> str:
    """Format workloads with requested and idle GPUs, and free storage if known."""
    gpus = capacity.requested_gpus
    requested = "? GPUs" if gpus is None else counted(gpus, "GPU")
    line = (
        f"    {counted(capacity.workloads, 'workload')} with {requested}, {capacity.idle_gpus} idle"
    )
    total, free = capacity.storage_total_tb, capacity.storage_available_tb
    return line if total is None or free is None else f"{line}; {free:g} of {total:g} TB free"


def _resource_to_json(resource: ResourceStatus) -> dict[str, Any]:
    """Return the status of a resource as JSON; unknown facts are null."""
    summary = asdict(resource.summary)
    summary["alerts"] = list(summary["alerts"])
    footprint = resource.footprint
    return {
        "name": resource.name,
        "type": resource.type,
        "id": resource.id,
        "problem": resource.problem,
        **summary,
        "footprint": None if footprint is None else footprint.model_dump(mode="json"),
        "live": None if resource.live is None else dict(resource.live.figures),
        "live_problem": resource.live_problem,
        "nodes": [node.model_dump(mode="json", exclude={"stack"}) for node in resource.nodes],
    }


def _lens_to_json(lens: LensStatus) -> dict[str, Any]:
    """Return the answers of Lens as JSON; missing answers are null."""

    def dump(model: Overview | GpuHeatmap | Consumer | None) -> Any:
        return None if model is None else model.model_dump(mode="json", by_alias=True)

    return {
        "overview": dump(lens.overview),
        "heatmap": dump(lens.heatmap),
        "capacity": None if lens.capacity is None else lens.capacity.model_dump(mode="json"),
        "consumers": [dump(consumer) for consumer in lens.consumers],
        "problem": lens.problem,
    }
