"""Kubeconfigs: what is read of them, and what is refused without showing any of it."""

import base64
import ssl
from contextlib import closing
from typing import Any

import pytest
import yaml

from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import KubernetesClient
from gpuform.providers.kubernetes.kubeconfig import access_by
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler


def config(user: dict[str, Any], **at: Any) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": "http://k.test/x/", **at}}],
            "users": [{"name": "u", "user": user}],
        }
    )


def test_a_token_signs_in() -> None:
    access = access_by(config({"token": "s3cret"}), "train")
    assert access.server == "http://k.test/x"
    assert access.headers()["Authorization"] == "Bearer s3cret"
    assert "s3cret" in access.secrets
    assert "s3cret" not in repr(access)


def test_a_password_signs_in() -> None:
    access = access_by(config({"username": "me", "password": "s3cret"}), "train")
    expected = base64.b64encode(b"me:s3cret").decode()
    assert access.headers()["Authorization"] == f"Basic {expected}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- a list",
        "{s3cret: [",
        "current-context: s3cret",
        config({"exec": {"command": "s3cret"}}),
        config({"auth-provider": {"name": "gcp", "config": {"access-token": "s3cret"}}}),
        config({"client-certificate-data": "s3cret"}, server="https://k.test"),
        config({"token": "s3cret"}, **{"certificate-authority-data": "s3cret!"}),
        config({"token": "s3cret"}).replace("current-context: c", "current-context: d"),
    ],
)
def test_what_cannot_be_used_is_refused_and_never_shown(text: str) -> None:
    with pytest.raises(GpuformError, match="train") as refused:
        access_by(text, "train")
    assert "s3cret" not in str(refused.value)


def test_the_authority_of_a_kubeconfig_is_what_is_trusted(cluster: Any) -> None:
    whole = yaml.safe_load(cluster.kubeconfig)
    del whole["clusters"][0]["cluster"]["certificate-authority-data"]
    access = access_by(yaml.safe_dump(whole), "train")
    with (
        closing(KubernetesClient(access, "train")) as client,
        pytest.raises(GpuformError, match="no connection"),
    ):
        KubernetesScheduler(client).nodes()
    whole["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    access = access_by(yaml.safe_dump(whole), "train")
    assert access.tls is not None
    assert access.tls.verify_mode is ssl.CERT_NONE
    with closing(KubernetesClient(access, "train")) as client:
        assert len(KubernetesScheduler(client).nodes()) == 3
