"""`gpuform stack` and `gpuform config`, on real files."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.emulator.server import Server, serve
from gpuform.providers.values import PropertyMap, Secret
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.stack import SecretsChange
from gpuform.stacks.engine.state import ResourceState, SecretsProvider, Snapshot
from gpuform.stacks.engine.store import storage as storage_files

Run = Any
URN = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"


@pytest.fixture
def outputs(dev: Run, project: Path, salt: str) -> PropertyMap:
    """Write the state of the stack dev with these outputs."""
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


def test_stack_init_creates_and_selects_a_stack(run: Run, project: Path) -> None:
    assert run("stack", "init", "prod").code == 0
    assert "encryptionsalt" in (project / "Pulumi.prod.yaml").read_text()
    assert run("stack", "ls").out.splitlines()[1].startswith("prod*")
    again = run("stack", "init", "prod")
    assert again.code == 1
    assert "gpuform stack select prod" in again.err


@pytest.mark.parametrize(
    ("flags", "clock", "is_warned"),
    [((), "", True), (("--emulate",), "", False), ((), "http://127.0.0.1:9", False)],
    ids=["real", "emulated", "emulator's clock"],
)
def test_stack_init_warns_of_a_local_state_on_real_platforms(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    clock: str,
    is_warned: bool,
) -> None:
    monkeypatch.setenv("GPUFORM_CLOCK", clock)
    created = run("stack", "init", "prod", *flags)
    assert created.code == 0
    warning = "warning: the state of prod lies in a folder of this machine"
    assert (warning in created.err) is is_warned
    assert ("gpuform stack migrate URL" in created.err) is is_warned


@pytest.mark.usefixtures("terminal")
def test_stack_init_asks_twice_for_a_new_passphrase(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    answers = iter(["one", "two", "one", "one"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert "the two passphrases differ" in run("stack", "init", "prod").err
    assert run("stack", "init", "prod").code == 0
    assert next(answers, None) is None


def test_stack_ls_json_lists_all_stacks(dev: Run) -> None:
    dev("stack", "select", "--create", "prod")
    rows = dev("stack", "ls", "--json").json
    assert [(row["name"], row["current"]) for row in rows] == [("dev", False), ("prod", True)]
    assert set(rows[0]) == {"name", "current", "lastUpdate", "resourceCount"}


def test_stack_select_needs_an_existing_stack_or_create(dev: Run) -> None:
    assert dev("stack", "select", "prod").code == 6
    assert dev("stack", "select", "prod", "--create").code == 0
    assert dev("stack", "select", "organization/demo/dev").code == 0
    assert "dev*" in dev("stack", "ls").out


def test_after_unselect_each_command_asks_for_the_stack(dev: Run) -> None:
    assert dev("stack", "output").code == 0

    assert dev("stack", "unselect").code == 0

    refused = dev("stack", "output")
    assert refused.code != 0
    assert "--stack" in refused.err
    assert dev("stack", "output", "--stack", "dev").code == 0


def test_stack_rm_asks_for_the_stack_name(dev: Run, terminal: None) -> None:
    assert dev("stack", "rm", "dev", answers="no\n").code == 1
    assert dev("stack", "rm", "dev", answers="dev\n").code == 0
    assert dev("stack", "ls", "--json").json == []


def test_stack_rm_without_a_terminal_requires_yes(dev: Run) -> None:
    ran = dev("stack", "rm", "dev")
    assert ran.code == 1
    assert "add --yes" in ran.err
    assert dev("stack", "rm", "--yes").code == 0


@pytest.mark.usefixtures("outputs")
def test_stack_output_masks_secrets(dev: Run) -> None:
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
def test_stack_output_prints_one_output(dev: Run) -> None:
    assert dev("stack", "output", "status").out == "Ready\n"
    assert dev("stack", "output", "status", "--json").out == '"Ready"\n'
    assert dev("stack", "output", "gpus").out == "16\n"
    assert dev("stack", "output", "kubeconfig").out == "[secret]\n"
    ran = dev("stack", "output", "kubeconfig", "--show-secrets")
    assert ran.out == "apiVersion: v1\nkind: Config\n"
    missing = dev("stack", "output", "nope")
    assert missing.code == 1
    assert "gpus, kubeconfig, login, status" in missing.err


def test_stack_output_of_an_empty_stack_says_so(dev: Run) -> None:
    assert dev("stack", "output").out == "The stack has no outputs.\n"
    assert dev("stack", "output", "--json").json == {}


@pytest.mark.usefixtures("outputs")
def test_stack_export_encrypts_secrets_unless_show_secrets(dev: Run, project: Path) -> None:
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
def test_a_plaintext_export_is_readable_only_by_its_owner(dev: Run, project: Path) -> None:
    file = project / "clear.json"
    file.write_text("{}")
    file.chmod(0o644)
    dev("stack", "export", "--show-secrets", "--file", "clear.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_stack_export_needs_no_passphrase(dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    assert dev("stack", "export").json["version"] == 3


def test_config_sets_gets_lists_and_removes_values(dev: Run, project: Path) -> None:
    assert dev("config", "set", "gpus", "24").code == 0
    assert dev("config", "set", "other:project", "p-1").code == 0
    assert dev("config", "get", "gpus").out == "24\n"
    assert dev("config").out.splitlines() == [
        "KEY            VALUE",
        "gpus           24",
        "other:project  p-1",
    ]
    assert 'demo:gpus: "24"' in (project / "Pulumi.dev.yaml").read_text()
    assert dev("config", "rm", "gpus").code == 0
    gone = dev("config", "get", "gpus")
    assert gone.code == 1
    assert "gpuform config set gpus" in gone.err
    assert dev("config", "rm", "gpus").code == 1


def test_config_encrypts_and_masks_secrets(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_config_lists_project_defaults(dev: Run, project: Path) -> None:
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


def test_config_set_refuses_a_malformed_key(dev: Run) -> None:
    ran = dev("config", "set", "a:b:c", "1")
    assert ran.code == 1
    assert "namespace:name" in ran.err


def test_emulator_env_prints_exports_for_the_shell(run: Run) -> None:
    with serve() as server:
        port = server.url.rpartition(":")[2]
        lines = run("emulator", "env", "--port", port).out.splitlines()
        assert run("emulator", "--port", port, "env").out.splitlines() == lines
        assert f"export GPUFORM_EMULATOR={server.store.identity}" in lines
    assert f"export TOGETHER_BASE_URL={server.url}/together" in lines
    assert f"export GPUFORM_CLOCK={server.url}" in lines


def test_emulator_speed_makes_its_clock_run_faster(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []

    def run_forever(server: Server) -> None:
        real = [0.0]
        server.clock._read_real_time, server.clock._last_real_time = lambda: real[0], 0.0
        for _ in range(2):
            times.append(httpx.get(f"{server.url}/_emulator/clock", verify=False).json()["now"])
            real[0] += 2.0
        server.close()

    monkeypatch.setattr(Server, "run_forever", run_forever)
    assert "runs 60 times as fast" in run("emulator", "--port", "0", "--speed", "60").out
    assert times[1] - times[0] == pytest.approx(120)
    assert run("emulator", "--port", "0").code == 0
    assert times[3] == times[2]
    assert run("emulator", "--speed", "-1").code == 2


def test_an_emulator_at_a_taken_port_is_an_error(run: Run) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("emulator", "--port", str(taken.getsockname()[1]))
    assert ran.code == 1
    assert "choose another port with --port" in ran.err


class TestImport:
    URN = "urn:pulumi:dev::demo::lab:index:Machine::a"

    def write_deployment(self, project: Path, **latest: Any) -> Path:
        entry = {"urn": self.URN, "custom": False, "type": "lab:index:Machine"}
        document = {"version": 3, "deployment": {"resources": [entry], **latest}}
        path = project / "in.json"
        path.write_text(json.dumps(document))
        return path

    @pytest.mark.usefixtures("outputs")
    def test_import_restores_an_export(self, dev: Run, project: Path) -> None:
        state = project / ".pulumi/stacks/demo/dev.json"
        before = json.loads(state.read_bytes())["checkpoint"]["latest"]["resources"]
        exported = dev("stack", "export").out
        assert dev("state", "delete", "--all", "--yes").code == 0
        ran = dev("stack", "import", answers=exported)
        assert ran.code == 0, ran.err
        assert "Imported stdin as the state of stack dev: 1 entry" in ran.out
        assert json.loads(state.read_bytes())["checkpoint"]["latest"]["resources"] == before
        assert dev("stack", "output", "kubeconfig", "--show-secrets").out.startswith("apiVersion")
        assert (state.with_name("dev.json.bak")).exists()
        assert not (project / ".pulumi/history").exists()

    @pytest.mark.usefixtures("outputs")
    def test_import_encrypts_plaintext_secrets(self, dev: Run, project: Path) -> None:
        dev("stack", "export", "--show-secrets", "--file", "clear.json")
        assert "hunter2" in (project / "clear.json").read_text()
        assert dev("stack", "import", "--file", "clear.json").code == 0
        assert "hunter2" not in (project / ".pulumi/stacks/demo/dev.json").read_text()
        ran = dev("stack", "output", "login", "--show-secrets")
        assert json.loads(ran.out)["password"] == "hunter2"

    @pytest.mark.usefixtures("outputs")
    def test_import_of_another_stack_requires_force(self, dev: Run, project: Path) -> None:
        dev("stack", "export", "--file", "dev.json")
        assert dev("stack", "init", "prod").code == 0
        before = (project / ".pulumi/stacks/demo/prod.json").read_bytes()
        refused = dev("stack", "import", "--file", "dev.json", "--stack", "prod")
        assert refused.code == 1
        assert f"{URN} does not belong to stack prod of project demo" in refused.err
        assert "--force" in refused.err
        assert (project / ".pulumi/stacks/demo/prod.json").read_bytes() == before
        forced = dev("stack", "import", "--file", "dev.json", "--stack", "prod", "--force")
        assert forced.code == 0
        assert f"warning: {URN} does not belong to stack prod" in forced.err
        # What was encrypted for one stack is encrypted for the other.
        assert dev("stack", "output", "status", "--stack", "prod").out == "Ready\n"

    @pytest.mark.slow
    def test_import_refuses_secrets_of_another_passphrase(
        self, dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = PassphraseCrypter.create_new("another").provider
        path = self.write_deployment(
            project, secrets_providers={"type": other.type, "state": dict(other.state)}
        )
        document = json.loads(path.read_text())
        sealed = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270"}
        document["deployment"]["resources"][0]["outputs"] = {
            "key": {**sealed, "ciphertext": "v1:AAAAAAAAAAAAAAAA:AAAA"}
        }
        path.write_text(json.dumps(document))
        ran = dev("stack", "import", "--file", "in.json")
        assert ran.code == 1
        assert "with another passphrase" in ran.err
        assert "--show-secrets" in ran.err

    def test_import_drops_pending_operations(self, dev: Run, project: Path) -> None:
        entry = {"urn": f"{self.URN}2", "custom": True, "type": "lab:index:Machine"}
        self.write_deployment(project, pending_operations=[{"resource": entry, "type": "creating"}])
        ran = dev("stack", "import", "--file", "in.json")
        assert ran.code == 0
        assert f"dropped a pending operation: creating {self.URN}2" in ran.err
        assert "pending_operations" not in dev("stack", "export").out

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is not JSON"),
            ("[]", "is not a Pulumi deployment"),
            ('{"version": 3, "checkpoint": {}}', "is not a Pulumi deployment"),
            ('{"version": 2, "deployment": {}}', "version 2; versions 3 and 4"),
            ('{"version": 4, "features": ["x"], "deployment": {}}', "features"),
            ('{"version": 3, "deployment": {"resources": [{"custom": true}]}}', "no urn"),
            ('{"version": 3, "deployment": {"manifest": {"magic": "x"}}}', "magic"),
        ],
    )
    def test_import_refuses_invalid_files(
        self, dev: Run, project: Path, text: str, message: str
    ) -> None:
        before = (project / ".pulumi/stacks/demo/dev.json").read_bytes()
        (project / "in.json").write_text(text)
        ran = dev("stack", "import", "--file", "in.json")
        assert ran.code == 1
        assert "in.json" in ran.err
        assert message in ran.err
        assert (project / ".pulumi/stacks/demo/dev.json").read_bytes() == before
        assert dev("stack", "import", "--file", "absent.json").code == 1

    def test_import_replaces_a_damaged_state_and_keeps_a_copy(
        self, dev: Run, project: Path
    ) -> None:
        state = project / ".pulumi/stacks/demo/dev.json"
        state.write_bytes(b"torn")
        journal = project / ".pulumi/gpuform/demo/dev.journal"
        journal.parent.mkdir(parents=True, exist_ok=True)
        journal.write_bytes(b"left")
        self.write_deployment(project)
        ran = dev("stack", "import", "--file", "in.json")
        assert ran.code == 0, ran.err
        assert "could not be used" in ran.err
        (copy_path,) = state.parent.glob("dev.json.[0-9]*")
        assert copy_path.read_bytes() == b"torn"
        (set_aside,) = journal.parent.glob("dev.journal.*")
        assert set_aside.read_bytes() == b"left"
        assert str(copy_path) in ran.err
        assert dev("state", "list").code == 0


class TestHistory:
    @pytest.fixture
    def stack_with_history(self, dev: Run, project: Path) -> Run:
        (project / "__main__.py").write_text("import pulumi\npulumi.export('a', 1)\n")
        assert dev("config", "set", "gpus", "8").code == 0
        assert dev("config", "set", "--secret", "token", "hunter2").code == 0
        assert dev("up", "--yes", "--skip-preview").code == 0
        assert dev("destroy", "--yes", "--skip-preview").code == 0
        return dev

    def test_history_prints_a_table_with_pages(self, stack_with_history: Run) -> None:
        head, latest, _, first, author = stack_with_history("stack", "history").out.splitlines()
        assert head.split() == ["NO", "STARTED", "WHAT", "RESULT", "TOOK", "CHANGES"]
        assert latest.split()[0] == "2"
        assert latest.split()[2:4] == ["destroy", "succeeded"]
        assert first.split()[0] == "1"
        assert first.split()[2:4] == ["update", "succeeded"]
        assert first.endswith("1 create")
        assert " on " in author
        second = stack_with_history(
            "stack", "history", "--page-size", "1", "--page", "2"
        ).out.splitlines()
        assert second == [head, first, author]
        assert "on page 3" in stack_with_history("stack", "history", "--page", "3").out

    def test_history_json_has_the_fields_of_pulumi(self, stack_with_history: Run) -> None:
        latest, first = stack_with_history("stack", "history", "--json").json
        assert (latest["version"], first["version"]) == (2, 1)
        assert list(first) == [
            *("version", "kind", "startTime", "message", "environment", "config", "result"),
            *("endTime", "resourceChanges"),
        ]
        assert first["config"] == {
            "demo:gpus": {"value": "8", "secret": False},
            "demo:token": {"secret": True},
        }
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.000Z", first["startTime"])
        assert latest["kind"] == "destroy"
        document = stack_with_history(
            "stack", "history", "--json", "--show-secrets", "--page-size", "1"
        ).json
        assert document[0]["config"]["demo:token"] == {"value": "hunter2", "secret": True}

    @pytest.mark.slow
    def test_history_marks_secrets_of_an_earlier_passphrase(
        self, stack_with_history: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert (
            stack_with_history(
                "stack", "change-secrets-provider", "passphrase", answers="two\n"
            ).code
            == 0
        )
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "two")
        document = stack_with_history("stack", "history", "--json", "--show-secrets").json
        assert document[0]["config"]["demo:token"]["value"] == "ERROR_UNABLE_TO_DECRYPT"

    def test_history_of_a_new_stack_says_so(self, dev: Run) -> None:
        assert dev("stack", "history").out == "No runs of stack dev yet.\n"
        assert dev("stack", "history", "--json").json == []


class TestRename:
    @pytest.mark.usefixtures("outputs")
    def test_rename_moves_state_settings_history_and_selection(
        self, dev: Run, project: Path
    ) -> None:
        pulumi = project / ".pulumi"
        (pulumi / "history/demo/dev").mkdir(parents=True)
        (pulumi / "history/demo/dev/dev-17.history.json").write_text('{"kind": "update"}')
        (pulumi / "stacks/demo/dev.pulumi-tags").write_text("{}")
        settings = (project / "Pulumi.dev.yaml").read_text()
        workflow = project / ".github/workflows/gpuform.yml"
        workflow.parent.mkdir(parents=True)
        workflow.write_text("jobs:\n    working-directory: \".\"\nrun: gpuform up --stack 'dev'\n")
        ran = dev("stack", "rename", "prod")
        assert ran.code == 0, ran.err
        assert "still have the name dev: .github/workflows/gpuform.yml. Remove them" in ran.out
        assert [(r["name"], r["current"]) for r in dev("stack", "ls", "--json").json] == [
            ("prod", True)
        ]
        assert not (project / "Pulumi.dev.yaml").exists()
        assert (project / "Pulumi.prod.yaml").read_text() == settings
        assert sorted(p.name for p in (pulumi / "stacks/demo").iterdir()) == [
            *("dev.json.bak", "prod.json", "prod.pulumi-tags"),
        ]
        assert dev("stack", "history", "--json").json[0]["kind"] == "update"
        (entry,) = dev("stack", "export").json["deployment"]["resources"]
        assert entry["urn"] == "urn:pulumi:prod::demo::pulumi:pulumi:Stack::demo-prod"
        assert dev("stack", "output", "login", "--show-secrets").json["password"] == "hunter2"
        assert not list((pulumi / "locks").rglob("*.json"))

    @pytest.mark.usefixtures("outputs")
    def test_the_project_is_renamed_with_the_stack(self, dev: Run, project: Path) -> None:
        """Files are where Pulumi CLI 3.274.1 moves them, and remain where the CLI leaves them."""
        pulumi = project / ".pulumi"
        (pulumi / "history/demo/dev").mkdir(parents=True)
        (pulumi / "history/demo/dev/dev-17.history.json").write_text('{"kind": "update"}')
        (pulumi / "backups/demo/dev").mkdir(parents=True)
        (pulumi / "backups/demo/dev/dev.17.json").write_text("{}")
        settings = (project / "Pulumi.dev.yaml").read_text()
        ran = dev("stack", "rename", "organization/train/prod")
        assert ran.code == 0, ran.err
        assert "write `name: train` in Pulumi.yaml" in ran.out
        assert (project / "Pulumi.prod.yaml").read_text() == settings
        assert not (project / "Pulumi.dev.yaml").exists()
        files = {str(path.relative_to(pulumi)) for path in pulumi.rglob("*") if path.is_file()}
        assert {name for name in files if not name.startswith(("gpuform/", "meta"))} == {
            "stacks/demo/dev.json.bak",
            "stacks/train/prod.json",
            "history/train/prod/prod-17.history.json",
            "backups/demo/dev/dev.17.json",
        }
        refused = dev("preview")
        assert refused.code != 0
        assert dev("stack", "ls", "--json").json == []
        assert "'organization/train/prod' does not belong to this project" in refused.err
        assert "write `name: train` in Pulumi.yaml" in refused.err
        path = project / "Pulumi.yaml"
        path.write_text(path.read_text().replace("name: demo", "name: train"))
        (row,) = dev("stack", "ls", "--json").json
        assert (row["name"], row["current"]) == ("prod", True)
        (entry,) = dev("stack", "export").json["deployment"]["resources"]
        assert entry["urn"] == "urn:pulumi:prod::train::pulumi:pulumi:Stack::train-prod"
        assert dev("stack", "output", "login", "--show-secrets").json["password"] == "hunter2"

    @pytest.mark.usefixtures("outputs")
    def test_the_project_is_renamed_alone(self, dev: Run, project: Path) -> None:
        settings = (project / "Pulumi.dev.yaml").read_text()
        assert dev("stack", "rename", "organization/train/dev").code == 0
        assert (project / "Pulumi.dev.yaml").read_text() == settings
        assert (project / ".pulumi/stacks/train/dev.json").exists()
        assert not (project / ".pulumi/stacks/demo/dev.json").exists()

    @pytest.mark.usefixtures("outputs")
    def test_rename_refuses_existing_and_invalid_names(self, dev: Run, project: Path) -> None:
        assert dev("stack", "init", "prod").code == 0
        assert dev("stack", "select", "dev").code == 0
        before = (project / ".pulumi/stacks/demo/dev.json").read_bytes()
        assert "exists already" in dev("stack", "rename", "prod").err
        assert "already is 'dev'" in dev("stack", "rename", "dev").err
        assert "already is 'dev'" in dev("stack", "rename", "organization/demo/dev").err
        assert "is not a valid stack name" in dev("stack", "rename", "a b").err
        assert "is not a valid project name" in dev("stack", "rename", "organization/a*b/prod").err
        for name in ("acme/train/prod", "organization/train/prod/x"):
            assert f"'{name}' is not a valid stack name" in dev("stack", "rename", name).err
        assert not (project / ".pulumi/stacks/train").exists()
        (project / ".pulumi/stacks/train").mkdir()
        (project / ".pulumi/stacks/train/live.json").write_bytes(before)
        taken = dev("stack", "rename", "organization/train/live")
        assert "'organization/train/live' exists already" in taken.err
        (project / "Pulumi.live.yaml").write_text("config: {}\n")
        assert "Pulumi.live.yaml exists already" in dev("stack", "rename", "live").err
        assert (project / ".pulumi/stacks/demo/dev.json").read_bytes() == before


class TestNewPassphrase:
    @pytest.fixture
    def stack_with_secret(self, outputs: PropertyMap, dev: Run) -> Run:
        assert dev("config", "set", "--secret", "token", "hunter2").code == 0
        return dev

    def expect_passphrase(self, run: Run, monkeypatch: pytest.MonkeyPatch, new: str) -> None:
        monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", new)
        assert run("config", "get", "token").out == "hunter2\n"
        login = run("stack", "output", "login", "--show-secrets").json
        assert login == {"user": "ada", "password": "hunter2"}

    @pytest.mark.slow
    def test_a_new_passphrase_is_read_from_stdin(
        self, stack_with_secret: Run, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ran = stack_with_secret("stack", "change-secrets-provider", "passphrase", answers="two\n")
        assert ran.code == 0, ran.err
        assert "PULUMI_CONFIG_PASSPHRASE" in ran.out
        assert ".bak" in ran.out
        assert "incorrect passphrase" in stack_with_secret("config", "get", "token").err
        self.expect_passphrase(stack_with_secret, monkeypatch, "two")
        salt = json.loads((project / ".pulumi/stacks/demo/dev.json").read_bytes())
        provider = salt["checkpoint"]["latest"]["secrets_providers"]["state"]["salt"]
        assert f"encryptionsalt: {provider}" in (project / "Pulumi.dev.yaml").read_text()

    def test_a_new_passphrase_is_read_from_its_variable(
        self, stack_with_secret: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GPUFORM_NEW_PASSPHRASE", "three")
        assert stack_with_secret("stack", "change-secrets-provider", "default").code == 0
        self.expect_passphrase(stack_with_secret, monkeypatch, "three")

    @pytest.mark.usefixtures("terminal")
    def test_a_new_passphrase_is_asked_twice(
        self, stack_with_secret: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = iter(["one", "two", "four", "four"])
        monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
        refused = stack_with_secret("stack", "change-secrets-provider", "passphrase")
        assert "the two passphrases differ" in refused.err
        assert stack_with_secret("stack", "change-secrets-provider", "passphrase").code == 0
        self.expect_passphrase(stack_with_secret, monkeypatch, "four")

    @pytest.mark.parametrize("file", ["dev.json", "Pulumi.dev.yaml"])
    def test_a_change_interrupted_by_a_full_disk_is_finished(
        self, stack_with_secret: Run, monkeypatch: pytest.MonkeyPatch, file: str
    ) -> None:
        real = storage_files.replace_file

        def full(path: Path, data: bytes) -> None:
            if path.name == file:
                raise OSError(28, "No space left on device")
            real(path, data)

        with monkeypatch.context() as patch:
            patch.setattr(storage_files, "replace_file", full)
            ran = stack_with_secret(
                "stack", "change-secrets-provider", "passphrase", answers="five\n"
            )
        assert ran.code == 1
        assert f"{file} cannot be written: No space left on device" in ran.err
        assert "The change of the secrets provider has begun;" in ran.err
        self.expect_passphrase(stack_with_secret, monkeypatch, "five")

    def test_an_interrupted_change_does_not_overwrite_edited_settings(
        self, stack_with_secret: Run, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def cut_off(_change: SecretsChange) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(SecretsChange, "finish", cut_off)
            assert (
                stack_with_secret("stack", "change-secrets-provider", "default", answers="6\n").code
                == 1
            )
        settings = project / "Pulumi.dev.yaml"
        before = settings.read_text()
        settings.write_text(before + "# mine\n")
        ran = stack_with_secret("preview")
        assert ran.code == 1
        assert f"interrupted, and {settings} was edited since" in ran.err
        assert settings.read_text() == before + "# mine\n"
        settings.write_text(before)
        self.expect_passphrase(stack_with_secret, monkeypatch, "6")
        assert not list(project.rglob("*.secrets-change"))

    def test_an_empty_stdin_is_no_passphrase(self, stack_with_secret: Run, project: Path) -> None:
        before = (project / "Pulumi.dev.yaml").read_text()
        ran = stack_with_secret("stack", "change-secrets-provider", "passphrase")
        assert ran.code == 1
        assert "GPUFORM_NEW_PASSPHRASE" in ran.err
        assert (project / "Pulumi.dev.yaml").read_text() == before

    def test_another_provider_is_refused_by_name(self, stack_with_secret: Run) -> None:
        ran = stack_with_secret("stack", "change-secrets-provider", "service")
        assert ran.code == 1
        assert "the secrets provider 'service'" in ran.err
        assert "Use the Pulumi CLI" in ran.err

    def test_a_stack_of_pulumi_cloud_is_refused_by_name(
        self, stack_with_secret: Run, project: Path
    ) -> None:
        (project / "Pulumi.dev.yaml").write_text("secretsprovider: service\n")
        for args in (("up", "--yes"), ("stack", "change-secrets-provider", "passphrase")):
            ran = stack_with_secret(*args, answers="two\n")
            assert ran.code == 1
            assert "the secrets provider 'service'" in ran.err
            assert "Use the Pulumi CLI" in ran.err
