"""`login` and `logout` keep the choice where the Pulumi CLI does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def credentials(tmp_path: Path, project: Path) -> Path:
    """Return the path of the credentials file; the project itself names no backend."""
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    return tmp_path / "home" / "credentials.json"


@pytest.fixture
def team_url(tmp_path: Path) -> str:
    (tmp_path / "team").mkdir()
    return f"file://{tmp_path}/team"


def test_commands_use_the_backend_of_login(
    run: Run, credentials: Path, team_url: str, tmp_path: Path
) -> None:
    assert run("login", team_url).out == f"Logged in to {team_url}.\n"
    assert run("stack", "init", "dev").code == 0
    assert (tmp_path / "team/.pulumi/stacks/demo/dev.json").exists()
    assert run("login").out == f"Logged in to {team_url}.\n"


def test_login_writes_the_credentials_file_of_pulumi(
    run: Run, credentials: Path, team_url: str
) -> None:
    run("login", team_url)
    assert json.loads(credentials.read_text()) == {
        "current": team_url,
        "accessTokens": {team_url: ""},
        "accounts": {team_url: {"lastValidatedAt": "0001-01-01T00:00:00Z"}},
    }
    assert credentials.stat().st_mode & 0o077 == 0


def test_accounts_of_pulumi_cloud_stay_in_the_file(
    run: Run, credentials: Path, team_url: str
) -> None:
    cloud = "https://api.pulumi.com"
    before = {
        "current": cloud,
        "accessTokens": {cloud: "pul-hush"},
        "accounts": {cloud: {"accessToken": "pul-hush", "username": "ann"}},
    }
    credentials.parent.mkdir(exist_ok=True)
    credentials.write_text(json.dumps(before))
    refused = run("stack", "ls")
    assert refused.code == 1
    assert cloud in refused.err
    assert "hush" not in refused.err
    assert run("login", team_url).code == 0
    assert run("logout").out == f"Logged out of {team_url}.\n"
    remaining = json.loads(credentials.read_text())
    assert remaining == {key: before[key] for key in ("accessTokens", "accounts")}
    assert run("logout", cloud).code == 0
    assert not credentials.exists()


def test_project_file_and_variable_take_precedence_over_login(
    run: Run, credentials: Path, team_url: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("login", team_url)
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend: {url: file://.}\n")
    run("stack", "init", "dev")
    assert (project / ".pulumi/stacks/demo/dev.json").exists()
    (project / "other").mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{project}/other")
    run("stack", "init", "dev2")
    assert (project / "other/.pulumi/stacks/demo/dev2.json").exists()
    assert "PULUMI_BACKEND_URL is set" in run("login", team_url).err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("login", "file:///none/such"), "does not exist"),
        (("login", "nonsense"), "gpuform does not support"),
        (("logout",), "not logged in to any backend"),
        (("logout", "file:///x"), "not logged in to file:///x"),
    ],
)
def test_login_and_logout_refuse_unknown_backends(
    run: Run, credentials: Path, args: tuple[str, ...], message: str
) -> None:
    ran = run(*args)
    assert ran.code == 1
    assert message in ran.err
    assert not credentials.exists()


def test_contradicting_flags_of_login_are_usage_errors(run: Run, team_url: str) -> None:
    assert run("login", team_url, "--local").code == 2
    assert run("logout", team_url, "--all").code == 2


def test_login_local_uses_the_home_and_logout_all_removes_the_file(
    run: Run, credentials: Path, team_url: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HOME", str(credentials.parent.parent))
    run("login", team_url)
    assert run("login", "--local").out == "Logged in to file://~.\n"
    assert json.loads(credentials.read_text())["current"] == "file://~"
    assert run("logout", "--local").code == 0
    assert run("logout", "--all").out == "Logged out of all backends.\n"
    assert not credentials.exists()


def test_a_damaged_credentials_file_is_named_and_kept(run: Run, credentials: Path) -> None:
    credentials.parent.mkdir(exist_ok=True)
    credentials.write_text("{torn")
    for args in (("stack", "ls"), ("login", "file://~"), ("logout",)):
        ran = run(*args)
        assert ran.code == 1
        assert str(credentials) in ran.err
    assert credentials.read_text() == "{torn"
