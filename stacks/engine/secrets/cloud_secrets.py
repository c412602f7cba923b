"""Pulumi's cloud secrets: the stack's key is random, and a key management service encrypts it.

`encryptedkey`, in the stack file and in the checkpoint, is that key as the service encrypted it.
"""

import base64
import binascii
import os
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from gpuform.providers.values import Redactor
from gpuform.stacks.engine.secrets.keepers.opening import open_keeper, parse
from gpuform.stacks.engine.secrets.passphrase import (
    CLOUD_PROVIDER,
    KEY_BYTES,
    SecretsError,
    SecretsManager,
)
from gpuform.stacks.engine.state import SecretsProvider

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
