"""The figures of stacks: from states, for Prometheus, for collectors and for the dashboard."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData
from prometheus_client.parser import text_string_to_metric_families

from gpuform.schemas.errors import EngineError
from gpuform.stacks.fleet_metrics import (
    COST,
    DRIFT,
    GPUS,
    METRICS,
    STACK_LABELS,
    Metric,
    Sample,
    build_unreadable_sample,
    export_samples,
    write_textfile,
)

ROOT = Path(__file__).parents[2]
IDENTITY = {"project": "demo", "stack": "dev", "emulated": "false"}
SAMPLES = [
    Sample(GPUS, {**IDENTITY, "platform": "scp", "type": "H100", "state": "ready"}, 16),
    Sample(GPUS, {**IDENTITY, "platform": "scp", "type": "H100", "state": "broken"}, 8),
    Sample(COST, {**IDENTITY, "currency": "USD", "billing": "on_demand"}, 47.84),
    Sample(DRIFT, IDENTITY, 0),
]


def read_textfile(path: Path) -> list[tuple[str, dict[str, str], float]]:
    families = text_string_to_metric_families(path.read_text())
    return [(s.name, s.labels, s.value) for family in families for s in family.samples]


def test_the_file_has_every_sample_with_its_labels(tmp_path: Path) -> None:
    path = tmp_path / "gpuform.prom"
    write_textfile(path, SAMPLES)
    assert read_textfile(path) == [(s.metric.name, dict(s.labels), s.value) for s in SAMPLES]
    assert [file.name for file in tmp_path.iterdir()] == ["gpuform.prom"]


def test_a_new_file_replaces_all_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "gpuform.prom"
    write_textfile(path, SAMPLES)
    inode = path.stat().st_ino
    write_textfile(path, [build_unreadable_sample("demo/dev")])
    assert read_textfile(path) == [("gpuform_stack_readable", IDENTITY, 0)]
    assert path.stat().st_ino != inode, "written in place: a reader may see a part"


def test_names_cannot_break_the_format(tmp_path: Path) -> None:
    path = tmp_path / "gpuform.prom"
    name = 'a"b\\c\nd} 1'
    write_textfile(path, [replace(SAMPLES[3], labels={**IDENTITY, "stack": name})])
    ((_, labels, _),) = read_textfile(path)
    assert labels["stack"] == name


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "gpuform.prom"
    with pytest.raises(EngineError, match="cannot be written: No such file"):
        write_textfile(path, SAMPLES)


class _MemoryExporter(MetricExporter):
    """Keeps what it gets."""

    def __init__(self, result: MetricExportResult = MetricExportResult.SUCCESS) -> None:
        super().__init__()
        self.result = result
        self.points: list[tuple[str, str, dict[str, Any], float]] = []

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 0, **_: Any
    ) -> MetricExportResult:
        self.points += [
            (metric.name, metric.unit, dict(point.attributes), point.value)
            for resource in metrics_data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            for point in metric.data.data_points
        ]
        return self.result

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **_: Any) -> None:
        pass


def test_a_collector_gets_the_same_figures_once() -> None:
    exporter, warnings = _MemoryExporter(), list[str]()
    export_samples(SAMPLES, {}, warnings.append, exporter)
    assert warnings == []
    assert exporter.points == [
        ("gpuform.gpus", "", dict(SAMPLES[0].labels), 16),
        ("gpuform.gpus", "", dict(SAMPLES[1].labels), 8),
        ("gpuform.cost_per_hour", "", dict(SAMPLES[2].labels), 47.84),
        ("gpuform.drifted_resources", "", IDENTITY, 0),
    ]


def test_a_refusing_collector_is_a_warning() -> None:
    warnings: list[str] = []
    export_samples(SAMPLES, {}, warnings.append, _MemoryExporter(MetricExportResult.FAILURE))
    (warning,) = warnings
    assert warning.startswith("warning: the metrics of this run could not be sent")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_collector_of_prometheus_gives_the_names_of_the_file(metric: Metric) -> None:
    # By OpenTelemetry's "Prometheus and OpenMetrics Compatibility": dots become _, s a suffix.
    suffix = {"s": "_seconds", "": ""}[metric.otel_unit]
    assert metric.otel_name.replace(".", "_") + suffix == metric.name
    assert re.fullmatch(r"gpuform_[a-z_]+", metric.name)


DASHBOARD = json.loads((ROOT / "examples/grafana/gpuform.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_the_dashboard_shows_every_metric_and_no_other() -> None:
    names = {name for text in EXPRESSIONS for name in re.findall(r"\bgpuform_\w+", text)}
    assert names == {metric.name for metric in METRICS}
    queries = [variable["query"] for variable in DASHBOARD["templating"]["list"]]
    assert {name for query in queries for name in re.findall(r"gpuform_\w+", query)} <= names


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_labels_of_a_panel_are_those_of_its_metric(expression: str) -> None:
    by_name = {metric.name: metric for metric in METRICS}
    (metric,) = {by_name[name] for name in re.findall(r"\bgpuform_\w+", expression)}
    selectors = re.findall(r"\{([^}]*)\}", expression)
    used = {label for text in selectors for label in re.findall(r"(\w+)=~?", text)}
    used |= {
        label
        for group in re.findall(r"\bby \(([^)]*)\)", expression)
        for label in group.split(", ")
    }
    assert used <= {*STACK_LABELS, *metric.labels}


def test_the_panels_of_the_dashboard_have_ids_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23, "Grafana's grid has 24 columns"
