"""Test which kubeconfigs are read, and which are refused without showing their content."""

import base64
import ssl
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.providers.kubernetes.client import KubernetesClient
from gpuform.providers.kubernetes.kubeconfig import flatten_kubeconfig, load_access
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.schemas.errors import EngineError
from gpuform.stacks.access.kubeconfig_document import ClusterLabel
from gpuform.stacks.access.kubeconfig_files import Credential


def build_kubeconfig(user: dict[str, Any], **at: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1/x/"} | at}],
            "users": [{"name": "u", "user": user}],
        }
    )


def test_a_token_signs_in() -> None:
    access = load_access(build_kubeconfig({"token": "s3cret"}), "train")
    assert access.server == "http://127.0.0.1/x"
    assert access.headers()["Authorization"] == "Bearer s3cret"
    assert "s3cret" in access.secrets
    assert "s3cret" not in repr(access)


def test_a_password_signs_in() -> None:
    access = load_access(build_kubeconfig({"username": "me", "password": "s3cret"}), "train")
    expected = base64.b64encode(b"me:s3cret").decode()
    assert access.headers()["Authorization"] == f"Basic {expected}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a list",
        "{s3cret: [",
        "current-context: s3cret",
        build_kubeconfig({"exec": {"command": "s3cret"}}),
        build_kubeconfig({"auth-provider": {"name": "gcp", "config": {"access-token": "s3cret"}}}),
        build_kubeconfig({"client-certificate-data": "s3cret"}, server="https://k.test"),
        build_kubeconfig({"token": "s3cret"}, **{"certificate-authority-data": "s3cret!"}),
        build_kubeconfig({"token": "s3cret"}).replace("current-context: c", "current-context: d"),
    ],
)
def test_an_unusable_kubeconfig_is_refused_and_never_shown(text: str) -> None:
    with pytest.raises(GpuformError, match="train") as refused:
        load_access(text, "train")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "user",
    [
        {"exec": {"apiVersion": "v1", "command": "/bin/sh", "args": ["-c", "s3cret"]}},
        {"auth-provider": {"name": "oidc"}},
        {"tokenFile": "/etc/passwd"},
        {"token": "t", "client-key": "/home/ada/.ssh/id_ed25519"},
        {"token": "t", "client-certificate": "/etc/passwd"},
        {"token": "t", "as": "system:admin"},
        {"token": "t", "s3cret": "s3cret"},
        {"token": "s3cret\nX-Header: y"},
        {"token": ["s3cret"]},
    ],
)
def test_a_kubeconfig_with_two_ways_to_sign_in_is_refused(
    user: dict[str, Any], tmp_path: Path
) -> None:
    """Refuse also combinations in which only kubectl would run the program or send the file."""
    kubeconfig = build_kubeconfig(user)
    mark = ClusterLabel("id", "urn", "/state")
    for read in (
        lambda: load_access(kubeconfig, "train"),
        lambda: Credential.from_kubeconfig("train", mark, SecretStr(kubeconfig)),
    ):
        with pytest.raises((GpuformError, EngineError), match="train") as refused:
            read()
        assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "at",
    [
        {"server": "file:///etc/passwd"},
        {"server": "https://me:s3cret@k.test"},
        {"server": "https://k.test\nX: s3cret"},
        {"server": "https://k.test/?s3cret"},
        {"server": "https://k test"},
        {"certificate-authority": "/etc/passwd"},
        {"proxy-url": "socks5://s3cret.test"},
        {"tls-server-name": ".s3cret"},
        {"tls-server-name": f"{'s3cret' * 11}.test"},
    ],
)
def test_an_address_without_https_or_http_is_refused(at: dict[str, Any]) -> None:
    kubeconfig = build_kubeconfig({"token": "t"}, **at)
    with pytest.raises(GpuformError, match="train") as refused:
        load_access(kubeconfig, "train")
    assert "s3cret" not in str(refused.value)


def test_only_the_used_part_of_a_credential_is_written() -> None:
    kubeconfig = yaml.safe_load(build_kubeconfig({"token": "t"}))
    forged = {"name": "gpuform", "extension": {"id": "theirs", "urn": "u", "state": "s"}}
    kubeconfig["contexts"][0]["context"]["extensions"] = [forged]
    kubeconfig["contexts"].append({"name": "mine", "context": {"cluster": "k", "user": "u"}})
    kubeconfig["preferences"] = {"colors": True}
    made = Credential.from_kubeconfig(
        "train", ClusterLabel("id", "urn", "/state"), SecretStr(yaml.safe_dump(kubeconfig))
    )
    assert made.content_by_section == {
        "clusters": {"server": "http://127.0.0.1/x/"},
        "users": {"token": "t"},
        "contexts": {"cluster": "train", "user": "train"},
    }


@pytest.mark.parametrize("name", ["a\nb", "", "a\u202eb", "x" * 300])
def test_a_context_name_with_invisible_characters_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match="is not a valid context name") as refused:
        Credential.from_kubeconfig(
            name, ClusterLabel("id", "urn", "/state"), SecretStr(build_kubeconfig({"token": "t"}))
        )
    assert refused.value.message.isprintable()
    assert "--context NAME" in (refused.value.hint or "")


def test_files_that_the_users_own_names_are_read(tmp_path: Path) -> None:
    """Read only the files that the current context names, relative to the kubeconfig's folder."""
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "ca.pem").write_text("PEM")
    own = yaml.safe_load(
        build_kubeconfig({"tokenFile": "token"}, **{"certificate-authority": "ca.pem"})
    )
    own["users"].append({"name": "gone", "user": {"tokenFile": "not-there"}})
    made = flatten_kubeconfig(own, tmp_path)
    assert made["users"][0]["user"] == {"token": "s3cret"}
    assert load_access(yaml.safe_dump(made), "train").headers()["Authorization"] == "Bearer s3cret"
    own["contexts"][0]["context"]["user"] = "gone"
    with pytest.raises(FileNotFoundError):
        flatten_kubeconfig(own, tmp_path)


def test_only_the_authority_of_the_kubeconfig_is_trusted(cluster: Any) -> None:
    kubeconfig = yaml.safe_load(cluster.kubeconfig)
    del kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]
    access = load_access(yaml.safe_dump(kubeconfig), "train")
    with (
        closing(KubernetesClient(access, "train")) as client,
        pytest.raises(GpuformError, match="no connection"),
    ):
        KubernetesScheduler(client).list_nodes()
    kubeconfig["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    access = load_access(yaml.safe_dump(kubeconfig), "train")
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_NONE
    with closing(KubernetesClient(access, "train")) as client:
        assert len(KubernetesScheduler(client).list_nodes()) == 3


def test_the_certificate_is_checked_against_the_declared_server_name(cluster: Any) -> None:
    kubeconfig = yaml.safe_load(cluster.kubeconfig)
    server = kubeconfig["clusters"][0]["cluster"]
    server["server"] = server["server"].replace("127.0.0.1", "127.1")  # in no certificate
    for name, is_trusted in (("other.test", False), (None, False), ("localhost", True)):
        server["tls-server-name"] = name
        access = load_access(yaml.safe_dump(kubeconfig), "train")
        with closing(KubernetesClient(access, "train")) as client:
            if is_trusted:
                assert len(KubernetesScheduler(client).list_nodes()) == 3
            else:
                with pytest.raises(GpuformError, match="no connection"):
                    KubernetesScheduler(client).list_nodes()


@pytest.mark.parametrize(
    "server", ["http://k.test", "http://10.0.0.1:6443", "http://127.0.0.1.k.test", "http://127.1"]
)
@pytest.mark.parametrize("user", [{"token": "s3cret"}, {"username": "ada", "password": "s3cret"}])
def test_no_credential_is_sent_to_another_machine_over_http(
    server: str, user: dict[str, Any]
) -> None:
    with pytest.raises(MissingCredentials, match="signs in over http") as refused:
        load_access(build_kubeconfig(user, server=server), "train")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "server", ["http://127.0.0.1:8001", "http://[::1]:8001", "http://localhost", "https://k.test"]
)
def test_a_credential_is_sent_to_this_machine_and_over_https(server: str) -> None:
    assert (
        "s3cret"
        in load_access(build_kubeconfig({"token": "s3cret"}, server=server), "train").secrets
    )


def test_http_without_a_credential_signs_nobody_in() -> None:
    assert load_access(build_kubeconfig({}, server="http://k.test"), "train").tls is None
