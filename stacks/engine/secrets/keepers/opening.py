"""From a secrets provider's URL to its key management service."""

import importlib
import posixpath
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from gpuform.stacks.engine.machine import get_pip_requirement
from gpuform.stacks.engine.secrets.passphrase import SecretsError

SERVICES: Final[Mapping[str, str]] = {
    "awskms": "AWS KMS",
    "azurekeyvault": "Azure Key Vault",
    "gcpkms": "Google Cloud KMS",
    "hashivault": "HashiCorp Vault",
}
"""By the scheme of their URLs."""

_LIBRARIES: Final = {
    "awskms": "botocore",
    "azurekeyvault": "azure-identity and azure-keyvault-keys",
    "gcpkms": "google-auth[requests]",
    "hashivault": "hvac",
}
_OURS: Final = "gpuform"
_TRUTHS: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


class KeyManagementService(Protocol):
    """A key in a key management service. Both raise SecretsError, which has no secret in it."""

    def encrypt(self, plaintext: bytes) -> bytes:
        """The ciphertext, as the service gives it."""

    def decrypt(self, ciphertext: bytes) -> bytes:
        """What `encrypt` was given."""

    def close(self) -> None:
        """Closes its connections."""


@dataclass(frozen=True, slots=True)
class KeyUrl:
    """A secrets provider's URL in parts. `key` is the host with the path, as services name keys."""

    scheme: str
    key: str
    parameters: Mapping[str, list[str]]

    @property
    def shown(self) -> str:
        """The URL without its parameters, which may be private."""
        return f"{self.scheme}://{self.key}"

    def text(self, name: str) -> str | None:
        """The first value of a parameter."""
        return self.parameters.get(name, [None])[0]

    def truth(self, name: str) -> bool:
        """Whether a parameter is true. SecretsError for what is neither."""
        given = self.text(name)
        if given is None:
            return False
        if given.lower() not in _TRUTHS:
            raise SecretsError(f"{self.shown} has {name}={given}", hint="Write true or false.")
        return _TRUTHS[given.lower()]

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Raises SecretsError for a parameter that would have no effect."""
        for name in self.parameters:
            if name not in known:
                near = get_close_matches(name, known, n=1)
                meant = f"Did you mean {near[0]}? " if near else ""
                there = f"There are: {', '.join(sorted(known))}." if known else "There are none."
                raise SecretsError(
                    f"the secrets provider {self.shown} has a parameter that is not known: {name}",
                    hint=f"{meant}{there}",
                )


def is_key_url(text: str) -> bool:
    """Whether it names a key of a service, right or wrong."""
    return text.partition("://")[0] in SERVICES and "://" in text


def parse(url: str) -> KeyUrl:
    """The parts of a URL. SecretsError for one that names no key."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    key = posixpath.normpath(f"{parts.netloc}{path}").lstrip("/") if parts.netloc or path else ""
    if key in ("", "."):
        raise SecretsError(
            f"the secrets provider {parts.scheme}:// names no key",
            hint=f"Write {_EXAMPLES.get(parts.scheme, parts.scheme + '://KEY')}",
        )
    return KeyUrl(parts.scheme, key, parse_qs(parts.query, keep_blank_values=True))


_EXAMPLES: Final = {
    "awskms": "awskms://alias/NAME?region=REGION, or awskms:///ARN",
    "azurekeyvault": "azurekeyvault://VAULT.vault.azure.net/keys/NAME",
    "gcpkms": "gcpkms://projects/P/locations/L/keyRings/R/cryptoKeys/K",
    "hashivault": "hashivault://NAME",
}


def open_keeper(url: str, environ: Mapping[str, str]) -> KeyManagementService:
    """The key that a URL names; nothing is sent yet.

    SecretsError when the URL is wrong, there are no credentials, or its library is not installed.
    """
    address = parse(url)
    if address.scheme not in SERVICES:
        raise SecretsError(f"{address.scheme}:// is not the URL of a key management service")
    try:
        module = importlib.import_module(f"gpuform.stacks.engine.secrets.keepers.{address.scheme}")
    except ModuleNotFoundError as error:
        if (error.name or _OURS).partition(".")[0] == _OURS:
            raise
        raise SecretsError(
            f"{SERVICES[address.scheme]} is asked by means of {_LIBRARIES[address.scheme]}, which "
            "is not installed",
            hint=f"Install gpuform with its extra `{address.scheme}`: "
            f"pip install '{get_pip_requirement(address.scheme)}'",
        ) from None
    opened: KeyManagementService = module.open_key(address, environ)
    return opened


def refusal_of(address: KeyUrl, what: str, why: str, needs: str) -> SecretsError:
    """The error for what a service cannot do: `why` in its words, `needs` says what to check."""
    service = SERVICES[address.scheme]
    return SecretsError(f"{service} cannot {what} the key {address.key}: {why}", hint=needs)
