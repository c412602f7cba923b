"""Who did what to a stack and what happened: `gpuform stack history` and `gpuform logs`."""

import gzip
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from processes.patient import PROGRAM as PATIENT
from processes.patient import read_until, start_gpuform
from support.stacks.planned_project import PlannedProject

from gpuform.stacks.operations.runs.run_log import MAX_PRINTED_LINES

Run = Any

PRINTING = """
import pulumi
config = pulumi.Config()
token = config.require_secret("token")
token.apply(lambda text: print("the token is", text))
pulumi.Output.secret("line one\\nkey: 4711-0815").apply(print)
pulumi.export("pair", pulumi.Output.secret("line one\\nkey: 4711-0815"))
print("hello \\x1b[31mfrom the program")
for n in range(COUNT):
    print("noise", n)
"""


def list_history_files(project: Path, ending: str) -> list[Path]:
    return sorted((project / ".pulumi/history/demo/dev").glob(f"*{ending}"))


class TestLogOfARun:
    @pytest.mark.slow
    def test_logs_show_changes_and_events_of_a_run(self, applied_project: PlannedProject) -> None:
        output = applied_project.run("logs").out
        head, counts, author, *rest = output.splitlines()
        assert head.startswith("update 1 of stack dev: succeeded, started 20")
        assert counts.strip().startswith("3 create, in ")
        assert " on " in author
        assert "+  train  together:Cluster  create  (+16 GPUs)" in rest
        happened = [line[10:] for line in rest if line[2:3] == ":"]
        assert happened[0] == "hello from the program"
        assert "+  train  together:Cluster  creating" in happened
        assert "   train  InstallingDrivers (12m00s)" in happened
        assert happened[-1] == "+  train  together:Cluster  created in 20m00s"

    @pytest.mark.slow
    def test_logs_json_has_run_plan_and_lines(self, applied_project: PlannedProject) -> None:
        document = applied_project.run("logs", "1", "--json").json
        assert list(document) == ["number", "run", "log"]
        assert document["run"]["result"] == "succeeded"
        assert "config" not in document["run"]
        changes = document["log"]["plan"]["changes"]
        assert {change["name"]: change["action"] for change in changes} == {
            "data": "create",
            "train": "create",
        }
        done = [line for line in document["log"]["lines"] if line["event"] == "done"]
        assert [line["urn"].rsplit("::", 1)[1] for line in done] == ["data", "train"]
        assert done[1]["seconds"] > 1000

    @pytest.mark.slow
    def test_a_run_without_changes_has_a_short_log(
        self, applied_project: PlannedProject, project: Path
    ) -> None:
        assert applied_project.run("up", "--yes", "--skip-preview").code == 0
        idle = applied_project.run("logs", "--json").json
        assert idle["number"] == 2
        assert idle["log"]["plan"]["changes"] == []
        assert [line["event"] for line in idle["log"]["lines"]] == ["message"]
        assert applied_project.run("logs", "1", "--json").json["log"]["plan"]["changes"] != []
        first, second = (
            len(gzip.decompress(p.read_bytes()))
            for p in list_history_files(project, ".log.json.gz")
        )
        assert second < 500 < first

    @pytest.mark.slow
    def test_history_names_the_plan_that_a_run_applied(
        self, applied_project: PlannedProject, project: Path
    ) -> None:
        plan = project / "plan.json"
        assert applied_project.run("config", "set", "gpus", "24").code == 0
        assert applied_project.run("preview", "--save-plan", str(plan)).code == 0
        saved = json.loads(plan.read_text())
        assert applied_project.run("up", "--plan", str(plan), "--yes", "-m", "more").code == 0
        latest = applied_project.run("stack", "history", "--json").json[0]
        assert latest["message"] == "more"
        assert latest["environment"]["update.plan"] == "true"
        assert latest["environment"]["gpuform.plan.seal"] == saved["basis"]["seal"]
        assert latest["environment"]["gpuform.plan.madeAt"] == saved["made_at"]
        message = f"plan {saved['basis']['seal'][:12]} of {saved['made_at']}"
        assert message in applied_project.run("stack", "history").out
        assert "~ num_gpus: 16 => 24" in applied_project.run("logs").out

    def test_logs_show_why_a_run_failed(self, dev: Run, project: Path) -> None:
        program = PATIENT.replace("PROVIDER", "Deaf")
        broken = program.replace("time.sleep(600)", "raise RuntimeError('no machine left')")
        (project / "__main__.py").write_text(broken)
        assert dev("up", "--yes", "--skip-preview").code == 1
        output = dev("logs").out
        assert output.startswith("update 1 of stack dev: failed")
        assert "error: a: " in output
        assert "no machine left" in output
        assert "creating failed after" in output


class TestSecrets:
    def test_a_log_contains_no_secret(self, dev: Run, project: Path) -> None:
        assert dev("config", "set", "--secret", "token", "hunter2").code == 0
        (project / "__main__.py").write_text(PRINTING.replace("COUNT", "0"))
        assert dev("up", "--yes", "--skip-preview").code == 0
        (log,) = list_history_files(project, ".log.json.gz")
        log_text = gzip.decompress(log.read_bytes()).decode()
        assert "the token is [secret]" in log_text
        for secret in ("hunter2", "line one", "4711-0815"):
            assert secret not in log_text
        output = dev("logs").out
        assert "hello \\u001b[31mfrom the program" in output
        assert "\x1b" not in output

    def test_a_log_is_cut_after_many_printed_lines(self, dev: Run, project: Path) -> None:
        assert dev("config", "set", "--secret", "token", "hunter2").code == 0
        (project / "__main__.py").write_text(PRINTING.replace("COUNT", str(2 * MAX_PRINTED_LINES)))
        assert dev("up", "--yes", "--skip-preview").code == 0
        lines = dev("logs", "--json").json["log"]["lines"]
        assert len(lines) == MAX_PRINTED_LINES + 1
        assert lines[-1]["text"] == f"... and {MAX_PRINTED_LINES + 4} more lines"


class TestOrigin:
    def test_history_and_logs_name_the_ci_job_and_the_commit(
        self, dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.com",
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.com",
            "GITLAB_CI": "true",
            "CI_PIPELINE_IID": "42",
            "CI_JOB_NAME": "deploy",
            "CI_JOB_URL": "https://gitlab.example.com/acme/clusters/-/jobs/9",
            "GITLAB_USER_LOGIN": "grace",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("PULUMI_DISABLE_CI_DETECTION")
        (project / "__main__.py").write_text("import pulumi\n")
        for command in (
            ("init", "-q", "-b", "main"),
            ("add", "Pulumi.yaml", "Pulumi.dev.yaml", "__main__.py"),
            ("commit", "-q", "-m", "No cluster yet"),
        ):
            subprocess.run(["git", *command], check=True)
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0
        assert "section_start:" in ran.out
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout
        host = os.uname().nodename
        expected = f'grace on {host}, GitLab CI/CD 42 (deploy), main {head[:12]}, "No cluster yet"'
        assert expected in dev("stack", "history").out
        output = dev("logs").out
        assert expected in output
        assert "https://gitlab.example.com/acme/clusters/-/jobs/9" in output
        (entry,) = dev("stack", "history", "--json").json
        assert entry["environment"]["git.dirty"] == "false"
        assert entry["environment"]["git.author.email"] == "ada@example.com"


class TestOddHistories:
    @pytest.mark.slow
    def test_a_killed_run_stays_in_progress_in_the_history(self, dev: Run, project: Path) -> None:
        (project / "__main__.py").write_text(PATIENT.replace("PROVIDER", "Deaf"))
        with start_gpuform("up", "--yes", "--skip-preview", "--json") as process:
            read_until(process, "in create")
            (entry,) = dev("stack", "history", "--json").json
            assert entry["result"] == "in-progress"
            assert "endTime" not in entry
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=LAST_RESORT)
        ran = dev("logs")
        assert ran.code == 0
        assert "in-progress" in ran.out
        assert "was killed before it recorded its end" in ran.out
        assert "This run has no log." in ran.out
        assert dev("stack", "history").out.splitlines()[1].split()[3:] == ["in-progress", "-"]
        (project / "__main__.py").write_text("")
        assert dev("destroy", "--yes", "--skip-preview").code == 0
        rows = dev("stack", "history", "--json").json
        assert [row["result"] for row in rows] == ["succeeded", "in-progress"]

    def test_runs_of_the_pulumi_cli_have_no_log(self, dev: Run, project: Path) -> None:
        folder = project / ".pulumi/history/demo/dev"
        folder.mkdir(parents=True)
        entry = {"kind": "update", "startTime": 10**18, "result": "succeeded", "environment": {}}
        (folder / "dev-17.history.json").write_text(json.dumps(entry))
        ran = dev("logs")
        assert ran.code == 0
        assert "This run has no log." in ran.out
        assert dev("stack", "history").out.splitlines()[1].split()[:4] == [
            *("1", str(10**18), "update", "succeeded"),
        ]

    def test_logs_refuse_an_unknown_run(self, dev: Run, project: Path) -> None:
        assert "stack dev has no runs yet" in dev("logs").err
        assert dev("logs", "0").code == 2
        (project / "__main__.py").write_text("")
        assert dev("up", "--yes", "--skip-preview").code == 0
        refused = dev("logs", "7")
        assert refused.code == 1
        assert "stack dev has no run 7: its latest run is 1" in refused.err
        assert "gpuform stack history" in refused.err

    @pytest.mark.parametrize(
        "content",
        [b"torn", gzip.compress(b"{}"), gzip.compress(b"x")[:9]],
        ids=["torn", "empty", "cut off"],  # gzip's bytes tell the time
    )
    def test_a_damaged_log_is_an_error(self, dev: Run, project: Path, content: bytes) -> None:
        (project / "__main__.py").write_text("")
        assert dev("up", "--yes", "--skip-preview").code == 0
        (log,) = list_history_files(project, ".log.json.gz")
        log.write_bytes(content)
        ran = dev("logs")
        assert ran.code == 1
        assert ran.err.startswith("error: ")
        assert "Traceback" not in ran.err
        assert dev("stack", "history").code == 0

    def test_log_files_have_names_that_pulumi_ignores_and_renames(
        self, dev: Run, project: Path
    ) -> None:
        """Log files match what Pulumi ignores when listing and includes when renaming.

        It reads what ends with `.history.json` (.gz, .zst) and renames what begins with the stack's
        name up to
        the last hyphen (pulumi 3.260, pkg/backend/diy/state.go).
        """
        (project / "__main__.py").write_text("")
        assert dev("up", "--yes", "--skip-preview").code == 0
        (log,) = list_history_files(project, ".log.json.gz")
        assert not log.name.endswith((".history.json", ".history.json.gz", ".history.json.zst"))
        assert log.name.rpartition("-")[0] == "dev"
        assert dev("stack", "rename", "prod").code == 0
        assert "update 1 of stack prod: succeeded" in dev("logs").out
        assert dev("stack", "rm", "prod", "--yes").code == 0
        assert not list((project / ".pulumi/history").rglob("*.*"))
