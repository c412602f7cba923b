"""A stack's secrets: encrypted under a passphrase or by a key management service."""

from gpuform.stacks.engine.secrets.passphrase import (
    PASSPHRASE_PROVIDER,
    PassphraseCrypter,
    SecretsError,
    SecretsManager,
    WrongPassphrase,
    find_passphrase,
)
from gpuform.stacks.engine.secrets.stack_secrets import (
    crypter_for,
    crypter_of,
    crypter_of_settings,
    first_crypter,
    is_passphrase,
    new_crypter,
    reader_of,
    refuse_unknown,
)

__all__ = [
    "PASSPHRASE_PROVIDER",
    "PassphraseCrypter",
    "SecretsError",
    "SecretsManager",
    "WrongPassphrase",
    "crypter_for",
    "crypter_of",
    "crypter_of_settings",
    "find_passphrase",
    "first_crypter",
    "is_passphrase",
    "new_crypter",
    "reader_of",
    "refuse_unknown",
]
