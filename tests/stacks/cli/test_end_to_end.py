"""The commands over the engine, the providers and an emulator, in this process."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

Run = Any
KUBECONFIG = "client-certificate-data"


@pytest.fixture
def run_applied(dev: Run) -> Run:
    """Return the commands of a project whose cluster and volume exist."""
    ran = dev("up", "--emulate", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    return dev


@pytest.mark.slow
def test_up_creates_and_destroy_deletes_everything(dev: Run, project: Path) -> None:
    first = dev("up", "--emulate", "--yes")
    assert first.code == 0
    assert first.err == ""
    out = first.out
    assert out.index("Previewing update (dev, emulated):") < out.index("Updating (dev, emulated):")
    assert "volume_name: " in out
    assert "    + 2 to create" in out
    assert "GPUs: +16 to add" in out
    assert "+  train  together:Cluster  creating: InstallingDrivers (" in out
    assert "+  train  together:Cluster  created in 20m" in out
    assert "kubeconfig: [secret]" in out
    assert 'place:      {region: "us-central-8", token: [secret]}' in out
    assert "    + 2 created" in out
    assert "by the platform's clock" in out
    assert "hello from the program" in out
    assert "hunter2" not in out

    assert dev("preview", "--emulate", "--expect-no-changes").code == 0
    assert dev("refresh", "--emulate", "--yes", "--expect-no-changes").code == 0
    assert "2 unchanged" in dev("preview", "--emulate", "--expect-no-changes", "--refresh").out

    gone = dev("destroy", "--emulate", "--yes")
    assert gone.code == 0
    done = gone.out.partition("Destroying (dev, emulated):")[2]
    assert done.index("train  together:Cluster  deleted") < done.index("data  together")
    assert "GPUs: -16 to remove" in gone.out
    assert "gpuform stack rm dev" in gone.out
    assert dev("stack", "rm", "dev", "--yes").code == 0
    assert not (project / "Pulumi.dev.yaml").exists()


@pytest.mark.slow
def test_an_update_in_place_fails_expect_no_changes(run_applied: Run) -> None:
    run_applied("config", "set", "gpus", "24")
    expected = run_applied("preview", "--emulate", "--expect-no-changes")
    assert expected.code == 7
    assert "no changes were expected for preview but changes were proposed" in expected.err
    assert "   ~ num_gpus: 16 => 24\n" in expected.out
    done = run_applied("up", "--emulate", "--yes", "--expect-no-changes")
    assert done.code == 7
    assert "    ~ 1 updated" in done.out
    assert run_applied("preview", "--emulate", "--expect-no-changes").code == 0


@pytest.mark.slow
def test_a_replacement_names_its_field(run_applied: Run) -> None:
    run_applied("config", "set", "type", "H200_SXM")
    out = run_applied("preview", "--emulate").out
    assert "+- train  together:Cluster  replace: gpu_type cannot be changed in place" in out
    assert '   ~ gpu_type: "H100_SXM" => "H200_SXM"  # forces replacement\n' in out
    assert "GPUs: +16 to add, -16 to remove" in out


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_stack_with_resources_is_not_removed(run_applied: Run) -> None:
    ran = run_applied("stack", "rm", "dev", "--yes")
    assert ran.code == 1
    assert "still has 2 resources" in ran.err
    assert "gpuform destroy" in ran.err


def test_preview_json_has_steps_without_secrets(dev: Run) -> None:
    ran = dev("preview", "--emulate", "--json")
    assert ran.code == 0
    document = ran.json
    assert document["changeSummary"] == {"create": 3}
    assert [step["op"] for step in document["steps"]] == ["create"] * 3
    assert document["steps"][2]["newState"]["inputs"]["num_gpus"] == 16
    assert "hunter2" not in ran.out
    assert any(d["message"] == "hello from the program" for d in document["diagnostics"])


def test_up_json_streams_events_without_secrets(dev: Run, project: Path) -> None:
    ran = dev("up", "--emulate", "--yes", "--skip-preview", "--json", "--event-log", "log.jsonl")
    assert ran.code == 0
    events = ran.lines
    assert [e["sequence"] for e in events] == list(range(len(events)))
    assert "preludeEvent" in events[0]
    assert "cancelEvent" in events[-1]
    assert events[-2]["summaryEvent"]["resourceChanges"] == {"create": 3}
    done = [e["resOutputsEvent"]["metadata"] for e in events if "resOutputsEvent" in e]
    assert [d["urn"].rsplit("::", 1)[1] for d in done][-1] == "demo-dev"
    assert "hunter2" not in ran.out
    assert KUBECONFIG not in ran.out
    logged = [json.loads(line) for line in (project / "log.jsonl").read_text().splitlines()]
    assert [list(e)[2] for e in logged] == [list(e)[2] for e in events]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_preview_s_events_come_first(run_applied: Run) -> None:
    events = run_applied("up", "--emulate", "--yes", "--json").lines
    assert [e["sequence"] for e in events] == list(range(len(events)))
    summaries = [e["summaryEvent"]["isPreview"] for e in events if "summaryEvent" in e]
    assert summaries == [True, False]


def test_emulate_fails_if_its_store_cannot_be_created(dev: Run, project: Path) -> None:
    (project / ".gpuform").write_text("a file where the folder should be")
    ran = dev("preview", "--emulate")
    assert ran.code == 1
    assert "cannot be created" in ran.err


def test_a_failed_preview_stops_up(dev: Run, project: Path) -> None:
    dev("config", "set", "gpus", "12")
    ran = dev("up", "--emulate", "--yes")
    assert ran.code == 1
    assert "The preview failed; nothing was changed." in ran.out
    assert "Updating" not in ran.out
    assert "together:Cluster (train):" in ran.out
    assert "num_gpus" in ran.out
    assert dev("preview", "--emulate", "--json").code == 1


def test_a_program_error_is_shown_without_gpuforms_frames(dev: Run, project: Path) -> None:
    (project / "__main__.py").write_text("raise RuntimeError('out of luck')\n")
    ran = dev("preview", "--emulate")
    assert ran.code == 1
    assert "RuntimeError: out of luck" in ran.out
    assert "gpuform/stacks" not in ran.out


def test_a_failed_update_says_what_to_do_next(dev: Run) -> None:
    ran = dev("up", "--yes", "--skip-preview")
    assert ran.code == 1
    assert "TOGETHER_API_KEY" in ran.out
    assert "    1 errored" in ran.out
    assert "run `gpuform up` again" in ran.out


def test_a_preview_without_a_key_lists_skipped_checks(dev: Run) -> None:
    ran = dev("preview")
    assert ran.code == 0
    assert "Not checked:" in ran.out
    assert "TOGETHER_API_KEY" in ran.out


@pytest.mark.slow
@pytest.mark.usefixtures("terminal")
def test_up_and_destroy_ask_before_they_change_something(dev: Run) -> None:
    declined = dev("up", "--emulate", answers="no\n")
    assert declined.code == 1
    assert "Perform this update?" in declined.out
    assert "Nothing was changed." in declined.out
    assert dev("up", "--emulate", answers="yes\n").code == 0
    unasked = dev("up", "--emulate")
    assert unasked.code == 0
    assert "Perform" not in unasked.out
    wrong = dev("destroy", "--emulate", answers="yes\nno\n")
    assert wrong.code == 1
    assert "deletes 2 resources of stack dev" in wrong.out
    assert "16 GPUs and the data on data will be lost" in wrong.out
    assert dev("destroy", "--emulate", answers="dev\n").code == 0


@pytest.mark.usefixtures("terminal")
def test_non_interactive_never_asks_on_a_terminal(dev: Run) -> None:
    assert "cannot ask for it here" in dev("up", "--non-interactive").err
    assert "cannot ask for it here" in dev("--non-interactive", "up").err


@pytest.mark.usefixtures("terminal")
def test_color_follows_flag_and_no_color(dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in dev("preview").out
    assert "\x1b[3" not in dev("preview", "--color", "never").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in dev("preview").out
    assert "\x1b[3" in dev("preview", "--color", "always").out


def test_emulate_leaves_the_environment_as_it_was(
    dev: Run, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", "mine")
    before = dict(os.environ)
    dev("preview", "--emulate")
    assert dict(os.environ) == before
    assert (project / ".gpuform" / "emulator.db").exists()
    assert Path.cwd() == project


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_verbose_logs_to_stderr_without_secrets(dev: Run) -> None:
    ran = dev("up", "--emulate", "--yes", "--skip-preview", "-v")
    assert ran.code == 0
    assert "gpuform.http: POST" in ran.err
    assert "registering resource" in ran.out
    for secret in ("hunter2", KUBECONFIG, "emulator-admin-key"):
        assert secret not in ran.out + ran.err
    assert logging.getLogger("gpuform").handlers == []


def test_commands_work_from_another_folder(
    run_applied: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_applied("-C", "project", "stack", "output", "status").out == "Ready\n"
    assert run_applied("stack", "output", "status", "--cwd", "project").out == "Ready\n"
    assert Path.cwd() == tmp_path


@pytest.mark.slow
def test_the_kubeconfig_is_usable_when_asked_for(run_applied: Run) -> None:
    import yaml

    output = run_applied("stack", "output", "kubeconfig", "--show-secrets").out
    assert yaml.safe_load(output)["kind"] == "Config"


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_up_writes_a_history_entry(run_applied: Run, project: Path) -> None:
    (entry,) = (project / ".pulumi/history/demo/dev").glob("*.history.json")
    assert json.loads(entry.read_text())["kind"] == "update"
    assert json.loads(entry.read_text())["result"] == "succeeded"
    assert not list((project / ".pulumi/locks").rglob("*.json"))
