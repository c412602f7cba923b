"""`gpuform doctor`: what is wrong is found, with its remedy, and nothing brings it down."""

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
from support.stacks.planned_project import PlannedProject

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.emulator.together import MEMBER_KEY
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
def nothing_of_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [n for n in os.environ if n.startswith(("SCP_", "TENSORONE_", "AIOS_", "LENS_"))]:
        monkeypatch.delenv(name)


def findings(run: Run, *arguments: str, code: int) -> Found:
    ran = run("doctor", "--json", *arguments)
    assert ran.code == code, ran.out + ran.err
    assert ran.err == ""
    document = ran.json
    assert all(each["remedy"] for each in document["findings"] if each["level"] in BAD)
    assert document["ok"] is (code == 0)
    return document["findings"]


def problems(found: Found) -> list[str]:
    return [each["text"] for each in found if each["level"] == "problem"]


def warnings(found: Found) -> list[str]:
    return [each["text"] for each in found if each["level"] == "warning"]


def remedy(found: Found, text: str) -> str:
    (one,) = [each for each in found if text in each["text"]]
    return one["remedy"]


class TestSound:
    def test_all_is_well(self, applied_project: PlannedProject, project: Path) -> None:
        before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
        told = applied_project.run("doctor")
        assert told.code == 0, told.out
        assert told.out.splitlines()[-1] == "All is well."
        for text in (
            "gpuform 0.1.0, Pulumi SDK",
            f"project demo runs {project / '__main__.py'}",
            f"Backend:\n  ok       file://{project} can be read and written",
            "the state is sound: 2 resources",
            "the passphrase is right; 0 configuration values, 0 of them secret",
            "it is not locked",
            f"together: {applied_project.url} answers and accepts the key, which may read",
            f"aios: {applied_project.url} answers and asks for no key",
        ):
            assert text in told.out
        after = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
        assert after == before

    def test_an_emulator_for_the_length_of_the_command(self, dev: Run, project: Path) -> None:
        (project / "__main__.py").unlink()
        (project / "topology.yaml").write_text(TOPOLOGY)
        assert "together: no credentials: " in problems(findings(dev, code=1))[0]
        texts = [each["text"] for each in findings(dev, "--emulate", code=0)]
        assert "topology.yaml is valid" in texts
        answered = [text for text in texts if "answers and" in text]
        assert [text.partition(":")[0] for text in answered] == [
            *("together", "scp", "tensorone", "aios", "lens"),
        ]

    @pytest.mark.slow
    def test_one_request_for_each_platform(self, applied_project: PlannedProject) -> None:
        httpx.delete(f"{applied_project.url}/_emulator/requests", trust_env=False, verify=False)
        assert applied_project.run("doctor").code == 0
        log = httpx.get(
            f"{applied_project.url}/_emulator/requests", trust_env=False, verify=False
        ).json()
        asked = sorted((each["platform"], each["method"], each["path"]) for each in log)
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
    def test_a_wrong_key(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOGETHER_API_KEY", "hunter2")
        found = findings(applied_project.run, code=1)
        (problem,) = problems(found)
        assert problem.startswith("together: the credentials are not accepted: ")
        assert "TOGETHER_API_KEY" in remedy(found, problem)
        assert "hunter2" not in json.dumps(found)

    @pytest.mark.slow
    def test_a_key_that_only_reads(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TOGETHER_API_KEY", MEMBER_KEY)
        found = findings(applied_project.run, code=0)
        (told,) = warnings(found)
        assert told.startswith("together: the Together key has the role Member, which only reads ")
        (refused,) = [
            each
            for each in applied_project.run("up", "--yes", "--replace", "data").err.splitlines()
            if "Member" in each
        ]
        assert told.removeprefix("together: ") in refused, "`up` asks the same question"

    @pytest.mark.slow
    def test_who_tells_whether_a_key_may_write(self, applied_project: PlannedProject) -> None:
        found = findings(applied_project.run, code=0)
        assert (
            f"together: {applied_project.url} answers and accepts the key, which may read and write"
            in [each["text"] for each in found]
        )
        (note,) = [each["text"] for each in found if each["level"] == "note"]
        assert note.startswith("scp, tensorone: nobody can tell whether the key may write")

    def test_a_key_that_may_not_read(self, applied_project: PlannedProject) -> None:
        self.refuse(applied_project, path="/compute/clusters", status=403)
        (problem,) = problems(findings(applied_project.run, code=1))
        assert problem.startswith("together: the credentials may not read: ")

    @pytest.mark.slow
    def test_a_platform_that_fails(self, applied_project: PlannedProject) -> None:
        self.refuse(applied_project, path="/compute/clusters", status=503)
        assert problems(findings(applied_project.run, code=1)) == [
            "together: GET /compute/clusters answered 503: Injected by the emulator's faults"
        ]

    @pytest.mark.slow
    def test_one_that_is_not_used_is_only_a_warning(self, applied_project: PlannedProject) -> None:
        self.refuse(applied_project, path="/gpu-nodes", status=503)
        assert warnings(findings(applied_project.run, code=0))[0].startswith(
            "scp: GET /v1/gpu-nodes answered"
        )

    @pytest.mark.slow
    def test_one_that_is_not_there(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        monkeypatch.setenv("TOGETHER_BASE_URL", f"http://ada:hunter2@127.0.0.1:{port}")
        found = findings(applied_project.run, code=1)
        assert problems(found)[0].startswith("together: not reachable: ")
        assert f"127.0.0.1:{port}" in problems(found)[0]
        assert "hunter2" not in json.dumps(found)

    def test_half_of_the_keys(self, dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SCP_TF_ACCESS_KEY", "hunter2")
        texts = [each["text"] for each in findings(dev, code=0)]
        (told,) = [text for text in texts if text.startswith("scp: ")]
        assert told.startswith("scp: not used, and half of the keys for SCP is missing")

    def test_a_key_in_the_stack_s_configuration(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TOGETHER_API_KEY")
        assert "no credentials" in problems(findings(applied_project.run, code=1))[0]
        key = environment(applied_project.url)["TOGETHER_API_KEY"]
        assert applied_project.run("config", "set", "--secret", "together:apiKey", key).code == 0
        found = findings(applied_project.run, code=0)
        assert key not in json.dumps(found)

    @pytest.mark.slow
    @pytest.mark.parametrize(("ahead", "way"), [(629.5, "behind"), (-629.5, "ahead of")])
    def test_a_wrong_clock(
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
        told = [
            text
            for text in problems(findings(applied_project.run, code=1))
            if text.startswith("scp")
        ]
        assert re.search(f"this machine's clock is 10m[23].s {way} the platform's", told[0])

    def test_an_emulator_s_clock(
        self, applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serve() as other:
            monkeypatch.setenv("GPUFORM_CLOCK", other.url)
            told = problems(findings(applied_project.run, code=1))
        assert "together: waiting goes by the clock of an emulator" in told[0]


class TestStack:
    def test_a_wrong_passphrase(self, dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "hunter2")
        found = findings(dev, code=1)
        assert problems(found) == ["incorrect passphrase for this stack"]
        assert "PULUMI_CONFIG_PASSPHRASE" in remedy(found, "incorrect passphrase")

    def test_no_passphrase(self, dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
        assert problems(findings(dev, code=1)) == [
            "the passphrase of the stack's secrets is not set"
        ]

    def test_a_value_that_is_missing(self, dev: Run, project: Path) -> None:
        text = (project / "Pulumi.yaml").read_text()
        (project / "Pulumi.yaml").write_text(f"{text}config:\n  gpus:\n    type: integer\n")
        assert "no value for the configuration key demo:gpus" in problems(findings(dev, code=1))[0]

    def test_a_torn_state_names_the_last_good_one(
        self, applied_project: PlannedProject, project: Path
    ) -> None:
        state = project / ".pulumi/stacks/demo/dev.json"
        state.write_bytes(state.read_bytes()[:100])
        found = findings(applied_project.run, code=1)
        hint = next(each["remedy"] for each in found if each["level"] == "problem")
        assert "gpuform state repair --stack dev --from-backup" in hint

    @pytest.mark.slow
    def test_a_state_that_breaks_a_rule(
        self, applied_project: PlannedProject, project: Path
    ) -> None:
        path = project / ".pulumi/stacks/demo/dev.json"
        document = json.loads(path.read_text())
        document["checkpoint"]["latest"]["resources"].reverse()
        path.write_text(json.dumps(document))
        found = findings(applied_project.run, code=1)
        assert "snapshot integrity failure" in problems(found)[0]
        assert "gpuform state repair" in remedy(found, "snapshot integrity failure")

    def test_what_was_left_undone(self, applied_project: PlannedProject, project: Path) -> None:
        path = project / ".pulumi/stacks/demo/dev.json"
        document = json.loads(path.read_text())
        latest = document["checkpoint"]["latest"]
        train = next(r for r in latest["resources"] if r["urn"].endswith("::train"))
        train["initErrors"] = ["interrupted"]
        latest["pending_operations"] = [{"resource": train, "type": "updating"}]
        path.write_text(json.dumps(document))
        begun = Intent("urn:x", "together", "Cluster", "eval", "us-central-8", 1.7e9)
        open_intents(Backend.open(f"file://{project}", {}), "demo", "dev").record(begun)
        found = findings(applied_project.run, code=0)
        assert warnings(found)[0].endswith("is not known: Cluster 'eval' on together")
        assert warnings(found)[1].endswith("what they made may exist: updating train")
        assert warnings(found)[2] == "not ready yet: train"

    def test_locks(self, dev: Run, project: Path) -> None:
        folder = project / ".pulumi/locks/organization/demo/dev"
        folder.mkdir(parents=True)
        left = {"pid": 2**22 + 1, "hostname": socket.gethostname(), "username": "ada"}
        away = {"pid": 7, "hostname": "laptop", "username": "grace"}
        for name, lock in (("a", left), ("b", away)):
            told = lock | {"timestamp": "2026-01-01T00:00:00Z"}
            (folder / f"{name}.json").write_text(json.dumps(told))
        found = [each for each in findings(dev, code=0) if each["text"].startswith("locked")]
        assert [each["level"] for each in found] == ["warning", "note"]
        assert "ada@" in found[0]["text"]
        assert "that process no longer runs" in found[0]["text"]
        assert "grace@laptop (pid 7)" in found[1]["text"]
        assert all("gpuform cancel dev" in each["remedy"] for each in found)

    def test_no_such_stack(self, dev: Run) -> None:
        found = findings(dev, "--stack", "prod", code=1)
        assert problems(found) == ["there is no stack named 'prod'"]
        assert remedy(found, "no stack named") == (
            "stacks of this project: dev; or create it: `gpuform stack init prod`"
        )


class TestMachine:
    def test_outside_of_a_project(
        self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        found = findings(run, code=0)
        assert "no Pulumi.yaml in" in warnings(found)[0]

    def test_a_project_of_another_language(self, dev: Run, project: Path) -> None:
        text = (project / "Pulumi.yaml").read_text().replace("python", "nodejs")
        (project / "Pulumi.yaml").write_text(text)
        found = findings(dev, code=0)
        assert "Pulumi CLI" in remedy(found, "the runtime is 'nodejs'")

    def test_no_git_and_no_place_for_the_selection(
        self, dev: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("PATH", "")
        monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "file"))
        monkeypatch.setenv("GPUFORM_ALLOW", "destroy-reserved")
        found = findings(dev, "--stack", "dev", code=0)
        git, home, allow = warnings(found)
        assert git.startswith("git is not on the PATH")
        assert home.startswith(str(tmp_path / "file"))
        assert allow.endswith("in every run: destroy-reserved")

    def test_a_package_of_another_version(self, dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        needed = ["pulumi>=99,<100", "nowhere-to-be-found>=1", "click>=8", "x>1; extra == 'y'"]
        monkeypatch.setattr("gpuform.stacks.doctor.environment.requires", lambda _: needed)
        found = findings(dev, code=1)
        old, missing = problems(found)
        assert old.endswith("is installed, and gpuform needs pulumi<100,>=99")
        assert missing == "nowhere-to-be-found>=1 is missing"
        assert remedy(found, missing) == "python -m pip install 'nowhere-to-be-found>=1'"

    def test_a_ci_job(self, dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PULUMI_DISABLE_CI_DETECTION")
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        texts = [each["text"] for each in findings(dev, code=0)]
        assert any(text.startswith("this is a job of GitHub Actions") for text in texts)


class TestBackend:
    @pytest.mark.parametrize(
        ("url", "told"),
        [
            ("file:///nowhere/at/all", "does not exist"),
            ("ftp://ada:hunter2@example.com/x?key=hunter2", "gpuform does not support the backend"),
        ],
    )
    def test_no_backend(
        self, dev: Run, monkeypatch: pytest.MonkeyPatch, url: str, told: str
    ) -> None:
        monkeypatch.setenv("PULUMI_BACKEND_URL", url)
        found = findings(dev, code=1)
        assert told in problems(found)[0]
        assert "hunter2" not in json.dumps(found)

    def test_one_that_cannot_be_written(
        self, dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        found = findings(dev, code=1)
        assert "No space left on device" in problems(found)[0]
        assert "Free some disk space" in remedy(found, "No space left")
        assert not list((project / ".pulumi/stacks").glob(".gpuform*"))

    def test_one_that_is_nearly_full(self, dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        usage = shutil.disk_usage("/")._replace(free=2**20)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
        assert "has 1 MiB left" in warnings(findings(dev, code=0))[0]


def _a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BREAKING: list[Callable[[Path], object]] = [
    *(lambda path, data=data: path.write_bytes(data) for data in (b"", b"\xff\xfe\0", b"[[]]")),
    *(lambda path, data=data: path.write_bytes(data) for data in (b"{}", b"- x\n", b"a: [")),
    lambda path: path.write_bytes(gzip.compress(b"{}")[:8]),
    _a_folder,
    Path.unlink,
]


@pytest.mark.parametrize("damage", range(len(BREAKING)))
@pytest.mark.slow
def test_whatever_is_broken_it_is_told(
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
        whole = path.read_bytes()
        BREAKING[damage](path)
        ran = applied_project.run("doctor", "--json")
        assert ran.code in (0, 1), (path, ran.out, ran.err)
        found = ran.json["findings"]
        assert all(each["remedy"] for each in found if each["level"] in BAD), (path, found)
        assert ran.err == "", (path, ran.err)
        if path.is_dir():
            path.rmdir()
        path.write_bytes(whole)


def test_a_check_that_fails_itself_tells_no_value() -> None:
    exam = Examination()

    def check() -> Any:
        raise KeyError("hunter2")

    exam.look("stack", check)
    (found,) = exam.findings
    assert found.level is Level.PROBLEM
    assert "KeyError in check, line" in found.text
    assert "hunter2" not in found.text + found.remedy


@pytest.mark.parametrize(("version", "is_warned"), [("v3.274.9", False), ("v3.275.0", True)])
def test_a_newer_pulumi_cli_is_a_warning(
    dev: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, is_warned: bool
) -> None:
    cli = tmp_path / "bin" / "pulumi"
    cli.parent.mkdir()
    cli.write_text(f"#!/bin/sh\necho {version}\n")
    cli.chmod(0o755)
    monkeypatch.setenv("PATH", f"{cli.parent}:{os.environ['PATH']}")
    found = dev("doctor", "--json").json["findings"]
    warned = [each["level"] for each in found if "is newer than 3.274" in each["text"]]
    assert warned == (["warning"] if is_warned else [])
