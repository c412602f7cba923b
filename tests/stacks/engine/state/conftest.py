"""Provide a passphrase crypter and its salt for the tests of state files."""

import pytest

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

# Made with Python's hashlib and cryptography by the recipe that Pulumi documents in its source:
# PBKDF2-HMAC-SHA256, 1,000,000 rounds, then AES-256-GCM. The salt is the bytes 0 to 7.
SALT_STATE = "v1:AAECAwQFBgc=:v1:AAECAwQFBgcICQoL:Lsv0Mq4P43OA9/CWlvPiZJXoK3BhFA=="
PASSPHRASE = "correct horse"


@pytest.fixture
def salt_state() -> str:
    return SALT_STATE


@pytest.fixture
def crypter() -> PassphraseCrypter:
    return PassphraseCrypter(PASSPHRASE, SALT_STATE)
