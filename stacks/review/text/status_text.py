"""A stack at a glance: its resources, and what Lens sees of nodes, GPUs and who uses them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpuform.providers.catalog import Summary
from gpuform.providers.environment import Live
from gpuform.schemas.lens.conditions import Capacity
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Overview
from gpuform.schemas.plan import Amount, StackCost
from gpuform.schemas.resource_facts import Billing, Notice, ResourceUsage
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.pricing.costs import cost_of
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import cost_text, money, notices_lines
from gpuform.stacks.review.value_text import counted

SHOWN = 5
"""How many GPUs and consumers are shown."""

_COLUMNS = ("NAME", "TYPE", "STATE", "READY", "GPUS", "COST")
_OWNER = "OWNER"
"""The last column, where a platform names an owner."""


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """One resource. `problem` says why it could not be read, if it was asked for, or that it
    `is_gone`.

    `footprint` is what it takes up, priced; None where nothing is told of it. `live` is what its
    platform measures now; None where nobody was asked or nothing is measured, and `live_problem`
    says why it could not be had.
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


@dataclass(frozen=True, slots=True)
class Monitoring:
    """What Lens tells, or the `problem` that kept it from that."""

    overview: Overview | None = None
    heatmap: GpuHeatmap | None = None
    consumers: Sequence[Consumer] = ()
    problem: str = ""

    @property
    def capacity(self) -> Capacity | None:
        """What is free, and who has asked for the rest."""
        return (
            None if self.overview is None else Capacity.from_overview(self.overview, self.consumers)
        )

    @property
    def top_consumers(self) -> list[Consumer]:
        """Those with most GPUs, the most used first among equals."""

        def rank(each: Consumer) -> tuple[float, float, str]:
            return -(each.stat.gpu_request or 0), -(each.stat.gpu_utilization or 0.0), each.name

        return sorted(self.consumers, key=rank)[:SHOWN]


@dataclass(frozen=True, slots=True)
class Status:
    """`monitoring` is None where Lens is not configured, `cost` where nobody tells any.

    `notices` are what there is to know of the resources and of the whole stack. What the state
    says is `age` seconds old; with `is_live` the platforms were asked. `at_work` says who changes
    the stack now. `unsettled` is what interrupted creates may have left on a platform.
    """

    stack: str
    resources: Sequence[ResourceStatus]
    monitoring: Monitoring | None = None
    cost: StackCost | None = None
    notices: Sequence[Notice] = ()
    age: float = 0.0
    is_live: bool = False
    at_work: str = ""
    emulated: bool = False
    unsettled: Sequence[str] = ()

    @property
    def unseen(self) -> Sequence[str]:
        """What could not be looked at, though it was asked for."""
        names = [each.name for each in self.resources if each.problem and not each.is_gone]
        is_silent = self.monitoring is not None and bool(self.monitoring.problem)
        return [*names, *(["Lens"] if is_silent else [])]


def status_lines(status: Status, *, paint: Paint = PLAIN) -> Iterator[str]:
    """Whence and how old it is, a table of the resources, their sums, and Lens's part."""
    if status.emulated:
        text = f"Stack {status.stack} lives on the emulator: nothing of it is real."
        yield paint("warning", text)
    if status.at_work:
        yield paint("warning", escape_invisible(f"{status.at_work}."))
    yield f"{_source(status)}:"
    yield ""
    if status.resources:
        yield from _table(status.resources, paint)
        yield ""
        yield _sums(status)
        for text in status.cost.unknown if status.cost else ():
            yield paint("warning", f"    cost unknown: {escape_invisible(text)}")
    else:
        yield f"Stack {status.stack} has no resources."
    if status.unsettled:
        yield ""
        for text in status.unsettled:
            yield paint("warning", escape_invisible(f"never settled: {text}"))
        yield f"    `gpuform refresh --stack {status.stack}` or `pulumi up` resumes it"
    if status.notices:
        yield ""
        yield from notices_lines(status.notices, paint)
    if status.monitoring is not None:
        yield ""
        yield from _monitoring_lines(status.monitoring, paint)


def status_document(status: Status) -> dict[str, Any]:
    """The same as JSON; Lens's part has Lens's own names and units."""
    return {
        "stack": status.stack,
        "emulated": status.emulated,
        "source": "platforms" if status.is_live else "state",
        "age_seconds": status.age,
        "at_work": status.at_work,
        "resources": [_resource_document(each) for each in status.resources],
        "notices": [notice.model_dump(mode="json") for notice in status.notices],
        "unsettled": list(status.unsettled),
        "cost": None if status.cost is None else status.cost.model_dump(mode="json"),
        "lens": None if status.monitoring is None else _monitoring_document(status.monitoring),
    }


def _source(status: Status) -> str:
    """`As of 3 h ago, from the state`."""
    stored = f"as of {_ago(status.age)}, from the state"
    if not status.is_live:
        return f"A{stored[1:]}"
    unseen = [
        escape_invisible(each.name)
        for each in status.resources
        if each.problem and not each.is_gone
    ]
    if not unseen:
        return "As of now, from the platforms"
    more = f" and {len(unseen) - SHOWN} more" if len(unseen) > SHOWN else ""
    return f"As of now, from the platforms; {', '.join(unseen[:SHOWN])}{more} {stored}"


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "less than a minute ago"


def _table(resources: Sequence[ResourceStatus], paint: Paint) -> Iterator[str]:
    rows = [(*_COLUMNS, _OWNER), *map(_row, resources)]
    if not any(each.summary.owner for each in resources):
        rows = [row[: len(_COLUMNS)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    yield paint("bold", lines[0])
    for line, resource in zip(lines[1:], resources, strict=True):
        summary = resource.summary
        yield paint("warning", line) if summary.ready is False else line
        notes = [f"not ready: {escape_invisible(summary.reason)}"] if summary.ready is False else []
        notes += [f"alert: {escape_invisible(alert)}" for alert in summary.alerts]
        because = "" if resource.is_gone else "could not be read: "
        notes += [f"{because}{resource.problem}"] if resource.problem else []
        for note in notes:
            yield from (
                paint("warning", f"    {escape_invisible(line)}") for line in note.split("\n")
            )
        for told in resource.live.lines if resource.live else ():
            yield f"    now: {escape_invisible(told)}"
        if resource.live_problem:
            told = resource.live_problem.splitlines()[0]
            yield paint("warning", f"    its figures could not be had: {escape_invisible(told)}")


def _row(resource: ResourceStatus) -> tuple[str, ...]:
    summary = resource.summary
    ready = {True: "yes", False: "no", None: "-"}[summary.ready]
    gpus = str(summary.gpus) if summary.gpus else "-"
    name, state = escape_invisible(resource.name), escape_invisible(summary.state or "-")
    owner = escape_invisible(summary.owner or "-")
    return name, escape_invisible(resource.type), state, ready, gpus, _cost(resource), owner


def _cost(resource: ResourceStatus) -> str:
    """By the hour; what is stopped or prepaid is told apart."""
    footprint = resource.footprint
    if footprint is None or not footprint.expenses:
        return "-"
    cost = cost_of([(resource.name, footprint)])
    if not cost.amounts:
        return "unknown" if cost.unknown else "0/h"
    told = [f"{money(each.hourly, each.currency)}/h{_way(each)}" for each in cost.amounts]
    return " + ".join([*told, *(["unknown"] if cost.unknown else [])])


def _way(amount: Amount) -> str:
    return "" if amount.billing is Billing.ON_DEMAND else f" {amount.billing}"


def _sums(status: Status) -> str:
    """Resources, GPUs, and costs by currency."""
    parts = [counted(len(status.resources), "resource")]
    gpus = sum(each.summary.gpus for each in status.resources)
    parts += [counted(gpus, "GPU")] if gpus else []
    parts += [escape_invisible(cost_text(status.cost))] if status.cost else []
    waiting = sum(each.summary.ready is False for each in status.resources)
    parts += [f"{waiting} not ready"] if waiting else []
    return ", ".join(parts)


def _monitoring_lines(seen: Monitoring, paint: Paint) -> Iterator[str]:
    yield paint("bold", "Lens:")
    if seen.problem:
        for line in f"could not be read: {seen.problem}".split("\n"):
            yield paint("warning", f"    {escape_invisible(line)}")
    if seen.overview is not None:
        yield from _overview_lines(seen.overview)
    if seen.capacity is not None:
        yield _capacity_line(seen.capacity)
    if seen.heatmap is not None and seen.heatmap.temperature.data:
        heat = seen.heatmap.temperature
        yield "    hottest GPUs:"
        for point in heat.data[:SHOWN]:
            value = "?" if point.value is None else f"{point.value:g}"
            yield escape_invisible(f"        {point.gpu}  {point.gpu_model}  {value} {heat.unit}")
    if seen.consumers:
        yield "    top consumers:"
        for each in seen.top_consumers:
            yield escape_invisible(f"        {each.namespace}/{each.name}  {each.kind}  {each.use}")


def _overview_lines(overview: Overview) -> Iterator[str]:
    def told(number: float | None) -> str:
        return "?" if number is None else f"{number:g}"

    def rate(number: float | None) -> str:
        return "?" if number is None else f"{number:.0%}"

    ports = overview.rdma_cluster_stat
    yield (
        f"    nodes: {told(overview.total_nodes)}, {told(overview.healthy_nodes)} healthy, "
        f"{told(overview.faulty_nodes)} faulty; {told(overview.fully_idle_nodes)} idle, "
        f"{told(overview.partially_idle_nodes)} partially idle, {told(overview.busy_nodes)} busy"
    )
    yield (
        f"    GPUs: {rate(overview.allocation_rate)} allotted, {rate(overview.utilization)} used; "
        f"RDMA ports: {told(ports.active_ports)} of {told(ports.total_ports)} active"
    )


def _capacity_line(capacity: Capacity) -> str:
    gpus = capacity.requested_gpus
    asked = "? GPUs" if gpus is None else counted(gpus, "GPU")
    line = f"    {counted(capacity.workloads, 'workload')} with {asked}, {capacity.idle_gpus} idle"
    total, free = capacity.storage_total_tb, capacity.storage_available_tb
    return line if total is None or free is None else f"{line}; {free:g} of {total:g} TB free"


def _resource_document(resource: ResourceStatus) -> dict[str, Any]:
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
    }


def _monitoring_document(seen: Monitoring) -> dict[str, Any]:
    def plain(model: Overview | GpuHeatmap | Consumer | None) -> Any:
        return None if model is None else model.model_dump(mode="json", by_alias=True)

    return {
        "overview": plain(seen.overview),
        "heatmap": plain(seen.heatmap),
        "capacity": None if seen.capacity is None else seen.capacity.model_dump(mode="json"),
        "consumers": [plain(each) for each in seen.consumers],
        "problem": seen.problem,
    }
