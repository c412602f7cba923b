"""Measure stacks in figures for dashboards, and send them to a collector or into a file.

Reports of operations and `gpuform status` call this module. The names are those of Prometheus;
OpenTelemetry's are such that a collector's exporter for Prometheus gives the same ones. A figure
that nobody knows is absent, never zero. Labels have names and types, never a value of a property.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from gpuform.providers.errors import GpuformError
from gpuform.schemas.errors import EngineError
from gpuform.schemas.resource_facts import NodeHealth, Notice, NoticeKind
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.pricing import (
    PriceBook,
    compute_current_usage,
    list_entry_nodes,
    price_usage,
    sum_costs,
    to_plain_properties,
)
from gpuform.stacks.resource_rules import find_lifecycle


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure, by its name in Prometheus, with the labels beside project, stack and emulated."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    @property
    def otel_name(self) -> str:
        """Return the name in OpenTelemetry, which has units apart from names."""
        return self.name.removesuffix("_seconds").replace("gpuform_", "gpuform.", 1)

    @property
    def otel_unit(self) -> str:
        """Return the unit in OpenTelemetry; empty for a number."""
        return "s" if self.name.endswith("_seconds") else ""


STACK_LABELS: Final = ("project", "stack", "emulated")
"""The labels of every metric. `emulated` is true or false."""

GPUS: Final = Metric(
    "gpuform_gpus",
    "GPUs by state: declared, ready, broken, and idle where the use was measured.",
    ("platform", "type", "state"),
)
COST: Final = Metric("gpuform_cost_per_hour", "Known cost of an hour.", ("currency", "billing"))
APPLY_AGE: Final = Metric(
    "gpuform_last_apply_age_seconds", "Seconds since the latest successful `up` has ended."
)
DRIFT: Final = Metric(
    "gpuform_drifted_resources", "Resources that were changed outside of the stack."
)
WAITING_REPAIRS: Final = Metric(
    "gpuform_waiting_repairs", "Broken nodes whose repair waits.", ("platform",)
)
DAYS_UNTIL_END: Final = Metric(
    "gpuform_days_until_end", "Days until a resource ends; negative: overdue.", ("resource",)
)
MONITORED_NODES: Final = Metric(
    "gpuform_monitored_nodes",
    "Nodes that Lens monitors: healthy, faulty, idle, partially_idle, busy.",
    ("state",),
)
READABLE: Final = Metric(
    "gpuform_stack_readable", "1 if the stack could be read, 0 if its other figures are missing."
)
METRICS: Final = (
    *(GPUS, COST, APPLY_AGE, DRIFT, WAITING_REPAIRS, DAYS_UNTIL_END, MONITORED_NODES),
    READABLE,
)

IDLE_SHARE: Final = 0.05
"""GPUs of a resource count as idle up to this measured share of use, as for the gate not_busy."""

_EXAMINED_RUNS: Final = 50
"""How many of the latest runs may be read to find an `up`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The value of a metric for one set of labels."""

    metric: Metric
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class FleetFacts:
    """What is known of a stack.

    Args:
        entries: the resources, with their last observed outputs.
        notices: the notices about them.
        now: the present time in Unix seconds, by an emulator's clock with `has_emulated_clock`.
        drift: the number of resources with drift; None if nobody has looked.
        usage: the measured share of use of GPUs, by URN of the resource.
        unread: the URNs of resources that could not be read now: only what is declared counts.
        monitored_nodes: the number of nodes by state, as Lens reports it.
    """

    stack: Stack
    entries: Sequence[ResourceState]
    notices: Sequence[Notice]
    now: float
    emulated: bool = False
    has_emulated_clock: bool = False
    drift: int | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    unread: Collection[str] = ()
    monitored_nodes: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _GpuCounter:
    """Counts GPUs by platform, type and state."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, platform: str, type_: str, state: str, gpus: int) -> None:
        """Add GPUs, also none: a state that was examined is zero, not absent."""
        self.counts[platform, type_, state] += gpus


def collect_samples(facts: FleetFacts) -> list[Sample]:
    """Return the figures of a stack."""
    stack = facts.stack
    identity = _build_identity(stack.project.name, stack.name, emulated=facts.emulated)
    own = [
        entry
        for entry in facts.entries
        if entry.custom and not (entry.delete or entry.external) and find_lifecycle(entry.type)
    ]
    gpus, repairs = _GpuCounter(), Counter[str]()
    for entry in own:
        _count_resource(entry, gpus, repairs, facts)
    samples = [
        (GPUS, {"platform": platform, "type": type_, "state": state}, float(count))
        for (platform, type_, state), count in sorted(gpus.counts.items())
    ]
    samples += [
        (WAITING_REPAIRS, {"platform": platform}, float(count))
        for platform, count in sorted(repairs.items())
    ]
    samples += _list_costs(stack, own)
    samples += [
        (DAYS_UNTIL_END, {"resource": name}, (end - facts.now) / 86400)
        for name, end in sorted(_find_ends(own, facts).items())
    ]
    samples += [
        (MONITORED_NODES, {"state": state}, float(count))
        for state, count in facts.monitored_nodes.items()
    ]
    applied_at = _find_last_apply(stack)
    if applied_at is not None:
        # The history has real times, whatever clock the platforms have.
        samples.append((APPLY_AGE, {}, max(0.0, time.time() - applied_at)))
    if facts.drift is not None:
        samples.append((DRIFT, {}, float(facts.drift)))
    samples.append((READABLE, {}, 1.0))
    return [Sample(metric, {**identity, **labels}, value) for metric, labels, value in samples]


def build_unreadable_sample(name: str) -> Sample:
    """Return the only figure of an unreadable stack; `name` is PROJECT/STACK."""
    project, _, stack = name.partition("/")
    return Sample(READABLE, _build_identity(project, stack, emulated=False), 0.0)


def _build_identity(project: str, stack: str, *, emulated: bool) -> dict[str, str]:
    """Return the labels of every metric of a stack."""
    return {"project": project, "stack": stack, "emulated": str(emulated).lower()}


def _count_resource(
    entry: ResourceState, gpus: _GpuCounter, repairs: Counter[str], facts: FleetFacts
) -> None:
    """Add the GPUs and the waiting repairs of one resource."""
    lifecycle = find_lifecycle(entry.type)
    if lifecycle is None:
        return
    platform = lifecycle.platform
    inputs, outputs = to_plain_properties(entry.inputs), to_plain_properties(entry.outputs)
    declared, existing = lifecycle.hooks.count_gpus(inputs), lifecycle.hooks.count_gpus(outputs)
    broken_nodes = set()
    try:
        decision = lifecycle.hooks.decide_repairs(outputs, inputs)
    # GPUFORM_REPAIR requests something that the platform does not allow.
    except GpuformError:
        decision = None
    if decision is not None and decision.node_names:
        broken_nodes = {repair.node for repair in decision.due_repairs}
        broken_nodes |= {unrepaired.fault.node for unrepaired in decision.unrepaired}
        repairs[platform] += len(broken_nodes)
    if not (declared or existing):
        return
    nodes = list_entry_nodes(entry)
    usage = compute_current_usage(entry)
    types = sorted({node.hardware_type for node in nodes if node.hardware_type}) or (
        sorted(usage.gpu_types) if usage else []
    )
    type_ = "+".join(types)
    if declared is not None:
        gpus.add(platform, type_, "declared", declared)
    if entry.urn in facts.unread:
        return
    broken = ready = 0
    for node in nodes:
        is_broken = node.health_state is NodeHealth.UNHEALTHY or node.name in broken_nodes
        broken += (node.gpu_count or 0) if is_broken else 0
        is_ready = node.health_state is NodeHealth.HEALTHY and node.in_use is not False
        ready += (node.gpu_count or 0) if is_ready and not is_broken else 0
    if not nodes and outputs.get("ready") is True:
        ready = existing or 0
    gpus.add(platform, type_, "ready", ready)
    gpus.add(platform, type_, "broken", broken)
    share = facts.usage.get(entry.urn)
    if share is not None:
        gpus.add(platform, type_, "idle", ready if share <= IDLE_SHARE else 0)


def _list_costs(
    stack: Stack, entries: Iterable[ResourceState]
) -> Iterator[tuple[Metric, dict[str, str], float]]:
    """Yield the known cost of an hour, by currency and billing."""
    book = PriceBook.read(stack.project.directory)
    usages = [
        (name_of(entry.urn), price_usage(compute_current_usage(entry), book)) for entry in entries
    ]
    for amount in sum_costs(usages).amounts:
        labels = {"currency": amount.currency, "billing": str(amount.billing)}
        yield COST, labels, amount.hourly


def _find_ends(entries: Iterable[ResourceState], facts: FleetFacts) -> dict[str, float]:
    """Return the next end of each ending resource, in Unix seconds by the platform's clock."""
    from gpuform.schemas.policies.lifetime import compute_expiry  # noqa: PLC0415 - for metrics alone
    from gpuform.stacks.schedule.calendar import find_start  # noqa: PLC0415 - as above

    ends: dict[str, float] = {}
    for entry in entries:
        start = find_start(entry, entry.outputs, facts.now, is_emulated=facts.has_emulated_clock)
        end = compute_expiry(to_plain_properties(entry.inputs), start)
        if end is not None:
            name = name_of(entry.urn)
            # Resources of two kinds may have one name.
            ends[name] = min(end, ends.get(name, end))
    # Ends that the platform itself sets.
    for notice in facts.notices:
        if notice.kind is NoticeKind.EXPIRY and notice.at and notice.name:
            end = datetime.fromisoformat(notice.at).timestamp()
            ends[notice.name] = min(end, ends.get(notice.name, end))
    return ends


def _find_last_apply(stack: Stack) -> float | None:
    """Return when the latest successful `up` has ended, in Unix seconds; None without one."""
    history = stack.backend.open_history(stack.project.name, stack.name)
    for name in history.names[: -_EXAMINED_RUNS - 1 : -1]:
        entry = history.read_entry(name)
        if entry.kind == "update" and entry.result == "succeeded":
            return float(entry.end_time)
    return None


def write_textfile(path: Path, samples: Sequence[Sample]) -> None:
    """Write the figures in the format of Prometheus, in place of an earlier file at once.

    Raises:
        EngineError: the package is missing, or the file cannot be written.
    """
    from gpuform.stacks.engine.machine import get_pip_requirement  # noqa: PLC0415 - for an error

    try:
        import prometheus_client  # noqa: PLC0415 - an extra
    except ImportError:
        raise EngineError(
            "`--prometheus` requires a package that is not installed: prometheus-client",
            f"Install it: pip install '{get_pip_requirement('prometheus')}'",
        ) from None
    registry = prometheus_client.CollectorRegistry()
    gauges: dict[Metric, Any] = {}
    for sample in samples:
        gauge = gauges.get(sample.metric)
        if gauge is None:
            labels = (*STACK_LABELS, *sample.metric.labels)
            gauge = prometheus_client.Gauge(
                sample.metric.name, sample.metric.help, labels, registry=registry
            )
            gauges[sample.metric] = gauge
        gauge.labels(**sample.labels).set(sample.value)
    try:
        # Writes a file beside it first: node exporter never reads a part.
        prometheus_client.write_to_textfile(str(path), registry)
    except OSError as error:
        raise EngineError(f"the metrics file {path} cannot be written: {error.strerror}") from error


def export_samples(
    samples: Sequence[Sample],
    environ: Mapping[str, str],
    warn: Callable[[str], None],
    exporter: Any = None,
) -> None:
    """Send the figures to the collector named by the OTEL_ variables; warn after a failure.

    `exporter` replaces the exporter of the variables.
    """
    from gpuform.providers.context import telemetry  # noqa: PLC0415 - for a collector alone

    exporter = exporter or telemetry.create_exporter("metrics", environ, warn)
    if exporter is None or not samples:
        return
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415

    with telemetry.report_lost_signals(exporter, "metrics", warn) as begin_flush:
        try:
            # Sent once, by the flush: a run ends long before a period does.
            reader = PeriodicExportingMetricReader(exporter, export_interval_millis=float("inf"))
            provider = MeterProvider(
                [reader], resource=telemetry.build_resource(environ), shutdown_on_exit=False
            )
            meter = provider.get_meter("gpuform")
            gauges = {
                metric: meter.create_gauge(metric.otel_name, metric.otel_unit, metric.help)
                for metric in dict.fromkeys(sample.metric for sample in samples)
            }
            for sample in samples:
                gauges[sample.metric].set(sample.value, dict(sample.labels))
            begin_flush()
            provider.force_flush(telemetry.FLUSH_TIMEOUT_MS)
            provider.shutdown()
        # A variable has a value that the SDK refuses, or the SDK itself fails.
        except Exception as error:  # noqa: BLE001 - the command's own result counts
            warn(f"warning: no metrics were sent: {type(error).__name__}")
