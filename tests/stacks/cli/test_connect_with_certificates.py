"""`connect` and `ssh-config` for a cluster with an SSH certificate authority of its own."""

import shutil
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from processes.limits import LAST_RESORT
from support.stacks.planned_project import PlannedProject
from support.stacks.stack_copies import StackCopies

from gpuform.providers.emulator.server import Server, environment

PROGRAM = """
from gpuform.providers.together import Cluster

Cluster(
    "train", cluster_name="train", region="us-central-8", gpu_type="H100_SXM", num_gpus=16,
    driver_version="CUDA_12_6_560", billing_type="ON_DEMAND", cluster_type="SLURM",
    slurm_shm_size_gib=64, cluster_config={"load_balancer": "NONE", "ssh_ca_enabled": True},
)
"""
needs_openssh = pytest.mark.skipif(not shutil.which("ssh"), reason="there is no OpenSSH here")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my home 100%"
    folder.mkdir()
    monkeypatch.setattr(Path, "home", lambda: folder)
    return folder


@pytest.fixture(autouse=True)
def own_callback_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each login listen on a free port: other tests at the same time log in as well."""
    monkeypatch.setattr("gpuform.stacks.access.ssh_certificates._CALLBACK_PORTS", (0,))


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A browser in which somebody is logged in already; the addresses that it opened."""
    opened: list[str] = []

    def open_address(url: str) -> bool:
        opened.append(url)
        get = {"follow_redirects": True, "trust_env": False, "timeout": LAST_RESORT}
        threading.Thread(target=httpx.get, args=(url,), kwargs=get, daemon=True).start()
        return True

    monkeypatch.setattr("webbrowser.open", open_address)
    return opened


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that `connect` ran, in place of running them."""
    ran: list[list[str]] = []
    monkeypatch.setattr(
        "gpuform.stacks.access.cluster_access.execute_command",
        lambda words: ran.append(list(words)) or 0,
    )
    return ran


@pytest.fixture
def train(
    dev: Any,
    project: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    stack_copies: StackCopies,
) -> Iterator[PlannedProject]:
    def set_variables(server: Server) -> None:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)

    def create_stack(server: Server) -> None:
        set_variables(server)
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.out + ran.err

    (project / "__main__.py").write_text(PROGRAM)
    with stack_copies.serve_copy("certificates", project, create_stack) as server:
        set_variables(server)
        yield PlannedProject(dev, project, server.url)


def add_fault(train: PlannedProject, **rule: Any) -> None:
    data = httpx.Request("POST", "http://x", json={"platform": "together-ssh", **rule}).content
    urllib.request.urlopen(f"{train.url}/_emulator/faults", data).close()


def find_certificate(home: Path) -> Path:
    (path,) = (home / ".ssh/gpuform/certificates").rglob("*-cert.pub")
    return path


@needs_openssh
@pytest.mark.slow
@pytest.mark.sampled(1)
def test_connect_logs_in_once_and_runs_ssh_with_the_certificate(
    train: PlannedProject, home: Path, logins: list[str], commands: list[list[str]]
) -> None:
    ran = train.run("connect", "train", "--user", "ada", "--", "sinfo")
    assert (ran.code, len(logins)) == (0, 1), ran.err
    assert logins[0] in ran.err
    assert commands[0][-3:] == ["ada@slurm-login", "--", "sinfo"]
    certificate = find_certificate(home)
    listed = subprocess.run(
        ["ssh-keygen", "-L", "-f", certificate], check=True, capture_output=True, text=True
    ).stdout
    assert "user certificate" in listed
    assert "ada@example.com" in listed
    key = certificate.with_name("id_ecdsa")
    assert [path.stat().st_mode & 0o777 for path in (key, certificate)] == [0o600, 0o600]

    options = subprocess.run(
        ["ssh", "-G", *commands[0][1:-2]], check=True, capture_output=True, text=True
    ).stdout
    settings = dict(line.split(" ", 1) for line in options.splitlines() if " " in line)
    assert settings["user"] == "ada"
    assert settings["identitiesonly"] == "yes"
    assert settings["identityfile"].replace("%%", "%") == str(key)
    assert settings["certificatefile"].replace("%%", "%") == str(certificate)
    assert settings["hostkeyalias"].startswith("slurm-login.")
    assert " -W %h:%p ada@ssh." in settings["proxycommand"]

    assert train.run("connect", "train", "--node", "train-worker-1", "--user", "ada").code == 0
    assert (len(logins), commands[1][-1]) == (1, "ada@train-worker-1")
    assert train.run("connect", "train", "--user", "bob").code == 0
    assert len(logins) == 2


def test_a_certificate_that_ends_soon_is_renewed(
    train: PlannedProject,
    home: Path,
    logins: list[str],
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect = "connect", "train", "--user", "ada"
    assert train.run(*connect).code == 0
    before, now = find_certificate(home).read_text(), time.time()
    monkeypatch.setattr("time.time", lambda: now + 16 * 3600 - 60)
    assert train.run(*connect).code == 0
    assert len(logins) == len(commands) == 2
    assert find_certificate(home).read_text() != before


def test_print_logs_nobody_in(train: PlannedProject, home: Path, logins: list[str]) -> None:
    ran = train.run("connect", "train", "--user", "ada", "--print")
    assert (ran.code, logins) == (0, [])
    assert "IdentitiesOnly=yes" in ran.out
    assert not (home / ".ssh").exists()
    refused = train.run("connect", "train", "--print")
    assert (refused.code, "add your login name on the cluster: --user" in refused.err) == (1, True)
    jump = train.run("connect", "train", "--user", "ada", "--jump", "bob@gate:2222", "--print").out
    assert "-p 2222 -W %h:%p bob@gate" in jump


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"path": "/ssh/sign$", "status": 401}, "/ssh/sign answers 401"),
        ({"path": "/token$", "status": 400}, "/token answers 400"),
        ({"path": "openid-configuration$", "drop": "before"}, "does not answer as expected"),
    ],
)
def test_a_refused_login_is_an_error_and_leaves_no_certificate(
    train: PlannedProject,
    home: Path,
    logins: list[str],
    commands: list[list[str]],
    rule: dict[str, Any],
    message: str,
) -> None:
    add_fault(train, **rule)
    ran = train.run("connect", "train", "--user", "ada")
    assert (ran.code, message in ran.err, commands) == (1, True, [])
    assert "Traceback" not in ran.err
    assert not list(home.rglob("*-cert.pub"))


def test_a_silent_connection_and_a_foreign_request_do_not_end_the_login(
    train: PlannedProject, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuform.stacks.access.ssh_certificates.SILENT_CONNECTION_S", 0.05)
    answers: list[int] = []
    threads: list[threading.Thread] = []

    def ask(address: str) -> int:
        """Repeat the request until an answer comes: a slow request is a silent connection too."""
        while True:
            with suppress(httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                return httpx.get(
                    address, follow_redirects=True, trust_env=False, timeout=LAST_RESORT
                ).status_code

    def open_address(url: str) -> bool:
        (address,) = parse_qs(urlsplit(url).query)["redirect_uri"]
        target = urlsplit(address)
        silent = socket.create_connection((target.hostname or "", target.port or 0))

        def log_in() -> None:
            foreign = [address + query for query in ("", "?code=evil&state=%C3%A9", "?state=x")]
            answers.extend(map(ask, (*foreign, url)))
            silent.close()

        threads.append(threading.Thread(target=log_in, daemon=True))
        threads[0].start()
        return True

    monkeypatch.setattr("webbrowser.open", open_address)
    ran = train.run("connect", "train", "--user", "ada")
    assert (ran.code, len(commands)) == (0, 1), ran.err
    threads[0].join(LAST_RESORT)
    assert answers == [400, 400, 400, 200]
    assert "Traceback" not in ran.err


def test_nobody_logs_in(
    train: PlannedProject, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _url: False)
    monkeypatch.setattr("gpuform.stacks.access.ssh_certificates.LOGIN_TIMEOUT_S", 0.0)
    ran = train.run("connect", "train", "--user", "ada")
    assert (ran.code, "nobody logged in with the browser" in ran.err, commands) == (1, True, [])


@needs_openssh
def test_ssh_config_uses_the_certificate_and_the_bastion(
    train: PlannedProject, home: Path, logins: list[str]
) -> None:
    file = home / "hosts.conf"
    ran = train.run("ssh-config", "--user", "ada", "--file", str(file))
    assert (ran.code, logins) == (0, [])
    options = subprocess.run(
        ["ssh", "-G", "-F", file, "train-worker-1.dev.demo"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    settings = dict(line.split(" ", 1) for line in options.splitlines() if " " in line)
    assert (settings["hostname"], settings["user"]) == ("train-worker-1", "ada")
    assert settings["certificatefile"].endswith("id_ecdsa-cert.pub")
    assert " -W %h:%p ada@ssh." in settings["proxycommand"]
    without_user = train.run("ssh-config", "--print")
    assert "need a login name: --user NAME" in without_user.out
