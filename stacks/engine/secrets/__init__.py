"""Encrypt and decrypt a stack's secrets, under a passphrase or with a key management service.

`engine.stack` and the `config` commands choose a crypter here; states and settings encrypt with it.
"""

from gpuform.stacks.engine.secrets.passphrase import (
    PASSPHRASE_PROVIDER,
    PassphraseCrypter,
    SecretsError,
    SecretsManager,
    WrongPassphrase,
    find_passphrase,
)
from gpuform.stacks.engine.secrets.stack_secrets import (
    create_first_crypter,
    create_new_crypter,
    create_stored_crypter,
    find_settings_crypter,
    get_stack_crypter,
    get_state_crypter,
    is_passphrase,
    reject_unknown_provider,
)

__all__ = [
    "PASSPHRASE_PROVIDER",
    "PassphraseCrypter",
    "SecretsError",
    "SecretsManager",
    "WrongPassphrase",
    "create_first_crypter",
    "create_new_crypter",
    "create_stored_crypter",
    "find_passphrase",
    "find_settings_crypter",
    "get_stack_crypter",
    "get_state_crypter",
    "is_passphrase",
    "reject_unknown_provider",
]
