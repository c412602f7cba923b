"""Encrypt a stack's secrets as Pulumi does: AES-256-GCM under the stack's key.

`stack_secrets` creates the crypters. Here the key is derived from a passphrase; `stack_secrets` has
the keys that a key management service encrypts.
"""

import base64
import binascii
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.state import SecretsProvider

PASSPHRASE_PROVIDER: Final = "passphrase"  # noqa: S105 - the name of the scheme
CLOUD_PROVIDER: Final = "cloud"
"""Pulumi's names of the schemes, in the checkpoint's `secrets_providers.type`."""

# Pulumi's numbers (pkg/secrets/passphrase): PBKDF2-HMAC-SHA256 over 8 bytes of salt; its AES-GCM
# refuses nonces of another length.
_ITERATIONS: Final = 1_000_000
KEY_BYTES: Final = 32
"""The length of a stack's key."""
_SALT_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_DIGEST_DIGITS: Final = 32
# The salt text contains this word encrypted: decrypting it checks the passphrase.
_SAMPLE: Final = "pulumi"

_TWO_WAYS_HINT: Final = (
    "Set PULUMI_CONFIG_PASSPHRASE to the passphrase (it may be empty), or "
    "PULUMI_CONFIG_PASSPHRASE_FILE to the path of a file that contains it."
)


class SecretsError(EngineError):
    """Secrets that cannot be read or written."""

    help_page = "guides/secrets"


class WrongPassphrase(SecretsError):
    """The passphrase differs from the one of the stack."""

    def __init__(self) -> None:
        super().__init__("incorrect passphrase for this stack", hint=_TWO_WAYS_HINT)


class SecretsManager(ABC):
    """Encrypts and decrypts the secrets of one stack; safe to share between threads."""

    def __init__(self) -> None:
        self._plaintexts: dict[str, str] = {}

    @property
    @abstractmethod
    def provider(self) -> SecretsProvider:
        """The secrets provider in the form of a checkpoint."""

    @abstractmethod
    def get_key(self) -> bytes:
        """Return the stack's key. Raises SecretsError for an unavailable or wrong key."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def check(self) -> None:
        """Raise SecretsError if the stack's secrets cannot be decrypted."""
        self.get_key()

    def compute_digest(self, data: bytes) -> str:
        """Return a keyed digest of `data`, useless without the stack's key."""
        import hmac  # noqa: PLC0415 - as below

        key = hmac.digest(self.get_key(), b"gpuform digests", "sha256")
        return hmac.digest(key, data, "sha256").hex()[:_DIGEST_DIGITS]

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        """Return the ciphertext, `v1:NONCE:TEXT`, or `previous` if still valid for the plaintext.

        Each call uses a new nonce, so only `previous` keeps an unchanged secret's ciphertext. A
        `previous` that this manager has neither created nor decrypted is not used.
        """
        if previous is not None and self._plaintexts.get(previous) == plaintext:
            return previous
        ciphertext = _encrypt_text(self.get_key(), plaintext)
        self._plaintexts[ciphertext] = plaintext
        return ciphertext

    def decrypt(self, ciphertext: str) -> str:
        """Return the plaintext. Raises SecretsError for a damaged text or another stack's."""
        if ciphertext not in self._plaintexts:
            try:
                plaintext = _decrypt_text(self.get_key(), ciphertext)
            except ValueError as error:
                raise SecretsError(
                    f"a secret cannot be decrypted: {error}",
                    hint="The secret was encrypted for another stack, or the file is damaged: "
                    "set the value again, or restore the file.",
                ) from None
            self._plaintexts[ciphertext] = plaintext
        return self._plaintexts[ciphertext]


class PassphraseCrypter(SecretsManager):
    """Secrets under a passphrase.

    `salt_state` is the stack's text `v1:SALT:v1:NONCE:SAMPLE`, the stack file's `encryptionsalt`
    and the checkpoint's `salt`; the sample tells a wrong passphrase. The key is derived when it is
    first needed (0.3 s), once in a process for each passphrase and salt; only then WrongPassphrase
    is raised.
    """

    def __init__(self, passphrase: str, salt_state: str) -> None:
        super().__init__()
        self._passphrase = passphrase
        self._salt, self._sample = _parse_salt_state(salt_state)
        self._checked = False
        self.salt_state = salt_state

    @classmethod
    def create_new(cls, passphrase: str) -> "PassphraseCrypter":
        """Create a crypter for a new stack with a random salt; the caller stores `salt_state`."""
        salt = os.urandom(_SALT_BYTES)
        sample = _encrypt_text(_get_key(passphrase, salt), _SAMPLE)
        return cls(passphrase, f"v1:{base64.b64encode(salt).decode()}:{sample}")

    @property
    def provider(self) -> SecretsProvider:
        """The secrets provider in the form of a checkpoint."""
        return SecretsProvider(PASSPHRASE_PROVIDER, {"salt": self.salt_state})

    def get_key(self) -> bytes:
        """Return the stack's key. Raises WrongPassphrase."""
        key = _get_key(self._passphrase, self._salt)
        if not self._checked:
            try:
                is_correct = _decrypt_text(key, self._sample) == _SAMPLE
            except ValueError:
                is_correct = False
            if not is_correct:
                raise WrongPassphrase
            self._checked = True
        return key


def find_passphrase(
    environ: Mapping[str, str], project_dir: Path, ask: Callable[[str], str] | None
) -> str:
    """Return the passphrase from a variable, a file or the user.

    PULUMI_CONFIG_PASSPHRASE comes first, even if empty, then the file that
    PULUMI_CONFIG_PASSPHRASE_FILE names (relative to `project_dir`, surrounding blanks dropped),
    then the answer of `ask`.

    Args:
        environ: the environment variables.
        project_dir: the project's folder.
        ask: gets the prompt; None where nobody can answer.

    Raises:
        SecretsError: there is no passphrase, or the file cannot be read; the hint names the
            variables.
    """
    passphrase = environ.get("PULUMI_CONFIG_PASSPHRASE")
    # An empty passphrase is valid, as in Pulumi.
    if passphrase is not None:
        return passphrase
    name = environ.get("PULUMI_CONFIG_PASSPHRASE_FILE")
    if name:
        path = project_dir / Path(name).expanduser()
        try:
            return path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise SecretsError(
                f"PULUMI_CONFIG_PASSPHRASE_FILE names {path}, which cannot be read: {reason}",
                hint=_TWO_WAYS_HINT,
            ) from error
    if ask is not None:
        return ask("Enter the passphrase that protects the stack's secrets")
    raise SecretsError("the passphrase of the stack's secrets is not set", hint=_TWO_WAYS_HINT)


def _parse_salt_state(salt_state: str) -> tuple[bytes, str]:
    """Return the salt and the encrypted sample of a stack's salt text. Raises SecretsError."""
    version, _, rest = salt_state.partition(":")
    salt_text, _, sample = rest.partition(":")
    try:
        salt = base64.b64decode(salt_text, validate=True)
    except binascii.Error:
        salt = b""
    if version != "v1" or not salt or not sample:
        raise SecretsError(
            "the stack's encryption salt is malformed",
            hint="Restore `encryptionsalt` in Pulumi.<stack>.yaml, from the salt in the state.",
        )
    return salt, sample


_KEY_LOCK = threading.Lock()


def _get_key(passphrase: str, salt: bytes) -> bytes:
    """Return the key derived from passphrase and salt, computed once for each pair."""
    # The derivation takes about 0.3 s: threads that start together wait for one.
    with _KEY_LOCK:
        return _derive_key(passphrase, salt)


@cache
def _derive_key(passphrase: str, salt: bytes) -> bytes:
    """Compute the key by PBKDF2 with SHA-256, as Pulumi does; called under the lock."""
    import hashlib  # noqa: PLC0415 - loads OpenSSL; most commands read no secret

    return hashlib.pbkdf2_hmac("sha256", passphrase.encode(), salt, _ITERATIONS, KEY_BYTES)


def _encrypt_text(key: bytes, plaintext: str) -> str:
    """Encrypt a text with AES-GCM, in Pulumi's form `v1:NONCE:CIPHERTEXT`."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

    nonce = os.urandom(_NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, plaintext.encode(), None)
    return f"v1:{base64.b64encode(nonce).decode()}:{base64.b64encode(sealed).decode()}"


def _decrypt_text(key: bytes, ciphertext: str) -> str:
    """Return the plaintext. Raises ValueError, which says what is wrong with the ciphertext."""
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

    parts = ciphertext.split(":")
    if len(parts) != 3 or parts[0] != "v1":
        raise ValueError("it does not have the form v1:NONCE:TEXT")
    nonce, sealed = (base64.b64decode(part, validate=True) for part in parts[1:])
    if len(nonce) != _NONCE_BYTES:
        raise ValueError("its nonce is not 12 bytes long")
    try:
        return AESGCM(key).decrypt(nonce, sealed, None).decode()
    except InvalidTag:
        raise ValueError("the stack's key does not decrypt it") from None
