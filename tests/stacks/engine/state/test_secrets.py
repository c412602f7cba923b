"""Test passphrase encryption, its errors, and where the passphrase is read from."""

import base64
import hashlib

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpuform.stacks.engine.secrets import (
    SecretsError,
    WrongPassphrase,
    create_stored_crypter,
    find_passphrase,
)
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import SecretsProvider


def test_known_ciphertexts_are_decrypted(crypter) -> None:
    assert crypter.decrypt("v1:DA0ODxAREhMUFRYX:zPZvatrqs6NZkKeqmiN5vXksTIWFOw==") == '"hush"'
    assert crypter.decrypt("v1:GBkaGxwdHh8gISIj:gN/XAo5ttGRXTfHtniJBU724ZAiB5WNsQucanhiGvw==") == (
        "raw config text"
    )


def test_a_new_stack_encrypts_by_pulumis_documented_recipe() -> None:
    crypter = PassphraseCrypter.create_new("pässphrase")
    version, salt, *sample = crypter.salt_state.split(":")
    assert version == "v1"
    key = hashlib.pbkdf2_hmac(
        "sha256", "pässphrase".encode(), base64.b64decode(salt), 1_000_000, 32
    )

    def decrypt_independently(text: list[str]) -> bytes:
        assert text[0] == "v1"
        nonce, sealed = map(base64.b64decode, text[1:])
        assert len(nonce) == 12
        return AESGCM(key).decrypt(nonce, sealed, None)

    assert len(base64.b64decode(salt)) == 8
    assert decrypt_independently(sample) == b"pulumi"
    assert decrypt_independently(crypter.encrypt("geheim é").split(":")) == "geheim é".encode()


def test_ciphertexts_differ_each_time_but_that_of_an_unchanged_value_is_kept(crypter) -> None:
    first = crypter.encrypt("x")
    assert crypter.encrypt("x") != first
    assert crypter.encrypt("x", first) == first
    assert crypter.encrypt("changed", first) != first
    assert crypter.decrypt(crypter.encrypt("x", "v1:of:another")) == "x"


def test_a_wrong_passphrase_is_an_error_with_a_hint(salt_state: str) -> None:
    crypter = PassphraseCrypter("wrong battery", salt_state)
    with pytest.raises(WrongPassphrase) as caught:
        crypter.decrypt("v1:DA0ODxAREhMUFRYX:zPZvatrqs6NZkKeqmiN5vXksTIWFOw==")
    assert "PULUMI_CONFIG_PASSPHRASE" in caught.value.hint
    with pytest.raises(WrongPassphrase):
        crypter.encrypt("x")
    assert "battery" not in f"{caught.value!r} {caught.value.hint} {crypter!r}"


def test_the_key_is_derived_at_first_use(salt_state: str, monkeypatch) -> None:
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *_: pytest.fail("derived a key"))
    assert PassphraseCrypter("never used", salt_state).provider == SecretsProvider(
        "passphrase", {"salt": salt_state}
    )


def test_the_key_is_derived_once_in_a_process(crypter, salt_state: str, monkeypatch) -> None:
    crypter.check()
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *_: pytest.fail("derived it again"))
    PassphraseCrypter("correct horse", salt_state).check()


@pytest.mark.parametrize(
    "ciphertext",
    [
        "",
        "plain",
        "v2:DA0ODxAREhMUFRYX:zPZvatrqs6NZkKeqmiN5vXksTIWFOw==",
        "v1:DA0ODxAREhMUFRYX",
        "v1:DA0ODxAREhMUFRYX:zPZvatrqs6NZkKeqmiN5vXksTIWFOW==",
        "v1:DA0ODxAREhMUFQ==:zPZvatrqs6NZkKeqmiN5vXksTIWFOw==",
        "v1:DA0ODxAREhMUFRYX:not base64",
        "v1:DA0ODxAREhMUFRYX:",
    ],
)
def test_damaged_ciphertexts_are_rejected(crypter, ciphertext: str) -> None:
    with pytest.raises(SecretsError, match="cannot be decrypted"):
        crypter.decrypt(ciphertext)


@pytest.mark.parametrize(
    "salt", ["", "v1", "v1:AAECAwQFBgc=", "v2:AAECAwQFBgc=:v1:a:b", "v1:?:v1:a"]
)
def test_malformed_salts_are_rejected(salt: str) -> None:
    with pytest.raises(SecretsError, match="salt is malformed"):
        PassphraseCrypter("x", salt)


@pytest.mark.parametrize("kind", ["cloud", "service", "b64", "unheard-of"])
def test_an_unsupported_secrets_provider_is_an_error_with_its_name(kind: str) -> None:
    with pytest.raises(SecretsError, match=kind) as caught:
        create_stored_crypter(
            SecretsProvider(kind, {}), lambda: pytest.fail("asked for a passphrase")
        )
    assert "Pulumi CLI" in caught.value.hint


def test_the_passphrase_provider_is_opened_from_its_salt(salt_state: str) -> None:
    provider = SecretsProvider("passphrase", {"salt": salt_state})
    assert create_stored_crypter(provider, lambda: "correct horse").provider == provider


class TestFindPassphrase:
    def test_the_environment_variable_wins_and_may_be_empty(self, tmp_path) -> None:
        environ = {"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_CONFIG_PASSPHRASE_FILE": "absent"}
        assert find_passphrase(environ, tmp_path, lambda _: pytest.fail("asked")) == ""

    def test_without_the_variable_the_passphrase_file_is_read(self, tmp_path) -> None:
        (tmp_path / "secret.txt").write_text("from file\n")
        environ = {"PULUMI_CONFIG_PASSPHRASE_FILE": "secret.txt"}
        assert find_passphrase(environ, tmp_path, None) == "from file"

    def test_a_missing_passphrase_file_is_an_error_with_its_path(self, tmp_path) -> None:
        environ = {"PULUMI_CONFIG_PASSPHRASE_FILE": str(tmp_path / "absent")}
        with pytest.raises(SecretsError, match="absent, which cannot be read"):
            find_passphrase(environ, tmp_path, None)

    def test_without_variable_and_file_the_terminal_is_prompted(self, tmp_path) -> None:
        assert find_passphrase({}, tmp_path, lambda prompt: f"typed for {prompt[:5]}") == (
            "typed for Enter"
        )

    def test_without_a_terminal_the_error_names_variable_and_file(self, tmp_path) -> None:
        with pytest.raises(SecretsError) as caught:
            find_passphrase({}, tmp_path, None)
        assert "PULUMI_CONFIG_PASSPHRASE " in caught.value.hint
        assert "PULUMI_CONFIG_PASSPHRASE_FILE " in caught.value.hint
