"""Test the server and its store: connections, files, threads."""

import http.client
import socket
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from processes.limits import LAST_RESORT
from together import Together
from werkzeug.test import Client

from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.emulator.store import Store, StoreError
from gpuform.providers.emulator.together import ADMIN_KEY

HEADERS = {"Authorization": f"Bearer {ADMIN_KEY}"}
VOLUMES = "/together/v1/compute/clusters/storage/volumes"
VOLUME = {"volume_name": "data", "size_tib": 1, "region": "us-central-8"}


def test_the_environment_keeps_requests_away_from_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert environment("http://127.0.0.1:1")["NO_PROXY"] == "127.0.0.1"
    monkeypatch.setenv("NO_PROXY", "internal.example")
    variables = environment("http://127.0.0.1:1")
    assert variables["no_proxy"] == variables["NO_PROXY"] == "internal.example,127.0.0.1"


def test_the_environment_is_enough_for_the_client(
    emulator: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = environment(emulator.url)
    assert set(variables) == {
        "TOGETHER_BASE_URL",
        "TOGETHER_API_KEY",
        "SCP_TF_ENDPOINT_OVERRIDE",
        "SCP_TF_ACCESS_KEY",
        "SCP_TF_SECRET_KEY",
        "TENSORONE_BASE_URL",
        "TENSORONE_API_KEY",
        "AIOS_REGISTRY_URL",
        "AIOS_PARSER_URL",
        "LENS_URL",
        "GPUFORM_CLOCK",
    }
    assert variables["GPUFORM_CLOCK"] == emulator.url
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Together(max_retries=0) as client:
        assert client.clusters.list().clusters == []


def test_the_server_listens_on_loopback_only(emulator: Server) -> None:
    assert urlsplit(emulator.url).hostname == "127.0.0.1"


def test_a_connection_serves_many_requests(
    emulator: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    host = urlsplit(emulator.url).netloc
    connection = http.client.HTTPConnection(host)
    connection.connect()
    used = connection.sock
    for status, method, body in [
        (200, "GET", None),
        (422, "POST", "{}"),
        (200, "GET", None),
        (405, "PATCH", "x" * 100_000),
        (200, "GET", None),
    ]:
        connection.request(method, VOLUMES, body=body, headers=HEADERS)
        answer = connection.getresponse()
        assert (answer.status, answer.version) == (status, 11)
        answer.read()
        assert connection.sock is used
    connection.close()
    assert capfd.readouterr() == ("", "")


def test_closing_ends_kept_connections() -> None:
    server = serve()
    with httpx.Client(base_url=server.url, headers=HEADERS, verify=False) as client:
        assert client.get(VOLUMES).status_code == 200
        server.close()
        with pytest.raises(httpx.TransportError):
            client.get(VOLUMES)
    server.close()  # again: nothing


def test_run_forever_ends_when_it_is_closed() -> None:
    server = serve()
    runner = threading.Thread(target=server.run_forever)
    runner.start()
    assert httpx.get(f"{server.url}/_emulator/health", verify=False).status_code == 200
    server.close()
    runner.join(LAST_RESORT)
    assert not runner.is_alive()


def test_a_request_to_stop_is_answered_before_the_server_ends() -> None:
    server = serve()
    runner = threading.Thread(target=server.run_forever)
    runner.start()
    body = {"emulator": server.store.identity}
    answer = Client(server.app).post("/_emulator/stop", json=body)
    while answer.status_code == 409:  # the other thread has not begun to run the server
        answer = Client(server.app).post("/_emulator/stop", json=body)
    for _ in range(20):
        assert httpx.get(f"{server.url}/_emulator/health", verify=False).status_code == 200
    answer.close()
    runner.join(LAST_RESORT)
    assert not runner.is_alive()


def test_a_port_in_use_is_an_error_of_the_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        serve(port=taken.getsockname()[1])


def test_a_file_keeps_clusters_time_and_credential_for_the_next_server(
    tmp_path: Path, cluster_args: dict[str, Any]
) -> None:
    path = tmp_path / "deep" / "emulator.db"
    answers = []
    for _ in range(2):
        with (
            serve(store_path=path) as server,
            Together(api_key=ADMIN_KEY, base_url=f"{server.url}/together", max_retries=0) as client,
        ):
            if not answers:
                client.clusters.create(**cluster_args, shared_volume=VOLUME)
                server.clock.advance(3600)
            answers.append(
                (server.clock.now(), client.clusters.list(), client.clusters.storage.list())
            )
            requests = server.store.list_log()
    assert answers[0] == answers[1]
    assert answers[0][1].clusters[0].kube_config
    assert len(requests) == 5
    assert b"token" not in path.read_bytes()


def test_a_killed_process_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "emulator.db"
    crashed = Store(path)
    crashed.put("kind", "id", "body")
    for file in tmp_path.iterdir():  # what a crash leaves: the journal not folded in
        (tmp_path / f"copy-{file.name}").write_bytes(file.read_bytes())
    crashed.close()
    with Store(tmp_path / "copy-emulator.db") as store:
        assert store.get("kind", "id") == "body"


def test_two_servers_on_one_file_are_one_platform(tmp_path: Path) -> None:
    path = tmp_path / "emulator.db"
    with (
        serve(store_path=path) as first,
        serve(store_path=path) as second,
        httpx.Client(headers=HEADERS, verify=False) as client,
    ):
        servers = (first, second)

        def make(at: int) -> str:
            return client.post(f"{servers[at % 2].url}{VOLUMES}", json=VOLUME).json()["volume_id"]

        with ThreadPoolExecutor(8) as pool:
            created = list(pool.map(make, range(40)))
        first.clock.advance(60)
        listed = client.get(f"{second.url}{VOLUMES}").json()["volumes"]
        assert {item["volume_id"] for item in listed} == set(created)
        assert len(set(created)) == 40
        assert {item["status"] for item in listed} == {"available"}


@pytest.mark.slow
def test_sixty_four_threads_are_served_without_loss(
    tmp_path: Path, cluster_args: dict[str, Any]
) -> None:
    limits = httpx.Limits(max_connections=64)
    with (
        serve(store_path=tmp_path / "emulator.db") as server,
        httpx.Client(
            base_url=server.url, headers=HEADERS, limits=limits, timeout=LAST_RESORT, verify=False
        ) as client,
    ):
        client.post("/_emulator/faults", json={"method": "POST", "count": 16, "status": 503})

        def work(at: int) -> list[int]:
            created = client.post("/together/v1/compute/clusters", json=cluster_args)
            if created.status_code != 200:
                return [created.status_code]
            path = f"/together/v1/compute/clusters/{created.json()['cluster_id']}"
            return [
                client.put(path, json={"num_gpus": 24}).status_code,
                client.get(path).status_code,
                client.get("/together/v1/compute/clusters").status_code,
            ]

        with ThreadPoolExecutor(64) as pool:
            results = list(pool.map(work, range(64)))
        assert sorted(results) == [[200, 200, 200]] * 48 + [[503]] * 16
        assert len(client.get("/_emulator/objects").json()["together"]["clusters"]) == 48
        assert len(client.get("/_emulator/requests").json()) == 16 + 4 * 48


def test_concurrent_creates_with_one_volume_are_all_recorded(
    emulator: Server, together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    volume = together.clusters.storage.create(**VOLUME)
    control.advance(60)
    body = {**cluster_args, "volume_id": volume.volume_id}
    with httpx.Client(base_url=emulator.url, headers=HEADERS, verify=False) as client:

        def make(_: int) -> str:
            answer = client.post("/together/v1/compute/clusters", json=body).json()
            return str(answer["cluster_id"])

        with ThreadPoolExecutor(8) as pool:
            clusters = list(pool.map(make, range(8)))
    control.advance(3600)
    for cluster in clusters:
        assert together.clusters.storage.retrieve(volume.volume_id).status == "bound"
        together.clusters.delete(cluster)
        control.advance(3600)
    assert together.clusters.storage.retrieve(volume.volume_id).status == "available"


def test_a_store_keeps_order_and_removes_expired_objects() -> None:
    with Store(None) as store:
        for key in ("b", "a", "c"):
            store.put("kind", key, key)
        store.put("kind", "b", "B", gone_at=10.0)
        assert store.list_all("kind") == ["B", "a", "c"]
        store.remove_expired(9.9)
        assert store.get("kind", "b") == "B"
        store.remove_expired(10.0)
        assert store.list_all("kind") == ["a", "c"]


def test_a_transaction_is_all_or_nothing() -> None:
    with Store(None) as store:
        store.put("kind", "old", "1")

        def fail_after_write() -> None:
            with store.transaction():
                store.put("kind", "new", "2")
                with store.transaction():
                    store.put("kind", "old", "3")
                raise ValueError

        with pytest.raises(ValueError):
            fail_after_write()
        assert store.list_all("kind") == ["1"]


def test_ids_are_repeatable_by_seed_and_never_repeated() -> None:
    def create_ids(seed: str | None) -> list[str]:
        with Store(None, seed=seed) as store:
            return [store.create_id() for _ in range(100)]

    assert create_ids("a") == create_ids("a") != create_ids("b")
    assert len({*create_ids(None), *create_ids(None), *create_ids("a")}) == 300


@pytest.mark.parametrize("content", [b"this is not a database, it is a text" * 50, None])
def test_a_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(StoreError, match=str(path)):
        serve(store_path=path)


def test_a_store_in_an_impossible_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="use another file"):
        Store(tmp_path / "file" / "emulator.db")


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "emulator.db"
    Store(path).close()
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(StoreError, match="another version"):
        Store(path)
