"""`kubeconfig`, `ssh-config` and `connect`: from a stack to people's files and commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gpuform.providers.emulator.server import environment, serve

Run = Any


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="access") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "me"
    folder.mkdir()
    monkeypatch.setattr(Path, "home", lambda: folder)
    monkeypatch.delenv("KUBECONFIG")
    return folder


@pytest.fixture
def up(dev: Run, emulator: Any, home: Path) -> Run:
    ran = dev("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    return dev


_STATE: list[bytes] = []
"""The state that `up` leaves; the salt of its secrets is that of all tests."""


@pytest.fixture
def applied_project(dev: Run, home: Path, project: Path) -> Run:
    """Return the commands of a stack with a cluster, whose platform is unreachable."""
    file = project / ".pulumi/stacks/demo/dev.json"
    if not _STATE:
        with pytest.MonkeyPatch.context() as variables, serve(seed="access") as server:
            for name, value in environment(server.url).items():
                variables.setenv(name, value)
            ran = dev("up", "--yes", "--skip-preview")
            assert ran.code == 0, ran.out + ran.err
        _STATE.append(file.read_bytes())
        shutil.rmtree(
            project / ".pulumi/gpuform/demo/dev.records"
        )  # no emulator: it counts as real
    file.write_bytes(_STATE[0])
    return dev


def list_contexts(file: Path) -> list[str]:
    document = yaml.safe_load(file.read_text()) or {}
    return [context["name"] for context in document.get("contexts") or ()]


@pytest.mark.slow
def test_kubeconfig_adds_a_context_and_remove_restores_the_file(
    applied_project: Run, home: Path
) -> None:
    file = home / ".kube" / "config"
    ran = applied_project("kubeconfig")
    assert (ran.code, ran.out) == (0, f"context training: in {file}\n")
    assert list_contexts(file) == ["training"]
    document = yaml.safe_load(file.read_text())
    assert document["current-context"] == "training"
    assert document["users"][0]["user"]["token"]
    assert file.stat().st_mode & 0o777 == 0o600 or os.name == "nt"
    assert applied_project("kubeconfig", "train").out.endswith("unchanged\n")
    ran = applied_project("connect", "train", "--print", "--", "get", "pods")
    assert ran.out == "kubectl --context training get pods\n"
    ran = applied_project("kubeconfig", "--remove", "--json")
    assert ran.json == [{"context": "training", "file": str(file), "changed": True}]
    assert file.read_text() == ""
    assert "has not written a context of train" in applied_project("connect", "train").err


@pytest.mark.slow
def test_kubeconfig_uses_the_state_if_the_platform_does_not_answer(
    up: Run, home: Path, emulator: Any
) -> None:
    file = home / "kubeconfig"
    rule = {"method": "GET", "path": "^/compute/clusters", "status": 403, "count": None}
    httpx.post(f"{emulator.url}/_emulator/faults", json=rule, trust_env=False, verify=False)
    assert up("kubeconfig", "--file", str(file), "--offline").err == ""
    ran = up("kubeconfig", "--file", str(file))
    assert ran.code == 0
    assert "warning: train: shown from the state, because" in ran.err
    assert ran.out.endswith("unchanged\n")
    httpx.delete(f"{emulator.url}/_emulator/faults", trust_env=False, verify=False)
    httpx.post(f"{emulator.url}/_emulator/reset", trust_env=False, verify=False)
    ran = up("kubeconfig")
    assert ran.code == 1
    assert "train has no kubeconfig: it no longer exists on the platform" in ran.err
    assert (
        "cannot log in to train: it no longer exists" in up("connect", "train", "--via", "ssh").err
    )


@pytest.mark.slow
def test_kubeconfig_writes_several_files_as_kubectl_does(
    applied_project: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (home / name for name in ("first", "second", "third"))
    second.write_text("contexts: [{name: mine}]\ncurrent-context: mine\n")
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, (first, second, third, ""))))
    assert applied_project("kubeconfig").out == f"context training: in {second}\n"
    assert yaml.safe_load(second.read_text())["current-context"] == "mine"
    third.write_text("current-context: other\n")
    assert "current context 'other'" in applied_project("kubeconfig", "--use").err
    third.write_text("users:\n- name: another\n")
    ran = applied_project("kubeconfig", "--context", "another", "--force")
    assert ran.code == 1
    assert f"{third}:2: the user 'another' already exists" in ran.err
    assert applied_project("kubeconfig", "--context", "new", "--use").code == 0
    assert list_contexts(second) == ["new", "mine"]
    assert applied_project("kubeconfig").out.startswith("context new:")
    assert applied_project("kubeconfig", "--remove").code == 0
    assert second.read_text() == "contexts: [{name: mine}]\ncurrent-context: mine\n"
    assert not first.exists()


@pytest.mark.slow
def test_destroy_removes_deleted_clusters_from_kubeconfig_and_ssh_config(
    up: Run, home: Path
) -> None:
    (home / ".kube").mkdir()
    file = home / ".kube" / "config"
    file.write_text("# mine\n")
    assert up("kubeconfig").code == 0
    ran = up("ssh-config", "--install")
    assert ran.code == 0
    assert "ssh training-worker-1.dev.demo\n" in ran.out
    (hosts,) = (home / ".ssh" / "gpuform").iterdir()
    assert "training-worker-1.cloud.together.ai" in hosts.read_text()
    ran = up("destroy", "--yes", "--skip-preview")
    assert ran.code == 0
    assert f"context training: removed from {file}, because its cluster is deleted" in ran.err
    assert file.read_text() == "# mine\n"
    assert not hosts.exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX's")
def test_destroy_warns_about_a_read_only_kubeconfig_and_succeeds(up: Run, home: Path) -> None:
    file = home / ".kube" / "config"
    assert up("kubeconfig").code == 0
    file.chmod(0o400)
    ran = up("kubeconfig", "--context", "other")
    assert ran.code == 1
    assert "is read-only" in ran.err
    ran = up("destroy", "--yes", "--skip-preview")
    assert ran.code == 0
    assert "is read-only" in ran.err
    assert "`gpuform kubeconfig --remove`" in ran.err
    file.chmod(0o600)
    assert up("kubeconfig", "--remove").code == 0
    assert list_contexts(file) == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_ssh_config_prints_hosts_as_json_and_as_text(applied_project: Run, home: Path) -> None:
    document = applied_project("ssh-config", "--json").json
    assert document["included"] is False
    assert document["hosts"][0] == {
        "name": "training-worker-0.dev.demo",
        "cluster": "train",
        "node": "training-worker-0",
        "role": "worker",
        "jump": "",
        "problem": "",
    }
    printed = applied_project("ssh-config", "--print", "--user", "ada").out
    assert "    User ada\n" in printed
    jumped = applied_project(
        "ssh-config", "--print", "--user", "ada", "--jump", "ssh.example.com"
    ).out
    assert "    ProxyJump ada@ssh.example.com\n" in jumped
    ran = applied_project(
        "connect",
        "train",
        "--via",
        "ssh",
        "--user",
        "ada",
        "--jump",
        "eve@ssh.example.com",
        "--print",
    )
    assert ran.out.startswith("ssh -J eve@ssh.example.com ada@training-worker-")
    ran = applied_project("ssh-config")
    assert document["include"] in ran.out
    assert "User" not in Path(document["file"]).read_text()
    assert applied_project("ssh-config", "--remove", "--install").code == 0
    assert not Path(document["file"]).exists()


def test_access_commands_refuse_wrong_names_paths_and_flags(
    applied_project: Run, home: Path, project: Path
) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    for args, message in [
        (("kubeconfig", "trian"), "did you mean train?"),
        (("kubeconfig", "data"), "data is a together:SharedVolume, not a cluster"),
        (("kubeconfig", "--file", "kc"), "is inside the project"),
        (("ssh-config", "--file", "hosts"), "is inside the project"),
        (("kubeconfig", "--print", "--remove"), "--print cannot be combined with"),
        (("kubeconfig", "nope", "--remove"), "gpuform wrote no context of 'nope'"),
        (("connect", "train", "--node", "training-worker-8"), "did you mean training-worker-"),
        (("connect", "train", "--via", "slurm"), "has no Slurm login node"),
        (("connect", "train", "--port", "80"), "port 80 of train is not accessible"),
        (("connect", "train", "--user", "-oX"), "'-oX' is not a valid login name"),
        (("connect", "train", "--jump", "-oX"), "'-oX' is not a jump host"),
    ]:
        ran = applied_project(*args)
        assert ran.code == (2 if "cannot be combined with" in message or "-oX" in args else 1), args
        assert message in ran.err
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before
    assert not list(home.iterdir())


def test_credentials_appear_only_with_print(applied_project: Run, home: Path) -> None:
    printed = applied_project("kubeconfig", "--print").out
    token = yaml.safe_load(printed)["users"][0]["user"]["token"]
    (home / ".kube").mkdir()
    broken = home / ".kube" / "config"
    broken.write_text(f"users: {{token: {token}\n")
    for args in (
        ("kubeconfig", "--verbose"),
        ("kubeconfig", "--json", "--file", str(home / "other"), "-v"),
        ("ssh-config", "--json", "-v"),
        ("connect", "train", "-v"),
    ):
        ran = applied_project(*args)
        assert token not in ran.out + ran.err


def test_access_commands_name_a_stack_without_clusters(dev: Run, home: Path, emulator: Any) -> None:
    ran = dev("kubeconfig")
    assert ran.code == 1
    assert "stack 'dev' has no clusters" in ran.err
    assert dev("kubeconfig", "--remove").out.startswith("gpuform wrote no contexts")
    output = dev("connect", "train").err
    hint = "it has no clusters yet: create them with `gpuform up`"
    assert f"{hint}\n  more: gpuform help guides/access\n" in output


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_connect_runs_kubectl_with_its_exit_code(applied_project: Run, home: Path) -> None:
    file = home / "config"
    assert applied_project("kubeconfig", "--file", str(file)).code == 0
    code = "from gpuform.stacks.cli import main; main()"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            *["connect", "train", "--offline", "--", "config", "view", "--really"],
        ],
        env={**os.environ, "KUBECONFIG": str(file)},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    assert "unknown flag: --really" in done.stderr


@pytest.mark.slow
def test_destroy_ignores_a_broken_kubeconfig_without_gpuform_contexts(up: Run, home: Path) -> None:
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_text("a: [\n")
    assert "gpuform cannot edit this YAML" in up("kubeconfig").err
    assert "warning" not in up("destroy", "--yes", "--skip-preview").err
