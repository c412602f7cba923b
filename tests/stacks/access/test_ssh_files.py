"""Hosts written for OpenSSH, as OpenSSH itself reads them."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.schemas.access import Access, Host, is_valid_jump_host
from gpuform.stacks.access.cluster_access import ClusterAccess
from gpuform.stacks.access.kubeconfig_document import ClusterLabel
from gpuform.stacks.access.ssh_files import (
    SshFiles,
    list_ssh_hosts,
    remove_clusters,
    render_ssh_config,
)

ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not installed")


def build_cluster(name: str, *hosts: Host, id_: str = "") -> ClusterAccess:
    label = ClusterLabel(id_ or f"id-{name}", f"urn:{name}", "/state")
    return ClusterAccess(name, label, Access(name=name, hosts=hosts))


TRAIN = build_cluster(
    "training",
    Host(node="slurm-login", address="slurm-login", role="login"),
    Host.from_address("training-worker-0", "training-worker-0.cloud.together.ai"),
    Host.from_address("gpu 7", "gpu-7.cloud.together.ai"),
    Host.from_address("new", "", because="it is Booting\nHost *\n    ProxyCommand evil"),
)
BENCH = build_cluster(
    "bench",
    Host(node="bench", address="ssh-1.tensorone.ai", port=2222, user="root", role="machine"),
)
POOL = build_cluster("fabric", Host.from_address("train-001", "203.0.113.7", user="root"))


def read_with_ssh(config: Path, host: str) -> dict[str, str]:
    completed = subprocess.run(
        ["ssh", "-F", str(config), "-G", host], capture_output=True, check=True, text=True
    )
    return dict(line.split(" ", 1) for line in completed.stdout.splitlines() if " " in line)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def write_hosts(
    files: SshFiles, project: str, stack: str, *clusters: ClusterAccess, user: str = ""
) -> None:
    ssh_config = render_ssh_config(list_ssh_hosts(clusters, project, stack, user), project, stack)
    files.stack_file.update(lambda _: ssh_config)


@ssh
def test_ssh_finds_the_hosts_of_several_stacks(home: Path) -> None:
    config = home / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text("Host *\n    User me\n    Port 29\n")
    for stack in ("dev", "prod"):
        files = SshFiles.for_stack(None, "demo", stack, f"/state/{stack}")
        write_hosts(files, "demo", stack, TRAIN, BENCH, POOL, user="ubuntu")
        assert files.install() == (stack == "dev")
        assert files.is_included
    for stack in ("dev", "prod"):
        options = read_with_ssh(config, f"training-worker-0.{stack}.demo")
        assert options["hostname"] == "training-worker-0.cloud.together.ai"
        assert (options["user"], options["port"]) == ("ubuntu", "29")
        assert read_with_ssh(config, f"training-login.{stack}.demo")["hostname"] == "slurm-login"
        assert read_with_ssh(config, f"training-gpu-7.{stack}.demo")["hostname"].startswith(
            "gpu-7."
        )
        options = read_with_ssh(config, f"bench.{stack}.demo")
        destination = (options["hostname"], options["user"], options["port"])
        assert destination == ("ssh-1.tensorone.ai", "root", "2222")
        assert read_with_ssh(config, f"fabric-train-001.{stack}.demo")["hostname"] == "203.0.113.7"
    assert "proxycommand" not in read_with_ssh(config, "anything")


def test_install_adds_one_line_to_the_users_file_and_uninstall_removes_it(home: Path) -> None:
    config = home / ".ssh" / "config"
    config.parent.mkdir()
    files = SshFiles.for_stack(None, "demo", "dev", "/state")
    for users_config in (
        "",
        "Host a\r\n  User b\r\n",
        "# mine\nHost *\n  Include gpuform/*.conf",
        "Match all\n",
    ):
        config.write_bytes(users_config.encode())
        config.chmod(0o644)
        assert not files.is_included
        assert files.install()
        assert not files.install()
        assert files.is_included
        written = config.read_bytes().decode()
        assert written.endswith(users_config)
        assert len(written) - len(users_config) == len(files.include_line) + (
            2 if "\r" in users_config else 1
        )
        assert files.uninstall()
        assert config.read_bytes().decode() == users_config


def test_equal_aliases_get_a_number() -> None:
    twins = [
        build_cluster("a", Host.from_address("n 1", "x")),
        build_cluster("a", Host.from_address("n-1", "y")),
    ]
    assert [host.alias for host in list_ssh_hosts(twins, "p", "s")] == ["a-n-1.s.p", "2.a-n-1.s.p"]


def test_aliases_differ_for_names_that_look_numbered() -> None:
    hosts = [Host.from_address(name, "x") for name in ("2.a", "a", "A", "a")]
    aliases = [host.alias.lower() for host in list_ssh_hosts([build_cluster("", *hosts)], "p", "s")]
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
def test_texts_of_platforms_never_become_lines_of_the_file(
    texts: Sequence[tuple[str, ...]],
) -> None:
    """Check that the file configures exactly the reachable hosts."""
    clusters = [
        build_cluster(
            name,
            Host.from_address(node, f"{number}.good.test", user="me"),
            Host.from_address(f"{node}-b", address, because=because),
            id_=f"{id_}-{number}",
        )
        for number, (name, node, address, because, id_) in enumerate(texts)
    ]
    hosts = list_ssh_hosts(clusters, "demo", "dev")
    with TemporaryDirectory() as folder:
        file, empty = Path(folder, "hosts.conf"), Path(folder, "empty")
        file.write_text(render_ssh_config(hosts, "demo", "dev"), encoding="utf-8")
        empty.write_text("")
        assert read_with_ssh(file, "another.test") == read_with_ssh(empty, "another.test")
        for ssh_host in hosts:
            is_reachable = not ssh_host.host.because
            user = {"user": "me"} if is_reachable and ssh_host.host.user else {}
            expected = {"hostname": ssh_host.host.address, **user} if is_reachable else {}
            assert (
                read_with_ssh(file, ssh_host.alias)
                == read_with_ssh(empty, ssh_host.alias) | expected
            )
    for deleted_id in {host.cluster_id for host in hosts}:
        remaining = [host for host in hosts if host.cluster_id != deleted_id]
        rendered = render_ssh_config(remaining, "demo", "dev") if remaining else ""
        assert (
            remove_clusters(render_ssh_config(hosts, "demo", "dev"), {deleted_id}).strip()
            == rendered.strip()
        )


def test_remove_clusters_removes_their_hosts_only() -> None:
    ssh_config = render_ssh_config(list_ssh_hosts([TRAIN, BENCH], "demo", "dev"), "demo", "dev")
    remaining = remove_clusters(ssh_config, {"id-training"})
    assert remaining == render_ssh_config(list_ssh_hosts([BENCH], "demo", "dev"), "demo", "dev")
    assert remove_clusters(remaining, {"id-bench"}) == ""
    assert remove_clusters(ssh_config, {"another"}) == ssh_config


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "a b", "a\nHost *", "", "a;b", "$(x)"])
def test_an_invalid_address_makes_no_reachable_host(address: str) -> None:
    assert Host.from_address("n", address).because == "the platform reports no address"


JUMP = "ssh.t-0f11e35c.s1.us-central-8a.cloud.together.ai"


@ssh
def test_hosts_use_their_own_or_the_default_jump_host(home: Path) -> None:
    login = Host(node="slurm-login", address="slurm-login", role="login", jump=f"eve@{JUMP}:2222")
    hosts = list_ssh_hosts(
        [build_cluster("a", login, Host.from_address("a-0", "x"))], "demo", "dev", "ada", JUMP
    )
    file = home / "hosts"
    file.write_text(render_ssh_config(hosts, "demo", "dev"))
    assert read_with_ssh(file, "a-login.dev.demo")["proxyjump"] == f"eve@{JUMP}:2222"
    options = read_with_ssh(file, "a-0.dev.demo")
    assert (options["user"], options["proxyjump"]) == ("ada", f"ada@{JUMP}")


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
def test_invalid_jump_hosts_are_refused(text: str) -> None:
    assert not is_valid_jump_host(text)
    with pytest.raises(ValueError, match="jump host"):
        Host.from_address("n", "x", jump=text)


@ssh
def test_ssh_includes_files_at_paths_with_spaces(home: Path) -> None:
    folder = home / "my files"
    files = SshFiles.for_stack(folder / "hosts", "demo", "dev", "/state")
    write_hosts(files, "demo", "dev", POOL)
    files.install()
    options = read_with_ssh(home / ".ssh" / "config", "fabric-train-001.dev.demo")
    assert options["hostname"] == "203.0.113.7"
