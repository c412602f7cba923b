"""`s3://` backends, on Amazon S3 and on everything that speaks its protocol.

Parameters are those of gocloud.dev's s3blob, which Pulumi uses; credentials are found as every AWS
tool finds them: variables, profiles, SSO, assumed roles, containers and machines.
"""

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.store import S3Store

from gpuform.stacks.engine.store.backend_files import BackendError
from gpuform.stacks.engine.store.storage.addresses import Address
from gpuform.stacks.engine.store.storage.objects import Objects

_WITHOUT_EFFECT: Final = {
    "awssdk",  # which of two Go libraries
    "hostname_immutable",
    "rate_limiter_capacity",
    "request_checksum_calculation",
    "response_checksum_validation",
}
_PARAMETERS: Final = _WITHOUT_EFFECT | {
    "region",
    "endpoint",
    "profile",
    "anonymous",
    "s3ForcePathStyle",
    "use_path_style",
    "disableSSL",
    "disable_https",
    "ssetype",
    "kmskeyid",
}
_FRESH: Final = timedelta(minutes=5)
"""How long credentials are used before they are asked for again; botocore renews them itself."""


def open_bucket(address: Address, environ: Mapping[str, str]) -> Objects:
    """The storage of an address. BackendError when it or the credentials cannot be used."""
    address.refuse_unknown(_PARAMETERS)
    endpoint = _endpoint(address, environ)
    profile = address.text("profile")
    by_path = address.truth("s3ForcePathStyle", "use_path_style") or "." in address.bucket
    if endpoint and not by_path:
        host = urlsplit(endpoint)
        by_path = _is_number(host.hostname or "")
        if not by_path:  # obstore takes the endpoint as it is
            endpoint = f"{host.scheme}://{address.bucket}.{host.netloc}"
    region = address.text("region") or environ.get("AWS_REGION")
    config: dict[str, Any] = {
        "virtual_hosted_style_request": not by_path,
        "region": region or environ.get("AWS_DEFAULT_REGION"),
        "endpoint": endpoint,
        "server_side_encryption": address.text("ssetype"),
        "sse_kms_key_id": address.text("kmskeyid"),
    }
    provider = None
    if address.truth("anonymous"):
        config["skip_signature"] = True
    elif environ.get("AWS_ACCESS_KEY_ID") and not profile:
        config["access_key_id"] = environ["AWS_ACCESS_KEY_ID"]
        config["secret_access_key"] = environ.get("AWS_SECRET_ACCESS_KEY", "")
        config["session_token"] = environ.get("AWS_SESSION_TOKEN")
    else:
        provider = _Credentials(profile, address.shown)
        config["region"] = config["region"] or provider.region
    given: Any = {name: value for name, value in config.items() if value is not None}
    connect = partial(
        S3Store,
        address.bucket,
        prefix=address.prefix or None,
        config=given,
        credential_provider=provider,
    )
    return Objects(connect, address.shown, environ, endpoint)


def _endpoint(address: Address, environ: Mapping[str, str]) -> str | None:
    insecure = address.truth("disableSSL", "disable_https")
    given = address.text("endpoint") or environ.get("AWS_ENDPOINT_URL_S3")
    given = given or environ.get("AWS_ENDPOINT_URL")
    if given is None or "://" in given:
        return given
    return f"{'http' if insecure else 'https'}://{given}"


def _is_number(host: str) -> bool:
    """Whether it is an IP address, of which no name can be a part."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Credentials:
    """botocore's: a profile's, or the first that its chain of sources finds."""

    def __init__(self, profile: str | None, shown: str) -> None:
        import botocore.exceptions  # noqa: PLC0415 - slow, and variables need none of it
        import botocore.session  # noqa: PLC0415

        self._shown = shown
        self._errors = botocore.exceptions.BotoCoreError
        session = botocore.session.Session(profile=profile)
        try:
            self.region: str | None = session.get_config_variable("region")
            self._found = session.get_credentials()
        except self._errors as error:
            raise self._unusable(str(error)) from error
        if self._found is None:
            raise self._unusable("there are none")
        self()  # what is expired or misspelt is told now

    def __call__(self) -> Any:
        """What obstore asks for before it signs."""
        try:
            frozen = self._found.get_frozen_credentials()
        except self._errors as error:
            raise self._unusable(str(error)) from error
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _FRESH,
        }

    def _unusable(self, why: str) -> BackendError:
        return BackendError(
            f"the credentials for {self._shown} cannot be used: {why}",
            hint="Set AWS_PROFILE or the URL's profile, run `aws sso login`, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
