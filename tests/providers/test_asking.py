"""Whom a run asks for jobs: on the emulator nobody real, in a proposal nobody new."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.providers.environment import find_schedulers
from gpuform.providers.errors import GpuformError, NotAllowed
from gpuform.providers.kubernetes.kubeconfig import load_declared_kubeconfig
from gpuform.providers.slurm import create_command_runner
from gpuform.schemas.policies.drain import KubernetesInputs
from gpuform.schemas.slurm import SlurmInputs

EMULATOR = "http://127.0.0.1:18099"
WAYS = [SlurmInputs(via="ssh", host="login"), SlurmInputs(via="local")]


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPUFORM_CLOCK", "GPUFORM_SCHEDULERS", "GPUFORM_ALLOW"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFORM_CLOCK", EMULATOR)


def kubeconfig(folder: Path, server: str, user: dict[str, Any] | None = None) -> KubernetesInputs:
    path = folder / "config"
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": user or {"token": "planted"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return KubernetesInputs(kubeconfig=str(path))


@pytest.mark.usefixtures("emulated")
def test_no_real_scheduler_is_asked_on_the_emulator(tmp_path: Path) -> None:
    """Its nodes may have the names of the emulated ones, and would be drained."""
    for declared in WAYS:
        with pytest.raises(NotAllowed, match=f"Slurm by {declared.via} is not asked"):
            create_command_runner(declared)
    with pytest.raises(NotAllowed, match="this run is on the emulator, and the scheduler is not"):
        load_declared_kubeconfig(kubeconfig(tmp_path, "https://10.0.0.1:6443"))


@pytest.mark.usefixtures("emulated")
def test_an_emulated_one_is_asked(tmp_path: Path) -> None:
    for server in (f"{EMULATOR}/kubernetes/1", "https://127.0.0.1:18099"):
        assert server in load_declared_kubeconfig(kubeconfig(tmp_path, server))


@pytest.mark.usefixtures("emulated")
def test_a_person_may_allow_a_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFORM_ALLOW", "real-schedulers")
    assert load_declared_kubeconfig(kubeconfig(tmp_path, "https://10.0.0.1:6443"))
    assert all(create_command_runner(each) for each in WAYS)


def test_on_real_platforms_all_are_asked(tmp_path: Path) -> None:
    assert load_declared_kubeconfig(kubeconfig(tmp_path, "https://10.0.0.1:6443"))
    assert all(create_command_runner(each) for each in WAYS)


def test_a_proposal_asks_those_that_the_stack_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = kubeconfig(tmp_path, "https://10.0.0.1:6443")
    inputs = [{"drain": {"kubernetes": known.model_dump(), "slurm": {"via": "local"}}}]
    monkeypatch.setenv("GPUFORM_SCHEDULERS", json.dumps(find_schedulers(inputs)))
    text = load_declared_kubeconfig(known)
    assert create_command_runner(SlurmInputs(via="local"))
    assert create_command_runner(SlurmInputs(), kubeconfig=text)
    others = [SlurmInputs(via="ssh", host="login"), SlurmInputs(via="local", sudo=True)]
    for declared in others:
        with pytest.raises(GpuformError, match="no resource yet that names this scheduler"):
            create_command_runner(declared)
    with pytest.raises(GpuformError, match="no resource yet that names"):
        create_command_runner(SlurmInputs(pod_selector="app=theirs"), kubeconfig=text)
    with pytest.raises(GpuformError, match="no resource yet that names"):
        load_declared_kubeconfig(known.model_copy(update={"context": "x"}))


def test_files_that_it_names_are_not_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one is there is nothing to tell."""
    monkeypatch.setenv("GPUFORM_SCHEDULERS", "{}")
    declared = kubeconfig(tmp_path, "https://10.0.0.1", {"tokenFile": str(tmp_path / "missing")})
    with pytest.raises(GpuformError, match="is not asked"):
        load_declared_kubeconfig(declared)


@pytest.mark.usefixtures("emulated")
def test_the_contexts_of_a_real_kubeconfig_are_not_told_on_the_emulator(tmp_path: Path) -> None:
    """A case of `gpuform test`, which may come with a pull request, would print them."""
    declared = kubeconfig(tmp_path, "https://10.0.0.1:6443")
    asked = declared.model_copy(update={"context": "unknown"})
    with pytest.raises(NotAllowed) as caught:
        load_declared_kubeconfig(asked)
    assert "it has x" not in str(caught.value)
    emulated = kubeconfig(tmp_path, f"{EMULATOR}/kubernetes/1")
    with pytest.raises(GpuformError, match="has no context unknown; it has x"):
        load_declared_kubeconfig(emulated.model_copy(update={"context": "unknown"}))
