"""`config set` against what a project declares, and secrets stored in plain text."""

from pathlib import Path
from typing import Any

import pytest

Run = Any

TOPOLOGY = """
config:
  gpus: {type: integer, default: 16, multiple_of: 8}
  password: {secret: true, default: ""}
  tags: {type: array, default: []}
"""
RUNS_IT = '"""Words."""\n\nfrom gpuform.stacks import run\n\nrun("topology.yaml")\n'


@pytest.fixture
def topology_stack(dev: Run, project: Path) -> Run:
    """Return the commands of the stack dev in a project whose program runs a topology."""
    (project / "topology.yaml").write_text(TOPOLOGY)
    (project / "__main__.py").write_text(RUNS_IT)
    return dev


def read_settings(project: Path) -> str:
    return (project / "Pulumi.dev.yaml").read_text()


class TestSecrets:
    def test_a_declared_secret_is_encrypted_without_a_flag(
        self, topology_stack: Run, project: Path
    ) -> None:
        ran = topology_stack("config", "set", "password", "hunter2")
        assert ran.code == 0, ran.err
        assert ran.out == (
            "password is a secret (declared at topology.yaml:4:3): its value is encrypted.\n"
        )
        assert "hunter2" not in read_settings(project)
        assert topology_stack("config", "get", "password").out == "hunter2\n"
        assert topology_stack("config", "set", "--secret", "password", "hunter3").out == ""

    @pytest.mark.parametrize("key", ["password", "demo:password", "together:apiKey"])
    def test_config_set_plaintext_refuses_a_declared_secret(
        self, topology_stack: Run, project: Path, key: str
    ) -> None:
        before = read_settings(project)
        ran = topology_stack("config", "set", key, "hunter2", "--plaintext")
        assert ran.code == 1
        assert f"{key.removeprefix('demo:')} is a secret" in ran.err
        assert "Leave --plaintext out" in ran.err
        assert "hunter2" not in ran.err
        assert read_settings(project) == before

    @pytest.mark.parametrize("key", ["together:apiKey", "gpuform:togetherApiKey"])
    def test_config_set_encrypts_the_api_key_of_a_platform(
        self, dev: Run, project: Path, key: str
    ) -> None:
        ran = dev("config", "set", key, answers="hunter2\n")
        assert "API key of Together" in ran.out
        assert "hunter2" not in read_settings(project)

    def test_config_set_checks_type_and_secrecy_declared_in_pulumi_yaml(
        self, dev: Run, project: Path
    ) -> None:
        with (project / "Pulumi.yaml").open("a") as file:
            file.write("config:\n  token: {type: string, secret: true}\n  size: {type: integer}\n")
        assert "declared in Pulumi.yaml" in dev("config", "set", "token", "hunter2").out
        assert "hunter2" not in read_settings(project)
        ran = dev("config", "set", "size", "large")
        assert ran.code == 1
        assert "the value of size is not of the type integer" in ran.err
        assert dev("config", "set", "size", "8").code == 0

    @pytest.mark.usefixtures("terminal")
    def test_config_set_prompts_for_a_declared_secret_without_echo(
        self, topology_stack: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("getpass.getpass", lambda prompt: f"typed at {prompt}")
        assert topology_stack("config", "set", "password").code == 0
        assert topology_stack("config", "get", "password").out == "typed at password: \n"


class TestKeys:
    @pytest.mark.parametrize(
        ("key", "suggestion"),
        [
            ("passwrod", "did you mean password?"),
            ("demo:gpu", "did you mean gpus?"),
            ("nothing", "declared keys: gpus, password, tags"),
            ("apiKey", "did you mean together:apiKey or tensorone:apiKey?"),
            ("together:apikey", "did you mean together:apiKey?"),
            ("scp:nothing", "declared keys: scp:accessKey, scp:secretKey"),
            ("aws:region", "nothing in this project is called aws"),
            ("gpuform:from", "did you mean gpuform:form?"),
        ],
    )
    def test_config_set_refuses_an_unknown_key_and_suggests_the_nearest(
        self, topology_stack: Run, project: Path, key: str, suggestion: str
    ) -> None:
        before = read_settings(project)
        ran = topology_stack("config", "set", key, "hunter2")
        assert ran.code == 1
        assert "nothing reads the configuration key" in ran.err
        assert suggestion in ran.err
        assert "hunter2" not in ran.err
        assert read_settings(project) == before

    def test_config_set_accepts_keys_of_the_pulumi_cli(self, topology_stack: Run) -> None:
        assert topology_stack("config", "set", "pulumi:tags", "x").code == 0

    def test_config_set_accepts_any_key_for_a_python_program(self, dev: Run, project: Path) -> None:
        assert dev("config", "set", "anything", "1").code == 0
        assert dev("config", "set", "aws:region", "eu-central-1").code == 0
        assert dev("config", "set", "together:project", "p").code == 1
        (project / "topology.yaml").write_text(TOPOLOGY)
        with_more = RUNS_IT + "import pulumi\n\npulumi.Config().get('anything')\n"
        (project / "__main__.py").write_text(with_more)
        assert dev("config", "set", "anything", "2").code == 0
        assert "is encrypted" in dev("config", "set", "password", "hunter2").out

    def test_config_set_checks_keys_of_a_topology_without_a_program(
        self, topology_stack: Run, project: Path
    ) -> None:
        (project / "__main__.py").unlink()
        assert topology_stack("config", "set", "gpu", "8").code == 1
        assert topology_stack("config", "set", "gpus", "8").code == 0

    def test_config_set_refuses_secrets_while_the_topology_is_invalid(
        self, topology_stack: Run, project: Path
    ) -> None:
        (project / "topology.yaml").write_text("config:\n  password: {secrt: true}\n")
        ran = topology_stack("config", "set", "password", "hunter2")
        assert ran.code == 1
        assert "topology.yaml:2:21: config.password.secrt" in ran.err
        assert "gpuform validate" in ran.err
        assert "hunter2" not in read_settings(project)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("gpus", "ten", 'topology.yaml:3:3: config.gpus: "ten" is not a whole number'),
        ("gpus", "12", "12 is not a multiple of 8"),
        ("tags", "a,b", "is not a list, as JSON"),
        ("gpuform:form", "plug-in", "gpuform:form is dynamic or plugin, not 'plug-in'"),
    ],
)
def test_config_set_refuses_a_value_of_the_wrong_type(
    topology_stack: Run, project: Path, key: str, value: str, why: str
) -> None:
    before = read_settings(project)
    ran = topology_stack("config", "set", key, value)
    assert ran.code == 1
    assert why in ran.err
    assert read_settings(project) == before


def test_config_set_works_before_the_topology_is_written(
    topology_stack: Run, project: Path
) -> None:
    (project / "topology.yaml").unlink()
    assert topology_stack("config", "set", "gpus", "24").code == 0
    (project / "topology.yaml").write_text("config: {gpus: 'x")
    ran = topology_stack("config", "set", "gpus", "24")
    assert ran.code == 1
    assert "topology.yaml:1:16" in ran.err


class TestPlaintextSecrets:
    @pytest.fixture
    def plaintext_stack(self, topology_stack: Run, project: Path) -> Run:
        with (project / "Pulumi.dev.yaml").open("a") as file:
            file.write("config:\n  demo:password: hunter2\n  together:apiKey: tk-hunter3\n")
        return topology_stack

    def test_preview_warns_about_plaintext_secrets(self, plaintext_stack: Run) -> None:
        ran = plaintext_stack("preview")
        output = ran.out + ran.err
        assert "password is a secret (declared at topology.yaml:4:3)" in output
        assert "gpuform config set password" in output
        assert "Pulumi.dev.yaml:4:3: together:apiKey is a secret (API key of Together)" in ran.err
        assert "hunter" not in output

    def test_doctor_reports_plaintext_secrets_with_a_remedy(self, plaintext_stack: Run) -> None:
        findings = plaintext_stack("doctor", "--json").json["findings"]
        plaintext_findings = [
            finding for finding in findings if "is stored there in plain text" in finding["text"]
        ]
        assert [finding["text"].split(" is ")[0] for finding in plaintext_findings] == [
            "Pulumi.dev.yaml:3:3: password",
            "Pulumi.dev.yaml:4:3: together:apiKey",
        ]
        assert all("gpuform config set" in finding["remedy"] for finding in plaintext_findings)

    def test_config_masks_plaintext_secrets(self, plaintext_stack: Run) -> None:
        assert plaintext_stack("config").out.count("[secret]") == 2
        assert "hunter2" in plaintext_stack("config", "--show-secrets").out

    def test_setting_a_plaintext_secret_again_encrypts_it(
        self, plaintext_stack: Run, project: Path
    ) -> None:
        plaintext_stack("config", "set", "password", "hunter4")
        plaintext_stack("config", "set", "together:apiKey", "tk-hunter5")
        assert "hunter" not in read_settings(project)
        ran = plaintext_stack("preview")
        assert "in plain text" not in ran.out + ran.err
