"""`login` and `logout` keep the choice where the Pulumi CLI does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def credentials(tmp_path: Path, project: Path) -> Path:
    """The file; the project itself names no backend."""
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    return tmp_path / "home" / "credentials.json"


@pytest.fixture
def place(tmp_path: Path) -> str:
    (tmp_path / "team").mkdir()
    return f"file://{tmp_path}/team"


def test_what_was_chosen_is_used(run: Run, credentials: Path, place: str, tmp_path: Path) -> None:
    assert run("login", place).out == f"Logged in to {place}.\n"
    assert run("stack", "init", "dev").code == 0
    assert (tmp_path / "team/.pulumi/stacks/demo/dev.json").exists()
    assert run("login").out == f"Logged in to {place}.\n"


def test_the_file_is_pulumis(run: Run, credentials: Path, place: str) -> None:
    run("login", place)
    assert json.loads(credentials.read_text()) == {
        "current": place,
        "accessTokens": {place: ""},
        "accounts": {place: {"lastValidatedAt": "0001-01-01T00:00:00Z"}},
    }
    assert credentials.stat().st_mode & 0o077 == 0


def test_pulumis_accounts_stay(run: Run, credentials: Path, place: str) -> None:
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
    assert run("login", place).code == 0
    assert run("logout").out == f"Logged out of {place}.\n"
    left = json.loads(credentials.read_text())
    assert left == {key: before[key] for key in ("accessTokens", "accounts")}
    assert run("logout", cloud).code == 0
    assert not credentials.exists()


def test_others_go_before_it(
    run: Run, credentials: Path, place: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("login", place)
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend: {url: file://.}\n")
    run("stack", "init", "dev")
    assert (project / ".pulumi/stacks/demo/dev.json").exists()
    (project / "other").mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{project}/other")
    run("stack", "init", "dev2")
    assert (project / "other/.pulumi/stacks/demo/dev2.json").exists()
    assert "PULUMI_BACKEND_URL is set" in run("login", place).err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("login", "file:///none/such"), "does not exist"),
        (("login", "nonsense"), "gpuform does not support"),
        (("logout",), "not logged in to any backend"),
        (("logout", "file:///x"), "not logged in to file:///x"),
    ],
)
def test_what_cannot_be_done_is_told(
    run: Run, credentials: Path, args: tuple[str, ...], said: str
) -> None:
    ran = run(*args)
    assert ran.code == 1
    assert said in ran.err
    assert not credentials.exists()


def test_too_much_is_refused(run: Run, place: str) -> None:
    assert run("login", place, "--local").code == 2
    assert run("logout", place, "--all").code == 2


def test_home_and_everything(run: Run, credentials: Path, place: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(credentials.parent.parent))
    run("login", place)
    assert run("login", "--local").out == "Logged in to file://~.\n"
    assert json.loads(credentials.read_text())["current"] == "file://~"
    assert run("logout", "--local").code == 0
    assert run("logout", "--all").out == "Logged out of all backends.\n"
    assert not credentials.exists()


def test_a_damaged_file_is_named_and_stays(run: Run, credentials: Path) -> None:
    credentials.parent.mkdir(exist_ok=True)
    credentials.write_text("{torn")
    for args in (("stack", "ls"), ("login", "file://~"), ("logout",)):
        ran = run(*args)
        assert ran.code == 1
        assert str(credentials) in ran.err
    assert credentials.read_text() == "{torn"
