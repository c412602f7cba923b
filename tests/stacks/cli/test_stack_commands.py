"""`gpuform stack` and `gpuform config`, on real files."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from gpuform.stacks.engine.secrets import PassphraseCrypter
from gpuform.stacks.engine.state import (
    ResourceState,
    SecretsProvider,
    Snapshot,
)
from gpuform.stacks.engine.values import PropertyMap, Secret

Run = Any
URN = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"


@pytest.fixture
def outputs(dev: Run, project: Path, salt: str) -> PropertyMap:
    """The stack dev with these outputs."""
    made: PropertyMap = {
        "status": "Ready",
        "gpus": 16.0,
        "kubeconfig": Secret("apiVersion: v1\nkind: Config"),
        "login": {"user": "ada", "password": Secret("hunter2")},
    }
    stack = ResourceState(URN, False, "pulumi:pulumi:Stack", outputs=made)
    provider = SecretsProvider("passphrase", {"salt": salt})
    snapshot = Snapshot("organization/demo/dev", [stack], secrets_provider=provider)
    data = snapshot.to_json(PassphraseCrypter("", salt))
    (project / ".pulumi/stacks/demo/dev.json").write_bytes(data)
    return made


def test_init_makes_and_selects(run: Run, project: Path) -> None:
    assert run("stack", "init", "prod").code == 0
    assert "encryptionsalt" in (project / "Pulumi.prod.yaml").read_text()
    assert run("stack", "ls").out.splitlines()[1].startswith("prod*")
    again = run("stack", "init", "prod")
    assert again.code == 1
    assert "gpuform stack select prod" in again.err


@pytest.mark.usefixtures("terminal")
def test_a_new_passphrase_is_asked_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    answers = iter(["one", "two", "one", "one"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert "the two passphrases differ" in run("stack", "init", "prod").err
    assert run("stack", "init", "prod").code == 0
    assert next(answers, None) is None


def test_ls_as_json(dev: Run) -> None:
    dev("stack", "select", "--create", "prod")
    rows = dev("stack", "ls", "--json").json
    assert [(row["name"], row["current"]) for row in rows] == [("dev", False), ("prod", True)]
    assert set(rows[0]) == {"name", "current", "lastUpdate", "resourceCount"}


def test_select(dev: Run) -> None:
    assert dev("stack", "select", "prod").code == 6
    assert dev("stack", "select", "prod", "--create").code == 0
    assert dev("stack", "select", "organization/demo/dev").code == 0
    assert "dev*" in dev("stack", "ls").out


def test_rm_wants_a_confirmation(dev: Run, terminal: None) -> None:
    assert dev("stack", "rm", "dev", answers="no\n").code == 1
    assert dev("stack", "rm", "dev", answers="dev\n").code == 0
    assert dev("stack", "ls", "--json").json == []


def test_rm_without_anybody_to_confirm(dev: Run) -> None:
    ran = dev("stack", "rm", "dev")
    assert ran.code == 1
    assert "add --yes" in ran.err
    assert dev("stack", "rm", "--yes").code == 0


@pytest.mark.usefixtures("outputs")
def test_outputs_are_masked(dev: Run) -> None:
    ran = dev("stack", "output")
    assert ran.code == 0
    assert "hunter2" not in ran.out + ran.err
    assert "apiVersion" not in ran.out
    assert "gpus:       16" in ran.out
    assert dev("stack", "output", "--json").json == {
        "gpus": 16,
        "kubeconfig": "[secret]",
        "login": {"user": "ada", "password": "[secret]"},
        "status": "Ready",
    }


@pytest.mark.usefixtures("outputs")
def test_one_output(dev: Run) -> None:
    assert dev("stack", "output", "status").out == "Ready\n"
    assert dev("stack", "output", "status", "--json").out == '"Ready"\n'
    assert dev("stack", "output", "gpus").out == "16\n"
    assert dev("stack", "output", "kubeconfig").out == "[secret]\n"
    shown = dev("stack", "output", "kubeconfig", "--show-secrets")
    assert shown.out == "apiVersion: v1\nkind: Config\n"
    missing = dev("stack", "output", "nope")
    assert missing.code == 1
    assert "gpus, kubeconfig, login, status" in missing.err


def test_no_outputs(dev: Run) -> None:
    assert dev("stack", "output").out == "The stack has no outputs.\n"
    assert dev("stack", "output", "--json").json == {}


@pytest.mark.usefixtures("outputs")
def test_export(dev: Run, project: Path) -> None:
    document = dev("stack", "export").json
    assert document["version"] == 3
    assert document["deployment"]["resources"][0]["urn"] == URN
    assert "hunter2" not in json.dumps(document)
    assert "ciphertext" in json.dumps(document)
    assert dev("stack", "export", "--show-secrets", "--file", "clear.json").out == ""
    clear = project / "clear.json"
    assert "hunter2" in clear.read_text()
    assert stat.S_IMODE(clear.stat().st_mode) == 0o600
    ran = dev("stack", "export", "--file", "no/such/file.json")
    assert ran.code == 1
    assert "no/such/file.json" in ran.err


@pytest.mark.usefixtures("outputs")
def test_an_export_in_the_clear_is_never_readable_by_others(dev: Run, project: Path) -> None:
    file = project / "clear.json"
    file.write_text("{}")
    file.chmod(0o644)
    dev("stack", "export", "--show-secrets", "--file", "clear.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_export_needs_no_passphrase(dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    assert dev("stack", "export").json["version"] == 3


def test_config_values(dev: Run, project: Path) -> None:
    assert dev("config", "set", "gpus", "24").code == 0
    assert dev("config", "set", "together:project", "p-1").code == 0
    assert dev("config", "get", "gpus").out == "24\n"
    assert dev("config").out.splitlines() == [
        "KEY               VALUE",
        "gpus              24",
        "together:project  p-1",
    ]
    assert 'demo:gpus: "24"' in (project / "Pulumi.dev.yaml").read_text()
    assert dev("config", "rm", "gpus").code == 0
    gone = dev("config", "get", "gpus")
    assert gone.code == 1
    assert "gpuform config set gpus" in gone.err
    assert dev("config", "rm", "gpus").code == 1


def test_secret_config(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dev("config", "set", "--secret", "together:apiKey", answers="hunter2\n").code == 0
    dev("config", "set", "gpus", "24")
    assert "hunter2" not in (project / "Pulumi.dev.yaml").read_text()
    assert dev("config", "get", "together:apiKey").out == "hunter2\n"
    assert "hunter2" in dev("config", "--show-secrets").out
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    assert "together:apiKey  [secret]" in dev("config").out
    assert dev("config", "--json").json == {
        "demo:gpus": {"value": "24", "secret": False},
        "together:apiKey": {"secret": True},
    }
    assert dev("config", "get", "gpus").out == "24\n"
    assert "passphrase" in dev("config", "get", "together:apiKey").err


def test_project_defaults_are_listed(dev: Run, project: Path) -> None:
    with (project / "Pulumi.yaml").open("a") as file:
        file.write("config:\n  gpus: {type: integer, default: 16}\n")
        file.write("  token: {default: hunter2, secret: true}\n  size: {type: integer}\n")
    ran = dev("config")
    assert ran.out.splitlines() == ["KEY    VALUE", "gpus   16", "token  [secret]"]
    assert dev("config", "get", "gpus").out == "16\n"
    assert "hunter2" in dev("config", "--show-secrets").out


@pytest.mark.usefixtures("terminal")
def test_a_secret_typed_at_a_prompt_is_not_echoed(
    dev: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("getpass.getpass", lambda prompt: f"typed at {prompt}")
    assert dev("config", "set", "--secret", "token").code == 0
    assert dev("config", "get", "token").out == "typed at token: \n"
    assert dev("config", "set", "gpus", answers="8\n").code == 0
    assert dev("config", "get", "gpus").out == "8\n"


def test_a_bad_key(dev: Run) -> None:
    ran = dev("config", "set", "a:b:c", "1")
    assert ran.code == 1
    assert "namespace:name" in ran.err


def test_emulator_env_is_for_the_shell(run: Run) -> None:
    lines = run("emulator", "env", "--port", "4242").out.splitlines()
    assert "export TOGETHER_BASE_URL=http://127.0.0.1:4242/together" in lines
    assert "export GPUFORM_CLOCK=http://127.0.0.1:4242" in lines
    assert run("emulator", "--port", "4242", "env").out.splitlines() == lines


def test_an_emulator_s_port_that_is_taken(run: Run) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("emulator", "--port", str(taken.getsockname()[1]))
    assert ran.code == 1
    assert "choose another with --port" in ran.err
