"""Encrypt with Azure Key Vault (`azurekeyvault://`), with Azure's default credentials.

`key_services` imports this module for such a URL.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

from azure.core.exceptions import AzureError, HttpResponseError
from azure.identity import AzureCliCredential, DefaultAzureCredential
from azure.keyvault.keys.crypto import CryptographyClient, EncryptionAlgorithm

from gpuform.stacks.engine.secrets.passphrase import SecretsError
from gpuform.stacks.engine.secrets.stack_secrets import KeyUrl, build_service_error

_KEY: Final = re.compile(r".+\.vault\.[a-z\d.-]+/keys/.+")
_BY_CLI: Final = "AZURE_KEYVAULT_AUTH_VIA_CLI"
_PERMISSIONS_HINT: Final = (
    "Check the credentials (`az login`, or AZURE_CLIENT_ID and its related variables): they "
    "need the role Key Vault Crypto User, or the permissions encrypt and decrypt of keys."
)


def open_key(address: KeyUrl, environ: Mapping[str, str]) -> "AzureKey":
    """Open a key by identifier, with or without version; no request is sent yet.

    The parameter `algorithm` is RSA-OAEP-256 by default. Raises SecretsError for a wrong URL or
    parameter.
    """
    address.reject_unknown_parameters({"algorithm"})
    if not _KEY.fullmatch(address.key):
        raise SecretsError(
            f"{address.display_url} is not the URL of a key in Azure Key Vault",
            hint="Write azurekeyvault://VAULT.vault.azure.net/keys/NAME",
        )
    algorithm_name = address.get_text("algorithm") or "RSA-OAEP-256"
    try:
        algorithm = EncryptionAlgorithm(algorithm_name)
    except ValueError:
        raise SecretsError(
            f"{address.display_url}: {algorithm_name} is not an algorithm of Azure Key Vault",
            hint="Remove `algorithm` from the URL to use RSA-OAEP-256.",
        ) from None
    by_cli = environ.get(_BY_CLI, "").lower() in ("1", "t", "true")
    credential = AzureCliCredential() if by_cli else DefaultAzureCredential()
    client = CryptographyClient(f"https://{address.key}", credential)
    return AzureKey(address, algorithm, client, credential)


class AzureKey:
    """A key of Azure Key Vault.

    Ciphertexts are stored as URL-safe base64, as Pulumi has done since its first stacks.
    """

    def __init__(
        self, address: KeyUrl, algorithm: EncryptionAlgorithm, client: Any, credential: Any
    ) -> None:
        self._address, self._algorithm = address, algorithm
        self._client, self._credential = client, credential

    def close(self) -> None:
        """Close the connections to Azure Key Vault."""
        self._client.close()
        self._credential.close()

    def encrypt(self, plaintext: bytes) -> bytes:
        """Encrypt under the Key Vault key. Raises SecretsError."""
        try:
            ciphertext = self._client.encrypt(self._algorithm, plaintext).ciphertext
        except (AzureError, ValueError) as error:
            raise build_service_error(
                self._address, "encrypt with", _format_error(error), _PERMISSIONS_HINT
            ) from None
        return base64.urlsafe_b64encode(ciphertext).rstrip(b"=")

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Decrypt a ciphertext. Raises SecretsError.

        Some releases of Pulumi have stored the ciphertext without base64.
        """
        try:
            padded = ciphertext + b"=" * (-len(ciphertext) % 4)
            plain = base64.b64decode(padded, altchars=b"-_", validate=True)
        except binascii.Error:
            plain = ciphertext
        try:
            return bytes(self._client.decrypt(self._algorithm, plain).plaintext)
        except (AzureError, ValueError) as error:
            raise build_service_error(
                self._address, "decrypt with", _format_error(error), _PERMISSIONS_HINT
            ) from None


def _format_error(error: Exception) -> str:
    """Return the first line of Azure's message; further lines list each way to find credentials."""
    if isinstance(error, HttpResponseError) and error.status_code and error.error:
        return f"{error.status_code} {error.error.code}: {error.error.message}"
    return str(error).strip().partition("\n")[0] or type(error).__name__
