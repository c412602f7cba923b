"""Test TLS of clients: no authorities over http, and one set for all clients over https."""

import ssl
from pathlib import Path

from gpuform.providers.context import get_trust
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store


def test_http_clients_read_no_authorities() -> None:
    environ = {"SSL_CERT_FILE": "/there/is/no/such/file"}

    assert get_trust("http://127.0.0.1:8080", environ) is False


def test_all_clients_share_the_authorities_of_the_machine() -> None:
    trust = get_trust("https://api.together.ai", {})

    assert isinstance(trust, ssl.SSLContext)
    assert trust.verify_mode is ssl.CERT_REQUIRED
    assert trust.check_hostname
    assert get_trust("https://api.tensorone.ai", {}) is trust


def test_authorities_from_the_environment_are_separate(tmp_path: Path) -> None:
    usual = get_trust("https://api.together.ai", {})
    (tmp_path / "own.pem").write_text("")

    own = get_trust("https://api.together.ai", {"SSL_CERT_DIR": str(tmp_path)})

    assert isinstance(own, ssl.SSLContext)
    assert own is not usual
    assert own.get_ca_certs() == []


def test_an_emulator_client_can_be_built() -> None:
    with Store(None, seed="tests") as store:
        routes = create_app(store, Clock(store)).url_map.bind("emulator.test")

        (reset,) = [rule for rule in routes.map.iter_rules() if rule.rule == "/_emulator/reset"]

        assert routes.build(reset.endpoint, {"seed": "2"}) == "/_emulator/reset?seed=2"
