"""Choose the secrets provider of a stack, and encrypt with a key management service.

With a cloud provider the stack's key is random, and the service encrypts that key: `encryptedkey`
in the stack file and in the checkpoint. `engine.stack` and the `config` commands call this module;
`open_key_service` imports the module of the service that a URL names.
"""

import base64
import binascii
import importlib
import os
import posixpath
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from gpuform.providers.context import get_run_context
from gpuform.providers.values import Redactor
from gpuform.stacks.engine.machine import UrlWithParameters, get_pip_requirement
from gpuform.stacks.engine.project import StackSettings, is_secure
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
    """Return True if the user's name of a secrets provider means a passphrase."""
    return provider in _PASSPHRASE


def create_stored_crypter(
    provider: SecretsProvider, passphrase: Callable[[], str]
) -> SecretsManager:
    """Create the crypter for the secrets provider named in a checkpoint.

    Creating a crypter does not need the key yet: a wrong passphrase, or a key service that does not
    answer, raises only when the key is first needed.

    Args:
        provider: the provider in the checkpoint.
        passphrase: returns the passphrase; called only for a passphrase provider.

    Raises:
        SecretsError: gpuform does not support the provider, or its state is incomplete.
    """
    salt = provider.state.get("salt")
    if provider.type == PASSPHRASE_PROVIDER and isinstance(salt, str):
        return PassphraseCrypter(passphrase(), salt)
    url, key = provider.state.get("url"), provider.state.get("encryptedkey")
    if provider.type == CLOUD_PROVIDER and isinstance(url, str) and isinstance(key, str):
        return CloudCrypter(url, key)
    raise _build_unusable_error(provider.type)


def create_new_crypter(provider: str, passphrase: Callable[[], str]) -> SecretsManager:
    """Create a crypter with a new key, which a key service encrypts at once.

    `provider` is `passphrase` or a key service's URL. `passphrase` is called only for a passphrase
    provider.

    Raises:
        SecretsError: the provider cannot be used.
    """
    if is_passphrase(provider):
        return PassphraseCrypter.create_new(passphrase())
    reject_unknown_provider(provider)
    return CloudCrypter.create_new(provider)


def reject_unknown_provider(provider: str) -> None:
    """Raise SecretsError unless `provider` is a passphrase or a known service's URL with a key."""
    if is_passphrase(provider):
        return
    scheme, separator, _ = provider.partition("://")
    if not separator or scheme not in SERVICES:
        raise _build_unusable_error(scheme)
    parse_key_url(provider)


def find_settings_crypter(
    settings: StackSettings, stored: SecretsProvider | None, passphrase: Callable[[], str]
) -> SecretsManager | None:
    """Return the crypter with the key in the settings, else with the key in the state.

    Returns None if neither has a key. If the settings name a key service, the key in the state is
    used only if it belongs to the same URL. `stored` is the secrets provider in the state, None
    without a state.

    Raises:
        SecretsError: the settings name an unknown provider.
    """
    if not is_passphrase(settings.secrets_provider):
        reject_unknown_provider(settings.secrets_provider)
        if settings.encrypted_key:
            return CloudCrypter(settings.secrets_provider, settings.encrypted_key)
        # The stack file may have lost its key; the state has a copy.
        if stored is not None and stored.state.get("url") == settings.secrets_provider:
            return create_stored_crypter(stored, passphrase)
        return None
    if settings.encryption_salt:
        return PassphraseCrypter(passphrase(), settings.encryption_salt)
    return create_stored_crypter(stored, passphrase) if stored is not None else None


def create_first_crypter(
    settings: StackSettings, provider: str, passphrase: Callable[[], str]
) -> SecretsManager:
    """Return the crypter for a new stack.

    If `provider` is empty, or is the provider in the settings, the result is the crypter with the
    key in the settings. If they have no key, or name another provider, it is a new crypter.

    Raises:
        SecretsError: the settings contain secrets, and name another provider than `provider`.
    """
    provider_name = provider or settings.secrets_provider
    is_same = is_passphrase(provider_name) == is_passphrase(settings.secrets_provider)
    if is_same and (is_passphrase(provider_name) or provider_name == settings.secrets_provider):
        return find_settings_crypter(settings, None, passphrase) or create_new_crypter(
            provider_name, passphrase
        )
    if any(map(is_secure, settings.config.values())):
        raise SecretsError(
            f"{settings.path.name} contains secrets that are not encrypted by "
            f"{provider.partition('?')[0]}",
            hint="Leave --secrets-provider out, and after the stack is created run `gpuform stack "
            "change-secrets-provider`. Or remove the secrets from the file.",
        )
    return create_new_crypter(provider_name, passphrase)


def get_stack_crypter(
    settings: StackSettings, stored: SecretsProvider | None, passphrase: Callable[[], str]
) -> SecretsManager:
    """Return the crypter with the key in the settings, else in the state, else with a new key.

    If the settings have no key, writes the key to the settings file: the Pulumi CLI needs it there,
    and a file that is not committed may have lost it. `stored` is the secrets provider in the
    state, None without a state.

    Raises:
        SecretsError: the provider cannot be used.
    """
    crypter = find_settings_crypter(settings, stored, passphrase)
    if crypter is None:
        crypter = create_new_crypter(settings.secrets_provider, passphrase)
    is_salted = is_passphrase(settings.secrets_provider)
    if not (settings.encryption_salt if is_salted else settings.encrypted_key):
        settings.set_secrets_provider(crypter.provider)
        settings.save()
    return crypter


def get_state_crypter(
    stored: SecretsProvider | None, crypter: SecretsManager, passphrase: Callable[[], str]
) -> SecretsManager:
    """Return the crypter for reading a state with the secrets provider `stored`.

    It is `crypter`, the crypter of the settings, unless the state has another provider.
    """
    if stored is None or stored == crypter.provider:
        return crypter
    return create_stored_crypter(stored, passphrase)


def _build_unusable_error(provider: str) -> SecretsError:
    """Build the error for a secrets provider which gpuform does not support."""
    return SecretsError(
        f"gpuform does not support the secrets provider {provider!r}; it supports passphrase, "
        "awskms://, azurekeyvault://, gcpkms:// and hashivault://",
        hint="Name one of these. Use the Pulumi CLI for a stack of Pulumi Cloud: `pulumi stack "
        "change-secrets-provider`.",
    )


_OVERRIDE: Final = "PULUMI_CLOUD_SECRET_OVERRIDE"


class CloudCrypter(SecretsManager):
    """Secrets under a key of a service, called once, when the stack's key is first needed.

    With PULUMI_CLOUD_SECRET_OVERRIDE the service at that URL is called, and the stack keeps its own
    URL: for places such as CI, which reach the same key in another way.
    """

    def __init__(self, url: str, encrypted_key: str) -> None:
        super().__init__()
        self._url, self._encrypted = url, encrypted_key
        self._environ = get_run_context().environ
        self._lock = threading.Lock()
        self._key: bytes | None = None

    @classmethod
    def create_new(cls, url: str) -> "CloudCrypter":
        """Create a key for a stack, encrypted by the service. Raises SecretsError.

        The URL in PULUMI_CLOUD_SECRET_OVERRIDE, if set, becomes the stack's own.
        """
        environ = get_run_context().environ
        url = environ.get(_OVERRIDE) or url
        key = os.urandom(KEY_BYTES)
        try:
            with closing(open_key_service(url, environ)) as key_service:
                encrypted = key_service.encrypt(key)
        except SecretsError as error:
            # The message of the service may quote the request, which contains the key.
            message = Redactor([base64.b64encode(key).decode()]).redact(error.message)
            raise SecretsError(message, hint=error.hint) from None
        crypter = cls(url, base64.b64encode(encrypted).decode())
        crypter._key = key
        return crypter

    @property
    def provider(self) -> SecretsProvider:
        """The secrets provider in the form of a checkpoint."""
        state = {"url": self._url, "encryptedkey": self._encrypted}
        return SecretsProvider(CLOUD_PROVIDER, {**state})

    def get_key(self) -> bytes:
        """Return the stack's key, decrypted by the service. Raises SecretsError."""
        # Threads that start together wait for one request.
        with self._lock:
            if self._key is None:
                self._key = self._decrypt_key()
            return self._key

    def _decrypt_key(self) -> bytes:
        """Have the service decrypt the stack's key. Raises SecretsError.

        The service is the one at PULUMI_CLOUD_SECRET_OVERRIDE, if set.
        """
        url = self._environ.get(_OVERRIDE) or self._url
        try:
            encrypted = base64.b64decode(self._encrypted, validate=True)
        except binascii.Error:
            raise SecretsError(
                "the stack's `encryptedkey` is malformed",
                hint="Restore `encryptedkey` in Pulumi.<stack>.yaml from the state.",
            ) from None
        with closing(open_key_service(url, self._environ)) as key_service:
            key = key_service.decrypt(encrypted)
        if len(key) != KEY_BYTES:
            raise SecretsError(
                f"{parse_key_url(url).display_url} decrypts the stack's `encryptedkey` to a "
                "value that is not a valid stack key",
                hint="Restore `encryptedkey` in Pulumi.<stack>.yaml from the state.",
            )
        return key


SERVICES: Final[Mapping[str, str]] = {
    "awskms": "AWS KMS",
    "azurekeyvault": "Azure Key Vault",
    "gcpkms": "Google Cloud KMS",
    "hashivault": "HashiCorp Vault",
}
"""The services' names by the scheme of their URLs."""

_LIBRARIES: Final = {
    "awskms": "botocore",
    "azurekeyvault": "azure-identity and azure-keyvault-keys",
    "gcpkms": "google-auth[requests]",
    "hashivault": "hvac",
}
_OWN_PACKAGE: Final = "gpuform"


class KeyManagementService(Protocol):
    """A key in a key management service. All methods raise SecretsError, without secrets in it."""

    def encrypt(self, plaintext: bytes) -> bytes:
        """Return the ciphertext in the service's format."""

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Return the plaintext of a ciphertext from `encrypt`."""

    def close(self) -> None:
        """Close the connections to the key service."""


@dataclass(frozen=True, slots=True)
class KeyUrl(UrlWithParameters):
    """A key's URL in parts. `key` is the host with the path, as services name keys."""

    kind = "secrets provider"
    error = SecretsError

    scheme: str
    key: str


def parse_key_url(url: str) -> KeyUrl:
    """Parse a URL. Raises SecretsError if it names no key."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    key = posixpath.normpath(f"{parts.netloc}{path}").lstrip("/") if parts.netloc or path else ""
    if key in ("", "."):
        raise SecretsError(
            f"the secrets provider {parts.scheme}:// does not name a key",
            hint=f"Write {_EXAMPLES.get(parts.scheme, parts.scheme + '://KEY')}",
        )
    parameters = parse_qs(parts.query, keep_blank_values=True)
    return KeyUrl(f"{parts.scheme}://{key}", parameters, parts.scheme, key)


_EXAMPLES: Final = {
    "awskms": "awskms://alias/NAME?region=REGION, or awskms:///ARN",
    "azurekeyvault": "azurekeyvault://VAULT.vault.azure.net/keys/NAME",
    "gcpkms": "gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K",
    "hashivault": "hashivault://NAME",
}


def open_key_service(url: str, environ: Mapping[str, str]) -> KeyManagementService:
    """Open the key at a URL; only AWS roles need a request for this.

    Raises:
        SecretsError: the URL is wrong, there are no credentials, or the service's library is not
            installed.
    """
    address = parse_key_url(url)
    if address.scheme not in SERVICES:
        raise SecretsError(f"{address.scheme}:// is not the URL of a key management service")
    try:
        module = importlib.import_module(f"gpuform.stacks.engine.secrets.{address.scheme}")
    except ModuleNotFoundError as error:
        # A missing module of gpuform's own is an error of gpuform, not a missing library.
        if (error.name or _OWN_PACKAGE).partition(".")[0] == _OWN_PACKAGE:
            raise
        raise SecretsError(
            f"{SERVICES[address.scheme]} requires {_LIBRARIES[address.scheme]}, which is not "
            "installed",
            hint=f"Install gpuform with its extra `{address.scheme}`: "
            f"pip install '{get_pip_requirement(address.scheme)}'",
        ) from None
    opened: KeyManagementService = module.open_key(address, environ)
    return opened


def build_service_error(address: KeyUrl, action: str, reason: str, hint: str) -> SecretsError:
    """Build the error of a service: `reason` in the service's words, `hint` says what to check."""
    service = SERVICES[address.scheme]
    return SecretsError(f"{service} cannot {action} the key {address.key}: {reason}", hint=hint)
