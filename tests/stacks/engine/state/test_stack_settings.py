"""Test Pulumi.<stack>.yaml: every kind of value, the configuration of programs, and edits."""

import stat
from pathlib import Path

import pytest

from gpuform.providers.values import Secret
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import Project, StackSettings
from gpuform.stacks.engine.project.project import load_project
from gpuform.stacks.engine.state import SecretsProvider

RAW = "v1:GBkaGxwdHh8gISIj:gN/XAo5ttGRXTfHtniJBU724ZAiB5WNsQucanhiGvw=="  # raw config text
SETTINGS = f"""\
# committed, reviewed
encryptionsalt: v1:AAECAwQFBgc=:v1:AAECAwQFBgcICQoL:Lsv0Mq4P43OA9/CWlvPiZJXoK3BhFA==
config:
  aws:region: eu-west-1
  demo:count: 5
  demo:zip: "0123"
  demo:on: true
  demo:empty:
  demo:token:
    secure: {RAW}
  demo:object:
    names: [a, "5", 5, 1.5, null, yes]
    html: <b> & é
    deep: {{b: 1, a: {{}}}}
  demo:mixed:
    user: me
    keys:
      - secure: {RAW}
unheard: [of]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "Pulumi.yaml").write_text(
        """\
name: demo
runtime: python
config:
  gpus: {type: integer, default: 16}
  count: 1
  test-token: {default: for-tests, secret: true}
"""
    )
    return load_project(tmp_path / "Pulumi.yaml")


@pytest.fixture
def settings(project: Project) -> StackSettings:
    project.get_settings_path("dev").write_text(SETTINGS)
    return StackSettings.load(project, "dev")


def test_values_are_read_as_written_in_the_file(settings: StackSettings) -> None:
    assert settings.encryption_salt.startswith("v1:AAEC")
    assert settings.secrets_provider == ""
    assert settings.get("count") == "5"
    assert settings.get("demo:zip") == "0123"
    assert settings.get("aws:region") == "eu-west-1"
    assert settings.get("token") == {"secure": RAW}
    assert settings.get("absent") is None
    assert settings.get("empty") == ""


def test_the_program_gets_decrypted_values_and_the_names_of_the_secret_ones(
    settings: StackSettings, crypter
) -> None:
    config, secret = settings.build_program_config(crypter)
    assert config == {
        "aws:region": "eu-west-1",
        "demo:count": "5",
        "demo:zip": "0123",
        "demo:on": "true",
        "demo:empty": "",
        "demo:token": "raw config text",
        "demo:object": r'{"deep":{"a":{},"b":1},"html":"\u003cb\u003e \u0026 é",'
        r'"names":["a","5",5,1.5,null,"yes"]}',
        "demo:mixed": '{"keys":["raw config text"],"user":"me"}',
        "demo:gpus": "16",
        "demo:test-token": "for-tests",
    }
    assert sorted(secret) == ["demo:mixed", "demo:test-token", "demo:token"]


def test_the_provider_resource_gets_secret_values_as_secrets(
    settings: StackSettings, crypter
) -> None:
    inputs = settings.build_provider_inputs(crypter)
    assert inputs["demo:token"] == Secret("raw config text")
    assert inputs["demo:count"] == "5"
    assert inputs["demo:test-token"] == Secret("for-tests")
    assert "raw config text" not in repr(inputs)


def test_a_stack_without_settings_has_the_defaults_of_the_project(project: Project) -> None:
    settings = StackSettings.load(project, "new")
    config, secret = settings.build_program_config(None)
    assert config == {"demo:count": "1", "demo:gpus": "16", "demo:test-token": "for-tests"}
    assert secret == ["demo:test-token"]
    assert not settings.path.exists()


def test_an_edit_keeps_all_other_lines_and_the_file_mode(
    settings: StackSettings, project: Project
) -> None:
    settings.path.chmod(0o600)
    settings.set("count", "6")
    settings.set("aws:profile", "ci")
    settings.set("token", {"secure": "v1:x:y"})
    assert settings.remove("zip") is True
    assert settings.remove("zip") is False
    settings.save()
    assert stat.S_IMODE(settings.path.stat().st_mode) == 0o600
    saved_settings = settings.path.read_text()
    assert saved_settings == (
        SETTINGS.replace("demo:count: 5", 'demo:count: "6"')
        .replace('  demo:zip: "0123"\n', "")
        .replace(f"token:\n    secure: {RAW}", "token:\n    secure: v1:x:y")
        .replace("unheard", "  aws:profile: ci\nunheard")
    )
    again = StackSettings.load(project, "dev")
    assert again.config == settings.config
    assert again.get("aws:profile") == "ci"


def test_saving_creates_a_missing_settings_file(project: Project, salt_state: str) -> None:
    settings = StackSettings.load(project, "new")
    settings.set_secrets_provider(SecretsProvider("passphrase", {"salt": salt_state}))
    settings.set("gpus", "24")
    settings.save()
    assert settings.path.read_text() == (
        f'encryptionsalt: {salt_state}\nconfig:\n  demo:gpus: "24"\n'
    )
    assert StackSettings.load(project, "new").encryption_salt == salt_state


def test_keys_without_a_namespace_belong_to_the_project(project: Project) -> None:
    path = project.get_settings_path("dev")
    path.write_text("config:\n  size: 1\n  other: 2\n")
    settings = StackSettings.load(project, "dev")
    assert settings.get("demo:size") == "1"
    settings.set("size", "3")
    settings.remove("other")
    assert settings.content == 'config:\n  demo:size: "3"\n'


def test_a_missing_required_key_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text(
        "name: demo\nruntime: python\nconfig: {region: {type: string}}\n"
    )
    settings = StackSettings.load(load_project(tmp_path / "Pulumi.yaml"), "dev")
    with pytest.raises(EngineError, match="demo:region") as caught:
        settings.build_program_config(None)
    assert "gpuform config set demo:region" in caught.value.hint


@pytest.mark.parametrize("value", ["many", "1.5", "true", "[1]"])
def test_a_value_that_does_not_match_the_declared_type_is_rejected(
    project: Project, value: str
) -> None:
    settings = StackSettings.load(project, "dev")
    settings.set("gpus", value)
    with pytest.raises(EngineError, match="demo:gpus of stack dev is not of the type integer"):
        settings.build_program_config(None)


def test_an_encrypted_value_without_a_salt_is_an_error(project: Project) -> None:
    settings = StackSettings.load(project, "dev")
    settings.set("token", {"secure": RAW})
    with pytest.raises(EngineError, match="demo:token: the value is encrypted"):
        settings.build_program_config(None)


def test_an_encrypted_value_of_another_stack_is_an_error_with_its_key(project, crypter) -> None:
    settings = StackSettings.load(project, "dev")
    settings.set("token", {"secure": RAW.replace("GBk", "GBl")})
    with pytest.raises(EngineError, match=r"configuration demo:token: .*cannot be decrypted"):
        settings.build_program_config(crypter)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("config: [a]", r"Pulumi.dev.yaml:1:9: config must be"),
        ("config:\n  a:b:c: 1", r":2:3: 'a:b:c' is not a configuration key"),
        ("config:\n  demo:a: 1\n  a: 2", r":3:3: the key demo:a occurs twice"),
        ("config:\n  a: 1\n  a: 2", r":3:3: the key 'a' occurs twice"),
        ("config: {", r":1:10: not YAML"),
    ],
)
def test_problems_in_a_settings_file_have_line_and_column(
    project: Project, text: str, problem: str
) -> None:
    project.get_settings_path("dev").write_text(text)
    with pytest.raises(EngineError, match=problem):
        StackSettings.load(project, "dev")


def test_pulumi_esc_environments_are_rejected(project: Project) -> None:
    project.get_settings_path("dev").write_text("environment: [prod]\n")
    with pytest.raises(EngineError, match="Pulumi Cloud"):
        StackSettings.load(project, "dev").build_program_config(None)


def test_an_unwritable_settings_folder_is_an_error(project: Project, monkeypatch) -> None:
    settings = StackSettings.load(project, "dev")
    settings.set("gpus", "8")
    settings.path = project.path / "below-a-file" / "Pulumi.dev.yaml"
    with pytest.raises(EngineError, match="cannot be written"):
        settings.save()
