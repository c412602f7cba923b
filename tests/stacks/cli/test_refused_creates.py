"""Test what the next commands do about a create that the platform refused by a 403."""

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.records import Intent
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend

Run = Any
VOLUME = {"volume_name": "data", "region": "us-central-8", "size_tib": 1}


class RefusedStack:
    """The stack dev, whose create of a volume was refused."""

    def __init__(self, run: Run, project: Path, url: str) -> None:
        self.run = run
        self.project = project
        self.url = url

    @property
    def records(self) -> list[Intent]:
        return open_intents(Backend.open(f"file://{self.project}", {}), "demo", "dev").list_all()

    def send(self, path: str, body: Any = None) -> Any:
        headers = {
            "Authorization": f"Bearer {os.environ['TOGETHER_API_KEY']}",
            "Content-Type": "application/json",
        }
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/{path}", data, headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def list_volume_ids(self) -> list[str]:
        return [v["id"] for v in self.send("_emulator/objects")["together"]["volumes"]]

    def show_late_volume(self) -> str:
        """Create the volume as if an earlier copy of the request had, and the list had lagged."""
        path = "together/v1/compute/clusters/storage/volumes"
        return str(self.send(path, VOLUME)["volume_id"])

    def advance_clock(self, seconds: float) -> None:
        self.send("_emulator/clock", {"advance": seconds})


@pytest.fixture
def refused_stack(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RefusedStack]:
    (project / "__main__.py").unlink()
    inputs = json.dumps({"platform": "together", **VOLUME})
    (project / "topology.yaml").write_text(f"shared_volumes:\n  data: {inputs}\n")
    with serve(seed="refused") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        stack = RefusedStack(dev, project, server.url)
        fault = {"method": "POST", "path": "volumes$", "status": 403}
        stack.send("_emulator/faults", fault)
        ran = dev("up", "--yes", "--skip-preview")
        assert (ran.code, stack.list_volume_ids()) == (1, [])
        assert "answered 403" in ran.out
        assert [record.is_refused for record in stack.records] == [True]
        yield stack


def test_nobody_is_told_of_a_refused_create_that_did_nothing(refused_stack: RefusedStack) -> None:
    def expect_silence(*command: str) -> None:
        ran = refused_stack.run(*command)
        output = f"{ran.out}{ran.err}"
        assert ran.code == 0, output
        assert not re.search("interrupted|refused|warning|looking for", output), output

    expect_silence("preview")
    expect_silence("refresh", "--yes")
    expect_silence("status")
    expect_silence("orphans")
    expect_silence("doctor")
    assert len(refused_stack.records) == 1, "the list may still lag behind"
    refused_stack.advance_clock(60)
    expect_silence("refresh", "--yes")
    assert refused_stack.records == []
    expect_silence("up", "--yes", "--skip-preview")
    assert len(refused_stack.list_volume_ids()) == 1


def test_a_create_after_a_refused_one_waits_until_the_list_is_true(
    refused_stack: RefusedStack,
) -> None:
    ran = refused_stack.run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out
    assert "looking for the object of a refused create" in ran.out
    assert (len(refused_stack.list_volume_ids()), refused_stack.records) == (1, [])


@pytest.mark.parametrize("command", ["up", "refresh"])
def test_an_object_that_a_refused_create_made_is_adopted(
    refused_stack: RefusedStack, command: str
) -> None:
    volume_id = refused_stack.show_late_volume()
    ran = refused_stack.run("orphans")
    assert (ran.code, "unresolved create: together:SharedVolume 'data'" in ran.out) == (3, True)
    ran = refused_stack.run("preview")
    assert f"a run whose create was refused created data ({volume_id})" in ran.err
    assert len(refused_stack.records) == 1
    ran = refused_stack.run(command, "--yes")
    assert ran.code == 0, ran.err
    assert f"a run whose create was refused created data ({volume_id})" in ran.err
    assert (refused_stack.list_volume_ids(), refused_stack.records) == ([volume_id], [])


def test_a_doubtful_object_stops_only_the_create_of_its_name(refused_stack: RefusedStack) -> None:
    refused_stack.advance_clock(3600)
    volume_id = refused_stack.show_late_volume()
    ran = refused_stack.run("refresh", "--yes")
    assert ran.code == 0, ran.err
    assert "a refused create of the SharedVolume 'data' on together may have created" in ran.err
    ran = refused_stack.run("up", "--yes", "--skip-preview")
    assert (ran.code, f"--adopt {volume_id}" in ran.out) == (1, True)
    assert refused_stack.run("up", "--yes", "--skip-preview", "--adopt", volume_id).code == 0
    assert (refused_stack.list_volume_ids(), refused_stack.records) == ([volume_id], [])
