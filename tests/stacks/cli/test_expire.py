"""Test `gpuform expire`: expired objects are deleted, scheduled ones stopped and started.

All times are the emulator's clock, which tests advance over real HTTP.
"""

import json
import os
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

HOURS = "schedule: {start: '08:00', stop: '20:00', time_zone: Europe/Berlin}"
WORKBENCH = """
clusters:
  workbench:
    platform: tensorone
    name: workbench
    gpu_type: A100
    gpu_count: 2
    storage_gb: 500
    region: us-west-2
    project_id: proj_456
    template_id: tmpl_pytorch_latest
    tags: {team: TEAM}
"""


def call_emulator(planned_project: PlannedProject, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{planned_project.url}/_emulator/{path}", data)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def get_time(planned_project: PlannedProject) -> datetime:
    return datetime.fromtimestamp(call_emulator(planned_project, "clock")["now"], UTC)


def advance(planned_project: PlannedProject, **time: float) -> None:
    call_emulator(planned_project, "clock", {"advance": timedelta(**time).total_seconds()})


def advance_to_hour(planned_project: PlannedProject, hour: int) -> None:
    """Advance the clock to the next time that it is this hour in Berlin in winter."""
    moment = get_time(planned_project)
    next_moment = moment.replace(hour=hour - 1, minute=30)
    advance(planned_project, seconds=((next_moment - moment).total_seconds()) % 86400)


def advance_to_winter(planned_project: PlannedProject) -> None:
    """Advance the clock to a date without daylight saving changes nearby."""
    year = get_time(planned_project).year + 1
    winter_day = datetime(year, 1, 10, tzinfo=UTC)
    advance(planned_project, seconds=(winter_day - get_time(planned_project)).total_seconds())


def list_statuses(
    planned_project: PlannedProject, platform: str, kind: str = "clusters"
) -> list[str]:
    return [
        listed_object["status"]
        for listed_object in call_emulator(planned_project, "objects")[platform][kind]
    ]


def list_changes(planned_project: PlannedProject) -> list[str]:
    requests = call_emulator(planned_project, "requests")
    return [
        f"{request['method']} {request['path']}"
        for request in requests
        if request["method"] != "GET"
    ]


@pytest.fixture
def declare_workbench(planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that declares the workbench with more lines.

    The emulated cluster is always busy, so that evicting jobs is allowed.
    """
    monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
    (planned_project.project / "__main__.py").write_text(
        "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    )
    advance_to_winter(planned_project)

    def declare(*lines: str, team: str = "research") -> PlannedProject:
        more = "".join(f"    {line}\n" for line in lines)
        topology = WORKBENCH.replace("TEAM", team) + more
        (planned_project.project / "topology.yaml").write_text(topology)
        return planned_project

    return declare


class TestHours:
    @pytest.mark.slow
    def test_expire_stops_and_starts_a_cluster_by_its_schedule(
        self, declare_workbench: Any
    ) -> None:
        planned_project = declare_workbench(HOURS)
        advance_to_hour(planned_project, 10)
        assert planned_project.run("up", "--yes").code == 0
        assert planned_project.run("expire", "--dry-run").code == 0, "it runs in its hours"

        advance_to_hour(planned_project, 21)
        ran = planned_project.run("expire", "--dry-run")
        assert ran.code == 3
        assert '~ state: "running" => "stopped"  # outside its running hours' in ran.out
        assert list_statuses(planned_project, "tensorone") == ["running"], "nothing was done"
        done = planned_project.run("expire", "--yes")
        assert (done.code, done.err) == (0, "")
        assert list_statuses(planned_project, "tensorone") == ["stopped"]
        again = planned_project.run("expire", "--yes")
        assert (again.code, "1 unchanged" in again.out) == (0, True)

        # Stopped is as declared: no drift, and no up starts it, not even with other changes.
        assert planned_project.run("drift", "--detailed-exitcode").code == 0
        preview = planned_project.run("preview", "--expect-no-changes", "--refresh")
        assert preview.code == 0, preview.err
        assert 'state: stays "stopped": outside its running hours, until ' in preview.out
        declare_workbench(HOURS, team="platform")
        assert planned_project.run("up", "--yes").code == 0
        assert list_statuses(planned_project, "tensorone") == ["stopped"]
        assert planned_project.run("refresh", "--yes", "--expect-no-changes").code == 0

        advance(planned_project, hours=12)
        started = planned_project.run("expire", "--yes")
        assert '~ state: "stopped" => "running"  # its running hours have begun' in started.out
        assert list_statuses(planned_project, "tensorone") == ["running"]
        assert planned_project.run("preview", "--expect-no-changes", "--refresh").code == 0

    @pytest.mark.slow
    def test_up_starts_a_scheduled_cluster_in_its_hours(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench(HOURS)
        advance_to_hour(planned_project, 21)
        assert planned_project.run("up", "--yes").code == 0
        assert list_statuses(planned_project, "tensorone") == ["running"], (
            "who makes it wants to use it"
        )
        assert planned_project.run("expire", "--yes").code == 0
        advance(planned_project, hours=12)
        assert planned_project.run("up", "--yes").code == 0
        assert list_statuses(planned_project, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_expire_stops_a_cluster_started_outside_its_hours(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench(HOURS)
        advance_to_hour(planned_project, 21)
        assert planned_project.run("up", "--yes").code == 0
        assert planned_project.run("expire", "--yes").code == 0
        (cluster,) = call_emulator(planned_project, "objects")["tensorone"]["clusters"]
        request = urllib.request.Request(
            f"{planned_project.url}/tensorone/v1/clusters/{cluster['id']}/start",
            b"{}",
            {
                "Authorization": f"Bearer {os.environ['TENSORONE_API_KEY']}",
                "Content-Type": "application/json",
            },
        )
        urllib.request.urlopen(request).close()
        advance(planned_project, minutes=10)
        assert list_statuses(planned_project, "tensorone") == ["running"]
        assert planned_project.run("expire", "--yes").code == 0
        assert list_statuses(planned_project, "tensorone") == ["stopped"]

    def test_a_schedule_conflicts_with_state_stopped(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench(HOURS, "state: stopped")
        refused = planned_project.run("preview")
        assert refused.code == 1
        assert "conflicts with state stopped: remove one of the two" in refused.out

    @pytest.mark.slow
    def test_expire_without_ends_or_hours_changes_nothing(
        self, applied_project: PlannedProject
    ) -> None:
        call_emulator(applied_project, "clock")
        before = len(applied_project.sent_changes)
        ran = applied_project.run("expire", "--yes")
        assert ran.code == 0
        assert "2 unchanged" in ran.out
        assert len(applied_project.sent_changes) == before

    def test_a_cost_gate_blocks_starts_but_no_stops(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench(HOURS)
        advance_to_hour(planned_project, 21)
        assert planned_project.run("up", "--yes", "--skip-preview").code == 0
        budget = "gates: {budget: {max_hourly_cost: {amount: 0.01, currency: USD}}}"
        (planned_project.project / "gates.yaml").write_text(budget)
        stopped = planned_project.run("expire", "--yes")
        assert (stopped.code, stopped.err) == (0, "")
        assert "unknown: workbench: 2 A100 GPUs, stopped: prices.yaml does not exist" in stopped.out
        assert list_statuses(planned_project, "tensorone") == ["stopped"]
        advance(planned_project, hours=12)
        started = planned_project.run("expire", "--yes")
        assert started.code == 5, "what starts is paid for"
        assert list_statuses(planned_project, "tensorone") == ["stopped"]


class TestEnds:
    @pytest.mark.slow
    def test_expire_deletes_a_cluster_after_its_ttl_and_up_does_not_renew_it(
        self, declare_workbench: Any
    ) -> None:
        planned_project = declare_workbench("ttl: 8d")
        assert planned_project.run("up", "--yes").code == 0
        assert "Notes:" not in planned_project.run("preview").out
        advance(planned_project, days=2)
        message = "workbench: expires in 5d 23h, at "
        assert message in planned_project.run("preview").out
        assert message in planned_project.run("status").out
        notices = planned_project.run("status", "--json").json["notices"]
        assert [notice["kind"] for notice in notices] == ["expiry"]
        assert planned_project.run("expire", "--dry-run").code == 0

        advance(planned_project, days=6)
        assert "expired at" in planned_project.run("preview").out
        ran = planned_project.run("expire", "--dry-run")
        assert (ran.code, "delete: it has expired" in ran.out) == (3, True)
        assert planned_project.run("expire", "--yes").code == 0
        assert list_statuses(planned_project, "tensorone") == []

        refused = planned_project.run("up", "--yes")
        assert refused.code == 1
        assert "when its ttl of 8d was over" in refused.out
        assert "--allow renew-expired" in refused.out
        assert planned_project.run("preview", "--allow", "renew-expired").code == 0
        declare_workbench("ttl: 9d")
        assert planned_project.run("preview").code == 0, "another ttl is another declaration"
        declare_workbench("ttl: 8d")
        assert planned_project.run("up", "--yes", "--allow", "renew-expired").code == 0
        assert list_statuses(planned_project, "tensorone") == ["running"]
        assert planned_project.run("expire", "--dry-run").code == 0, "it counts anew"
        assert planned_project.run("destroy", "--yes").code == 0
        assert planned_project.run("preview").code == 0, (
            "what was destroyed otherwise has not expired"
        )

    @pytest.mark.slow
    def test_expire_deletes_a_cluster_after_its_date(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench()
        day = (get_time(planned_project) + timedelta(days=1)).date()
        declare_workbench(f"expires: {day}")
        assert planned_project.run("up", "--yes").code == 0
        advance(planned_project, days=1)
        assert planned_project.run("expire", "--dry-run").code == 0, "the day itself is not over"
        advance(planned_project, days=1)
        later = (day + timedelta(days=30)).isoformat()
        declare_workbench(f"expires: {later}")
        longer = planned_project.run("up", "--yes")
        assert (
            f'~ expires: "{day}" => "{later}"  # a setting of gpuform: not sent to the platform'
            in longer.out
        )
        assert planned_project.run("expire", "--dry-run").code == 0
        advance(planned_project, days=31)
        assert planned_project.run("expire", "--yes").code == 0
        refused = planned_project.run("preview")
        assert refused.code == 1
        assert "declare a later end, or remove the resource" in refused.out
        assert list_changes(planned_project)[-1].startswith("DELETE ")

    @pytest.mark.slow
    def test_a_changed_end_sends_no_request(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench("ttl: 8d")
        assert planned_project.run("up", "--yes").code == 0
        before = list_changes(planned_project)
        declare_workbench("ttl: 9d", HOURS)
        assert planned_project.run("up", "--yes").code == 0
        declare_workbench()
        assert planned_project.run("up", "--yes").code == 0
        assert list_changes(planned_project) == before
        advance(planned_project, days=20)
        assert planned_project.run("expire", "--dry-run").code == 0, "it has no end any more"

    @pytest.mark.slow
    def test_expire_keeps_protected_resources(self, planned_project: PlannedProject) -> None:
        declare_ttl(planned_project, "    opts=pulumi.ResourceOptions(protect=True),\n")
        assert planned_project.run("up", "--yes").code == 0
        advance(planned_project, days=2)
        refused = planned_project.run("expire", "--yes")
        assert refused.code == 1
        assert "is protected and cannot be deleted" in refused.out
        assert len(list_statuses(planned_project, "together")) == 1
        assert planned_project.run("state", "unprotect", "train", "--yes").code == 0
        done = planned_project.run("expire", "--yes")
        assert done.code == 0, done.out
        assert list_statuses(planned_project, "together") == []
        assert len(list_statuses(planned_project, "together", "volumes")) == 1, (
            "the volume has no end"
        )

    @pytest.mark.slow
    def test_gates_stop_expire(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench("ttl: 1d")
        assert planned_project.run("up", "--yes").code == 0
        (planned_project.project / "gates.yaml").write_text(
            "gates:\n  keep: {protected: ['work*']}\n"
        )
        advance(planned_project, days=2)
        assert planned_project.run("expire", "--yes").code == 5
        assert list_statuses(planned_project, "tensorone") == ["running"]
        assert planned_project.run("expire", "--yes", "--allow", "gate:keep").code == 0

    def test_plans_and_reviews_show_an_end(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench("ttl: 1d")
        assert planned_project.run("up", "--yes").code == 0
        assert planned_project.run("preview", "--save-plan", "plan.json").code == 0
        (notice,) = json.loads((planned_project.project / "plan.json").read_text())["notices"]
        assert (notice["kind"], notice["name"]) == ("expiry", "workbench")
        for form in ("text", "markdown", "github", "gitlab", "html"):
            output = planned_project.run("review", "plan.json", "--format", form).out
            assert "Notes:" in output, form
            assert "workbench: expires in" in output, form

    def test_expire_requires_a_confirmation(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench("ttl: 1d")
        refused = planned_project.run("expire")
        assert refused.code == 1
        assert "requires a confirmation" in refused.err
        assert planned_project.run("expire", "--json").code == 2

    @pytest.mark.slow
    def test_expire_prints_json(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench("ttl: 1d")
        assert planned_project.run("up", "--yes").code == 0
        advance(planned_project, days=2)
        ran = planned_project.run("expire", "--dry-run", "--json")
        assert ran.code == 3
        assert ran.json["changeSummary"] == {"delete": 1, "same": 1}  # the stack
        assert planned_project.run("expire", "--yes", "--json").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_expiry_gate_accepts_ttl_and_expires(declare_workbench: Any) -> None:
    planned_project = declare_workbench()
    (planned_project.project / "gates.yaml").write_text("gates:\n  ends: {expiry_required: true}\n")
    assert planned_project.run("preview").code == 5
    for end in ("ttl: 14d", "expires: 9000-01-01"):
        declare_workbench(end)
        assert planned_project.run("preview").code == 0, end


OTHERS = """
for name, needed in (("alone", None), ("second", [train])):
    Cluster(
        name,
        cluster_name=name,
        region=region,
        gpu_type="H100_SXM",
        num_gpus=8,
        driver_version="CUDA_12_6_560",
        billing_type="ON_DEMAND",
        opts=pulumi.ResourceOptions(depends_on=needed),
    )
"""
VOLUME = "    volume_id=data.id,\n"


def declare_ttl(planned_project: PlannedProject, more: str = "", others: str = "") -> None:
    """Give the program's cluster a ttl of a day, and add `others` to the program."""
    file = planned_project.project / "__main__.py"
    program = file.read_text().replace(VOLUME, f'{VOLUME}    ttl="1d",\n{more}')
    file.write_text(program.replace('print("hello', others + 'print("hello'))


@pytest.mark.slow
def test_expire_needs_target_dependents_to_delete_dependents(
    planned_project: PlannedProject,
) -> None:
    declare_ttl(planned_project, others=OTHERS)
    assert planned_project.run("up", "--yes").code == 0
    advance(planned_project, days=2)
    refused = planned_project.run("expire", "--yes")
    assert refused.code == 1
    assert "::second would be deleted, but is not among the targets" in refused.out
    assert "--target-dependents" in refused.out
    assert len(list_statuses(planned_project, "together")) == 3, "nothing was begun"
    done = planned_project.run("expire", "--yes", "--target-dependents")
    assert done.code == 0, done.out
    assert list_statuses(planned_project, "together") == ["Ready"], "the one that stands alone"


@pytest.mark.slow
def test_expire_does_not_run_the_program(planned_project: PlannedProject) -> None:
    declare_ttl(planned_project)
    assert planned_project.run("up", "--yes").code == 0
    (planned_project.project / "__main__.py").write_text("raise SystemExit('it was run')\n")
    advance(planned_project, days=2)
    assert planned_project.run("expire", "--yes").code == 0
    assert list_statuses(planned_project, "together") == []


@pytest.mark.slow
def test_expire_does_not_start_a_cluster_that_auto_terminate_stopped(
    declare_workbench: Any,
) -> None:
    planned_project = declare_workbench(HOURS, "auto_terminate: {enabled: true, idle_minutes: 30}")
    advance_to_hour(planned_project, 10)
    assert planned_project.run("up", "--yes").code == 0
    (cluster,) = call_emulator(planned_project, "objects")["tensorone"]["clusters"]
    call_emulator(planned_project, f"tensorone/clusters/{cluster['id']}", {"idle": True})
    advance(planned_project, hours=1)
    assert list_statuses(planned_project, "tensorone") == ["stopped"]
    assert planned_project.run("expire", "--yes").code == 0
    assert list_statuses(planned_project, "tensorone") == ["stopped"]
    assert planned_project.run("expire", "--yes", "--allow", "start-terminated").code == 0
    assert list_statuses(planned_project, "tensorone") == ["running"]


IDLE = "idle: {below: 5%, for: 6h}"


def change_cluster(planned_project: PlannedProject, **changes: Any) -> None:
    """Change the emulator's one cluster, or the reports about the cluster."""
    (cluster,) = call_emulator(planned_project, "objects")["tensorone"]["clusters"]
    call_emulator(planned_project, f"tensorone/clusters/{cluster['id']}", changes)


class TestIdle:
    @pytest.mark.slow
    def test_expire_stops_an_idle_cluster_and_up_keeps_it_stopped(
        self, declare_workbench: Any
    ) -> None:
        planned_project = declare_workbench(IDLE)
        assert planned_project.run("up", "--yes").code == 0
        advance(planned_project, hours=10)
        ran = planned_project.run("preview", "--expect-no-changes", "--refresh")
        assert "stops it once each of its GPUs is used below 5% for 6h" in ran.out
        busy = planned_project.run("expire", "--dry-run")
        assert busy.code == 0
        assert "workbench is not stopped as idle: used 87.3% now" in busy.out + busy.err

        change_cluster(planned_project, idle=True)
        advance(planned_project, hours=7)
        output = planned_project.run("status", "--refresh").out
        assert "the next `gpuform expire` stops it: idle: each GPU used below 5% for 6h" in output
        assert planned_project.run("refresh", "--yes", "--expect-no-changes").code == 0
        dry = planned_project.run("expire", "--dry-run")
        assert dry.code == 3
        assert 'state: "running" => "stopped"  # idle: each GPU used below 5% for 6h' in dry.out
        assert list_statuses(planned_project, "tensorone") == ["running"]
        done = planned_project.run("expire", "--yes")
        assert (done.code, done.err) == (0, "")
        assert list_statuses(planned_project, "tensorone") == ["stopped"]

        assert planned_project.run("expire", "--dry-run").code == 0
        drift = planned_project.run("drift", "--detailed-exitcode")
        assert drift.code == 0, drift.out
        next_up = planned_project.run("up", "--yes", "--refresh")
        assert 'state: stays "stopped": stopped by idleness, each GPU used below 5%' in next_up.out
        assert planned_project.run("up", "--yes").code == 0
        assert planned_project.run("refresh", "--yes", "--expect-no-changes").code == 0
        assert list_statuses(planned_project, "tensorone") == ["stopped"]
        assert planned_project.run("up", "--yes", "--allow", "start-terminated").code == 0
        assert list_statuses(planned_project, "tensorone") == ["running"]
        assert planned_project.run("expire", "--dry-run").code == 0, "it was started just now"

    @pytest.mark.slow
    def test_expire_does_not_stop_a_cluster_without_measurements(
        self, declare_workbench: Any
    ) -> None:
        planned_project = declare_workbench(IDLE)
        assert planned_project.run("up", "--yes").code == 0
        change_cluster(planned_project, idle=True)
        advance(planned_project, hours=7)
        assert planned_project.run("expire", "--dry-run").code == 3
        change_cluster(planned_project, hidden=["metrics"])
        silent = planned_project.run("expire", "--yes")
        assert silent.code == 0
        assert "not stopped as idle: the use of the GPUs is unknown" in silent.out + silent.err
        assert list_statuses(planned_project, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_a_removed_idle_setting_lets_up_start_the_cluster(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench(IDLE)
        assert planned_project.run("up", "--yes").code == 0
        change_cluster(planned_project, idle=True)
        advance(planned_project, hours=7)
        assert planned_project.run("expire", "--yes").code == 0
        declare_workbench()
        assert planned_project.run("up", "--yes").code == 0
        assert list_statuses(planned_project, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_expire_recovers_the_stop_of_a_killed_run(self, declare_workbench: Any) -> None:
        planned_project = declare_workbench(IDLE)
        assert planned_project.run("up", "--yes").code == 0
        change_cluster(planned_project, idle=True)
        advance(planned_project, hours=7)
        (state,) = planned_project.project.rglob("stacks/**/dev.json")
        before = state.read_bytes()
        assert planned_project.run("expire", "--yes").code == 0
        state.write_bytes(before)
        assert planned_project.run("expire", "--yes").code == 0
        next_up = planned_project.run("up", "--yes", "--refresh")
        assert (next_up.code, "stopped by idleness" in next_up.out) == (0, True), next_up.out
        assert list_statuses(planned_project, "tensorone") == ["stopped"]
