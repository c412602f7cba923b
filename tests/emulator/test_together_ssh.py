"""Test the sign-in and the SSH certificates of clusters with the functions of `tg clusters ssh`."""

import base64
import hashlib
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from together import Together, TogetherError
from together.lib.cli.api.clusters import ssh as official

from gpuform.providers.emulator.server import Server

VERIFIER = "verifier"
REDIRECT = "http://localhost:3000/login-callback"


@pytest.fixture
def issuer(together: Together, emulator: Server, cluster_args: dict[str, Any]) -> str:
    config = {"load_balancer": "NONE", "ssh_ca_enabled": True}
    created = together.clusters.create(**cluster_args, cluster_config=config)
    oidc = together.clusters.retrieve(created.cluster_id).oidc_config
    assert oidc is not None
    return oidc.issuer_url


def get_code(issuer: str) -> str:
    discovery = official._http_json(f"{issuer}/.well-known/openid-configuration")
    digest = hashlib.sha256(VERIFIER.encode()).digest()
    query = {
        "client_id": "together-cli",
        "redirect_uri": REDIRECT,
        "state": "mine",
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    answer = httpx.get(f"{discovery['authorization_endpoint']}?{urlencode(query)}")
    location = answer.headers["Location"]
    code = official._callback_code(location.removeprefix("http://localhost:3000"), "mine")
    assert code == parse_qs(urlsplit(location).query)["code"][0]
    return str(code)


def exchange(issuer: str, code: str, verifier: str = VERIFIER) -> str:
    form = {"code": code, "redirect_uri": REDIRECT, "code_verifier": verifier}
    return str(official._http_json(f"{issuer}/token", data=form)["id_token"])


def to_sign_address(issuer: str) -> str:
    origin, _, cluster_id = issuer.rpartition("/")
    return f"{origin}/step-{cluster_id}"


def test_a_signed_in_user_gets_a_certificate_that_openssh_accepts(
    issuer: str, tmp_path: Path
) -> None:
    key = tmp_path / "id"
    blob = official._gen_keypair(str(key), "ecdsa")
    token = exchange(issuer, get_code(issuer))
    certificate = official._sign(to_sign_address(issuer), token, blob, None)
    file = tmp_path / "id-cert.pub"
    file.write_text(f"{official._CERT_ALGO['ecdsa']} {certificate} x\n")
    assert official._cert_is_valid(str(file))
    listed = subprocess.run(
        ["ssh-keygen", "-L", "-f", file], check=True, capture_output=True, text=True
    )
    assert "ada@example.com" in listed.stdout


def test_codes_serve_once_and_tokens_only_their_cluster(
    issuer: str, together: Together, cluster_args: dict[str, Any], tmp_path: Path
) -> None:
    code = get_code(issuer)
    with pytest.raises(TogetherError, match="400"):
        exchange(issuer, code, "another verifier")
    exchange(issuer, code)
    with pytest.raises(TogetherError, match="400"):
        exchange(issuer, code)
    blob = official._gen_keypair(str(tmp_path / "id"), "ecdsa")
    with pytest.raises(TogetherError, match="401"):
        official._sign(to_sign_address(issuer), "no token", blob, None)
    plain = together.clusters.create(**{**cluster_args, "cluster_name": "plain"})
    other = f"{issuer.rpartition('/')[0]}/{plain.cluster_id}"
    assert together.clusters.retrieve(plain.cluster_id).oidc_config is None
    with pytest.raises(TogetherError, match="404"):
        get_code(other)
