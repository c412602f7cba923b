"""A wrong base URL, or a proxy's page: every command fails, and the state keeps everything."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.providers.environment import StackEnvironment, record_environment
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend


class UnrelatedServer(BaseHTTPRequestHandler):
    """Answer every request with a page and status 404."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        page = b"<html><h1>404 Not Found</h1></html>"
        self.send_response(404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names of the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in the base class
        pass


@pytest.fixture
def unrelated_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), UnrelatedServer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("refresh", "--yes"),
        ("refresh", "--yes", "--skip-preview"),
        ("destroy", "--yes"),
        ("destroy", "--yes", "--skip-preview"),
        ("destroy", "--yes", "--refresh"),
        ("up", "--yes", "--refresh"),
        ("preview", "--refresh"),
        ("drift",),
    ],
    ids=" ".join,
)
def test_a_stranger_at_the_base_url(
    applied_project: PlannedProject,
    unrelated_server: str,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    before = _get_ids(applied_project)
    sent = applied_project.sent_changes
    monkeypatch.setenv("TOGETHER_BASE_URL", unrelated_server)
    monkeypatch.delenv("GPUFORM_CLOCK")  # a real platform is asked by the real clock
    records = open_intents(
        Backend.open(f"file://{applied_project.project}", {}), "demo", "dev"
    ).records
    record_environment(records, StackEnvironment(False, {"together": f"{unrelated_server}/v1"}))
    ran = applied_project.run(*command)
    assert ran.code not in (0, 2)
    output = ran.out + ran.err
    assert "answered 404 with text/html" in output
    assert "check the base URL of together, and the proxy" in output
    assert "Traceback" not in output
    assert _get_ids(applied_project) == before
    assert applied_project.sent_changes == sent


def _get_ids(planned_project: PlannedProject) -> dict[str, str]:
    resources = json.loads(planned_project.state_file)["checkpoint"]["latest"]["resources"]
    return {resource["urn"]: resource["id"] for resource in resources if resource["custom"]}


@pytest.mark.slow
def test_destroy_after_a_killed_destroy_accepts_the_missing_objects(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next destroy accepts three missing objects, because the state records their deletion."""
    names = ("a", "b", "c")
    common = "platform: together, region: us-central-8, size_tib: 1"
    volumes = "".join(f"  {name}: {{{common}, volume_name: {name}}}\n" for name in names)
    (planned_project.project / "__main__.py").unlink()
    (planned_project.project / "topology.yaml").write_text(f"shared_volumes:\n{volumes}")
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    path = planned_project.project / ".pulumi/stacks/demo/dev.json"
    document = json.loads(path.read_text())
    latest = document["checkpoint"]["latest"]
    begun = [
        resource for resource in latest["resources"] if resource["urn"].rpartition("::")[2] in names
    ]
    path.write_text(json.dumps(document))
    state_text = path.read_text()
    assert planned_project.run("destroy", "--yes").code == 0
    path.write_text(state_text)
    refused = planned_project.run("destroy", "--yes")
    assert refused.code == 1
    assert "--allow forget-many" in refused.out + refused.err
    latest["pending_operations"] = [{"resource": urn, "type": "deleting"} for urn in begun]
    path.write_text(json.dumps(document))
    ran = planned_project.run("destroy", "--yes")
    assert ran.code == 0, ran.out + ran.err
