"""Test where keys and address come from: environment, stack, or files of the official tools."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.providers.operations import Settings
from gpuform.providers.scp.client.credentials import Credentials, find_credentials

KEYS = {"SCP_TF_ACCESS_KEY": "env-access", "SCP_TF_SECRET_KEY": "env-secret"}
CONFIG_KEYS = {"scp:accessKey": "stack-access", "scp:secretKey": "stack-secret"}
FILE_KEYS = {"access-key": "file-access", "secret-key": "file-secret"}
SOUTH = {"SCP_TF_DEFAULT_REGION": "kr-south1"}
OVERRIDE = {"SCP_TF_ENDPOINT_OVERRIDE": "http://127.0.0.1:8080/scp"}


class Home:
    """A user's home directory with files of the official tools."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / ".scpconf").mkdir()

    def write(self, name: str, content: Any) -> Path:
        path = self.path / ".scpconf" / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def find(
        self,
        variables: Mapping[str, str] = {},
        config: Mapping[str, str] = {},
        region: str | None = None,
    ) -> Credentials:
        environ = {"HOME": str(self.path), **variables}
        return find_credentials(Settings(config=config.get, environ=environ), region)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def _get_keys(credentials: Credentials) -> tuple[str, str]:
    return credentials.access_key, credentials.secret_key


# Keys.


def test_keys_of_the_environment_precede_the_stacks_which_precede_the_files(home: Home) -> None:
    path = home.write("credentials.json", FILE_KEYS)
    credentials = home.find({**SOUTH})
    assert (_get_keys(credentials), credentials.source) == (
        ("file-access", "file-secret"),
        str(path),
    )
    assert _get_keys(home.find(SOUTH, CONFIG_KEYS)) == ("stack-access", "stack-secret")
    credentials = home.find({**SOUTH, **KEYS}, CONFIG_KEYS)
    assert _get_keys(credentials) == ("env-access", "env-secret")
    assert "SCP_TF_ACCESS_KEY" in credentials.source


def test_an_empty_variable_counts_as_unset(home: Home) -> None:
    empty = dict.fromkeys(KEYS, "")
    assert _get_keys(home.find({**SOUTH, **empty}, CONFIG_KEYS)) == (
        "stack-access",
        "stack-secret",
    )


def test_missing_keys_are_named_in_the_error(home: Home) -> None:
    with pytest.raises(MissingCredentials) as caught:
        home.find(SOUTH)
    for name in ("SCP_TF_ACCESS_KEY", "SCP_TF_SECRET_KEY", "scp:secretKey", "credentials.json"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "config", "missing"),
    [
        ({"SCP_TF_ACCESS_KEY": "k-1"}, {}, "SCP_TF_SECRET_KEY is not"),
        ({"SCP_TF_SECRET_KEY": "k-1"}, {}, "SCP_TF_ACCESS_KEY is not"),
        ({}, {"scp:secretKey": "k-1"}, "SCP_TF_ACCESS_KEY is not"),
    ],
)
def test_half_a_pair_of_keys_is_not_completed_from_the_files(
    home: Home, variables: dict[str, str], config: dict[str, str], missing: str
) -> None:
    home.write("credentials.json", FILE_KEYS)
    with pytest.raises(MissingCredentials, match=missing) as caught:
        home.find({**SOUTH, **variables}, config)
    assert "k-1" not in str(caught.value)


@pytest.mark.parametrize("name", FILE_KEYS)
def test_half_a_pair_of_keys_in_the_file_is_named(home: Home, name: str) -> None:
    path = home.write("credentials.json", {name: "hunter2"})
    (other,) = set(FILE_KEYS) - {name}
    with pytest.raises(MissingCredentials) as caught:
        home.find(SOUTH)
    assert f"{path} has no {other}" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_token_and_account_come_from_the_source_of_the_keys(home: Home) -> None:
    home.write("credentials.json", {**FILE_KEYS, "auth-token": "file-token"})
    home.write("config.json", {"account-id": "file-account"})
    credentials = home.find(SOUTH)
    assert (credentials.auth_token, credentials.account_id) == ("file-token", "file-account")
    credentials = home.find({**SOUTH, **KEYS})
    assert (credentials.auth_token, credentials.account_id) == ("", "")
    more = {"SCP_TF_AUTH_TOKEN": "env-token", "SCP_TF_ACCOUNT_ID": "env-account"}
    credentials = home.find({**SOUTH, **KEYS, **more})
    assert (credentials.auth_token, credentials.account_id) == ("env-token", "env-account")
    more = {"scp:authToken": "stack-token", "scp:accountId": "stack-account"}
    credentials = home.find(SOUTH, {**CONFIG_KEYS, **more})
    assert (credentials.auth_token, credentials.account_id) == ("stack-token", "stack-account")


def test_credentials_show_no_secret() -> None:
    credentials = Credentials("hunter1", "hunter2", base_url="http://x", auth_token="hunter3")
    assert "hunter" not in f"{credentials} {credentials!r}"


def test_equal_keys_of_different_sources_are_equal() -> None:
    credentials = Credentials("a", "b", base_url="http://x", source="here")
    other = Credentials("a", "b", base_url="http://x", source="there")
    assert credentials == other
    assert hash(credentials) == hash(other)


# The files.


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_an_empty_file_counts_as_missing(home: Home, text: str) -> None:
    home.write("credentials.json", text)
    home.write("config.json", text)
    with pytest.raises(MissingCredentials, match="the keys for SCP are missing"):
        home.find(SOUTH)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"secret-key": "hunter2"', ":1:25: this is not JSON"),
        ('{"a": 1,\n "secret-key": hunter2}', ":2:16: this is not JSON"),
        ('["hunter2"]', " is not a JSON object"),
        ('"hunter2"', " is not a JSON object"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "credentials.json"])
def test_a_broken_file_is_named_and_not_shown(
    home: Home, name: str, text: str, message: str
) -> None:
    home.write("credentials.json", FILE_KEYS)
    path = home.write(name, text)
    with pytest.raises(GpuformError) as caught:
        home.find()
    assert f"{path}{message}" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_file_that_is_no_text_is_named(home: Home) -> None:
    path = home.write("credentials.json", "")
    path.write_bytes(b"\xff\xfehunter2")
    with pytest.raises(GpuformError, match="is not text in UTF-8"):
        home.find(SOUTH)


def test_a_directory_in_place_of_a_file_is_named(home: Home) -> None:
    (home.path / ".scpconf" / "credentials.json").mkdir()
    with pytest.raises(GpuformError, match=r"credentials\.json cannot be read: Is a directory"):
        home.find(SOUTH)


def test_values_other_than_texts_are_ignored(home: Home) -> None:
    home.write("credentials.json", {"access-key": 7, "secret-key": ["x"]})
    with pytest.raises(MissingCredentials, match="the keys for SCP are missing"):
        home.find(SOUTH)


def test_a_broken_file_that_is_not_needed_is_no_error(home: Home) -> None:
    home.write("config.json", "{")
    home.write("credentials.json", "{")
    assert home.find({**KEYS, **OVERRIDE}).base_url == "http://127.0.0.1:8080/scp"


def test_files_are_read_from_the_home_of_the_process(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("credentials.json", FILE_KEYS)
    home.write("config.json", {"default-region": "kr-south3"})
    monkeypatch.setenv("HOME", str(home.path))
    for name in (*KEYS, *OVERRIDE, "SCP_TF_AUTH_URL", "SCP_TF_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    assert _get_keys(find_credentials(Settings())) == ("file-access", "file-secret")


# The address.


def _get_url(region: str, environment: str) -> str:
    return f"https://multinodegpucluster.{region}.{environment}.samsungsdscloud.com"


@pytest.mark.parametrize(
    ("variables", "config", "file", "region", "environment"),
    [
        (SOUTH, {}, {}, "kr-south1", "g"),
        (
            {"SCP_TF_DEFAULT_REGION": "kr-west1", "SCP_TF_AUTH_URL": "https://iam.e.samsungsdscloud.com/v1"},
            {}, {}, "kr-west1", "e",
        ),
        ({}, {"scp:defaultRegion": "kr-east1", "scp:environment": "s"}, {}, "kr-east1", "s"),
        (
            {}, {},
            {"default-region": "kr-east1", "auth-url": "https://iam.e.samsungsdscloud.com/v1/"},
            "kr-east1", "e",
        ),
        (
            {"SCP_TF_AUTH_URL": "https://iam.s.samsungsdscloud.com/v1"},
            {"scp:defaultRegion": "kr-west1", "scp:environment": "e"},
            {"default-region": "kr-south1", "auth-url": "https://iam.g.samsungsdscloud.com/v1"},
            "kr-west1", "s",
        ),
    ],
)  # fmt: skip
def test_the_address_is_that_of_region_and_environment(
    home: Home,
    variables: dict[str, str],
    config: dict[str, str],
    file: dict[str, str],
    region: str,
    environment: str,
) -> None:
    home.write("config.json", file)
    credentials = home.find({**KEYS, **variables}, config)
    assert credentials.base_url == _get_url(region, environment)


def test_a_requested_region_wins_over_the_default(home: Home) -> None:
    credentials = home.find({**KEYS, **SOUTH}, region="kr-south2")
    assert credentials.base_url == _get_url("kr-south2", "g")
    assert home.find({**KEYS, **OVERRIDE}, region="kr-south2").base_url.endswith("/scp")


@pytest.mark.parametrize(
    ("override", "url"),
    [
        ("http://127.0.0.1:8080/scp", "http://127.0.0.1:8080/scp"),
        ("http://127.0.0.1:8080/scp/", "http://127.0.0.1:8080/scp"),
        ("https://proxy.example/scp/v1", "https://proxy.example/scp"),
        ("https://proxy.example/scp/v1/", "https://proxy.example/scp"),
        ("https://proxy.example", "https://proxy.example"),
    ],
)
def test_an_override_keeps_its_path(home: Home, override: str, url: str) -> None:
    assert home.find({**KEYS, "SCP_TF_ENDPOINT_OVERRIDE": override}).base_url == url
    home.write("config.json", {"endpoint-override": override})
    assert home.find({**KEYS, **SOUTH}).base_url == url


@pytest.mark.parametrize(
    "override",
    [
        "proxy.example/scp", "ftp://proxy.example", "http://", "https:///scp",
        "https://user:hunter2@proxy.example", "https://x/?a=hunter2", "http://[", "hunter2",
    ],
)  # fmt: skip
def test_an_invalid_override_is_named_and_not_shown(home: Home, override: str) -> None:
    with pytest.raises(GpuformError, match="SCP_TF_ENDPOINT_OVERRIDE is not the address") as caught:
        home.find({**KEYS, "SCP_TF_ENDPOINT_OVERRIDE": override})
    assert "hunter2" not in str(caught.value)


def test_a_missing_region_is_named_in_the_error(home: Home) -> None:
    with pytest.raises(GpuformError, match="Set SCP_TF_DEFAULT_REGION") as caught:
        home.find(KEYS)
    assert "g has kr-south1, kr-south2, kr-south3" in str(caught.value)


def test_a_region_of_several_environments_needs_a_declared_one(home: Home) -> None:
    with pytest.raises(GpuformError, match=r"several environments of SCP \(s, e\)") as caught:
        home.find(KEYS, region="kr-west1")
    assert "SCP_TF_AUTH_URL" in str(caught.value)
    assert "scp:environment" in str(caught.value)


@pytest.mark.parametrize(
    ("region", "environment"), [("kr-west1", "g"), ("kr-south1", "e"), ("kr-west1", "x")]
)
def test_a_region_outside_of_its_environment_is_refused_with_the_list(
    home: Home, region: str, environment: str
) -> None:
    config = {"scp:defaultRegion": region, "scp:environment": environment}
    with pytest.raises(GpuformError) as caught:
        home.find(KEYS, config)
    assert f"SCP has no region {region} in environment {environment}" in str(caught.value)
    assert "e has kr-west1, kr-east1" in str(caught.value)


@pytest.mark.parametrize("url", ["https://iam.example.com/v1", "e", "", "http://["])
def test_an_address_of_iam_without_an_environment_is_refused(home: Home, url: str) -> None:
    variables = {**KEYS, "SCP_TF_DEFAULT_REGION": "kr-west1", "SCP_TF_AUTH_URL": url}
    with pytest.raises(GpuformError, match="SCP_TF_AUTH_URL"):
        home.find(variables)
