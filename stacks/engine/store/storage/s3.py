"""Open `s3://` backends on Amazon S3 and on other stores that speak its protocol.

`open_storage` calls `open_bucket`. Parameters are those of gocloud.dev's s3blob, which Pulumi uses.
Credentials are found as every AWS tool finds them: variables, profiles, SSO, assumed roles,
containers and machines.
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
    "awssdk",  # the version of the Go library
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
_CREDENTIALS_LIFETIME: Final = timedelta(minutes=5)
"""How long credentials are used before they are asked for again; botocore renews them itself."""


def open_bucket(address: Address, environ: Mapping[str, str]) -> Objects:
    """Open the bucket of an address.

    Credentials are AWS_ACCESS_KEY_ID with its related variables, unless the address names a
    `profile`, else those of AWS's own files and services. With the parameter `anonymous` none are
    used.

    Raises:
        BackendError: the address or the credentials cannot be used.
    """
    address.reject_unknown_parameters(_PARAMETERS)
    endpoint = _find_endpoint(address, environ)
    profile = address.get_text("profile")
    by_path = address.get_bool("s3ForcePathStyle", "use_path_style") or "." in address.bucket
    if endpoint and not by_path:
        host = urlsplit(endpoint)
        by_path = _is_ip_address(host.hostname or "")
        if not by_path:
            # obstore does not put the bucket in front of an endpoint that it is given.
            endpoint = f"{host.scheme}://{address.bucket}.{host.netloc}"
    region = address.get_text("region") or environ.get("AWS_REGION")
    config: dict[str, Any] = {
        "virtual_hosted_style_request": not by_path,
        "region": region or environ.get("AWS_DEFAULT_REGION"),
        "endpoint": endpoint,
        "server_side_encryption": address.get_text("ssetype"),
        "sse_kms_key_id": address.get_text("kmskeyid"),
    }
    provider = None
    if address.get_bool("anonymous"):
        config["skip_signature"] = True
    elif environ.get("AWS_ACCESS_KEY_ID") and not profile:
        config["access_key_id"] = environ["AWS_ACCESS_KEY_ID"]
        config["secret_access_key"] = environ.get("AWS_SECRET_ACCESS_KEY", "")
        config["session_token"] = environ.get("AWS_SESSION_TOKEN")
    else:
        provider = _BotocoreCredentials(profile, address.display_url)
        config["region"] = config["region"] or provider.region
    set_config: Any = {name: value for name, value in config.items() if value is not None}
    connect = partial(
        S3Store,
        address.bucket,
        prefix=address.prefix or None,
        config=set_config,
        credential_provider=provider,
    )
    return Objects(connect, address.display_url, environ, endpoint)


def _find_endpoint(address: Address, environ: Mapping[str, str]) -> str | None:
    """Return the URL of another store than AWS, of the address or the environment, or None.

    A host without a scheme gets `https://`, or `http://` if the address disables TLS.
    """
    insecure = address.get_bool("disableSSL", "disable_https")
    endpoint = address.get_text("endpoint") or environ.get("AWS_ENDPOINT_URL_S3")
    endpoint = endpoint or environ.get("AWS_ENDPOINT_URL")
    if endpoint is None or "://" in endpoint:
        return endpoint
    return f"{'http' if insecure else 'https'}://{endpoint}"


def _is_ip_address(host: str) -> bool:
    """Return True if `host` is an IP address, in front of which a bucket's name cannot stand.

    `host` is without a port, and without the brackets of IPv6.
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _BotocoreCredentials:
    """Credentials from botocore: of a profile, or the first of its chain of sources."""

    def __init__(self, profile: str | None, shown: str) -> None:
        import botocore.exceptions  # noqa: PLC0415 - slow, and variables need none of it
        import botocore.session  # noqa: PLC0415

        self._shown = shown
        self._errors = botocore.exceptions.BotoCoreError
        session = botocore.session.Session(profile=profile)
        try:
            self.region: str | None = session.get_config_variable("region")
            self._credentials = session.get_credentials()
        except self._errors as error:
            raise self._build_unusable_error(str(error)) from error
        if self._credentials is None:
            raise self._build_unusable_error("none found")
        self()  # raises now for expired or misspelt credentials, not at the first request

    def __call__(self) -> Any:
        """Return the credentials in obstore's form; obstore calls this before signing."""
        try:
            frozen = self._credentials.get_frozen_credentials()
        except self._errors as error:
            raise self._build_unusable_error(str(error)) from error
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_LIFETIME,
        }

    def _build_unusable_error(self, why: str) -> BackendError:
        """Build the error for unusable credentials; `why` is the reason in the message."""
        return BackendError(
            f"the credentials for {self._shown} cannot be used: {why}",
            hint="Set AWS_PROFILE or the URL's profile, run `aws sso login`, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        )
