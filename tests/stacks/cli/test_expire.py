"""`gpuform expire`: what has ended goes, what has hours stops and starts, and nothing else happens.

Everything is at the emulator's clock, which tests move over real HTTP.
"""

import json
import os
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from plan_scenes import PlannedProject

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


def control(scene: PlannedProject, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{scene.url}/_emulator/{path}", data)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def now(scene: PlannedProject) -> datetime:
    return datetime.fromtimestamp(control(scene, "clock")["now"], UTC)


def advance(scene: PlannedProject, **time: float) -> None:
    control(scene, "clock", {"advance": timedelta(**time).total_seconds()})


def to_the_hour(scene: PlannedProject, hour: int) -> None:
    """The next time that it is this hour in winter's Berlin, on a day without changes of clocks."""
    moment = now(scene)
    wanted = moment.replace(hour=hour - 1, minute=30)
    advance(scene, seconds=((wanted - moment).total_seconds()) % 86400)


def in_winter(scene: PlannedProject) -> None:
    """Where no clock is changed within the days that a test needs."""
    year = now(scene).year + 1
    wanted = datetime(year, 1, 10, tzinfo=UTC)
    advance(scene, seconds=(wanted - now(scene)).total_seconds())


def there(scene: PlannedProject, platform: str, kind: str = "clusters") -> list[str]:
    return [each["status"] for each in control(scene, "objects")[platform][kind]]


def writes(scene: PlannedProject) -> list[str]:
    seen = control(scene, "requests")
    return [f"{each['method']} {each['path']}" for each in seen if each["method"] != "GET"]


@pytest.fixture
def bench(scene: PlannedProject, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A project with the workbench; called, it declares more of it.

    The emulated cluster is at work all the time: it may be ended all the same.
    """
    monkeypatch.setenv("GPUFORM_ALLOW", "evict-jobs")
    (scene.project / "__main__.py").write_text(
        "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    )
    in_winter(scene)

    def declare(*lines: str, team: str = "research") -> PlannedProject:
        more = "".join(f"    {line}\n" for line in lines)
        text = WORKBENCH.replace("TEAM", team) + more
        (scene.project / "topology.yaml").write_text(text)
        return scene

    return declare


class TestHours:
    @pytest.mark.slow
    def test_a_day(self, bench: Any) -> None:
        scene = bench(HOURS)
        to_the_hour(scene, 10)
        assert scene.run("up", "--yes").code == 0
        assert scene.run("expire", "--dry-run").code == 0, "it runs in its hours"

        to_the_hour(scene, 21)
        shown = scene.run("expire", "--dry-run")
        assert shown.code == 3
        assert '~ state: "running" => "stopped"  # outside its running hours' in shown.out
        assert there(scene, "tensorone") == ["running"], "nothing was done"
        done = scene.run("expire", "--yes")
        assert (done.code, done.err) == (0, "")
        assert there(scene, "tensorone") == ["stopped"]
        again = scene.run("expire", "--yes")
        assert (again.code, "1 unchanged" in again.out) == (0, True)

        # Stopped is as declared: no drift, and no up starts it, not even with other changes.
        assert scene.run("drift", "--detailed-exitcode").code == 0
        kept = scene.run("preview", "--expect-no-changes", "--refresh")
        assert kept.code == 0, kept.err
        assert 'state: stays "stopped": outside its running hours, until ' in kept.out
        bench(HOURS, team="platform")
        assert scene.run("up", "--yes").code == 0
        assert there(scene, "tensorone") == ["stopped"]
        assert scene.run("refresh", "--yes", "--expect-no-changes").code == 0

        advance(scene, hours=12)
        started = scene.run("expire", "--yes")
        assert '~ state: "stopped" => "running"  # its running hours have begun' in started.out
        assert there(scene, "tensorone") == ["running"]
        assert scene.run("preview", "--expect-no-changes", "--refresh").code == 0

    @pytest.mark.slow
    def test_up_starts_it_in_its_hours(self, bench: Any) -> None:
        scene = bench(HOURS)
        to_the_hour(scene, 21)
        assert scene.run("up", "--yes").code == 0
        assert there(scene, "tensorone") == ["running"], "who makes it wants to use it"
        assert scene.run("expire", "--yes").code == 0
        advance(scene, hours=12)
        assert scene.run("up", "--yes").code == 0
        assert there(scene, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_what_somebody_started_at_night_is_stopped(self, bench: Any) -> None:
        scene = bench(HOURS)
        to_the_hour(scene, 21)
        assert scene.run("up", "--yes").code == 0
        assert scene.run("expire", "--yes").code == 0
        (cluster,) = control(scene, "objects")["tensorone"]["clusters"]
        request = urllib.request.Request(
            f"{scene.url}/tensorone/v1/clusters/{cluster['id']}/start",
            b"{}",
            {
                "Authorization": f"Bearer {os.environ['TENSORONE_API_KEY']}",
                "Content-Type": "application/json",
            },
        )
        urllib.request.urlopen(request).close()
        advance(scene, minutes=10)
        assert there(scene, "tensorone") == ["running"]
        assert scene.run("expire", "--yes").code == 0
        assert there(scene, "tensorone") == ["stopped"]

    def test_what_stays_stopped_has_no_hours(self, bench: Any) -> None:
        scene = bench(HOURS, "state: stopped")
        refused = scene.run("preview")
        assert refused.code == 1
        assert "conflicts with state stopped: remove one of the two" in refused.out

    @pytest.mark.slow
    def test_without_hours_nothing_is_asked(self, made: PlannedProject) -> None:
        control(made, "clock")
        before = len(made.sent_changes)
        ran = made.run("expire", "--yes")
        assert ran.code == 0
        assert "2 unchanged" in ran.out
        assert len(made.sent_changes) == before

    def test_no_gate_on_cost_keeps_it_running(self, bench: Any) -> None:
        scene = bench(HOURS)
        to_the_hour(scene, 21)
        assert scene.run("up", "--yes", "--skip-preview").code == 0
        budget = "gates: {budget: {max_hourly_cost: {amount: 0.01, currency: USD}}}"
        (scene.project / "gates.yaml").write_text(budget)
        stopped = scene.run("expire", "--yes")
        assert (stopped.code, stopped.err) == (0, "")
        assert "unknown: workbench: 2 A100 GPUs, stopped: there is no prices.yaml" in stopped.out
        assert there(scene, "tensorone") == ["stopped"]
        advance(scene, hours=12)
        started = scene.run("expire", "--yes")
        assert started.code == 5, "what starts is paid for"
        assert there(scene, "tensorone") == ["stopped"]


class TestEnds:
    @pytest.mark.slow
    def test_a_time_to_live(self, bench: Any) -> None:
        scene = bench("ttl: 8d")
        assert scene.run("up", "--yes").code == 0
        assert "To know" not in scene.run("preview").out
        advance(scene, days=2)
        told = "workbench: expires in 5d 23h, at "
        assert told in scene.run("preview").out
        assert told in scene.run("status").out
        notices = scene.run("status", "--json").json["notices"]
        assert [each["kind"] for each in notices] == ["expiry"]
        assert scene.run("expire", "--dry-run").code == 0

        advance(scene, days=6)
        assert "expired at" in scene.run("preview").out
        shown = scene.run("expire", "--dry-run")
        assert (shown.code, "delete: it has expired" in shown.out) == (3, True)
        assert scene.run("expire", "--yes").code == 0
        assert there(scene, "tensorone") == []

        refused = scene.run("up", "--yes")
        assert refused.code == 1
        assert "when its ttl of 8d was over" in refused.out
        assert "--allow renew-expired" in refused.out
        assert scene.run("preview", "--allow", "renew-expired").code == 0
        bench("ttl: 9d")
        assert scene.run("preview").code == 0, "another ttl is another declaration"
        bench("ttl: 8d")
        assert scene.run("up", "--yes", "--allow", "renew-expired").code == 0
        assert there(scene, "tensorone") == ["running"]
        assert scene.run("expire", "--dry-run").code == 0, "it counts anew"
        assert scene.run("destroy", "--yes").code == 0
        assert scene.run("preview").code == 0, "what was destroyed otherwise has not expired"

    @pytest.mark.slow
    def test_a_date(self, bench: Any) -> None:
        scene = bench()
        day = (now(scene) + timedelta(days=1)).date()
        bench(f"expires: {day}")
        assert scene.run("up", "--yes").code == 0
        advance(scene, days=1)
        assert scene.run("expire", "--dry-run").code == 0, "the day itself is not over"
        advance(scene, days=1)
        later = (day + timedelta(days=30)).isoformat()
        bench(f"expires: {later}")
        longer = scene.run("up", "--yes")
        assert (
            f'~ expires: "{day}" => "{later}"  # a setting of gpuform: nothing is sent'
            in longer.out
        )
        assert scene.run("expire", "--dry-run").code == 0
        advance(scene, days=31)
        assert scene.run("expire", "--yes").code == 0
        refused = scene.run("preview")
        assert refused.code == 1
        assert "declare a later end, or remove the resource" in refused.out
        assert writes(scene)[-1].startswith("DELETE ")

    @pytest.mark.slow
    def test_a_change_of_the_end_sends_nothing(self, bench: Any) -> None:
        scene = bench("ttl: 8d")
        assert scene.run("up", "--yes").code == 0
        before = writes(scene)
        bench("ttl: 9d", HOURS)
        assert scene.run("up", "--yes").code == 0
        bench()
        assert scene.run("up", "--yes").code == 0
        assert writes(scene) == before
        advance(scene, days=20)
        assert scene.run("expire", "--dry-run").code == 0, "it has no end any more"

    @pytest.mark.slow
    def test_what_is_protected_or_needed_stays(self, scene: PlannedProject) -> None:
        let_train_end(scene, "    opts=pulumi.ResourceOptions(protect=True),\n")
        assert scene.run("up", "--yes").code == 0
        advance(scene, days=2)
        refused = scene.run("expire", "--yes")
        assert refused.code == 1
        assert "is protected and cannot be deleted" in refused.out
        assert len(there(scene, "together")) == 1
        assert scene.run("state", "unprotect", "train", "--yes").code == 0
        done = scene.run("expire", "--yes")
        assert done.code == 0, done.out
        assert there(scene, "together") == []
        assert len(there(scene, "together", "volumes")) == 1, "the volume has no end"

    @pytest.mark.slow
    def test_gates_are_asked(self, bench: Any) -> None:
        scene = bench("ttl: 1d")
        assert scene.run("up", "--yes").code == 0
        (scene.project / "gates.yaml").write_text("gates:\n  keep: {protected: ['work*']}\n")
        advance(scene, days=2)
        assert scene.run("expire", "--yes").code == 5
        assert there(scene, "tensorone") == ["running"]
        assert scene.run("expire", "--yes", "--allow", "gate:keep").code == 0

    def test_the_plan_and_its_reviews_tell_it(self, bench: Any) -> None:
        scene = bench("ttl: 1d")
        assert scene.run("up", "--yes").code == 0
        assert scene.run("preview", "--save-plan", "plan.json").code == 0
        (notice,) = json.loads((scene.project / "plan.json").read_text())["notices"]
        assert (notice["kind"], notice["name"]) == ("expiry", "workbench")
        for form in ("text", "markdown", "github", "gitlab", "html"):
            told = scene.run("review", "plan.json", "--format", form).out
            assert "To know" in told, form
            assert "workbench: expires in" in told, form

    def test_it_wants_an_answer(self, bench: Any) -> None:
        scene = bench("ttl: 1d")
        refused = scene.run("expire")
        assert refused.code == 1
        assert "asks before it changes anything" in refused.err
        assert scene.run("expire", "--json").code == 2

    @pytest.mark.slow
    def test_json(self, bench: Any) -> None:
        scene = bench("ttl: 1d")
        assert scene.run("up", "--yes").code == 0
        advance(scene, days=2)
        shown = scene.run("expire", "--dry-run", "--json")
        assert shown.code == 3
        assert shown.json["changeSummary"] == {"delete": 1, "same": 1}  # the stack
        assert scene.run("expire", "--yes", "--json").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_gate_knows_these_ends(bench: Any) -> None:
    scene = bench()
    (scene.project / "gates.yaml").write_text("gates:\n  ends: {expiry_required: true}\n")
    assert scene.run("preview").code == 5
    for end in ("ttl: 14d", "expires: 9000-01-01"):
        bench(end)
        assert scene.run("preview").code == 0, end


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


def let_train_end(scene: PlannedProject, more: str = "", others: str = "") -> None:
    """The program's cluster lives for a day; `others` are resources beside it."""
    file = scene.project / "__main__.py"
    text = file.read_text().replace(VOLUME, f'{VOLUME}    ttl="1d",\n{more}')
    file.write_text(text.replace('print("hello', others + 'print("hello'))


@pytest.mark.slow
def test_what_needs_something_that_has_expired(scene: PlannedProject) -> None:
    let_train_end(scene, others=OTHERS)
    assert scene.run("up", "--yes").code == 0
    advance(scene, days=2)
    refused = scene.run("expire", "--yes")
    assert refused.code == 1
    assert "::second would be deleted, and is not among the targets" in refused.out
    assert "--target-dependents" in refused.out
    assert len(there(scene, "together")) == 3, "nothing was begun"
    done = scene.run("expire", "--yes", "--target-dependents")
    assert done.code == 0, done.out
    assert there(scene, "together") == ["Ready"], "the one that stands alone"


@pytest.mark.slow
def test_it_needs_no_program(scene: PlannedProject) -> None:
    let_train_end(scene)
    assert scene.run("up", "--yes").code == 0
    (scene.project / "__main__.py").write_text("raise SystemExit('it was run')\n")
    advance(scene, days=2)
    assert scene.run("expire", "--yes").code == 0
    assert there(scene, "together") == []


@pytest.mark.slow
def test_what_its_own_limit_has_stopped_stays_so(bench: Any) -> None:
    scene = bench(HOURS, "auto_terminate: {enabled: true, idle_minutes: 30}")
    to_the_hour(scene, 10)
    assert scene.run("up", "--yes").code == 0
    (cluster,) = control(scene, "objects")["tensorone"]["clusters"]
    control(scene, f"tensorone/clusters/{cluster['id']}", {"idle": True})
    advance(scene, hours=1)
    assert there(scene, "tensorone") == ["stopped"]
    assert scene.run("expire", "--yes").code == 0
    assert there(scene, "tensorone") == ["stopped"]
    assert scene.run("expire", "--yes", "--allow", "start-terminated").code == 0
    assert there(scene, "tensorone") == ["running"]


IDLE = "idle: {below: 5%, for: 6h}"


def change(scene: PlannedProject, **what: Any) -> None:
    """The emulator's one cluster changes, or what is told of it."""
    (cluster,) = control(scene, "objects")["tensorone"]["clusters"]
    control(scene, f"tensorone/clusters/{cluster['id']}", what)


class TestIdle:
    @pytest.mark.slow
    def test_what_is_idle_is_stopped_and_stays_so(self, bench: Any) -> None:
        scene = bench(IDLE)
        assert scene.run("up", "--yes").code == 0
        advance(scene, hours=10)
        shown = scene.run("preview", "--expect-no-changes", "--refresh")
        assert "stops it once each of its GPUs is used below 5% for 6h" in shown.out
        busy = scene.run("expire", "--dry-run")
        assert busy.code == 0
        assert "workbench is not stopped as idle: used 87.3% now" in busy.out + busy.err

        change(scene, idle=True)
        advance(scene, hours=7)
        told = scene.run("status", "--refresh").out
        assert "the next `gpuform expire` stops it: idle: each GPU used below 5% for 6h" in told
        assert scene.run("refresh", "--yes", "--expect-no-changes").code == 0
        dry = scene.run("expire", "--dry-run")
        assert dry.code == 3
        assert 'state: "running" => "stopped"  # idle: each GPU used below 5% for 6h' in dry.out
        assert there(scene, "tensorone") == ["running"]
        done = scene.run("expire", "--yes")
        assert (done.code, done.err) == (0, "")
        assert there(scene, "tensorone") == ["stopped"]

        assert scene.run("expire", "--dry-run").code == 0
        drift = scene.run("drift", "--detailed-exitcode")
        assert drift.code == 0, drift.out
        kept = scene.run("up", "--yes", "--refresh")
        assert 'state: stays "stopped": stopped by idleness, each GPU used below 5%' in kept.out
        assert scene.run("up", "--yes").code == 0
        assert scene.run("refresh", "--yes", "--expect-no-changes").code == 0
        assert there(scene, "tensorone") == ["stopped"]
        assert scene.run("up", "--yes", "--allow", "start-terminated").code == 0
        assert there(scene, "tensorone") == ["running"]
        assert scene.run("expire", "--dry-run").code == 0, "it was started just now"

    @pytest.mark.slow
    def test_what_is_busy_again_after_the_preview_runs_on(self, bench: Any) -> None:
        scene = bench(IDLE)
        assert scene.run("up", "--yes").code == 0
        change(scene, idle=True)
        advance(scene, hours=7)
        assert scene.run("expire", "--dry-run").code == 3
        change(scene, hidden=["metrics"])
        silent = scene.run("expire", "--yes")
        assert silent.code == 0
        assert "not stopped as idle: its use is unknown" in silent.out + silent.err
        assert there(scene, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_without_idle_it_starts_again(self, bench: Any) -> None:
        scene = bench(IDLE)
        assert scene.run("up", "--yes").code == 0
        change(scene, idle=True)
        advance(scene, hours=7)
        assert scene.run("expire", "--yes").code == 0
        bench()
        assert scene.run("up", "--yes").code == 0
        assert there(scene, "tensorone") == ["running"]

    @pytest.mark.slow
    def test_a_run_that_was_killed_is_known_to_the_next(self, bench: Any) -> None:
        scene = bench(IDLE)
        assert scene.run("up", "--yes").code == 0
        change(scene, idle=True)
        advance(scene, hours=7)
        (state,) = scene.project.rglob("stacks/**/dev.json")
        before = state.read_bytes()
        assert scene.run("expire", "--yes").code == 0
        state.write_bytes(before)
        assert scene.run("expire", "--yes").code == 0
        kept = scene.run("up", "--yes", "--refresh")
        assert (kept.code, "stopped by idleness" in kept.out) == (0, True), kept.out
        assert there(scene, "tensorone") == ["stopped"]
