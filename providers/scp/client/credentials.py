"""Find the keys for SCP and the address of its API.

The environment comes first, then the stack's configuration, then the files of the official tools,
`~/.scpconf/config.json` and `~/.scpconf/credentials.json` (official Terraform provider, config.go).
Called by `get_client`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.providers.operations import Settings
from gpuform.schemas.scp.node_rules import (
    REGIONS,
    build_service_url,
    describe_regions,
    find_environments,
)
from gpuform.schemas.scp.outputs import CURRENT_VERSION, SELECTABLE_VERSIONS

ACCESS_KEY_VARIABLE, ACCESS_KEY_CONFIG = "SCP_TF_ACCESS_KEY", "scp:accessKey"
SECRET_KEY_VARIABLE, SECRET_KEY_CONFIG = "SCP_TF_SECRET_KEY", "scp:secretKey"
AUTH_TOKEN_VARIABLE, AUTH_TOKEN_CONFIG = "SCP_TF_AUTH_TOKEN", "scp:authToken"
ACCOUNT_ID_VARIABLE, ACCOUNT_ID_CONFIG = "SCP_TF_ACCOUNT_ID", "scp:accountId"
REGION_VARIABLE, REGION_CONFIG = "SCP_TF_DEFAULT_REGION", "scp:defaultRegion"
ENDPOINT_VARIABLE = "SCP_TF_ENDPOINT_OVERRIDE"
# The official provider has no such setting: each of its releases uses one version.
VERSION_VARIABLE, VERSION_CONFIG = "SCP_API_VERSION", "scp:apiVersion"
AUTH_URL_VARIABLE, ENVIRONMENT_CONFIG = "SCP_TF_AUTH_URL", "scp:environment"

_SET_KEYS = (
    f"or store them with the stack: gpuform config set --secret {ACCESS_KEY_CONFIG}, and "
    f"--secret {SECRET_KEY_CONFIG}; or write ~/.scpconf/credentials.json as for Samsung's own tools"
)


@dataclass(frozen=True)
class Credentials:
    """The keys of one user and the address they are for, without a slash at its end.

    `auth_token` belongs to temporary keys. `account_id` is signed and sent only when there is one.
    `source` says where the keys come from.
    """

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    base_url: str
    auth_token: str = field(default="", repr=False)
    account_id: str = ""
    source: str = field(default="", compare=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the keys and the token, which no message may contain."""
        return self.access_key, self.secret_key, self.auth_token


def find_credentials(settings: Settings, region: str | None = None) -> Credentials:
    """Return the credentials for a region, with the address of the region's API.

    None as `region` means the default region. The keys come from the environment variables and the
    stack's configuration, else from the files in ~/.scpconf.

    Raises:
        MissingCredentials: both keys are missing, or one of the two.
        GpuformError: a file cannot be read, or the address of the API is unknown.
    """
    files = _ConfigFiles(_find_home(settings) / ".scpconf")
    credentials = _read_settings(settings) or files.read_credentials()
    if credentials is None:
        raise MissingCredentials(
            f"the keys for SCP are missing. Set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}",
            hint=_SET_KEYS,
            page="start/scp",
        )
    return replace(
        credentials, base_url=_resolve_base_url(settings, files, region or settings.region)
    )


def find_default_region(settings: Settings) -> str | None:
    """Return the region of resources without a declared region, or None.

    Raises:
        GpuformError: config.json cannot be read.
    """
    return _select_default_region(settings, _ConfigFiles(_find_home(settings) / ".scpconf"))


def find_api_version(settings: Settings) -> str:
    """Return the version of the API chosen by the settings, else the reference's current version.

    Raises:
        GpuformError: the settings name a version that gpuform does not support.
    """
    version = settings.get_value(VERSION_VARIABLE, VERSION_CONFIG) or CURRENT_VERSION
    if version not in SELECTABLE_VERSIONS:
        versions = " or ".join(SELECTABLE_VERSIONS)
        raise GpuformError(
            f"{VERSION_CONFIG}: gpuform does not support version {version} of SCP's API",
            hint=f"set {VERSION_CONFIG} or {VERSION_VARIABLE} to {versions}",
        )
    return version


def get_base_url(settings: Settings) -> str:
    """Return the address of the API in any region of the environment: `*` stands for the region.

    Raises:
        GpuformError: the settings name no region or a wrong address.
    """
    files = _ConfigFiles(_find_home(settings) / ".scpconf")
    base_url = _resolve_base_url(settings, files, settings.region)
    regions_of_scp = {region for regions in REGIONS.values() for region in regions}
    return ".".join("*" if part in regions_of_scp else part for part in base_url.split("."))


def _read_settings(settings: Settings) -> Credentials | None:
    """Read the credentials of the environment and the stack's configuration, or return None.

    Files are not read: keys of two sources are not mixed. The address of the result is empty.

    Raises:
        MissingCredentials: only one of the two keys is set.
    """
    access_key = settings.get_value(ACCESS_KEY_VARIABLE, ACCESS_KEY_CONFIG)
    secret_key = settings.get_value(SECRET_KEY_VARIABLE, SECRET_KEY_CONFIG)
    if access_key is None and secret_key is None:
        return None
    # Half a pair is an error, not a reason to use another source's keys.
    if access_key is None or secret_key is None:
        present_variable = ACCESS_KEY_VARIABLE
        missing_names = (SECRET_KEY_VARIABLE, SECRET_KEY_CONFIG)
        if access_key is None:
            present_variable = SECRET_KEY_VARIABLE
            missing_names = (ACCESS_KEY_VARIABLE, ACCESS_KEY_CONFIG)
        raise MissingCredentials(
            f"half of the keys for SCP is missing: {present_variable} is set, and "
            f"{missing_names[0]} is not",
            hint=f"set {missing_names[0]}, or: gpuform config set --secret {missing_names[1]}",
            page="start/scp",
        )
    return Credentials(
        access_key,
        secret_key,
        base_url="",
        auth_token=settings.get_value(AUTH_TOKEN_VARIABLE, AUTH_TOKEN_CONFIG) or "",
        account_id=settings.get_value(ACCOUNT_ID_VARIABLE, ACCOUNT_ID_CONFIG) or "",
        source=f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}, or the stack's configuration",
    )


class _ConfigFiles:
    """The two files of the official tools, read when a value of them is needed."""

    def __init__(self, directory: Path) -> None:
        self._config_path = directory / "config.json"
        self._credentials_path = directory / "credentials.json"

    @cached_property
    def config(self) -> Mapping[str, str]:
        """Return the text values of config.json, read once; empty for a missing file.

        Raises:
            GpuformError: the file cannot be read.
        """
        return _read_json_file(self._config_path)

    def read_credentials(self) -> Credentials | None:
        """Read the credentials of credentials.json, without an address; None without both keys.

        The account id is from config.json.

        Raises:
            MissingCredentials: the file has only one of the two keys.
            GpuformError: a file cannot be read.
        """
        path = self._credentials_path
        values = _read_json_file(path)
        required_names = ("access-key", "secret-key")
        missing_names = [name for name in required_names if not values.get(name)]
        # A file without both keys counts as no file; a file with one of them is a mistake.
        if missing_names == [*required_names]:
            return None
        if missing_names:
            raise MissingCredentials(
                f"half of the keys for SCP is missing: {path} has no {missing_names[0]}",
                hint=f"add it there, or set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}",
                page="start/scp",
            )
        return Credentials(
            values["access-key"],
            values["secret-key"],
            base_url="",
            auth_token=values.get("auth-token", ""),
            account_id=self.config.get("account-id", ""),
            source=str(path),
        )


def _find_home(settings: Settings) -> Path:
    """Return the user's home; without one, a nonexistent path."""
    home = settings.environ.get("HOME")
    try:
        return Path(home) if home else Path.home()
    except RuntimeError:
        return Path("~")


def _read_json_file(path: Path) -> Mapping[str, str]:
    """Return the text values of the JSON object in a file; none if the file is missing or empty.

    Raises:
        GpuformError: the file cannot be read, or has no JSON object.
    """
    hint = "correct the file, or set the variables SCP_TF_... instead"
    try:
        content = path.read_text(encoding="utf-8")
        values = json.loads(content) if content.strip() else {}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise GpuformError(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    except json.JSONDecodeError as error:
        location = f"{path}:{error.lineno}:{error.colno}"
        raise GpuformError(f"{location}: this is not JSON", hint=hint) from None
    except ValueError:
        raise GpuformError(f"{path} is not text in UTF-8", hint=hint) from None
    if not isinstance(values, dict):
        raise GpuformError(f"{path} is not a JSON object", hint=hint)
    return {name: value for name, value in values.items() if isinstance(value, str)}


def _resolve_base_url(settings: Settings, files: _ConfigFiles, region: str | None) -> str:
    """Return the API's address: an override, else the one of the region.

    None as `region` means the default region.

    Raises:
        GpuformError: the override is no address, neither override nor region is set, the region is
            unknown, or its environment is ambiguous.
    """
    override = settings.get_value(ENDPOINT_VARIABLE)
    # An override (the emulator, a proxy) needs no region.
    if override is not None:
        return _normalize_url(override, ENDPOINT_VARIABLE)
    override = files.config.get("endpoint-override")
    if override:
        return _normalize_url(override, "endpoint-override of ~/.scpconf/config.json")
    region = region or _select_default_region(settings, files)
    if not region:
        raise GpuformError(
            f"the region of SCP is missing. Set {REGION_VARIABLE}",
            hint=f"or: gpuform config set {REGION_CONFIG} REGION; {describe_regions()}",
        )
    try:
        return build_service_url(region, _resolve_environment(settings, files, region))
    except ValueError as error:
        raise GpuformError(
            str(error),
            hint=f"correct the region ({REGION_VARIABLE}, {REGION_CONFIG}) or the environment "
            f"({AUTH_URL_VARIABLE}, {ENVIRONMENT_CONFIG})",
        ) from None


def _select_default_region(settings: Settings, files: _ConfigFiles) -> str | None:
    """Return the default region of the settings, else of config.json, or None."""
    declared_region = settings.region or settings.get_value(REGION_VARIABLE, REGION_CONFIG)
    return declared_region or files.config.get("default-region")


def _resolve_environment(settings: Settings, files: _ConfigFiles, region: str) -> str:
    """Return the letter of SCP's environment, such as `e`.

    The letter comes from the address of IAM in the environment variable, else from the stack's
    configuration, else from the address of IAM in config.json. Without any of these it is the only
    environment that has the region; for an unknown region it is an arbitrary one.

    Raises:
        GpuformError: an address of IAM contains no letter, or several environments have the region.
    """
    auth_url = settings.get_value(AUTH_URL_VARIABLE)
    if auth_url:
        return _parse_environment(auth_url, AUTH_URL_VARIABLE)
    environment = settings.config(ENVIRONMENT_CONFIG)
    if environment:
        return environment
    auth_url = files.config.get("auth-url")
    if auth_url:
        return _parse_environment(auth_url, "auth-url of ~/.scpconf/config.json")
    candidates = find_environments(region)
    if len(candidates) > 1:
        raise GpuformError(
            f"region {region} exists in several environments of SCP ({', '.join(candidates)}): "
            f"set {AUTH_URL_VARIABLE}, such as https://iam.{candidates[0]}.samsungsdscloud.com/v1",
            hint=f"or: gpuform config set {ENVIRONMENT_CONFIG} {candidates[0]}",
        )
    # A region that is nowhere is refused with the list of all, whatever the letter.
    return candidates[0] if candidates else next(iter(REGIONS))


def _parse_environment(url: str, name: str) -> str:
    """Return the environment's letter in the URL of SCP's IAM.

    `name` is the variable or the key that has the URL. Raises GpuformError with `name` if the URL
    contains no letter.
    """
    match = re.fullmatch(r"iam\.([a-z0-9]+)\.samsungsdscloud\.com", _parse_host(url))
    if match is None:
        raise GpuformError(
            f"{name} does not name the environment of SCP",
            hint="write an address such as https://iam.e.samsungsdscloud.com/v1",
        )
    return match[1]


def _normalize_url(url: str, name: str) -> str:
    """Return the address without `/v1` and without a final slash.

    Raises:
        GpuformError: `url` is not the address of an API.
    """
    address = url.partition("://")[2]
    has_no_extras = not set("?#@") & set(address)
    if not _parse_host(url) or not url.startswith(("http://", "https://")) or not has_no_extras:
        raise GpuformError(
            f"{name} is not the address of an API",
            hint="write an address such as "
            "https://multinodegpucluster.kr-west1.e.samsungsdscloud.com",
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _parse_host(url: str) -> str:
    """Return the host of a URL; empty for a malformed URL or one without a host."""
    try:
        return urlsplit(url).hostname or ""
    # Such as an open bracket of an IPv6 address.
    except ValueError:
        return ""
