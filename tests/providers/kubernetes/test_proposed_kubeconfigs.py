"""Test that a kubeconfig in the project names no file of this machine.

Otherwise the author of a proposal could choose a file and a server to send the file to. The user's
own kubeconfig may name files.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.kubeconfig import load_declared_kubeconfig
from gpuform.providers.slurm.scheduler import create_declared_scheduler
from gpuform.schemas.policies.drain import KubernetesInputs, ScheduledDrainInputs

SECRET = "planted-secret-of-the-machine"
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": ["token"]}


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a home directory with a secret, and the project in a repository elsewhere."""
    for name in ("GPUFORM_CLOCK", "GPUFORM_SCHEDULERS", "GPUFORM_ALLOW", "KUBECONFIG"):
        monkeypatch.delenv(name, raising=False)
    home, project = tmp_path / "home", tmp_path / "clone" / "stacks" / "dev"
    (home / ".kube").mkdir(parents=True)
    project.mkdir(parents=True)
    (tmp_path / "clone" / ".git").mkdir()
    (home / "token").write_text(SECRET)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(project)
    return tmp_path


def write(path: Path, user: dict[str, Any], server: str = "https://127.0.0.1:1") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": user}],
    }
    path.write_text(yaml.safe_dump(document))


@contextmanager
def record_foreign_requests() -> Iterator[tuple[str, list[str]]]:
    """Start a server of somebody else, and yield the received requests."""
    heard: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            heard.append(f"{self.path} {self.headers}")
            self.send_error(500)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", heard
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("declared", "place"),
    [
        ("kubeconfig", "clone/stacks/dev/kubeconfig"),
        ("../../shared", "clone/shared"),
        ("../../../outside", "outside"),
        ("{root}/clone/stacks/dev/kubeconfig", "clone/stacks/dev/kubeconfig"),
        ("{root}/clone/shared", "clone/shared"),
        ("~/../clone/shared", "clone/shared"),
        ("/proc/self/cwd/kubeconfig", "clone/stacks/dev/kubeconfig"),
    ],
)
def test_no_file_is_sent_to_the_server_of_a_projects_kubeconfig(
    machine: Path, declared: str, place: str
) -> None:
    parsed = ScheduledDrainInputs.model_validate(
        {"kubernetes": {"kubeconfig": declared.format(root=machine)}}
    )
    with record_foreign_requests() as (server, heard), use_context(ProviderContext()):
        write(machine / place, {"tokenFile": str(machine / "home" / "token")}, server)
        with pytest.raises(GpuformError, match=r"\(tokenFile\), and belongs to the project"):
            create_declared_scheduler(parsed, "pool train").list_nodes()
    assert heard == []


@pytest.mark.parametrize(
    "user",
    [
        {"tokenFile": "token"},
        {"token": "t", "client-certificate": "/etc/passwd"},
        {"client-key": "key.pem"},
        {"exec": EXEC},
        {"auth-provider": {"name": "oidc"}},
    ],
)
def test_a_projects_kubeconfig_naming_files_or_programs_is_refused(user: dict[str, Any]) -> None:
    write(Path("kubeconfig"), user)
    Path("token").write_text(SECRET)
    with pytest.raises(GpuformError, match="belongs to the project") as refused:
        load_declared_kubeconfig(KubernetesInputs(kubeconfig="kubeconfig"))
    assert "--flatten" in (refused.value.hint or "")


def test_a_projects_kubeconfig_with_embedded_content_is_used() -> None:
    write(Path("kubeconfig"), {"token": "t"})
    assert "token: t" in load_declared_kubeconfig(KubernetesInputs(kubeconfig="kubeconfig"))


@pytest.mark.parametrize("declared", [None, "~/.kube/config", "~/.kube/train", "{root}/etc/train"])
def test_files_named_by_the_users_own_kubeconfig_are_read(
    machine: Path, declared: str | None
) -> None:
    name = (declared or "~/.kube/config").format(root=machine)
    write(Path(name).expanduser(), {"tokenFile": str(machine / "home" / "token")})
    inputs = KubernetesInputs(kubeconfig=None if declared is None else name)
    assert SECRET in load_declared_kubeconfig(inputs)


def test_the_users_own_kubeconfig_can_lie_in_a_repository_of_the_home(machine: Path) -> None:
    (machine / "home" / ".git").mkdir()
    write(machine / "home" / ".kube" / "config", {"tokenFile": str(machine / "home" / "token")})
    assert SECRET in load_declared_kubeconfig(KubernetesInputs())


def test_a_path_in_the_variable_kubeconfig_is_the_users_own(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path in KUBECONFIG is trusted only outside of the project."""
    own, projects = machine / "other" / "train", machine / "clone" / "train"
    (machine / "other" / ".git").mkdir(parents=True)
    monkeypatch.setenv("KUBECONFIG", f"{own}:{projects}")
    for path in (own, projects):
        write(path, {"tokenFile": str(machine / "home" / "token")})
    assert SECRET in load_declared_kubeconfig(KubernetesInputs(kubeconfig=str(own)))
    with pytest.raises(GpuformError, match="belongs to the project"):
        load_declared_kubeconfig(KubernetesInputs(kubeconfig=str(projects)))


def test_a_link_out_of_the_project_is_refused_too(machine: Path) -> None:
    write(machine / "clone" / "evil", {"tokenFile": str(machine / "home" / "token")})
    (machine / "home" / "link").symlink_to(machine / "clone" / "evil")
    with pytest.raises(GpuformError, match="belongs to the project"):
        load_declared_kubeconfig(KubernetesInputs(kubeconfig=str(machine / "home" / "link")))


def test_a_path_that_a_person_types_may_be_in_the_project(machine: Path) -> None:
    write(Path("kubeconfig"), {"tokenFile": str(machine / "home" / "token")})
    inputs = KubernetesInputs(kubeconfig="kubeconfig")
    assert SECRET in load_declared_kubeconfig(inputs, "--", is_typed=True)
