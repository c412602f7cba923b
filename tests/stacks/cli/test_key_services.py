"""Stacks whose secrets are under a key of a key management service."""

import base64
import contextlib
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import key_services
from support.servers.key_services import Service

from gpuform.stacks.engine.secrets import SecretsError
from gpuform.stacks.engine.stack import SecretsChange

Run = Any
RECORDED = Path(__file__).parent / "recorded" / "awskms"
SCHEMES = ("awskms", "azurekeyvault", "gcpkms", "hashivault")
_VARIABLES = ("AWS_", "AZURE_", "CLOUDSDK_", "GOOGLE_", "IDENTITY_", "VAULT_")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Service]]:
    folder = tmp_path_factory.mktemp("services")
    key = json.loads((RECORDED / "key.json").read_text())
    recorded_key = key["key_id"], base64.b64decode(key["key_material"])
    with contextlib.ExitStack() as held:
        yield {
            "awskms": held.enter_context(key_services.serve_aws_kms(*recorded_key)),
            "azurekeyvault": held.enter_context(key_services.serve_azure_vault(folder)),
            "gcpkms": held.enter_context(key_services.serve_google_kms()),
            "hashivault": held.enter_context(key_services.serve_vault()),
        }


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that sets the environment of a key service, without a passphrase."""

    def reach_service(reached_service: Service) -> Service:
        for name in [variable for variable in os.environ if variable.startswith(_VARIABLES)]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
        for name, value in reached_service.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(socket, "getaddrinfo", key_services.build_resolver(reached_service))
        reached_service.requests.clear()
        monkeypatch.setattr(reached_service, "denied", False)
        return reached_service

    return reach_service


@pytest.fixture(params=SCHEMES)
def reached_service(
    request: pytest.FixtureRequest, services: dict[str, Service], reach: Any
) -> Service:
    reached: Service = reach(services[request.param])
    return reached


@pytest.fixture
def reached_aws(services: dict[str, Service], reach: Any) -> Service:
    reached: Service = reach(services["awskms"])
    return reached


@pytest.fixture
def reached_vault(services: dict[str, Service], reach: Any) -> Service:
    reached: Service = reach(services["hashivault"])
    return reached


def read_state(project: Path, stack: str = "prod") -> Any:
    return json.loads((project / f".pulumi/stacks/demo/{stack}.json").read_bytes())


def read_settings(project: Path, stack: str = "prod") -> str:
    return (project / f"Pulumi.{stack}.yaml").read_text()


@pytest.mark.slow
def test_a_stack_encrypts_its_secrets_with_a_key_service(
    run: Run, project: Path, reached_service: Service
) -> None:
    ran = run("stack", "init", "prod", "--secrets-provider", reached_service.url)
    assert ran.code == 0, ran.err
    written = read_settings(project).splitlines()
    assert written[0] == f"secretsprovider: {reached_service.url}"
    encrypted_key = written[1].removeprefix("encryptedkey: ")
    assert len(written) == 2
    providers = read_state(project)["checkpoint"]["latest"]["secrets_providers"]
    assert providers == {
        "type": "cloud",
        "state": {"url": reached_service.url, "encryptedkey": encrypted_key},
    }
    assert run("config", "set", "--secret", "token", "hunter2").code == 0
    assert "hunter2" not in read_settings(project)
    assert run("config", "get", "token").out == "hunter2\n"
    reached_service.denied = True
    if reached_service.url.startswith("awskms"):
        return
    ran = run("config", "get", "token")
    assert ran.code == 1
    assert "cannot decrypt with the key" in ran.err
    assert "403" in ran.err or "denied" in ran.err


@pytest.mark.slow
def test_a_stack_moves_to_a_passphrase_and_back(
    run: Run, project: Path, reached_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("stack", "init", "prod", "--secrets-provider", reached_service.url).code == 0
    assert run("config", "set", "--secret", "token", "hunter2").code == 0
    monkeypatch.setenv("GPUFORM_NEW_PASSPHRASE", "two")
    ran = run("stack", "change-secrets-provider", "passphrase")
    assert ran.code == 0, ran.err
    assert "encryptionsalt: v1:" in read_settings(project)
    assert "secretsprovider" not in read_settings(project)
    assert "encryptedkey" not in read_settings(project)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "two")
    assert run("config", "get", "token").out == "hunter2\n"
    ran = run("stack", "change-secrets-provider", reached_service.url)
    assert ran.code == 0, ran.err
    assert f"which {reached_service.url.partition('?')[0]} protects" in ran.out
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    assert "encryptionsalt" not in read_settings(project)
    assert run("config", "get", "token").out == "hunter2\n"
    before = read_settings(project)
    assert run("stack", "change-secrets-provider", reached_service.url).code == 0
    (key,) = [line for line in before.splitlines() if line.startswith("encryptedkey:")]
    assert key not in read_settings(project)
    assert run("config", "get", "token").out == "hunter2\n"


@pytest.mark.slow
@pytest.mark.usefixtures("reached_vault")
def test_an_interrupted_change_of_the_provider_is_finished(
    dev: Run, project: Path, reached_vault: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
    assert dev("config", "set", "--secret", "token", "hunter2").code == 0
    before = read_settings(project, "dev")

    def cut_off(_change: SecretsChange) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SecretsChange, "finish", cut_off)
        assert dev("stack", "change-secrets-provider", reached_vault.url).code == 1
    assert read_settings(project, "dev") == before
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    assert dev("config", "get", "token").out == "hunter2\n"
    assert "secretsprovider: hashivault://team" in read_settings(project, "dev")


class TestStackOfPulumiCli:
    """A stack that the Pulumi CLI made; its service has the key that it had then."""

    @pytest.fixture
    def recorded_stack(self, run: Run, project: Path, reached_aws: Service) -> Run:
        settings = (project / "Pulumi.yaml").read_text().replace("name: demo", "name: team")
        (project / "Pulumi.yaml").write_text(settings)
        (project / "__main__.py").write_text(
            "import pulumi\n\n"
            'pulumi.export("token", pulumi.Config().require_secret("token"))\n'
            'pulumi.export("size", 8)\n'
        )
        shutil.copy(RECORDED / "Pulumi.dev.yaml", project)
        (project / ".pulumi/stacks/team").mkdir(parents=True)
        shutil.copy(RECORDED / "dev.json", project / ".pulumi/stacks/team")
        assert run("stack", "select", "dev").code == 0
        return run

    @pytest.mark.slow
    def test_a_stack_of_the_pulumi_cli_is_decrypted(
        self, recorded_stack: Run, project: Path
    ) -> None:
        assert recorded_stack("config", "get", "token").out == "hunter2-of-pulumi\n"
        ran_output = recorded_stack("stack", "output", "token", "--show-secrets")
        assert ran_output.out == "hunter2-of-pulumi\n"
        ran = recorded_stack("up", "--yes", "--expect-no-changes")
        assert ran.code == 0, ran.err
        written = (project / ".pulumi/stacks/team/dev.json").read_text()
        before = json.loads((RECORDED / "dev.json").read_text())["checkpoint"]["latest"]
        after = json.loads(written)["checkpoint"]["latest"]
        assert after["secrets_providers"] == before["secrets_providers"]
        assert "hunter2" not in written

    def test_a_lost_settings_file_gets_its_key_from_the_state(
        self, recorded_stack: Run, project: Path
    ) -> None:
        (project / "Pulumi.dev.yaml").unlink()
        assert recorded_stack("config", "set", "--secret", "token", "hunter3").code == 0
        lines = read_settings(project, "dev").splitlines()
        assert lines[:2] == (RECORDED / "Pulumi.dev.yaml").read_text().splitlines()[:2]

    @pytest.mark.slow
    def test_another_encryption_context_does_not_decrypt(
        self, recorded_stack: Run, project: Path
    ) -> None:
        file = project / "Pulumi.dev.yaml"
        file.write_text(file.read_text().replace("context_team=ml", "context_team=hr"))
        ran = recorded_stack("config", "get", "token")
        assert ran.code == 1
        assert "AWS KMS cannot decrypt with the key alias/team-ml" in ran.err
        assert "kms:Decrypt" in ran.err

    @pytest.mark.slow
    def test_the_override_variable_replaces_the_url_without_a_file_change(
        self, recorded_stack: Run, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = project / "Pulumi.dev.yaml"
        file.write_text(file.read_text().replace("alias/team-ml?region=us-east-1&", "gone?"))
        before = file.read_text()
        assert recorded_stack("config", "get", "token").code == 1
        url = "awskms://alias/team-ml?region=us-east-1&context_team=ml"
        monkeypatch.setenv("PULUMI_CLOUD_SECRET_OVERRIDE", url)
        assert recorded_stack("config", "get", "token").out == "hunter2-of-pulumi\n"
        assert file.read_text() == before


@pytest.mark.slow
def test_a_vault_without_a_readable_public_key_encrypts_itself(
    run: Run, tmp_path: Path, reach: Any
) -> None:
    with key_services.serve_azure_vault(tmp_path, may_get=False) as reached_service:
        reach(reached_service)
        ran = run("stack", "init", "prod", "--secrets-provider", reached_service.url)
        assert ran.code == 0, ran.err
        assert run("config", "set", "--secret", "token", "hunter2").code == 0
        assert run("config", "get", "token").out == "hunter2\n"
        assert any("/encrypt?" in path for _, path, _ in reached_service.requests)


def test_the_data_key_appears_in_no_output_and_no_file(
    run: Run, project: Path, reached_vault: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        run("--verbose", "stack", "init", "prod", "--secrets-provider", reached_vault.url).code == 0
    )
    key = reached_vault.requests[0][2]["plaintext"]
    ran = run("config", "set", "--secret", "token", "hunter2", "--verbose")
    ran = run("preview", "--verbose")
    output = ran.out + ran.err
    reached_vault.denied = True
    refused = run("preview", "--verbose")
    assert refused.code == 1
    output += refused.out + refused.err
    written = "".join(path.read_text() for path in project.rglob("*") if path.is_file())
    for secret in (key, base64.b64decode(key).hex(), "s.token"):
        assert secret not in output + written


def test_doctor_reports_whether_the_key_service_decrypts(run: Run, reached_vault: Service) -> None:
    assert run("stack", "init", "prod", "--secrets-provider", reached_vault.url).code == 0
    assert "the secrets provider opens the stack" in run("doctor").out
    reached_vault.denied = True
    output = run("doctor").out
    assert "HashiCorp Vault cannot decrypt with the key team: permission denied" in output


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("awskms://alias/k?regoin=x", "Did you mean region?"),
        ("awskms://alias/k?context_a=1&context_a=2", "context_a 2 times"),
        ("awskms://", "awskms://alias/NAME"),
        ("azurekeyvault://team.example/keys/k", "VAULT.vault.azure.net/keys/NAME"),
        ("azurekeyvault://v.vault.azure.net/keys/k?algorithm=none", "none is not an algorithm"),
        ("gcpkms://projects/p?additional_authenticated_data=!", "is not base64"),
        ("hashivault://team?mount=x", "an unknown parameter: mount"),
        ("hashivualt://team", "it supports passphrase, awskms://"),
        ("service", "pulumi stack change-secrets-provider"),
    ],
)
def test_a_url_that_is_wrong(
    run: Run, project: Path, reached_vault: Service, url: str, why: str
) -> None:
    ran = run("stack", "init", "prod", "--secrets-provider", url)
    assert ran.code == 1
    assert why in ran.err.replace("\n  ", " ")
    assert "Traceback" not in ran.err
    assert not (project / "Pulumi.prod.yaml").exists()


def test_a_missing_vault_address_is_reported(
    run: Run, reached_vault: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VAULT_ADDR")
    assert (
        "Set VAULT_ADDR"
        in run("stack", "init", "prod", "--secrets-provider", reached_vault.url).err
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_missing_extra_names_the_package_to_install(
    run: Run,
    services: dict[str, Service],
    reach: Any,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
) -> None:
    reached_service = reach(services[scheme])
    module = f"gpuform.stacks.engine.secrets.{scheme}"
    monkeypatch.delitem(sys.modules, module, raising=False)
    for name in ("azure.identity", "botocore.config", "google.auth", "hvac"):
        monkeypatch.setitem(sys.modules, name, None)
    ran = run("stack", "init", "prod", "--secrets-provider", reached_service.url)
    assert ran.code == 1
    assert f"[{scheme}]'" in ran.err
    assert "pip install '" in ran.err


def test_init_refuses_settings_with_secrets_of_another_provider(
    dev: Run, project: Path, reached_vault: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
    assert dev("config", "set", "--secret", "token", "hunter2").code == 0
    before = read_settings(project, "dev")
    (project / ".pulumi/stacks/demo/dev.json").unlink()
    ran = dev("stack", "init", "dev", "--secrets-provider", reached_vault.url)
    assert ran.code == 1
    assert "contains secrets that are not encrypted by hashivault://team" in ran.err
    assert read_settings(project, "dev") == before


def test_errors_of_a_key_service_have_no_cause(reached_vault: Service) -> None:
    from gpuform.stacks.engine.secrets.stack_secrets import CloudCrypter

    reached_vault.denied = True
    with pytest.raises(SecretsError) as caught:
        CloudCrypter.create_new(reached_vault.url)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
