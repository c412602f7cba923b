"""Test that an API key without write access is named and refused before any change."""

import json
import urllib.request
from typing import Any

import pytest
from support.stacks.planned_project import KEY_CHECK_ID, PlannedProject

from gpuform.providers.emulator.together import ADMIN_KEY, MEMBER_KEY

REFUSED = "error: the Together key has the role Member, which only reads clusters"
EARLIER = """
from gpuform.providers.scp import Fabric

fabric = Fabric("fabric", node_pool_id="POOL001-krw1a", cluster_fabric_name="fabric-a")
"""


def count_role_requests(planned_project: PlannedProject) -> int:
    with urllib.request.urlopen(f"{planned_project.url}/_emulator/requests") as answer:
        return sum(KEY_CHECK_ID in request["path"] for request in json.load(answer))


@pytest.fixture
def member_project(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> PlannedProject:
    monkeypatch.setenv("TOGETHER_API_KEY", MEMBER_KEY)
    return planned_project


@pytest.mark.slow
@pytest.mark.parametrize("flags", [["--yes"], ["--yes", "--skip-preview"]])
def test_up_with_a_read_only_key_is_refused_before_any_change(
    member_project: PlannedProject, flags: list[str]
) -> None:
    file = member_project.project / "__main__.py"
    file.write_text(EARLIER + file.read_text())
    refused = member_project.run("up", *flags)
    assert refused.code == 1
    assert refused.err.startswith(REFUSED)
    assert "The run would change data, train\n  nothing was started" in refused.err
    assert count_role_requests(member_project) == 1
    assert member_project.sent_changes == []
    assert b'"fabric"' not in member_project.state_file, "nor on another platform"


@pytest.mark.parametrize("command", [["destroy"], ["up", "--replace", "data"]])
@pytest.mark.slow
def test_destroy_and_replace_with_a_read_only_key_are_refused(
    applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    before = applied_project.sent_changes, applied_project.state_file
    monkeypatch.setenv("TOGETHER_API_KEY", MEMBER_KEY)
    refused = applied_project.run(*command, "--yes")
    assert (refused.code, refused.err.startswith(REFUSED)) == (1, True)
    assert (applied_project.sent_changes, applied_project.state_file) == before


@pytest.mark.slow
def test_commands_that_only_read_work_with_a_read_only_key(
    applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count_role_requests(applied_project)
    monkeypatch.setenv("TOGETHER_API_KEY", MEMBER_KEY)
    for command in (["preview"], ["refresh", "--yes"], ["drift"], ["up", "--yes"]):
        assert applied_project.run(*command).code == 0, command
    file = applied_project.project / "__main__.py"
    volume = "    volume_id=data.id,\n"
    file.write_text(file.read_text().replace(volume, f'{volume}    ttl="14d",\n'))
    recorded = applied_project.run("up", "--yes")
    assert (recorded.code, "~ 1 updated" in recorded.out) == (0, True), recorded.err
    assert count_role_requests(applied_project) == asked


def test_a_saved_preview_does_not_ask_for_the_role(member_project: PlannedProject) -> None:
    """A reviewer of a plan need not be able to apply it."""
    assert member_project.run("preview", "--save-plan", "plan.json").code == 0
    assert count_role_requests(member_project) == 0
    assert "role Member" in member_project.apply_refused_plan()


@pytest.mark.slow
def test_the_role_of_a_key_is_asked_once(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", ADMIN_KEY)
    assert planned_project.run("up", "--yes").code == 0
    assert planned_project.run("destroy", "--yes").code == 0
    assert count_role_requests(planned_project) == 1


@pytest.mark.parametrize("fault", [{"status": 503}, {"drop": "before"}, {"status": 429}])
@pytest.mark.slow
def test_up_continues_if_the_role_cannot_be_read(
    planned_project: PlannedProject, fault: dict[str, Any]
) -> None:
    body = json.dumps({"path": KEY_CHECK_ID, "method": "PUT", "count": None, **fault}).encode()
    urllib.request.urlopen(f"{planned_project.url}/_emulator/faults", body).close()
    ran = planned_project.run("up", "--yes")
    assert ran.code == 0, ran.err
