"""`config set` against what a project declares, and secrets that stand in the clear."""

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
def topology(dev: Run, project: Path) -> Run:
    """The stack dev of a project that is a topology."""
    (project / "topology.yaml").write_text(TOPOLOGY)
    (project / "__main__.py").write_text(RUNS_IT)
    return dev


def settings(project: Path) -> str:
    return (project / "Pulumi.dev.yaml").read_text()


class TestSecrets:
    def test_a_declared_secret_is_encrypted_without_a_flag(
        self, topology: Run, project: Path
    ) -> None:
        ran = topology("config", "set", "password", "hunter2")
        assert ran.code == 0, ran.err
        assert ran.out == (
            "password is a secret (declared at topology.yaml:4:3): its value is encrypted.\n"
        )
        assert "hunter2" not in settings(project)
        assert topology("config", "get", "password").out == "hunter2\n"
        assert topology("config", "set", "--secret", "password", "hunter3").out == ""

    @pytest.mark.parametrize("key", ["password", "demo:password", "together:apiKey"])
    def test_in_the_clear_is_refused(self, topology: Run, project: Path, key: str) -> None:
        before = settings(project)
        ran = topology("config", "set", key, "hunter2", "--plaintext")
        assert ran.code == 1
        assert f"{key.removeprefix('demo:')} is a secret" in ran.err
        assert "Leave --plaintext out" in ran.err
        assert "hunter2" not in ran.err
        assert settings(project) == before

    @pytest.mark.parametrize("key", ["together:apiKey", "gpuform:togetherApiKey"])
    def test_a_platforms_key_is_encrypted(self, dev: Run, project: Path, key: str) -> None:
        ran = dev("config", "set", key, answers="hunter2\n")
        assert "API key of Together" in ran.out
        assert "hunter2" not in settings(project)

    def test_what_pulumi_yaml_declares(self, dev: Run, project: Path) -> None:
        with (project / "Pulumi.yaml").open("a") as file:
            file.write("config:\n  token: {type: string, secret: true}\n  size: {type: integer}\n")
        assert "declared in Pulumi.yaml" in dev("config", "set", "token", "hunter2").out
        assert "hunter2" not in settings(project)
        ran = dev("config", "set", "size", "large")
        assert ran.code == 1
        assert "the value of size is not of the type integer" in ran.err
        assert dev("config", "set", "size", "8").code == 0

    @pytest.mark.usefixtures("terminal")
    def test_a_declared_secret_is_typed_unseen(
        self, topology: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("getpass.getpass", lambda prompt: f"typed at {prompt}")
        assert topology("config", "set", "password").code == 0
        assert topology("config", "get", "password").out == "typed at password: \n"


class TestKeys:
    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("passwrod", "did you mean password?"),
            ("demo:gpu", "did you mean gpus?"),
            ("nothing", "there is gpus, password, tags"),
            ("apiKey", "did you mean together:apiKey or tensorone:apiKey?"),
            ("together:apikey", "did you mean together:apiKey?"),
            ("scp:nothing", "there is scp:accessKey, scp:secretKey"),
            ("aws:region", "nothing in this project is called aws"),
            ("gpuform:from", "did you mean gpuform:form?"),
        ],
    )
    def test_one_that_nothing_reads(
        self, topology: Run, project: Path, key: str, meant: str
    ) -> None:
        before = settings(project)
        ran = topology("config", "set", key, "hunter2")
        assert ran.code == 1
        assert "nothing reads the configuration key" in ran.err
        assert meant in ran.err
        assert "hunter2" not in ran.err
        assert settings(project) == before

    def test_the_pulumi_clis_own(self, topology: Run) -> None:
        assert topology("config", "set", "pulumi:tags", "x").code == 0

    def test_a_program_reads_what_it_likes(self, dev: Run, project: Path) -> None:
        assert dev("config", "set", "anything", "1").code == 0
        assert dev("config", "set", "aws:region", "eu-central-1").code == 0
        assert dev("config", "set", "together:project", "p").code == 1
        (project / "topology.yaml").write_text(TOPOLOGY)
        with_more = RUNS_IT + "import pulumi\n\npulumi.Config().get('anything')\n"
        (project / "__main__.py").write_text(with_more)
        assert dev("config", "set", "anything", "2").code == 0
        assert "is encrypted" in dev("config", "set", "password", "hunter2").out

    def test_a_topology_without_a_program(self, topology: Run, project: Path) -> None:
        (project / "__main__.py").unlink()
        assert topology("config", "set", "gpu", "8").code == 1
        assert topology("config", "set", "gpus", "8").code == 0

    def test_a_topology_that_cannot_be_read(self, topology: Run, project: Path) -> None:
        (project / "topology.yaml").write_text("config:\n  password: {secrt: true}\n")
        ran = topology("config", "set", "password", "hunter2")
        assert ran.code == 1
        assert "topology.yaml:2:21: config.password.secrt" in ran.err
        assert "gpuform validate" in ran.err
        assert "hunter2" not in settings(project)


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("gpus", "ten", 'topology.yaml:3:3: config.gpus: "ten" is not a whole number'),
        ("gpus", "12", "12 is not a multiple of 8"),
        ("tags", "a,b", "is not a list, as JSON"),
        ("gpuform:form", "plug-in", "gpuform:form is dynamic or plugin, not 'plug-in'"),
    ],
)
def test_a_value_that_does_not_fit(
    topology: Run, project: Path, key: str, value: str, why: str
) -> None:
    before = settings(project)
    ran = topology("config", "set", key, value)
    assert ran.code == 1
    assert why in ran.err
    assert settings(project) == before


def test_before_the_topology_is_written(topology: Run, project: Path) -> None:
    (project / "topology.yaml").unlink()
    assert topology("config", "set", "gpus", "24").code == 0
    (project / "topology.yaml").write_text("config: {gpus: 'x")
    ran = topology("config", "set", "gpus", "24")
    assert ran.code == 1
    assert "topology.yaml:1:16" in ran.err


class TestInTheClear:
    @pytest.fixture
    def clear(self, topology: Run, project: Path) -> Run:
        with (project / "Pulumi.dev.yaml").open("a") as file:
            file.write("config:\n  demo:password: hunter2\n  together:apiKey: tk-hunter3\n")
        return topology

    def test_a_plan_says_so(self, clear: Run) -> None:
        ran = clear("preview")
        told = ran.out + ran.err
        assert "password is a secret (declared at topology.yaml:4:3)" in told
        assert "gpuform config set password" in told
        assert "Pulumi.dev.yaml:4:3: together:apiKey is a secret (API key of Together)" in ran.err
        assert "hunter" not in told

    def test_the_doctor_says_so(self, clear: Run) -> None:
        found = clear("doctor", "--json").json["findings"]
        clear_ones = [each for each in found if "stands there in the clear" in each["text"]]
        assert [each["text"].split(" is ")[0] for each in clear_ones] == [
            "Pulumi.dev.yaml:3:3: password",
            "Pulumi.dev.yaml:4:3: together:apiKey",
        ]
        assert all("gpuform config set" in each["remedy"] for each in clear_ones)

    def test_they_are_not_listed(self, clear: Run) -> None:
        assert clear("config").out.count("[secret]") == 2
        assert "hunter2" in clear("config", "--show-secrets").out

    def test_setting_it_anew_encrypts_it(self, clear: Run, project: Path) -> None:
        clear("config", "set", "password", "hunter4")
        clear("config", "set", "together:apiKey", "tk-hunter5")
        assert "hunter" not in settings(project)
        ran = clear("preview")
        assert "in the clear" not in ran.out + ran.err
