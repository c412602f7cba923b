"""Test which texts are OIDC issuers of Together's clusters, and what follows from them."""

from typing import Any

import pytest
from together.lib.cli.api.clusters import ssh as official

from gpuform.providers.together.cluster_facts import describe_cluster_access
from gpuform.schemas.together.cluster_parts import find_ssh_authority, parse_ssh_issuer

ISSUER = "https://dex.s1.us-central-8a.cloud.together.ai/t-0f11e35c"


def test_addresses_are_those_of_the_official_command_line() -> None:
    authority = parse_ssh_issuer(ISSUER)
    assert official._derive(ISSUER) == (
        authority.sign_url.removesuffix("/ssh/sign"),
        authority.bastion,
    )
    assert official._validate_ssh_destination("ada", "slurm-login", authority.bastion) is None
    assert authority.bastion == "ssh.t-0f11e35c.s1.us-central-8a.cloud.together.ai"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://accounts.google.com",
        "https://dex.evil.example/t-1",
        "https://dex.together.ai.evil.example/t-1",
        "https://evil.example/dex.x.together.ai/t-1",
        "http://dex.x.together.ai/t-1",
        "https://ada:x@dex.x.together.ai/t-1",
        "https://dex.x.together.ai:8443/t-1",
        "https://dex.x.together.ai:port/t-1",
        "https://dex.x.together.ai/a/t-1",
        "https://dex.x.together.ai/t-1?x=1",
        "https://dex.x.together.ai/t-1#x",
        "https://dex.x.together.ai/t_1;x",
        "https://dex.x.together.ai/",
        "http://localhost/t-1",
        "http://10.0.0.1:8787/t-1",
    ],
)
def test_other_texts_are_no_issuers(text: str) -> None:
    with pytest.raises(ValueError, match="must be the OIDC issuer of the cluster"):
        parse_ssh_issuer(text)
    assert find_ssh_authority(text) is None


@pytest.mark.parametrize(
    ("outputs", "issuer"),
    [
        ({}, None),
        ({"ssh_ca_issuer": ISSUER}, ISSUER),
        ({"ssh_issuer": ISSUER, "ssh_ca_issuer": f"{ISSUER}-2"}, ISSUER),
        ({"ssh_ca_issuer": "https://dex.evil.example/t-1"}, None),
    ],
)
def test_a_declared_issuer_counts_before_the_reported_one(
    outputs: dict[str, Any], issuer: str | None
) -> None:
    worker = {"host_name": "train-worker-0", "status": "Running"}
    access = describe_cluster_access({"gpu_worker_nodes": [worker], **outputs})
    assert (access.ssh_authority and access.ssh_authority.issuer) == issuer
    (host,) = access.hosts
    assert host.address == ("train-worker-0" if issuer else "train-worker-0.cloud.together.ai")
