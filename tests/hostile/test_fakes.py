"""Test that the fakes behave as a course demands, over HTTP, for the colleague and for us."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hostile.colleague import REQUESTS, Colleague
from hostile.fakes import behavior, fleet
from hostile.fakes.behavior import Behavior
from hostile.fakes.faults import AFTER, CREATE, GET, LIST, Fault, FaultPlan
from hostile.fakes.kubernetes import TOKEN
from hostile.fakes.serving import FakePlatforms
from hostile.fakes.simulation import OURS, START, Simulation
from hostile.machines import write_slurm_commands

Rows = list[dict[str, Any]]


HTTP = httpx.Client(trust_env=False, verify=False)  # there is no TLS


@pytest.fixture
def fakes() -> Iterator[FakePlatforms]:
    with FakePlatforms().run_server() as served:
        yield served


@pytest.fixture(scope="module", autouse=True)
def close_connections() -> Iterator[None]:
    yield
    HTTP.close()


class Client:
    """Send the colleague's requests in our name."""

    def __init__(self, fakes: FakePlatforms, platform: str, **behavior: Any) -> None:
        self.simulation = Simulation(behavior=Behavior(**behavior))
        fakes.begin_course(self.simulation)
        fakes.hostile = {platform}
        self.requests = REQUESTS[platform](self.simulation)
        self.fakes = fakes

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        url = f"{self.fakes.url}{path}"
        headers = self.requests.build_headers(method, url)
        return HTTP.request(method, url, json=body, headers=headers)

    def create(self, name: str = "") -> httpx.Response:
        return self.send(*self.requests.build_create(self.requests.kinds[0], "equal", name))

    def list_nodes(self, **query: Any) -> dict[str, Any]:
        requests = "&".join(f"{name}={value}" for name, value in query.items())
        answer: dict[str, Any] = self.send("GET", f"/scp/v1/gpu-nodes?{requests}").json()
        return answer

    def list_names(self) -> list[str]:
        return [gpu_node["gpu_node_name"] for gpu_node in self.list_nodes()["gpu_nodes"]]


def test_new_objects_appear_late_in_lists_and_lookups(fakes: FakePlatforms) -> None:
    client = Client(fakes, "scp", list_delay=50, get_delay=50)
    id_ = client.create().json()["resource_id"]
    assert client.list_names() == []
    assert client.send("GET", f"/scp/v1/gpu-nodes/{id_}").status_code == 404
    client.simulation.advance(50)
    assert sorted(client.list_names()) == ["train-001", "train-002"]
    assert client.send("GET", f"/scp/v1/gpu-nodes/{id_}").status_code == 200


@pytest.mark.parametrize(
    ("batch_ids", "known_count", "unknown"),
    [
        (behavior.FIRST, 1, 0),
        (behavior.ALL, 2, 0),
        (behavior.FEWER, 1, 0),
        (behavior.MORE, 2, 1),
        (behavior.FABRIC, 0, 1),
        (behavior.REQUEST, 0, 1),
        (behavior.STRANGER, 0, 1),
        (behavior.NONE, 0, 0),
    ],
)
def test_a_create_of_two_nodes_answers_so_many_of_their_ids(
    fakes: FakePlatforms, batch_ids: str, known_count: int, unknown: int
) -> None:
    client = Client(fakes, "scp", batch_ids=batch_ids)
    answered = client.create().json()["resource_id"]
    ids = {item.strip() for item in answered.split(",") if item}
    created = {item.id for item in client.simulation.objects if item.kind == "node"}
    assert (len(ids & created), len(ids - created)) == (known_count, unknown)


def test_a_create_can_take_effect_after_its_refusal(fakes: FakePlatforms) -> None:
    client = Client(fakes, "tensorone")
    fakes.plan = FaultPlan((Fault(CREATE, "own-409", AFTER, delay=45),))
    answer = client.create()
    assert (answer.status_code, answer.json()["error"]) == (409, "STATE_CONFLICT")
    assert client.simulation.list_existing("tensorone", "cluster") == []
    client.simulation.advance(45)
    assert len(client.simulation.list_existing("tensorone", "cluster")) == 1


def read_pages(client: Client) -> list[Rows]:
    pages = (client.list_nodes(size=100, page=page, sort="gpu_node_name:asc") for page in (0, 1))
    return [page["gpu_nodes"] for page in pages]


@pytest.mark.parametrize(
    ("fault_kind", "visible_rows"), [("", 4), ("shifted-up", 3), ("shifted-down", 4)]
)
def test_rows_move_between_pages(fakes: FakePlatforms, fault_kind: str, visible_rows: int) -> None:
    client = Client(fakes, "scp", page_cap=2)
    client.create()
    client.create("-b")
    fakes.plan = FaultPlan((Fault(LIST, fault_kind or "nothing", nth=2),))
    rows = [item["id"] for page in read_pages(client) for item in page]
    assert (len(rows), len(set(rows))) == (visible_rows, 3 if fault_kind else 4)


@pytest.mark.parametrize(
    ("fault_kind", "rows", "total"),
    [
        ("wrong-total", 2, 3),
        ("missing-rows", 1, 2),
        ("fewer-rows", 1, 1),
        ("partial-rows", 2, 2),
        ("doubled", 4, 2),
    ],
)
def test_faulty_lists_have_wrong_rows_and_totals(
    fakes: FakePlatforms, fault_kind: str, rows: int, total: int
) -> None:
    client = Client(fakes, "scp")
    client.create()
    fakes.plan = FaultPlan((Fault(LIST, fault_kind),))
    answer = client.list_nodes()
    assert (len(answer["gpu_nodes"]), answer["count"]) == (rows, total)


@pytest.mark.parametrize("on", [LIST, GET])
def test_an_existing_object_is_temporarily_not_found(fakes: FakePlatforms, on: str) -> None:
    client = Client(fakes, "scp")
    id_ = client.create().json()["resource_id"]
    path = "/scp/v1/gpu-nodes" + (f"/{id_}" if on == GET else "")
    fakes.plan = FaultPlan((Fault(on, "own-404"),))
    assert [client.send("GET", path).status_code for _ in range(2)] == [404, 200]


@pytest.mark.parametrize(
    ("created_at", "expected"),
    [
        (behavior.TRUE, "2026-01-01T00:10:00Z"),
        (behavior.EARLY, "2026-01-01T00:00:00Z"),
        (behavior.YEAR_1, "0001-01-01T00:00:00Z"),
        (behavior.EPOCH, "1970-01-01T00:00:00Z"),
        (behavior.ABSENT, None),
    ],
)
def test_the_platform_has_a_clock_of_its_own(
    fakes: FakePlatforms, created_at: str, expected: str | None
) -> None:
    client = Client(fakes, "tensorone", clock_skew=600, created_at=created_at)
    answer = client.create()
    assert answer.headers["Date"] == "Thu, 01 Jan 2026 00:10:00 GMT"
    assert answer.json()["data"]["created_at"] == expected
    assert client.simulation.now == START


def test_the_registry_reads_old_and_writes_current_documents(fakes: FakePlatforms) -> None:
    client = Client(fakes, "aios", get_delay=8)
    client.create()
    client.simulation.advance(8)
    update = {"$set": {"tags": ["changed"]}}
    assert client.send("PUT", "/aios/clusters/east-001", update).json()["tags"] == ["changed"]
    assert client.send("GET", "/aios/clusters/east-001").json()["tags"] == ["gpu", "training"]
    client.simulation.advance(8)
    assert client.send("GET", "/aios/clusters/east-001").json()["tags"] == ["changed"]


def test_the_registry_counts_a_duplicate_entry(fakes: FakePlatforms) -> None:
    client = Client(fakes, "aios")
    client.create()
    push = {"$push": {"nodes.nodeData": {"id": "node-1", "memory": 4}}, "$inc": {"nodes.count": 1}}
    for _ in range(2):
        client.send("PUT", "/aios/clusters/east-001", push)
    nodes = [node for node in client.simulation.objects if node.kind == "node"]
    assert [(node.name, node.creator) for node in nodes] == [("node-1", OURS)] * 2
    _, is_sound, message = client.simulation.objects[0].data["sums"]
    assert (is_sound, message) == (False, "2 nodes, 2 entries")


def test_a_guest_joins_a_cluster_of_ours_before_our_entries(fakes: FakePlatforms) -> None:
    client = Client(fakes, "aios")
    client.create()
    push = {"$push": {"nodes.nodeData": {"id": "node-1", "memory": 4}}}
    client.send("PUT", "/aios/clusters/east-001", push)
    colleague = Colleague(fakes.url, client.simulation, client.requests)
    colleague.move_guest("join")
    entries = client.send("GET", "/aios/clusters/east-001").json()["nodes"]["nodeData"]
    assert [entry["id"] for entry in entries] == ["guest-1", "node-1"]
    colleague.move_guest("leave")
    entries = client.send("GET", "/aios/clusters/east-001").json()["nodes"]["nodeData"]
    assert [entry["id"] for entry in entries] == ["node-1"]
    colleague.close()


@pytest.mark.parametrize("fault_kind", ["drip", "stall"])
def test_answers_drip_or_stand_still(fakes: FakePlatforms, fault_kind: str) -> None:
    client = Client(fakes, "scp")
    client.create()
    fakes.plan = FaultPlan((Fault(LIST, fault_kind),))
    if fault_kind == "drip":
        assert len(client.list_names()) == 2
    else:
        with pytest.raises(httpx.RemoteProtocolError):
            client.list_names()


def read_kubernetes(fakes: FakePlatforms, resource: str) -> Rows:
    url = f"{fakes.url}/kubernetes/api/v1/{resource}"
    answer = HTTP.request("GET", url, headers={"Authorization": f"Bearer {TOKEN}"})
    items: Rows = answer.json()["items"]
    return items


def read_jobs(fakes: FakePlatforms) -> list[tuple[str, str]]:
    """Return node and phase of each pod, without pods of the nodes themselves."""
    return [
        (pod["spec"]["nodeName"], pod["status"]["phase"])
        for pod in read_kubernetes(fakes, "pods")
        if pod["metadata"]["namespace"] != "kube-system"
    ]


@pytest.mark.parametrize(
    ("naming", "name"), [(fleet.SAME, "train-001"), (fleet.DOMAIN, "train-001.cluster.example.net")]
)
def test_running_nodes_join_kubernetes_and_run_jobs(
    fakes: FakePlatforms, naming: str, name: str
) -> None:
    client = Client(fakes, "scp")
    fakes.fleet.naming = naming
    client.create()
    assert read_kubernetes(fakes, "nodes") == []
    client.simulation.advance(6)
    node = next(item for item in client.simulation.objects if item.name == "train-001")
    fakes.fleet.run_job(node, 60)
    assert name in [item["metadata"]["name"] for item in read_kubernetes(fakes, "nodes")]
    assert read_jobs(fakes) == [(name, "Running")]
    client.simulation.advance(60)
    assert read_jobs(fakes) == [(name, "Succeeded")]


@pytest.mark.parametrize(
    ("naming", "remaining"), [(fleet.SAME, False), (fleet.STATIC, True), (fleet.UNKNOWN, False)]
)
def test_running_nodes_join_slurm_and_leave_when_deleted(
    fakes: FakePlatforms, tmp_path: Path, naming: str, remaining: bool
) -> None:
    client = Client(fakes, "scp")
    fakes.begin_course(client.simulation, has_slurm=True)
    fakes.fleet.naming = naming
    commands = write_slurm_commands(tmp_path / "bin", fakes.url)
    client.create()
    client.simulation.advance(6)
    node = next(item for item in client.simulation.objects if item.name == "train-001")
    fakes.fleet.run_job(node, 60)
    assert "State=ALLOCATED" in run_slurm(commands, "scontrol", "show", "node")
    assert "job-0" in run_slurm(commands, "squeue", "--format=%j")
    client.simulation.delete_object("ours", node, within=0)
    slurm = run_slurm(commands, "scontrol", "show", "node")
    assert ("NodeName=train-001" in slurm) is remaining
    assert "job-0" not in run_slurm(commands, "squeue", "--format=%j")
    fakes.fleet.set_mood("without nodes")
    assert run_slurm(commands, "scontrol", "show", "node") == "No nodes in the system\n"


def run_slurm(folder: Path, name: str, *arguments: str) -> str:
    ran = subprocess.run([folder / name, *arguments], capture_output=True, text=True, check=True)
    return ran.stdout


def test_an_empty_kubernetes_has_no_node(fakes: FakePlatforms) -> None:
    client = Client(fakes, "scp")
    client.create()
    client.simulation.advance(6)
    fakes.fleet.set_mood("empty")
    assert read_kubernetes(fakes, "nodes") == []


def test_lens_shows_the_five_busiest_gpus_of_the_fleet(fakes: FakePlatforms) -> None:
    client = Client(fakes, "scp")
    client.create()
    client.simulation.advance(6)
    node = next(point for point in client.simulation.objects if point.name == "train-001")
    fakes.fleet.run_job(node, 60)
    answer = HTTP.request("GET", f"{fakes.url}/lens/api/clusters/gpuHeatmap").json()
    points = answer["data"]["utilization"]["data"]
    assert [(point["nodeName"], point["value"]) for point in points] == [("train-001", 95)] * 5
