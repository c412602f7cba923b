"""Whose keys are used for SCP, and where its API is.

The environment comes first, then the stack's configuration, then the files of the official tools,
`~/.scpconf/config.json` and `~/.scpconf/credentials.json` (official Terraform provider, config.go).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from gpuform.providers.actions import Settings
from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.schemas.scp.node_rules import REGIONS, all_regions, environments_of, service_url

ACCESS_KEY_VARIABLE, ACCESS_KEY_CONFIG = "SCP_TF_ACCESS_KEY", "scp:accessKey"
SECRET_KEY_VARIABLE, SECRET_KEY_CONFIG = "SCP_TF_SECRET_KEY", "scp:secretKey"
AUTH_TOKEN_VARIABLE, AUTH_TOKEN_CONFIG = "SCP_TF_AUTH_TOKEN", "scp:authToken"
ACCOUNT_ID_VARIABLE, ACCOUNT_ID_CONFIG = "SCP_TF_ACCOUNT_ID", "scp:accountId"
REGION_VARIABLE, REGION_CONFIG = "SCP_TF_DEFAULT_REGION", "scp:defaultRegion"
ENDPOINT_VARIABLE = "SCP_TF_ENDPOINT_OVERRIDE"
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
        """What no message may contain."""
        return self.access_key, self.secret_key, self.auth_token


def find_credentials(settings: Settings, region: str | None = None) -> Credentials:
    """The credentials for a region, or without one for the default region.

    Raises MissingCredentials when there are no keys, and GpuformError when a file cannot be read or
    it is not known where the API is.
    """
    files = _Files(_home(settings) / ".scpconf")
    found = _given(settings) or files.credentials()
    if found is None:
        raise MissingCredentials(
            f"there are no keys for SCP: set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}",
            hint=_SET_KEYS,
            page="start/scp",
        )
    return replace(found, base_url=_base_url(settings, files, region or settings.region))


def default_region(settings: Settings) -> str | None:
    """The region that is asked where none is named; None where nothing says which."""
    return _default_region(settings, _Files(_home(settings) / ".scpconf"))


def address(settings: Settings) -> str:
    """The address of the API in any region of the environment: `*` stands for the region.

    Raises GpuformError when it is not known.
    """
    files = _Files(_home(settings) / ".scpconf")
    found = _base_url(settings, files, settings.region)
    known = {region for regions in REGIONS.values() for region in regions}
    return ".".join("*" if part in known else part for part in found.split("."))


def _given(settings: Settings) -> Credentials | None:
    """What the environment and the stack say, and nothing of the files: keys are not mixed."""
    access_key = settings.value(ACCESS_KEY_VARIABLE, ACCESS_KEY_CONFIG)
    secret_key = settings.value(SECRET_KEY_VARIABLE, SECRET_KEY_CONFIG)
    if access_key is None and secret_key is None:
        return None
    if access_key is None or secret_key is None:
        given, missing = ACCESS_KEY_VARIABLE, (SECRET_KEY_VARIABLE, SECRET_KEY_CONFIG)
        if access_key is None:
            given, missing = SECRET_KEY_VARIABLE, (ACCESS_KEY_VARIABLE, ACCESS_KEY_CONFIG)
        raise MissingCredentials(
            f"half of the keys for SCP is missing: there is {given}, and no {missing[0]}",
            hint=f"set {missing[0]}, or: gpuform config set --secret {missing[1]}",
            page="start/scp",
        )
    return Credentials(
        access_key,
        secret_key,
        base_url="",
        auth_token=settings.value(AUTH_TOKEN_VARIABLE, AUTH_TOKEN_CONFIG) or "",
        account_id=settings.value(ACCOUNT_ID_VARIABLE, ACCOUNT_ID_CONFIG) or "",
        source=f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}, or the stack's configuration",
    )


class _Files:
    """The two files of the official tools, read when something of them is needed."""

    def __init__(self, directory: Path) -> None:
        self._config_path = directory / "config.json"
        self._credentials_path = directory / "credentials.json"

    @cached_property
    def config(self) -> Mapping[str, str]:
        return _read(self._config_path)

    def credentials(self) -> Credentials | None:
        path = self._credentials_path
        found = _read(path)
        names = ("access-key", "secret-key")
        missing = [name for name in names if not found.get(name)]
        if missing == [*names]:
            return None
        if missing:
            raise MissingCredentials(
                f"half of the keys for SCP is missing: {path} has no {missing[0]}",
                hint=f"add it there, or set {ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}",
                page="start/scp",
            )
        return Credentials(
            found["access-key"],
            found["secret-key"],
            base_url="",
            auth_token=found.get("auth-token", ""),
            account_id=self.config.get("account-id", ""),
            source=str(path),
        )


def _home(settings: Settings) -> Path:
    """The user's home; without one, a path that does not exist."""
    home = settings.environ.get("HOME")
    try:
        return Path(home) if home else Path.home()
    except RuntimeError:
        return Path("~")


def _read(path: Path) -> Mapping[str, str]:
    """The texts of a JSON object; nothing when the file is missing or empty."""
    hint = "correct the file, or set the variables SCP_TF_... instead"
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if text.strip() else {}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise GpuformError(f"{path} cannot be read: {error.strerror}", hint=hint) from None
    except json.JSONDecodeError as error:
        where = f"{path}:{error.lineno}:{error.colno}"
        raise GpuformError(f"{where}: this is not JSON", hint=hint) from None
    except ValueError:
        raise GpuformError(f"{path} is not text in UTF-8", hint=hint) from None
    if not isinstance(found, dict):
        raise GpuformError(f"{path} does not have a JSON object", hint=hint)
    return {name: value for name, value in found.items() if isinstance(value, str)}


def _base_url(settings: Settings, files: _Files, region: str | None) -> str:
    override = settings.value(ENDPOINT_VARIABLE)
    if override is not None:
        return _checked_url(override, ENDPOINT_VARIABLE)
    override = files.config.get("endpoint-override")
    if override:
        return _checked_url(override, "endpoint-override of ~/.scpconf/config.json")
    region = region or _default_region(settings, files)
    if not region:
        raise GpuformError(
            f"the region of SCP is not known: set {REGION_VARIABLE}",
            hint=f"or: gpuform config set {REGION_CONFIG} REGION; {all_regions()}",
        )
    try:
        return service_url(region, _environment(settings, files, region))
    except ValueError as error:
        raise GpuformError(
            str(error),
            hint=f"correct the region ({REGION_VARIABLE}, {REGION_CONFIG}) or the environment "
            f"({AUTH_URL_VARIABLE}, {ENVIRONMENT_CONFIG})",
        ) from None


def _default_region(settings: Settings, files: _Files) -> str | None:
    named = settings.region or settings.value(REGION_VARIABLE, REGION_CONFIG)
    return named or files.config.get("default-region")


def _environment(settings: Settings, files: _Files, region: str) -> str:
    """The letter of the environment: by the address of IAM, else what only can be meant."""
    auth_url = settings.value(AUTH_URL_VARIABLE)
    if auth_url:
        return _of_auth_url(auth_url, AUTH_URL_VARIABLE)
    environment = settings.config(ENVIRONMENT_CONFIG)
    if environment:
        return environment
    auth_url = files.config.get("auth-url")
    if auth_url:
        return _of_auth_url(auth_url, "auth-url of ~/.scpconf/config.json")
    candidates = environments_of(region)
    if len(candidates) > 1:
        raise GpuformError(
            f"region {region} is in several environments of SCP ({', '.join(candidates)}), and it "
            f"is not known which is meant: set {AUTH_URL_VARIABLE}, such as "
            f"https://iam.{candidates[0]}.samsungsdscloud.com/v1",
            hint=f"or: gpuform config set {ENVIRONMENT_CONFIG} {candidates[0]}",
        )
    # A region that is nowhere is refused with the list of all, whatever the letter.
    return candidates[0] if candidates else next(iter(REGIONS))


def _of_auth_url(url: str, name: str) -> str:
    found = re.fullmatch(r"iam\.([a-z0-9]+)\.samsungsdscloud\.com", _host(url))
    if found is None:
        raise GpuformError(
            f"{name} does not tell the environment of SCP",
            hint="it should be such as https://iam.e.samsungsdscloud.com/v1",
        )
    return found[1]


def _checked_url(url: str, name: str) -> str:
    """The address, which may come with or without `/v1`; a path before that is kept."""
    rest = url.partition("://")[2]
    is_plain = not set("?#@") & set(rest)
    if not _host(url) or not url.startswith(("http://", "https://")) or not is_plain:
        raise GpuformError(
            f"{name} is not the address of an API",
            hint="it should be such as https://multinodegpucluster.kr-west1.e.samsungsdscloud.com",
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
