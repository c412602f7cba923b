"""Commands load the packages of reports only where somebody asks for reports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPORTERS = ("apprise", "prometheus_client", "opentelemetry.sdk.metrics.export", "requests")
SCRIPT = f"""
import sys
from gpuform.stacks.cli.app import cli
try:
    cli.main(args=["preview", "--stack", "dev"], prog_name="gpuform")
except SystemExit as end:
    assert end.code == 0, end.code
loaded = [name for name in {REPORTERS!r} if name in sys.modules]
prefixes = ("opentelemetry.exporter.otlp.proto.http", "gpuform.stacks.operations.notifying")
prefixes += ("gpuform.stacks.fleet_metrics", "gpuform.stacks.operations.status_reading")
loaded += [name for name in sys.modules if name.startswith(prefixes)]
assert loaded == [], loaded
"""


@pytest.mark.slow
def test_a_run_without_rules_and_collector_loads_nothing_for_reports(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend:\n  url: file://.\n")
    (project / "__main__.py").write_text("from gpuform.stacks import run\n\nrun('topology.yaml')\n")
    (project / "topology.yaml").write_text("outputs:\n  a: 1\n")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    variables = {"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_HOME": str(tmp_path / "home")}
    for script in ("stack", SCRIPT):
        command = (
            [sys.executable, "-m", "gpuform.stacks.cli", "stack", "init", "dev"]
            if script == "stack"
            else [sys.executable, "-c", script]
        )
        done = subprocess.run(
            command,
            cwd=project,
            env=environ | variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
