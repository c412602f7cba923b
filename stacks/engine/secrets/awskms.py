"""Encrypt with AWS KMS (`awskms://`), with credentials found as every AWS tool finds them.

`key_services` imports this module for such a URL.
"""

from collections.abc import Mapping
from typing import Any, Final

import botocore.config
import botocore.exceptions
import botocore.session

from gpuform.stacks.engine.machine import IGNORED_AWS_PARAMETERS
from gpuform.stacks.engine.secrets.passphrase import SecretsError
from gpuform.stacks.engine.secrets.stack_secrets import KeyUrl, build_service_error

_PARAMETERS: Final = IGNORED_AWS_PARAMETERS | {
    "anonymous",
    "dualstack",
    "endpoint",
    "fips",
    "profile",
    "region",
    "role",
}
_CONTEXT: Final = "context_"
_ERRORS: Final = (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError)
_PERMISSIONS_HINT: Final = (
    "Check the region and the credentials (`aws sts get-caller-identity`): they need kms:Encrypt "
    "and kms:Decrypt on this key."
)


def open_key(address: KeyUrl, environ: Mapping[str, str]) -> "AwsKey":
    """Open a key by id, ARN or alias; `context_NAME` parameters are the encryption context.

    Raises:
        SecretsError: a parameter is wrong, or AWS or the role cannot be reached.
    """
    contexts = [name for name in address.parameters if name.startswith(_CONTEXT)]
    address.reject_unknown_parameters({*_PARAMETERS, *contexts})
    context = {name.removeprefix(_CONTEXT): _get_single_value(address, name) for name in contexts}
    try:
        return AwsKey(address, context, _create_client(address, environ))
    except _ERRORS as error:
        raise build_service_error(
            address, "be reached with", str(error), _PERMISSIONS_HINT
        ) from None


def _get_single_value(address: KeyUrl, name: str) -> str:
    """Return the value of a URL parameter. Raises SecretsError for several values."""
    values = address.parameters[name]
    if len(values) != 1:
        raise SecretsError(
            f"{address.display_url} has {name} {len(values)} times", hint="Set it once."
        )
    return values[0]


def _create_client(address: KeyUrl, environ: Mapping[str, str]) -> Any:
    """Create the client of AWS KMS, after assuming the URL's `role`, if any, by a request."""
    session = botocore.session.Session(profile=address.get_text("profile"))
    region = address.get_text("region") or environ.get("AWS_REGION")
    config = botocore.config.Config(
        connect_timeout=10,
        read_timeout=30,
        retries={"mode": "standard"},
        signature_version=botocore.UNSIGNED if address.get_bool("anonymous") else None,
        use_dualstack_endpoint=address.get_bool("dualstack") or None,
        use_fips_endpoint=address.get_bool("fips") or None,
    )
    role = address.get_text("role")
    keys = {}
    if role:
        sts = session.create_client("sts", region_name=region, config=config)
        credentials = sts.assume_role(RoleArn=role, RoleSessionName="gpuform")["Credentials"]
        keys = {
            "aws_access_key_id": credentials["AccessKeyId"],
            "aws_secret_access_key": credentials["SecretAccessKey"],
            "aws_session_token": credentials["SessionToken"],
        }
    return session.create_client(
        "kms", region_name=region, endpoint_url=address.get_text("endpoint"), config=config, **keys
    )


class AwsKey:
    """A key of AWS KMS."""

    def __init__(self, address: KeyUrl, context: dict[str, str], client: Any) -> None:
        self._address, self._context, self._client = address, context, client

    def close(self) -> None:
        """Close the connections to AWS KMS."""
        self._client.close()

    def encrypt(self, plaintext: bytes) -> bytes:
        """Encrypt under the AWS KMS key. Raises SecretsError."""
        try:
            answer = self._client.encrypt(
                KeyId=self._address.key, Plaintext=plaintext, EncryptionContext=self._context
            )
        except _ERRORS as error:
            raise build_service_error(
                self._address, "encrypt with", str(error), _PERMISSIONS_HINT
            ) from None
        return bytes(answer["CiphertextBlob"])

    def decrypt(self, ciphertext: bytes) -> bytes:
        """Decrypt a ciphertext, in which AWS finds the key's name. Raises SecretsError."""
        try:
            answer = self._client.decrypt(
                CiphertextBlob=ciphertext, EncryptionContext=self._context
            )
        except _ERRORS as error:
            raise build_service_error(
                self._address, "decrypt with", str(error), _PERMISSIONS_HINT
            ) from None
        return bytes(answer["Plaintext"])
