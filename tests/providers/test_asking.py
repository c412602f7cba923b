"""Test which schedulers a run contacts: no real one on the emulator, no new one in a proposal."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.providers.environment import find_schedulers
from gpuform.providers.errors import GpuformError, NotAllowed
from gpuform.providers.kubernetes.kubeconfig import load_declared_kubeconfig
from gpuform.providers.slurm.scheduler import create_command_runner
from gpuform.schemas.policies.drain import KubernetesInputs, SlurmInputs

EMULATOR = "http://127.0.0.1:18099"
WAYS = [SlurmInputs(via="ssh", host="login"), SlurmInputs(via="local")]


@pytest.fixture(autouse=True)
def clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GPUFORM_CLOCK", "GPUFORM_SCHEDULERS", "GPUFORM_ALLOW"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def use_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFORM_CLOCK", EMULATOR)


def write_kubeconfig(
    folder: Path, server: str, user: dict[str, Any] | None = None
) -> KubernetesInputs:
    path = folder / "config"
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": user or {"token": "planted"}}],
    }
    path.write_text(yaml.safe_dump(document))
    return KubernetesInputs(kubeconfig=str(path))


@pytest.mark.usefixtures("use_emulator")
def test_no_real_scheduler_is_contacted_on_the_emulator(tmp_path: Path) -> None:
    """Real nodes with the names of emulated ones would be drained."""
    for declared in WAYS:
        with pytest.raises(NotAllowed, match=f"Slurm by {declared.via} was not asked"):
            create_command_runner(declared)
    with pytest.raises(NotAllowed, match="this run uses the emulator, but the scheduler is real"):
        load_declared_kubeconfig(write_kubeconfig(tmp_path, "https://10.0.0.1:6443"))


@pytest.mark.usefixtures("use_emulator")
def test_an_emulated_scheduler_is_contacted(tmp_path: Path) -> None:
    for server in (f"{EMULATOR}/kubernetes/1", "https://127.0.0.1:18099"):
        assert server in load_declared_kubeconfig(write_kubeconfig(tmp_path, server))


@pytest.mark.usefixtures("use_emulator")
def test_a_real_scheduler_is_contacted_with_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFORM_ALLOW", "real-schedulers")
    assert load_declared_kubeconfig(write_kubeconfig(tmp_path, "https://10.0.0.1:6443"))
    assert all(create_command_runner(way) for way in WAYS)


def test_every_scheduler_is_contacted_on_real_platforms(tmp_path: Path) -> None:
    assert load_declared_kubeconfig(write_kubeconfig(tmp_path, "https://10.0.0.1:6443"))
    assert all(create_command_runner(way) for way in WAYS)


def test_a_proposal_contacts_only_schedulers_of_the_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared_file = write_kubeconfig(tmp_path, "https://10.0.0.1:6443")
    inputs = [{"drain": {"kubernetes": declared_file.model_dump(), "slurm": {"via": "local"}}}]
    monkeypatch.setenv("GPUFORM_SCHEDULERS", json.dumps(find_schedulers(inputs)))
    declared_kubeconfig = load_declared_kubeconfig(declared_file)
    assert create_command_runner(SlurmInputs(via="local"))
    assert create_command_runner(SlurmInputs(), kubeconfig=declared_kubeconfig)
    # Who drains the nodes does not make it another Slurm.
    assert create_command_runner(SlurmInputs(via="local", drain_by="slinky"))
    others = [SlurmInputs(via="ssh", host="login"), SlurmInputs(via="local", sudo=True)]
    for declared in others:
        with pytest.raises(GpuformError, match="no resource of the stack names this scheduler"):
            create_command_runner(declared)
    with pytest.raises(GpuformError, match="no resource of the stack names"):
        create_command_runner(
            SlurmInputs(pod_selector="app=theirs"), kubeconfig=declared_kubeconfig
        )
    with pytest.raises(GpuformError, match="no resource of the stack names"):
        load_declared_kubeconfig(declared_file.model_copy(update={"context": "x"}))


def test_files_named_by_a_proposal_are_not_read_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error must not reveal whether the file exists."""
    monkeypatch.setenv("GPUFORM_SCHEDULERS", "{}")
    declared = write_kubeconfig(
        tmp_path, "https://10.0.0.1", {"tokenFile": str(tmp_path / "missing")}
    )
    with pytest.raises(GpuformError, match="was not asked"):
        load_declared_kubeconfig(declared)


@pytest.mark.usefixtures("use_emulator")
def test_the_contexts_of_a_real_kubeconfig_are_not_listed_on_the_emulator(tmp_path: Path) -> None:
    """A case of `gpuform test` may come with a pull request, and would print them."""
    declared = write_kubeconfig(tmp_path, "https://10.0.0.1:6443")
    other_context = declared.model_copy(update={"context": "unknown"})
    with pytest.raises(NotAllowed) as caught:
        load_declared_kubeconfig(other_context)
    assert "it has x" not in str(caught.value)
    use_emulator = write_kubeconfig(tmp_path, f"{EMULATOR}/kubernetes/1")
    with pytest.raises(GpuformError, match=r"context unknown not found in .*; its contexts are x"):
        load_declared_kubeconfig(use_emulator.model_copy(update={"context": "unknown"}))
