"""Test `gpuform doctor`: problems are found with remedies, and no problem stops the command."""

import errno
import gzip
import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.servers.ports import reserve_port
from support.stacks.planned_project import PlannedProject

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.emulator.together import MEMBER_KEY
from gpuform.providers.environment import StackEnvironment, record_environment
from gpuform.providers.records import Intent
from gpuform.stacks.doctor.findings import Examination, Level
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend

Run = Any
Found = list[dict[str, str]]
BAD = ("warning", "problem")

TOPOLOGY = """
clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
"""


@pytest.fixture(autouse=True)
def no_user_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [n for n in os.environ if n.startswith(("SCP_", "TENSORONE_", "AIOS_", "LENS_"))]:
        monkeypatch.delenv(name)


def run_doctor(run: Run, *arguments: str, code: int) -> Found:
    ran = run("doctor", "--json", *arguments)
    assert ran.code == code, ran.out + ran.err
    assert ran.err == ""
    document = ran.json
    assert all(finding["remedy"] for finding in document["findings"] if finding["level"] in BAD)
    assert document["ok"] is (code == 0)
    return document["findings"]


def list_problems(findings: Found) -> list[str]:
    return [finding["text"] for finding in findings if finding["level"] == "problem"]


def list_warnings(findings: Found) -> list[str]:
    return [finding["text"] for finding in findings if finding["level"] == "warning"]


def find_remedy(findings: Found, text: str) -> str:
    (match,) = [finding for finding in findings if text in finding["text"]]
    return match["remedy"]


class TestSound:
    def test_doctor_finds_a_sound_project_well_and_changes_nothing(
        self, applied_project: PlannedProject, project: Path
    ) -> None:
        before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
        ran = applied_project.run("doctor")
        assert ran.code == 0, ran.out
        assert ran.out.splitlines()[-1] == "No problems found."
        for message in (
            "gpuform 0.1.0, Pulumi SDK",
            f"project demo runs {project / '__main__.py'}",
            f"Backend:\n  ok       file://{project} is readable and writable",
            "the state is valid: 2 resources",
            "the passphrase is correct; 0 configuration values, 0 of them secret",
            "the stack is not locked",
            f"together: {applied_project.url} answers and accepts the key, which may read",
            f"aios: {applied_project.url} answers and needs no key",
        ):
            assert message in ran.out
        after = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
        assert after == before

    @pytest.mark.parametrize("emulated", [False, True])
    def test_a_state_of_real_platforms_in_a_folder_is_a_warning(
        self, dev: Run, project: Path, emulated: bool
    ) -> None:
        records = open_intents(Backend.open(f"file://{project}", {}), "demo", "dev").records
        record_environment(records, StackEnvironment(emulated=emulated, emulator=""))

        findings = json.loads(dev("doctor", "--json").out)["findings"]

        texts = [finding["text"] for finding in findings]
        assert any("the state lies in a folder" in text for text in texts) is not emulated

    def test_doctor_emulate_checks_an_emulator_of_its_own(self, dev: Run, project: Path) -> None:
        (project / "__main__.py").unlink()
        (project / "topology.yaml").write_text(TOPOLOGY)
        assert "together: no credentials: " in list_problems(run_doctor(dev, code=1))[0]
        texts = [finding["text"] for finding in run_doctor(dev, "--emulate", code=0)]
        assert "topology.yaml is valid" in texts
        answered = [message for message in texts if "answers and" in message]
        assert [message.partition(":")[0] for message in answered] == [
            *("together", "scp", "tensorone", "aios", "lens"),
        ]

    @pytest.mark.slow
    def test_doctor_sends_one_request_to_each_platform(
        self, applied_project: PlannedProject
    ) -> None:
        httpx.delete(f"{applied_project.url}/_emulator/requests", trust_env=False, verify=False)
        assert applied_project.run("doctor").code == 0
        log = httpx.get(
            f"{applied_project.url}/_emulator/requests", trust_env=False, verify=False
        ).json()
        asked = sorted((request["platform"], request["method"], request["path"]) for request in log)
        assert asked == [
            ("aios", "GET", "/api/createCluster"),
            ("aios", "POST", "/clusters/query"),
            ("lens", "GET", "/api/clusters/overview"),
            ("scp", "GET", "/v1/gpu-nodes"),
            ("tensorone", "GET", "/clusters"),
            ("together", "GET", "/compute/clusters"),
        ]


class TestPlatforms:
    def refuse(self, planned_project: PlannedProject, **fault: Any) -> None:
        httpx.post(
            f"{planned_project.url}/_emulator/faults", json=fault, trust_env=False, verify=False
        )

    @pytest.mark.slow
    def test_a_wrong_api_key_is_a_problem_without_the_key(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOGETHER_API_KEY", "hunter2")
        findings = run_doctor(applied_project.run, code=1)
        (problem,) = list_problems(findings)
        assert problem.startswith("together: the credentials are not accepted: ")
        assert "TOGETHER_API_KEY" in find_remedy(findings, problem)
        assert "hunter2" not in json.dumps(findings)

    @pytest.mark.slow
    def test_a_read_only_key_is_a_warning(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOGETHER_API_KEY", MEMBER_KEY)
        findings = run_doctor(applied_project.run, code=0)
        (warning,) = list_warnings(findings)
        assert warning.startswith(
            "together: the Together key has the role Member, which only reads "
        )
        (refused,) = [
            line
            for line in applied_project.run("up", "--yes", "--replace", "data").err.splitlines()
            if "Member" in line
        ]
        assert warning.removeprefix("together: ") in refused, "`up` asks the same question"

    @pytest.mark.slow
    def test_doctor_notes_platforms_that_do_not_report_write_access(
        self, applied_project: PlannedProject
    ) -> None:
        findings = run_doctor(applied_project.run, code=0)
        assert (
            f"together: {applied_project.url} answers and accepts the key, which may read and write"
            in [finding["text"] for finding in findings]
        )
        (note,) = [finding["text"] for finding in findings if finding["level"] == "note"]
        assert note.startswith("scp, tensorone: unknown whether the key may write")

    def test_a_key_without_read_access_is_a_problem(self, applied_project: PlannedProject) -> None:
        self.refuse(applied_project, path="/compute/clusters", status=403)
        (problem,) = list_problems(run_doctor(applied_project.run, code=1))
        assert problem.startswith("together: the credentials may not read: ")

    @pytest.mark.slow
    def test_a_failing_platform_is_a_problem(self, applied_project: PlannedProject) -> None:
        self.refuse(applied_project, path="/compute/clusters", status=503)
        assert list_problems(run_doctor(applied_project.run, code=1)) == [
            "together: GET /compute/clusters answered 503: Injected by the emulator's faults"
        ]

    @pytest.mark.slow
    def test_a_failing_platform_that_is_not_used_is_a_warning(
        self, applied_project: PlannedProject
    ) -> None:
        self.refuse(applied_project, path="/gpu-nodes", status=503)
        assert list_warnings(run_doctor(applied_project.run, code=0))[0].startswith(
            "scp: GET /v1/gpu-nodes answered"
        )

    @pytest.mark.slow
    def test_an_unreachable_platform_is_a_problem_without_credentials(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with reserve_port() as port:
            monkeypatch.setenv("TOGETHER_BASE_URL", f"http://ada:hunter2@127.0.0.1:{port}")
            findings = run_doctor(applied_project.run, code=1)
        assert list_problems(findings)[0].startswith("together: not reachable: ")
        assert f"127.0.0.1:{port}" in list_problems(findings)[0]
        assert "hunter2" not in json.dumps(findings)

    def test_half_of_the_keys_of_an_unused_platform_is_reported(
        self, dev: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SCP_TF_ACCESS_KEY", "hunter2")
        problems = [finding["text"] for finding in run_doctor(dev, code=0)]
        (message,) = [problem for problem in problems if problem.startswith("scp: ")]
        assert message.startswith("scp: not used, and half of the keys for SCP is missing")

    def test_a_key_in_the_configuration_is_found(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TOGETHER_API_KEY")
        assert "no credentials" in list_problems(run_doctor(applied_project.run, code=1))[0]
        key = environment(applied_project.url)["TOGETHER_API_KEY"]
        assert applied_project.run("config", "set", "--secret", "together:apiKey", key).code == 0
        findings = run_doctor(applied_project.run, code=0)
        assert key not in json.dumps(findings)

    @pytest.mark.slow
    @pytest.mark.parametrize(("ahead", "way"), [(629.5, "behind"), (-629.5, "ahead of")])
    def test_a_wrong_clock_is_a_problem(
        self,
        applied_project: PlannedProject,
        monkeypatch: pytest.MonkeyPatch,
        ahead: float,
        way: str,
    ) -> None:
        monkeypatch.delenv("GPUFORM_CLOCK")
        settings = {"clock_ahead_seconds": ahead}
        httpx.post(
            f"{applied_project.url}/_emulator/scp/settings",
            json=settings,
            trust_env=False,
            verify=False,
        )
        problems = [
            problem
            for problem in list_problems(run_doctor(applied_project.run, code=1))
            if problem.startswith("scp")
        ]
        assert re.search(f"this machine's clock is 10m[23].s {way} the platform's", problems[0])

    def test_the_clock_of_another_emulator_is_a_problem(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serve() as other:
            monkeypatch.setenv("GPUFORM_CLOCK", other.url)
            problems = list_problems(run_doctor(applied_project.run, code=1))
        assert "together: waits use the clock of an emulator" in problems[0]


class TestStack:
    def test_a_wrong_passphrase_is_a_problem(
        self, dev: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "hunter2")
        findings = run_doctor(dev, code=1)
        assert list_problems(findings) == ["incorrect passphrase for this stack"]
        assert "PULUMI_CONFIG_PASSPHRASE" in find_remedy(findings, "incorrect passphrase")

    def test_a_missing_passphrase_is_a_problem(
        self, dev: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        assert list_problems(run_doctor(dev, code=1)) == [
            "the passphrase of the stack's secrets is not set"
        ]

    def test_a_missing_configuration_value_is_a_problem(self, dev: Run, project: Path) -> None:
        content = (project / "Pulumi.yaml").read_text()
        (project / "Pulumi.yaml").write_text(f"{content}config:\n  gpus:\n    type: integer\n")
        assert (
            "no value for the configuration key demo:gpus"
            in list_problems(run_doctor(dev, code=1))[0]
        )

    def test_a_torn_state_is_reported_with_a_repair_from_backup(
        self, applied_project: PlannedProject, project: Path
    ) -> None:
        state = project / ".pulumi/stacks/demo/dev.json"
        state.write_bytes(state.read_bytes()[:100])
        findings = run_doctor(applied_project.run, code=1)
        hint = next(finding["remedy"] for finding in findings if finding["level"] == "problem")
        assert "gpuform state repair --stack dev --from-backup" in hint

    @pytest.mark.slow
    def test_an_invalid_state_is_reported_with_a_repair(
        self, applied_project: PlannedProject, project: Path
    ) -> None:
        path = project / ".pulumi/stacks/demo/dev.json"
        document = json.loads(path.read_text())
        document["checkpoint"]["latest"]["resources"].reverse()
        path.write_text(json.dumps(document))
        findings = run_doctor(applied_project.run, code=1)
        assert "snapshot integrity failure" in list_problems(findings)[0]
        assert "gpuform state repair" in find_remedy(findings, "snapshot integrity failure")

    def test_interrupted_operations_are_warnings(
        self, applied_project: PlannedProject, project: Path
    ) -> None:
        path = project / ".pulumi/stacks/demo/dev.json"
        document = json.loads(path.read_text())
        latest = document["checkpoint"]["latest"]
        train = next(r for r in latest["resources"] if r["urn"].endswith("::train"))
        train["initErrors"] = ["interrupted"]
        latest["pending_operations"] = [{"resource": train, "type": "updating"}]
        path.write_text(json.dumps(document))
        begun = Intent("urn:x", "together", "Cluster", "eval", "us-central-8", 1.7e9)
        open_intents(Backend.open(f"file://{project}", {}), "demo", "dev").record(begun)
        findings = run_doctor(applied_project.run, code=0)
        assert list_warnings(findings)[0].endswith("is unknown: Cluster 'eval' on together")
        assert list_warnings(findings)[1].endswith("their objects may exist: updating train")
        assert list_warnings(findings)[2] == "not ready yet: train"

    def test_locks_are_reported_by_whether_their_process_runs(
        self, dev: Run, project: Path
    ) -> None:
        folder = project / ".pulumi/locks/organization/demo/dev"
        folder.mkdir(parents=True)
        stale_lock = {"pid": 2**22 + 1, "hostname": socket.gethostname(), "username": "ada"}
        remote_lock = {"pid": 7, "hostname": "laptop", "username": "grace"}
        for name, lock in (("a", stale_lock), ("b", remote_lock)):
            lock_content = lock | {"timestamp": "2026-01-01T00:00:00Z"}
            (folder / f"{name}.json").write_text(json.dumps(lock_content))
        findings = [
            finding for finding in run_doctor(dev, code=0) if finding["text"].startswith("locked")
        ]
        assert [finding["level"] for finding in findings] == ["warning", "note"]
        assert "ada@" in findings[0]["text"]
        assert "that process no longer runs" in findings[0]["text"]
        assert "grace@laptop (pid 7)" in findings[1]["text"]
        assert all("gpuform cancel dev" in finding["remedy"] for finding in findings)

    def test_an_unknown_stack_is_a_problem(self, dev: Run) -> None:
        findings = run_doctor(dev, "--stack", "prod", code=1)
        assert list_problems(findings) == ["stack 'prod' does not exist"]
        assert find_remedy(findings, "stack 'prod'") == (
            "stacks of this project: dev; or create it: `gpuform stack init prod`"
        )


class TestMachine:
    def test_doctor_works_outside_of_a_project(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        findings = run_doctor(run, code=0)
        assert "no Pulumi.yaml in" in list_warnings(findings)[0]

    def test_a_project_of_another_language_names_the_pulumi_cli(
        self, dev: Run, project: Path
    ) -> None:
        settings = (project / "Pulumi.yaml").read_text().replace("python", "nodejs")
        (project / "Pulumi.yaml").write_text(settings)
        findings = run_doctor(dev, code=0)
        assert "Pulumi CLI" in find_remedy(
            findings, "gpuform does not support the runtime 'nodejs'"
        )

    def test_missing_git_and_an_unwritable_home_are_warnings(
        self, dev: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("PATH", "")
        monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "file"))
        monkeypatch.setenv("GPUFORM_ALLOW", "destroy-reserved")
        findings = run_doctor(dev, "--stack", "dev", code=0)
        git, home, allow = list_warnings(findings)
        assert git.startswith("git is not on the PATH")
        assert home.startswith(str(tmp_path / "file"))
        assert allow.endswith("in every run: destroy-reserved")

    def test_packages_that_are_missing_or_too_old_are_problems(
        self, dev: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        needed = ["pulumi>=99,<100", "nowhere-to-be-found>=1", "click>=8", "x>1; extra == 'y'"]
        monkeypatch.setattr(
            "gpuform.stacks.doctor.machine_and_platforms.requires", lambda _: needed
        )
        findings = run_doctor(dev, code=1)
        old, missing = list_problems(findings)
        assert old.endswith("is installed, and gpuform needs pulumi<100,>=99")
        assert missing == "nowhere-to-be-found>=1 is missing"
        assert find_remedy(findings, missing) == "python -m pip install 'nowhere-to-be-found>=1'"

    def test_doctor_names_the_ci_job(self, dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PULUMI_DISABLE_CI_DETECTION")
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        texts = [finding["text"] for finding in run_doctor(dev, code=0)]
        assert any(message.startswith("this is a GitHub Actions job") for message in texts)


class TestBackend:
    @pytest.mark.parametrize(
        ("url", "message"),
        [
            ("file:///nowhere/at/all", "does not exist"),
            ("ftp://ada:hunter2@example.com/x?key=hunter2", "gpuform does not support the backend"),
        ],
    )
    def test_a_backend_that_is_missing_or_unknown_is_a_problem(
        self, dev: Run, monkeypatch: pytest.MonkeyPatch, url: str, message: str
    ) -> None:
        monkeypatch.setenv("PULUMI_BACKEND_URL", url)
        findings = run_doctor(dev, code=1)
        assert message in list_problems(findings)[0]
        assert "hunter2" not in json.dumps(findings)

    def test_a_full_backend_is_a_problem(
        self, dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        findings = run_doctor(dev, code=1)
        assert "No space left on device" in list_problems(findings)[0]
        assert "Free some disk space" in find_remedy(findings, "No space left")
        assert not list((project / ".pulumi/stacks").glob(".gpuform*"))

    def test_a_nearly_full_backend_is_a_warning(
        self, dev: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        usage = shutil.disk_usage("/")._replace(free=2**20)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        assert "has 1 MiB free" in list_warnings(run_doctor(dev, code=0))[0]


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BREAKING: list[Callable[[Path], object]] = [
    *(lambda path, data=data: path.write_bytes(data) for data in (b"", b"\xff\xfe\0", b"[[]]")),
    *(lambda path, data=data: path.write_bytes(data) for data in (b"{}", b"- x\n", b"a: [")),
    lambda path: path.write_bytes(gzip.compress(b"{}")[:8]),
    _replace_by_folder,
    Path.unlink,
]


@pytest.mark.parametrize("damage", range(len(BREAKING)))
@pytest.mark.slow
def test_doctor_reports_any_broken_file(
    applied_project: PlannedProject, project: Path, damage: int
) -> None:
    begun = Intent("urn:x", "together", "Cluster", "eval", "us-central-8", 1.7e9)
    open_intents(Backend.open(f"file://{project}", {}), "demo", "dev").record(begun)
    lock = project / ".pulumi/locks/organization/demo/dev/a.json"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("{}")
    journal = project / ".pulumi/gpuform/demo/dev.journal"
    journal.parent.mkdir(parents=True, exist_ok=True)
    journal.write_text("")
    (project / "topology.yaml").write_text(TOPOLOGY)
    for path in sorted(path for path in project.rglob("*") if path.is_file()):
        intact_content = path.read_bytes()
        BREAKING[damage](path)
        ran = applied_project.run("doctor", "--json")
        assert ran.code in (0, 1), (path, ran.out, ran.err)
        findings = ran.json["findings"]
        assert all(finding["remedy"] for finding in findings if finding["level"] in BAD), (
            path,
            findings,
        )
        assert ran.err == "", (path, ran.err)
        if path.is_dir():
            path.rmdir()
        path.write_bytes(intact_content)


def test_a_check_that_raises_is_reported_without_values() -> None:
    exam = Examination()

    def check() -> Any:
        raise KeyError("hunter2")

    exam.add_findings("stack", check)
    (finding,) = exam.findings
    assert finding.level is Level.PROBLEM
    assert "KeyError in check, line" in finding.text
    assert "hunter2" not in finding.text + finding.remedy


@pytest.mark.parametrize(("version", "is_warned"), [("v3.274.9", False), ("v3.275.0", True)])
def test_a_newer_pulumi_cli_is_a_warning(
    dev: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_warned: bool
) -> None:
    cli = tmp_path / "bin" / "pulumi"
    cli.parent.mkdir()
    cli.write_text(f"#!/bin/sh\necho {version}\n")
    cli.chmod(0o755)
    monkeypatch.setenv("PATH", f"{cli.parent}:{os.environ['PATH']}")
    findings = dev("doctor", "--json").json["findings"]
    warned = [finding["level"] for finding in findings if "is newer than 3.274" in finding["text"]]
    assert warned == (["warning"] if is_warned else [])
