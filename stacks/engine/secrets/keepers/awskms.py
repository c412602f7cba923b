"""`awskms://`: AWS KMS. Credentials are found as every AWS tool finds them."""

from collections.abc import Mapping
from typing import Any, Final

import botocore.config
import botocore.exceptions
import botocore.session

from gpuform.stacks.engine.secrets.keepers.opening import KeyUrl, refusal_of
from gpuform.stacks.engine.secrets.passphrase import SecretsError

_WITHOUT_EFFECT: Final = {
    "awssdk",  # which of two Go libraries
    "hostname_immutable",
    "rate_limiter_capacity",
    "request_checksum_calculation",
    "response_checksum_validation",
}
_PARAMETERS: Final = _WITHOUT_EFFECT | {
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
_NEEDS: Final = (
    "Check the region and the credentials (`aws sts get-caller-identity`): they need kms:Encrypt "
    "and kms:Decrypt on this key."
)


def open_key(address: KeyUrl, environ: Mapping[str, str]) -> "AwsKey":
    """A key by its id, ARN or alias; `context_NAME` parameters are its encryption context."""
    contexts = [name for name in address.parameters if name.startswith(_CONTEXT)]
    address.refuse_unknown({*_PARAMETERS, *contexts})
    context = {name.removeprefix(_CONTEXT): _only(address, name) for name in contexts}
    try:
        return AwsKey(address, context, _client(address, environ))
    except _ERRORS as error:
        raise refusal_of(address, "be asked about", str(error), _NEEDS) from None


def _only(address: KeyUrl, name: str) -> str:
    values = address.parameters[name]
    if len(values) != 1:
        raise SecretsError(f"{address.shown} has {name} {len(values)} times", hint="Give it once.")
    return values[0]


def _client(address: KeyUrl, environ: Mapping[str, str]) -> Any:
    session = botocore.session.Session(profile=address.text("profile"))
    region = address.text("region") or environ.get("AWS_REGION")
    config = botocore.config.Config(
        connect_timeout=10,
        read_timeout=30,
        retries={"mode": "standard"},
        signature_version=botocore.UNSIGNED if address.truth("anonymous") else None,
        use_dualstack_endpoint=address.truth("dualstack") or None,
        use_fips_endpoint=address.truth("fips") or None,
    )
    role = address.text("role")
    keys = {}
    if role:
        sts = session.create_client("sts", region_name=region, config=config)
        given = sts.assume_role(RoleArn=role, RoleSessionName="gpuform")["Credentials"]
        keys = {
            "aws_access_key_id": given["AccessKeyId"],
            "aws_secret_access_key": given["SecretAccessKey"],
            "aws_session_token": given["SessionToken"],
        }
    return session.create_client(
        "kms", region_name=region, endpoint_url=address.text("endpoint"), config=config, **keys
    )


class AwsKey:
    """A key of AWS KMS."""

    def __init__(self, address: KeyUrl, context: dict[str, str], client: Any) -> None:
        self._address, self._context, self._client = address, context, client

    def close(self) -> None:
        """See Keeper."""
        self._client.close()

    def encrypt(self, plaintext: bytes) -> bytes:
        """See Keeper."""
        try:
            answer = self._client.encrypt(
                KeyId=self._address.key, Plaintext=plaintext, EncryptionContext=self._context
            )
        except _ERRORS as error:
            raise refusal_of(self._address, "encrypt with", str(error), _NEEDS) from None
        return bytes(answer["CiphertextBlob"])

    def decrypt(self, ciphertext: bytes) -> bytes:
        """See Keeper. The ciphertext itself says which key it is under."""
        try:
            answer = self._client.decrypt(
                CiphertextBlob=ciphertext, EncryptionContext=self._context
            )
        except _ERRORS as error:
            raise refusal_of(self._address, "decrypt with", str(error), _NEEDS) from None
        return bytes(answer["Plaintext"])
