"""Test the evidence that `gpuform expire` requires on a real platform: clocks, times, jobs.

The platform is a stand-in, written from TensorOne's document ('Get Cluster Details') alone. The
tests set its clock and its reports about the cluster; this machine's clock is the real one.
"""

import json
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

Run = Any
DAY = 86400.0
YEAR = 365 * DAY


class StandIn:
    """One cluster of TensorOne, created and deleted at once."""

    def __init__(self) -> None:
        self.offset = 0.0
        """Seconds that the platform's clock is ahead of this machine's."""
        self.has_date = True
        self.use: float | None = 0.0
        """Percent; None for an answer without metrics."""
        self.measured_ago = 0.0
        """Seconds."""
        self.created_at: str | None = None
        """What the platform says instead of when it was created."""
        self.cluster: dict[str, Any] | None = None
        self.writes: list[str] = []

    @property
    def now(self) -> float:
        return time.time() + self.offset

    def answer(self, method: str, path: list[str], body: Any) -> tuple[int, Any]:
        if method != "GET":
            self.writes.append(f"{method} {'/'.join(path)}")
        if path == ["v1", "clusters"] and method == "POST":
            self.cluster = {**body, "made": self.now, "status": "running"}
            return 201, self._wrap_data(self._describe_cluster())
        if path == ["v1", "clusters"]:
            clusters = [self._describe_cluster()] if self.cluster else []
            count = {"page": 1, "limit": 100, "total": len(clusters), "total_pages": 1}
            return 200, self._wrap_data({"clusters": clusters, "pagination": count})
        if self.cluster is None:
            return 404, {"error": "RESOURCE_NOT_FOUND", "message": "Cluster not found", "code": 404}
        if method == "DELETE":
            self.cluster = None
            return 200, self._wrap_data({"id": "cluster_abc123", "status": "deleting"})
        if path[3:] in (["stop"], ["start"]):
            self.cluster["status"] = {"stop": "stopped", "start": "running"}[path[3]]
        return 200, self._wrap_data(self._describe_cluster())

    def _wrap_data(self, data: Any) -> Any:
        meta = {"request_id": "req", "cache_hit": False, "data_freshness_seconds": 0}
        return {"success": True, "data": data, "meta": meta}

    def _describe_cluster(self) -> Any:
        assert self.cluster is not None
        made = self.cluster
        metrics = {
            "timestamp": format_time(self.now - self.measured_ago),
            "gpu_utilization": self.use,
        }
        return {
            "id": "cluster_abc123",
            "name": made["name"],
            "status": made["status"],
            "status_details": {"last_status_change": format_time(made["made"])},
            "configuration": {
                **{name: made[name] for name in ("gpu_type", "gpu_count", "storage_gb", "region")}
            },
            "project_info": {"project_id": made["project_id"]},
            "template_info": {"template_id": made["template_id"]},
            "network": {"port_mappings": [], "security_groups": []},
            "storage": {"volumes": [], "snapshots": []},
            "environment": {"variables": {}, "secrets": []},
            "auto_terminate": {"enabled": False},
            **({} if self.use is None else {"metrics": {"current": metrics}}),
            "created_at": self.created_at or format_time(made["made"]),
            "updated_at": format_time(self.now),
            "tags": {},
        }


def format_time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    stand_in = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
            pass

        def handle_request(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urlsplit(self.path).path.strip("/").split("/")
            sent = json.loads(content) if content else None
            status, answer = stand_in.answer(self.command, path, sent)
            data = json.dumps(answer).encode()
            self.send_response_only(status)
            if stand_in.has_date:
                self.send_header("Date", formatdate(stand_in.now, usegmt=True))
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = handle_request  # noqa: N815 - their names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv("TENSORONE_BASE_URL", f"http://127.0.0.1:{server.server_address[1]}/v1")
    monkeypatch.setenv("TENSORONE_API_KEY", "key")
    yield stand_in
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def declare(dev: Run, project: Path, platform: StandIn) -> Any:
    """Return a function that creates the cluster with more lines in its declaration."""
    (project / "__main__.py").write_text("from gpuform.stacks import run\n\nrun('topology.yaml')\n")

    def declare(*lines: str) -> Run:
        (project / "topology.yaml").write_text(
            "clusters:\n  workbench:\n    platform: tensorone\n    name: workbench\n"
            "    gpu_type: A100\n    gpu_count: 4\n    storage_gb: 500\n    region: us-west-2\n"
            "    project_id: proj_456\n    template_id: tmpl_pytorch_latest\n"
            + "".join(f"    {line}\n" for line in lines)
        )
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.out + ran.err
        platform.writes.clear()
        return dev

    return declare


def move_creation_back(run: Run, project: Path, platform: StandIn, seconds: float) -> None:
    """Move the creation of the cluster into the past, on the platform and in the state."""
    assert platform.cluster is not None
    platform.cluster["made"] -= seconds
    exported = run("stack", "export").json
    for resource in exported["deployment"]["resources"]:
        if "created" in resource:
            created = datetime.fromisoformat(resource["created"]).timestamp() - seconds
            resource["created"] = format_time(created)
    (project / "exported.json").write_text(json.dumps(exported))
    assert run("stack", "import", "--file", "exported.json", "--force").code == 0


def build_closed_schedule() -> str:
    """Return running hours that are over now and begin in half a day."""
    hour = datetime.now(UTC).hour
    start, stop = (hour + 12) % 24, (hour + 13) % 24
    return f"schedule: {{start: '{start:02d}:00', stop: '{stop:02d}:00', time_zone: UTC}}"


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("created_at", ["0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
def test_a_zero_creation_date_does_not_end_a_ttl(
    declare: Any, platform: StandIn, created_at: str
) -> None:
    run = declare("ttl: 14d")
    platform.created_at = created_at
    ran = run("expire", "--yes")
    assert (ran.code, platform.writes) == (0, [])


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_reported_creation_before_the_recorded_one_does_not_end_a_ttl(
    declare: Any, platform: StandIn
) -> None:
    run = declare("ttl: 14d")
    platform.created_at = format_time(time.time() - 20 * DAY)
    ran = run("expire", "--yes")
    assert (ran.code, platform.writes) == (0, [])


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_ttl_counts_from_the_recorded_creation_if_the_reported_one_is_in_the_future(
    declare: Any, platform: StandIn, project: Path
) -> None:
    run = declare("ttl: 14d")
    move_creation_back(run, project, platform, 13 * DAY)
    platform.created_at = format_time(time.time() + YEAR)
    assert "expires in 23h" in run("preview", "--refresh").out
    move_creation_back(run, project, platform, 2 * DAY)
    assert run("expire", "--yes").code == 0
    assert platform.cluster is None


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_ttl_over_by_both_creations_ends_the_cluster(
    declare: Any, platform: StandIn, project: Path
) -> None:
    run = declare("ttl: 14d")
    move_creation_back(run, project, platform, 15 * DAY)
    assert run("expire", "--yes").code == 0
    assert platform.cluster is None


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("offset", [-600.0, 600.0, -3 * YEAR, 3 * YEAR])
def test_expire_destroys_nothing_while_the_clocks_disagree(
    declare: Any, platform: StandIn, project: Path, offset: float
) -> None:
    platform.offset = offset
    run = declare("ttl: 14d")
    move_creation_back(run, project, platform, 15 * DAY)
    for flags in (("--dry-run",), ("--yes",)):
        ran = run("expire", *flags)
        assert ran.code == 1
        way = "behind" if offset > 0 else "ahead of"
        assert f"{way} the clock of tensorone" in ran.err
        assert "workbench: cannot destroy what has expired: this machine's clock: it is" in ran.err
    assert platform.writes == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_ttl_over_only_by_the_local_clock_is_not_over(
    declare: Any, platform: StandIn, project: Path
) -> None:
    """The platform's clock is four minutes behind, which is within the tolerance."""
    platform.offset = -240
    run = declare("ttl: 14d")
    move_creation_back(run, project, platform, 14 * DAY + 60)
    assert (run("expire", "--yes").code, platform.writes) == (0, [])


def test_expire_destroys_nothing_if_no_response_has_a_date(
    declare: Any, platform: StandIn, project: Path
) -> None:
    run = declare("ttl: 14d")
    move_creation_back(run, project, platform, 15 * DAY)
    platform.has_date = False
    ran = run("expire", "--yes")
    assert (ran.code, platform.writes) == (1, [])
    assert "no response of tensorone had a Date" in ran.err
    assert "gpuform destroy --target NAME" in ran.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_expire_keeps_a_busy_cluster_unless_evicting_is_allowed(
    declare: Any, platform: StandIn, project: Path
) -> None:
    run = declare("ttl: 14d")
    move_creation_back(run, project, platform, 15 * DAY)
    platform.use = 95.0
    ran = run("expire", "--yes")
    assert (ran.code, platform.writes) == (1, [])
    assert "TensorOne: the cluster uses 95 % of its GPUs" in ran.err
    assert "--allow evict-jobs" in ran.err
    assert run("expire", "--yes", "--allow", "evict-jobs").code == 0
    assert platform.cluster is None


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_expire_does_not_stop_a_busy_cluster_by_its_schedule(
    declare: Any, platform: StandIn
) -> None:
    run = declare(build_closed_schedule())
    platform.use = 90.0
    ran = run("expire", "--yes")
    assert (ran.code, platform.writes) == (1, [])
    assert (
        "workbench: cannot stop by a schedule: TensorOne: the cluster uses 90 % of its GPUs"
        in ran.err
    )
    platform.use = 0.0
    assert run("expire", "--yes").code == 0
    assert platform.writes == ["POST v1/clusters/cluster_abc123/stop"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_expire_stops_an_unmeasured_cluster_by_its_schedule_and_says_so(
    declare: Any, platform: StandIn
) -> None:
    run = declare(build_closed_schedule())
    platform.use = None
    ran = run("expire", "--dry-run")
    assert ran.code == 3
    assert "whether workbench is in use is unknown" in ran.out + ran.err
    assert run("expire", "--yes").code == 0
    assert platform.writes == ["POST v1/clusters/cluster_abc123/stop"]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("offset", [-600.0, 600.0, 3 * YEAR])
def test_expire_stops_nothing_by_schedule_while_the_clocks_disagree(
    declare: Any, platform: StandIn, offset: float
) -> None:
    platform.offset = offset
    run = declare(build_closed_schedule())
    ran = run("expire", "--yes")
    assert (ran.code, platform.writes) == (1, [])
    assert "cannot stop by a schedule: this machine's clock: it is" in ran.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_expire_stops_by_schedule_even_if_no_response_has_a_date(
    declare: Any, platform: StandIn
) -> None:
    """A stop is reversible, unlike a deletion."""
    run = declare(build_closed_schedule())
    platform.has_date = False
    assert run("expire", "--yes").code == 0
    assert platform.writes == ["POST v1/clusters/cluster_abc123/stop"]
