"""Hosts for OpenSSH, which itself says what it makes of them."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.schemas.access import Access, Host, is_valid_jump_host
from gpuform.stacks.access.connecting import Cluster
from gpuform.stacks.access.kubeconfig_text import Mark
from gpuform.stacks.access.ssh_files import SshFiles, config_text, ssh_hosts, without_clusters

ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")


def cluster(name: str, *hosts: Host, id_: str = "") -> Cluster:
    mark = Mark(id_ or f"id-{name}", f"urn:{name}", "/state")
    return Cluster(name, mark, Access(name=name, hosts=hosts))


TRAIN = cluster(
    "training",
    Host(node="slurm-login", address="slurm-login", role="login"),
    Host.from_address("training-worker-0", "training-worker-0.cloud.together.ai"),
    Host.from_address("gpu 7", "gpu-7.cloud.together.ai"),
    Host.from_address("new", "", because="it is Booting\nHost *\n    ProxyCommand evil"),
)
BENCH = cluster(
    "bench",
    Host(node="bench", address="ssh-1.tensorone.ai", port=2222, user="root", role="machine"),
)
POOL = cluster("fabric", Host.from_address("train-001", "203.0.113.7", user="root"))


def asked(config: Path, host: str) -> dict[str, str]:
    done = subprocess.run(
        ["ssh", "-F", str(config), "-G", host], capture_output=True, check=True, text=True
    )
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def write(files: SshFiles, project: str, stack: str, *clusters: Cluster, user: str = "") -> None:
    text = config_text(ssh_hosts(clusters, project, stack, user), project, stack)
    files.own.update(lambda _: text)


@ssh
def test_ssh_finds_the_hosts_of_several_stacks(home: Path) -> None:
    config = home / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text("Host *\n    User me\n    Port 29\n")
    for stack in ("dev", "prod"):
        files = SshFiles.of(None, "demo", stack, f"/state/{stack}")
        write(files, "demo", stack, TRAIN, BENCH, POOL, user="ubuntu")
        assert files.install() == (stack == "dev")
        assert files.is_included
    for stack in ("dev", "prod"):
        found = asked(config, f"training-worker-0.{stack}.demo")
        assert found["hostname"] == "training-worker-0.cloud.together.ai"
        assert (found["user"], found["port"]) == ("ubuntu", "29")
        assert asked(config, f"training-login.{stack}.demo")["hostname"] == "slurm-login"
        assert asked(config, f"training-gpu-7.{stack}.demo")["hostname"].startswith("gpu-7.")
        found = asked(config, f"bench.{stack}.demo")
        told = (found["hostname"], found["user"], found["port"])
        assert told == ("ssh-1.tensorone.ai", "root", "2222")
        assert asked(config, f"fabric-train-001.{stack}.demo")["hostname"] == "203.0.113.7"
    assert "proxycommand" not in asked(config, "anything")


def test_the_users_file_changes_by_one_line(home: Path) -> None:
    config = home / ".ssh" / "config"
    config.parent.mkdir()
    files = SshFiles.of(None, "demo", "dev", "/state")
    for text in (
        "",
        "Host a\r\n  User b\r\n",
        "# mine\nHost *\n  Include gpuform/*.conf",
        "Match all\n",
    ):
        config.write_bytes(text.encode())
        config.chmod(0o644)
        assert not files.is_included
        assert files.install()
        assert not files.install()
        assert files.is_included
        written = config.read_bytes().decode()
        assert written.endswith(text)
        assert len(written) - len(text) == len(files.include) + (2 if "\r" in text else 1)
        assert files.uninstall()
        assert config.read_bytes().decode() == text


def test_names_that_would_be_one_are_told_apart() -> None:
    twins = [
        cluster("a", Host.from_address("n 1", "x")),
        cluster("a", Host.from_address("n-1", "y")),
    ]
    assert [each.alias for each in ssh_hosts(twins, "p", "s")] == ["a-n-1.s.p", "2.a-n-1.s.p"]


def test_a_name_like_a_number_is_told_apart_as_well() -> None:
    hosts = [Host.from_address(name, "x") for name in ("2.a", "a", "A", "a")]
    aliases = [each.alias.lower() for each in ssh_hosts([cluster("", *hosts)], "p", "s")]
    assert len(set(aliases)) == 4


PIECES = (
    *("\n", "\r", "\x0b", "\x85", "\u2028", "\0", "\x1b", "\u202e", " ", "\t", "#", '"', "*", "!"),
    *("Host *", "ProxyCommand touch /tmp/owned", "Match all", "Include /tmp/x", "# Cluster a b"),
    *("?", "-", ".", "..", "/", "%h", "ä", "x", "\ud800"),
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@pytest.mark.slow
@ssh
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS), max_size=2))
def test_no_text_of_a_platform_becomes_a_line(texts: Sequence[tuple[str, ...]]) -> None:
    """A file has the hosts that there are, and says nothing of any other."""
    clusters = [
        cluster(
            name,
            Host.from_address(node, f"{number}.good.test", user="me"),
            Host.from_address(f"{node}-b", address, because=because),
            id_=f"{id_}-{number}",
        )
        for number, (name, node, address, because, id_) in enumerate(texts)
    ]
    hosts = ssh_hosts(clusters, "demo", "dev")
    with TemporaryDirectory() as folder:
        file, empty = Path(folder, "hosts.conf"), Path(folder, "empty")
        file.write_text(config_text(hosts, "demo", "dev"), encoding="utf-8")
        empty.write_text("")
        assert asked(file, "another.test") == asked(empty, "another.test")
        for each in hosts:
            is_there = not each.host.because
            user = {"user": "me"} if is_there and each.host.user else {}
            said = {"hostname": each.host.address, **user} if is_there else {}
            assert asked(file, each.alias) == asked(empty, each.alias) | said
    for gone in {each.id for each in hosts}:
        left = [each for each in hosts if each.id != gone]
        text = config_text(left, "demo", "dev") if left else ""
        assert without_clusters(config_text(hosts, "demo", "dev"), {gone}).strip() == text.strip()


def test_the_hosts_of_a_deleted_cluster_go() -> None:
    text = config_text(ssh_hosts([TRAIN, BENCH], "demo", "dev"), "demo", "dev")
    left = without_clusters(text, {"id-training"})
    assert left == config_text(ssh_hosts([BENCH], "demo", "dev"), "demo", "dev")
    assert without_clusters(left, {"id-bench"}) == ""
    assert without_clusters(text, {"another"}) == text


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "a b", "a\nHost *", "", "a;b", "$(x)"])
def test_what_is_no_address_is_no_host(address: str) -> None:
    assert Host.from_address("n", address).because == "the platform reports no address"


JUMP = "ssh.t-0f11e35c.s1.us-central-8a.cloud.together.ai"


@ssh
def test_the_way_through_a_jump_host(home: Path) -> None:
    told = Host(node="slurm-login", address="slurm-login", role="login", jump=f"eve@{JUMP}:2222")
    hosts = ssh_hosts(
        [cluster("a", told, Host.from_address("a-0", "x"))], "demo", "dev", "ada", JUMP
    )
    file = home / "hosts"
    file.write_text(config_text(hosts, "demo", "dev"))
    assert asked(file, "a-login.dev.demo")["proxyjump"] == f"eve@{JUMP}:2222"
    found = asked(file, "a-0.dev.demo")
    assert (found["user"], found["proxyjump"]) == ("ada", f"ada@{JUMP}")


@pytest.mark.parametrize(
    "text",
    [
        "-oProxyCommand=x",
        "a b",
        "a@-b",
        "@b",
        "a@",
        "a:",
        "a:0",
        "a:70000",
        "a,b",
        "a\nHost *",
        "a:x",
    ],
)
def test_what_is_no_jump_host(text: str) -> None:
    assert not is_valid_jump_host(text)
    with pytest.raises(ValueError, match="jump host"):
        Host.from_address("n", "x", jump=text)


@ssh
def test_paths_with_spaces_are_included(home: Path) -> None:
    folder = home / "my files"
    files = SshFiles.of(folder / "hosts", "demo", "dev", "/state")
    write(files, "demo", "dev", POOL)
    files.install()
    found = asked(home / ".ssh" / "config", "fabric-train-001.dev.demo")
    assert found["hostname"] == "203.0.113.7"
