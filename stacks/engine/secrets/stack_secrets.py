"""Find which secrets provider a stack has.

With a cloud provider the stack's key is random, and a key management service encrypts it.

`encryptedkey`, in the stack file and in the checkpoint, is that key as the service encrypted it.
"""

import base64
import binascii
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final

from gpuform.providers.values import Redactor
from gpuform.stacks.engine.project import StackSettings, is_secure
from gpuform.stacks.engine.secrets.keepers.opening import open_keeper, parse
from gpuform.stacks.engine.secrets.passphrase import (
    CLOUD_PROVIDER,
    KEY_BYTES,
    PASSPHRASE_PROVIDER,
    PassphraseCrypter,
    SecretsError,
    SecretsManager,
)
from gpuform.stacks.engine.state import SecretsProvider

_PASSPHRASE = ("", PASSPHRASE_PROVIDER, "default")
"""What means a passphrase where a stack's secrets provider is named."""


def is_passphrase(provider: str) -> bool:
    """Whether a secrets provider, as people name it, is the passphrase."""
    return provider in _PASSPHRASE


def crypter_for(provider: SecretsProvider, passphrase: Callable[[], str]) -> SecretsManager:
    """The crypter for what a checkpoint says; SecretsError for providers that cannot be used.

    `passphrase` is asked only when the provider is the passphrase one.
    """
    salt = provider.state.get("salt")
    if provider.type == PASSPHRASE_PROVIDER and isinstance(salt, str):
        return PassphraseCrypter(passphrase(), salt)
    url, key = provider.state.get("url"), provider.state.get("encryptedkey")
    if provider.type == CLOUD_PROVIDER and isinstance(url, str) and isinstance(key, str):
        return _cloud(url, key)
    raise _unusable(provider.type)


def new_crypter(provider: str, passphrase: Callable[[], str]) -> SecretsManager:
    """A new key for a stack's secrets. `provider` is `passphrase` or a service's URL.

    Raises SecretsError.
    """
    if is_passphrase(provider):
        return PassphraseCrypter.new(passphrase())
    refuse_unknown(provider)
    # merged

    return CloudCrypter.new(provider)


def refuse_unknown(provider: str) -> None:
    """Raises SecretsError for what is neither `passphrase` nor the URL of a service."""
    from gpuform.stacks.engine.secrets.keepers.opening import is_key_url, parse  # noqa: PLC0415 - as above

    if is_passphrase(provider):
        return
    if not is_key_url(provider):
        raise _unusable(provider.partition("://")[0])
    parse(provider)


def crypter_of_settings(
    settings: StackSettings, stored: SecretsProvider | None, passphrase: Callable[[], str]
) -> SecretsManager | None:
    """The crypter that the settings name, else the state's. None where none has a key yet."""
    if not is_passphrase(settings.secrets_provider):
        refuse_unknown(settings.secrets_provider)
        if settings.encrypted_key:
            return _cloud(settings.secrets_provider, settings.encrypted_key)
        if stored is not None and stored.state.get("url") == settings.secrets_provider:
            return crypter_for(stored, passphrase)
        return None
    if settings.encryption_salt:
        return PassphraseCrypter(passphrase(), settings.encryption_salt)
    return crypter_for(stored, passphrase) if stored is not None else None


def first_crypter(
    settings: StackSettings, provider: str, passphrase: Callable[[], str]
) -> SecretsManager:
    """The crypter of a stack that is made: the one of its settings, else a new one.

    SecretsError where the settings have secrets under another provider than the one named.
    """
    named = provider or settings.secrets_provider
    is_same = is_passphrase(named) == is_passphrase(settings.secrets_provider)
    if is_same and (is_passphrase(named) or named == settings.secrets_provider):
        return crypter_of_settings(settings, None, passphrase) or new_crypter(named, passphrase)
    if any(map(is_secure, settings.config.values())):
        raise SecretsError(
            f"{settings.path.name} has secrets that are not under {provider.partition('?')[0]}",
            hint="Leave --secrets-provider out, and change it when the stack is made: `gpuform "
            "stack change-secrets-provider`. Or remove the secrets from the file.",
        )
    return new_crypter(named, passphrase)


def crypter_of(
    settings: StackSettings, stored: SecretsProvider | None, passphrase: Callable[[], str]
) -> SecretsManager:
    """The crypter that the settings name, else the state's, else a new one.

    A stack file without it (it may not be committed) gets it back for the Pulumi CLI. Raises
    SecretsError for providers that cannot be used.
    """
    crypter = crypter_of_settings(settings, stored, passphrase)
    if crypter is None:
        crypter = new_crypter(settings.secrets_provider, passphrase)
    is_salted = is_passphrase(settings.secrets_provider)
    if not (settings.encryption_salt if is_salted else settings.encrypted_key):
        settings.set_secrets_provider(crypter.provider)
        settings.save()
    return crypter


def reader_of(
    stored: SecretsProvider | None, crypter: SecretsManager, passphrase: Callable[[], str]
) -> SecretsManager:
    """What reads the secrets of a state, which may be encrypted otherwise than the settings."""
    if stored is None or stored == crypter.provider:
        return crypter
    return crypter_for(stored, passphrase)


def _cloud(url: str, encrypted_key: str) -> SecretsManager:
    # merged

    return CloudCrypter(url, encrypted_key)


def _unusable(provider: str) -> SecretsError:
    return SecretsError(
        f"gpuform cannot use the secrets provider {provider!r}: it knows passphrase, awskms://, "
        "azurekeyvault://, gcpkms:// and hashivault://",
        hint="Name one of these. Use the Pulumi CLI for a stack of Pulumi Cloud: `pulumi stack "
        "change-secrets-provider`.",
    )


_OVERRIDE: Final = "PULUMI_CLOUD_SECRET_OVERRIDE"


class CloudCrypter(SecretsManager):
    """Secrets under a key of a service, which is asked once, when the stack's key is first needed.

    With PULUMI_CLOUD_SECRET_OVERRIDE that URL is asked instead, and the stack keeps its own: for a
    place such as CI, where the same key is reached in another way.
    """

    def __init__(
        self, url: str, encrypted_key: str, environ: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__()
        self._url, self._encrypted, self._environ = url, encrypted_key, environ
        self._lock = threading.Lock()
        self._key: bytes | None = None

    @classmethod
    def new(cls, url: str, environ: Mapping[str, str] = os.environ) -> "CloudCrypter":
        """Makes a key for a stack and has it encrypted. Raises SecretsError."""
        url = environ.get(_OVERRIDE) or url
        key = os.urandom(KEY_BYTES)
        try:
            with closing(open_keeper(url, environ)) as keeper:
                encrypted = keeper.encrypt(key)
        except SecretsError as error:
            told = Redactor([base64.b64encode(key).decode()]).redact(error.message)
            raise SecretsError(told, hint=error.hint) from None
        made = cls(url, base64.b64encode(encrypted).decode(), environ)
        made._key = key
        return made

    @property
    def provider(self) -> SecretsProvider:
        """What the checkpoint says of these secrets."""
        state = {"url": self._url, "encryptedkey": self._encrypted}
        return SecretsProvider(CLOUD_PROVIDER, {**state})

    def key(self) -> bytes:
        """The stack's key, decrypted by the service. Raises SecretsError."""
        with self._lock:  # so that threads that start together ask once
            if self._key is None:
                self._key = self._decrypted()
            return self._key

    def _decrypted(self) -> bytes:
        url = self._environ.get(_OVERRIDE) or self._url
        try:
            encrypted = base64.b64decode(self._encrypted, validate=True)
        except binascii.Error:
            raise SecretsError(
                "the stack's `encryptedkey` is malformed",
                hint="Restore it in Pulumi.<stack>.yaml, from the one in the state.",
            ) from None
        with closing(open_keeper(url, self._environ)) as keeper:
            key = keeper.decrypt(encrypted)
        if len(key) != KEY_BYTES:
            raise SecretsError(
                f"what {parse(url).shown} decrypts is not the key of a stack",
                hint="Restore `encryptedkey` in Pulumi.<stack>.yaml, from the one in the state.",
            )
        return key
