"""`gpuform expire`: what has ended goes, what has hours stops and starts, and nothing else happens.

Everything is at the emulator's clock, which tests move over real HTTP.
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


def control(planned_project: PlannedProject, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{planned_project.url}/_emulator/{path}", data)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def now(planned_project: PlannedProject) -> datetime:
    return datetime.fromtimestamp(control(planned_project, "clock")["now"], UTC)


def advance(planned_project: PlannedProject, **time: float) -> None:
    control(planned_project, "clock", {"advance": timedelta(**time).total_seconds()})


def to_the_hour(planned_project: PlannedProject, hour: int) -> None:
    """The next time that it is this hour in winter's Berlin, on a day without changes of clocks."""
    moment = now(planned_project)
    wanted = moment.replace(hour=hour - 1, minute=30)
    advance(planned_project, seconds=((wanted - moment).total_seconds()) % 86400)


def in_winter(planned_project: PlannedProject) -> None:
    """Where no clock is changed within the days that a test needs."""
    year = now(planned_project).year + 1
    wanted = datetime(year, 1, 10, tzinfo=UTC)
    advance(planned_project, seconds=(wanted - now(planned_project)).total_seconds())


def there(planned_project: PlannedProject, platform: str, kind: str = "clusters") -> list[str]:
    return [each["status"] for each in control(planned_project, "objects")[platform][kind]]


def writes(planned_project: PlannedProject) -> list[str]:
    seen = control(planned_project, "requests")
    return [f"{each['method']} {each['path']}" for each in seen if each["method"] != "GET"]


@pytest.fixture
def bench(planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A project with the workbench; called, it declares more of it.

    The emulated cluster is at work all the time: it may be ended all the same.
    """
    monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
    (planned_project.project / "__main__.py").write_text(
        "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    )
    in_winter(planned_project)

    def declare(*lines: str, team: str = "research") -> PlannedProject:
        more = "".join(f"    {line}\n" for line in lines)
        text = WORKBENCH.replace("TEAM", team) + more
        (planned_project.project / "topology.yaml").write_text(text)
        return planned_project

    return declare


class TestHours:
    @pytest.mark.slow
    def test_a_day(self, bench: Any) -> None:
        planned_project = bench(HOURS)
        to_the_hour(planned_project, 10)
        assert planned_project.run("up", "--yes").code == 0
        assert planned_project.run("expire", "--dry-run").code == 0, "it runs in its hours"

        to_the_hour(planned_project, 21)
        shown = planned_project.run("expire", "--dry-run")
        assert shown.code == 3
        assert '~ state: "running" => "stopped"  # outside its running hours' in shown.out
        assert there(planned_project, "tensorone") == ["running"], "nothing was done"
        done = planned_project.run("expire", "--yes")
        assert (done.code, done.err) == (0, "")
        assert there(planned_project, "tensorone") == ["stopped"]
        again = planned_project.run("expire", "--yes")
        assert (again.code, "1 unchanged" in again.out) == (0, True)

        # Stopped is as declared: no drift, and no up starts it, not even with other changes.
        assert planned_project.run("drift", "--detailed-exitcode").code == 0
        kept = planned_project.run("preview", "--expect-no-changes", "--refresh")
        assert kept.code == 0, kept.err
        assert 'state: stays "stopped": outside its running hours, until ' in kept.out
        bench(HOURS, team="platform")
        assert planned_project.run("up", "--yes").code == 0
        assert there(planned_project, "tensorone") == ["stopped"]
        assert planned_project.run("refresh", "--yes", "--expect-no-changes").code == 0

        advance(planned_project, hours=12)
        started = planned_project.run("expire", "--yes")
        assert '~ state: "stopped" => "running"  # its running hours have begun' in started.out
        assert there(planned_project, "tensorone") == ["running"]
        assert planned_project.run("preview", "--expect-no-changes", "--refresh").code == 0

    @pytest.mark.slow
    def test_up_starts_it_in_its_hours(self, bench: Any) -> None:
        planned_project = bench(HOURS)
        to_the_hour(planned_project, 21)
        assert planned_project.run("up", "--yes").code == 0
        assert there(planned_project, "tensorone") == ["running"], "who makes it wants to use it"
        assert planned_project.run("expire", "--yes").code == 0
        advance(planned_project, hours=12)
        assert planned_project.run("up", "--yes").code == 0
        assert there(planned_project, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_what_somebody_started_at_night_is_stopped(self, bench: Any) -> None:
        planned_project = bench(HOURS)
        to_the_hour(planned_project, 21)
        assert planned_project.run("up", "--yes").code == 0
        assert planned_project.run("expire", "--yes").code == 0
        (cluster,) = control(planned_project, "objects")["tensorone"]["clusters"]
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
        assert there(planned_project, "tensorone") == ["running"]
        assert planned_project.run("expire", "--yes").code == 0
        assert there(planned_project, "tensorone") == ["stopped"]

    def test_what_stays_stopped_has_no_hours(self, bench: Any) -> None:
        planned_project = bench(HOURS, "state: stopped")
        refused = planned_project.run("preview")
        assert refused.code == 1
        assert "conflicts with state stopped: remove one of the two" in refused.out

    @pytest.mark.slow
    def test_without_hours_nothing_is_asked(self, applied_project: PlannedProject) -> None:
        control(applied_project, "clock")
        before = len(applied_project.sent_changes)
        ran = applied_project.run("expire", "--yes")
        assert ran.code == 0
        assert "2 unchanged" in ran.out
        assert len(applied_project.sent_changes) == before

    def test_no_gate_on_cost_keeps_it_running(self, bench: Any) -> None:
        planned_project = bench(HOURS)
        to_the_hour(planned_project, 21)
        assert planned_project.run("up", "--yes", "--skip-preview").code == 0
        budget = "gates: {budget: {max_hourly_cost: {amount: 0.01, currency: USD}}}"
        (planned_project.project / "gates.yaml").write_text(budget)
        stopped = planned_project.run("expire", "--yes")
        assert (stopped.code, stopped.err) == (0, "")
        assert "unknown: workbench: 2 A100 GPUs, stopped: prices.yaml does not exist" in stopped.out
        assert there(planned_project, "tensorone") == ["stopped"]
        advance(planned_project, hours=12)
        started = planned_project.run("expire", "--yes")
        assert started.code == 5, "what starts is paid for"
        assert there(planned_project, "tensorone") == ["stopped"]


class TestEnds:
    @pytest.mark.slow
    def test_a_time_to_live(self, bench: Any) -> None:
        planned_project = bench("ttl: 8d")
        assert planned_project.run("up", "--yes").code == 0
        assert "Notes:" not in planned_project.run("preview").out
        advance(planned_project, days=2)
        told = "workbench: expires in 5d 23h, at "
        assert told in planned_project.run("preview").out
        assert told in planned_project.run("status").out
        notices = planned_project.run("status", "--json").json["notices"]
        assert [each["kind"] for each in notices] == ["expiry"]
        assert planned_project.run("expire", "--dry-run").code == 0

        advance(planned_project, days=6)
        assert "expired at" in planned_project.run("preview").out
        shown = planned_project.run("expire", "--dry-run")
        assert (shown.code, "delete: it has expired" in shown.out) == (3, True)
        assert planned_project.run("expire", "--yes").code == 0
        assert there(planned_project, "tensorone") == []

        refused = planned_project.run("up", "--yes")
        assert refused.code == 1
        assert "when its ttl of 8d was over" in refused.out
        assert "--allow renew-expired" in refused.out
        assert planned_project.run("preview", "--allow", "renew-expired").code == 0
        bench("ttl: 9d")
        assert planned_project.run("preview").code == 0, "another ttl is another declaration"
        bench("ttl: 8d")
        assert planned_project.run("up", "--yes", "--allow", "renew-expired").code == 0
        assert there(planned_project, "tensorone") == ["running"]
        assert planned_project.run("expire", "--dry-run").code == 0, "it counts anew"
        assert planned_project.run("destroy", "--yes").code == 0
        assert planned_project.run("preview").code == 0, (
            "what was destroyed otherwise has not expired"
        )

    @pytest.mark.slow
    def test_a_date(self, bench: Any) -> None:
        planned_project = bench()
        day = (now(planned_project) + timedelta(days=1)).date()
        bench(f"expires: {day}")
        assert planned_project.run("up", "--yes").code == 0
        advance(planned_project, days=1)
        assert planned_project.run("expire", "--dry-run").code == 0, "the day itself is not over"
        advance(planned_project, days=1)
        later = (day + timedelta(days=30)).isoformat()
        bench(f"expires: {later}")
        longer = planned_project.run("up", "--yes")
        assert (
            f'~ expires: "{day}" => "{later}"  # a setting of gpuform: nothing is sent'
            in longer.out
        )
        assert planned_project.run("expire", "--dry-run").code == 0
        advance(planned_project, days=31)
        assert planned_project.run("expire", "--yes").code == 0
        refused = planned_project.run("preview")
        assert refused.code == 1
        assert "declare a later end, or remove the resource" in refused.out
        assert writes(planned_project)[-1].startswith("DELETE ")

    @pytest.mark.slow
    def test_a_change_of_the_end_sends_nothing(self, bench: Any) -> None:
        planned_project = bench("ttl: 8d")
        assert planned_project.run("up", "--yes").code == 0
        before = writes(planned_project)
        bench("ttl: 9d", HOURS)
        assert planned_project.run("up", "--yes").code == 0
        bench()
        assert planned_project.run("up", "--yes").code == 0
        assert writes(planned_project) == before
        advance(planned_project, days=20)
        assert planned_project.run("expire", "--dry-run").code == 0, "it has no end any more"

    @pytest.mark.slow
    def test_what_is_protected_or_needed_stays(self, planned_project: PlannedProject) -> None:
        let_train_end(planned_project, "    opts=pulumi.ResourceOptions(protect=True),\n")
        assert planned_project.run("up", "--yes").code == 0
        advance(planned_project, days=2)
        refused = planned_project.run("expire", "--yes")
        assert refused.code == 1
        assert "is protected and cannot be deleted" in refused.out
        assert len(there(planned_project, "together")) == 1
        assert planned_project.run("state", "unprotect", "train", "--yes").code == 0
        done = planned_project.run("expire", "--yes")
        assert done.code == 0, done.out
        assert there(planned_project, "together") == []
        assert len(there(planned_project, "together", "volumes")) == 1, "the volume has no end"

    @pytest.mark.slow
    def test_gates_are_asked(self, bench: Any) -> None:
        planned_project = bench("ttl: 1d")
        assert planned_project.run("up", "--yes").code == 0
        (planned_project.project / "gates.yaml").write_text(
            "gates:\n  keep: {protected: ['work*']}\n"
        )
        advance(planned_project, days=2)
        assert planned_project.run("expire", "--yes").code == 5
        assert there(planned_project, "tensorone") == ["running"]
        assert planned_project.run("expire", "--yes", "--allow", "gate:keep").code == 0

    def test_the_plan_and_its_reviews_tell_it(self, bench: Any) -> None:
        planned_project = bench("ttl: 1d")
        assert planned_project.run("up", "--yes").code == 0
        assert planned_project.run("preview", "--save-plan", "plan.json").code == 0
        (notice,) = json.loads((planned_project.project / "plan.json").read_text())["notices"]
        assert (notice["kind"], notice["name"]) == ("expiry", "workbench")
        for form in ("text", "markdown", "github", "gitlab", "html"):
            told = planned_project.run("review", "plan.json", "--format", form).out
            assert "Notes:" in told, form
            assert "workbench: expires in" in told, form

    def test_it_wants_an_answer(self, bench: Any) -> None:
        planned_project = bench("ttl: 1d")
        refused = planned_project.run("expire")
        assert refused.code == 1
        assert "requires a confirmation" in refused.err
        assert planned_project.run("expire", "--json").code == 2

    @pytest.mark.slow
    def test_json(self, bench: Any) -> None:
        planned_project = bench("ttl: 1d")
        assert planned_project.run("up", "--yes").code == 0
        advance(planned_project, days=2)
        shown = planned_project.run("expire", "--dry-run", "--json")
        assert shown.code == 3
        assert shown.json["changeSummary"] == {"delete": 1, "same": 1}  # the stack
        assert planned_project.run("expire", "--yes", "--json").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_gate_knows_these_ends(bench: Any) -> None:
    planned_project = bench()
    (planned_project.project / "gates.yaml").write_text("gates:\n  ends: {expiry_required: true}\n")
    assert planned_project.run("preview").code == 5
    for end in ("ttl: 14d", "expires: 9000-01-01"):
        bench(end)
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


def let_train_end(planned_project: PlannedProject, more: str = "", others: str = "") -> None:
    """The program's cluster lives for a day; `others` are resources beside it."""
    file = planned_project.project / "__main__.py"
    text = file.read_text().replace(VOLUME, f'{VOLUME}    ttl="1d",\n{more}')
    file.write_text(text.replace('print("hello', others + 'print("hello'))


@pytest.mark.slow
def test_what_needs_something_that_has_expired(planned_project: PlannedProject) -> None:
    let_train_end(planned_project, others=OTHERS)
    assert planned_project.run("up", "--yes").code == 0
    advance(planned_project, days=2)
    refused = planned_project.run("expire", "--yes")
    assert refused.code == 1
    assert "::second would be deleted, but is not among the targets" in refused.out
    assert "--target-dependents" in refused.out
    assert len(there(planned_project, "together")) == 3, "nothing was begun"
    done = planned_project.run("expire", "--yes", "--target-dependents")
    assert done.code == 0, done.out
    assert there(planned_project, "together") == ["Ready"], "the one that stands alone"


@pytest.mark.slow
def test_it_needs_no_program(planned_project: PlannedProject) -> None:
    let_train_end(planned_project)
    assert planned_project.run("up", "--yes").code == 0
    (planned_project.project / "__main__.py").write_text("raise SystemExit('it was run')\n")
    advance(planned_project, days=2)
    assert planned_project.run("expire", "--yes").code == 0
    assert there(planned_project, "together") == []


@pytest.mark.slow
def test_what_its_own_limit_has_stopped_stays_so(bench: Any) -> None:
    planned_project = bench(HOURS, "auto_terminate: {enabled: true, idle_minutes: 30}")
    to_the_hour(planned_project, 10)
    assert planned_project.run("up", "--yes").code == 0
    (cluster,) = control(planned_project, "objects")["tensorone"]["clusters"]
    control(planned_project, f"tensorone/clusters/{cluster['id']}", {"idle": True})
    advance(planned_project, hours=1)
    assert there(planned_project, "tensorone") == ["stopped"]
    assert planned_project.run("expire", "--yes").code == 0
    assert there(planned_project, "tensorone") == ["stopped"]
    assert planned_project.run("expire", "--yes", "--allow", "start-terminated").code == 0
    assert there(planned_project, "tensorone") == ["running"]


IDLE = "idle: {below: 5%, for: 6h}"


def change(planned_project: PlannedProject, **what: Any) -> None:
    """The emulator's one cluster changes, or what is told of it."""
    (cluster,) = control(planned_project, "objects")["tensorone"]["clusters"]
    control(planned_project, f"tensorone/clusters/{cluster['id']}", what)


class TestIdle:
    @pytest.mark.slow
    def test_what_is_idle_is_stopped_and_stays_so(self, bench: Any) -> None:
        planned_project = bench(IDLE)
        assert planned_project.run("up", "--yes").code == 0
        advance(planned_project, hours=10)
        shown = planned_project.run("preview", "--expect-no-changes", "--refresh")
        assert "stops it once each of its GPUs is used below 5% for 6h" in shown.out
        busy = planned_project.run("expire", "--dry-run")
        assert busy.code == 0
        assert "workbench is not stopped as idle: used 87.3% now" in busy.out + busy.err

        change(planned_project, idle=True)
        advance(planned_project, hours=7)
        told = planned_project.run("status", "--refresh").out
        assert "the next `gpuform expire` stops it: idle: each GPU used below 5% for 6h" in told
        assert planned_project.run("refresh", "--yes", "--expect-no-changes").code == 0
        dry = planned_project.run("expire", "--dry-run")
        assert dry.code == 3
        assert 'state: "running" => "stopped"  # idle: each GPU used below 5% for 6h' in dry.out
        assert there(planned_project, "tensorone") == ["running"]
        done = planned_project.run("expire", "--yes")
        assert (done.code, done.err) == (0, "")
        assert there(planned_project, "tensorone") == ["stopped"]

        assert planned_project.run("expire", "--dry-run").code == 0
        drift = planned_project.run("drift", "--detailed-exitcode")
        assert drift.code == 0, drift.out
        kept = planned_project.run("up", "--yes", "--refresh")
        assert 'state: stays "stopped": stopped by idleness, each GPU used below 5%' in kept.out
        assert planned_project.run("up", "--yes").code == 0
        assert planned_project.run("refresh", "--yes", "--expect-no-changes").code == 0
        assert there(planned_project, "tensorone") == ["stopped"]
        assert planned_project.run("up", "--yes", "--allow", "start-terminated").code == 0
        assert there(planned_project, "tensorone") == ["running"]
        assert planned_project.run("expire", "--dry-run").code == 0, "it was started just now"

    @pytest.mark.slow
    def test_what_is_busy_again_after_the_preview_runs_on(self, bench: Any) -> None:
        planned_project = bench(IDLE)
        assert planned_project.run("up", "--yes").code == 0
        change(planned_project, idle=True)
        advance(planned_project, hours=7)
        assert planned_project.run("expire", "--dry-run").code == 3
        change(planned_project, hidden=["metrics"])
        silent = planned_project.run("expire", "--yes")
        assert silent.code == 0
        assert "not stopped as idle: the use of the GPUs is unknown" in silent.out + silent.err
        assert there(planned_project, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_without_idle_it_starts_again(self, bench: Any) -> None:
        planned_project = bench(IDLE)
        assert planned_project.run("up", "--yes").code == 0
        change(planned_project, idle=True)
        advance(planned_project, hours=7)
        assert planned_project.run("expire", "--yes").code == 0
        bench()
        assert planned_project.run("up", "--yes").code == 0
        assert there(planned_project, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_a_run_that_was_killed_is_known_to_the_next(self, bench: Any) -> None:
        planned_project = bench(IDLE)
        assert planned_project.run("up", "--yes").code == 0
        change(planned_project, idle=True)
        advance(planned_project, hours=7)
        (state,) = planned_project.project.rglob("stacks/**/dev.json")
        before = state.read_bytes()
        assert planned_project.run("expire", "--yes").code == 0
        state.write_bytes(before)
        assert planned_project.run("expire", "--yes").code == 0
        kept = planned_project.run("up", "--yes", "--refresh")
        assert (kept.code, "stopped by idleness" in kept.out) == (0, True), kept.out
        assert there(planned_project, "tensorone") == ["stopped"]
