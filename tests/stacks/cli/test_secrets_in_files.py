"""Test that no file or output of a command has a secret of the state."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pulumi.dynamic.dynamic import serialize_provider
from support.strategies.secret_state_strategies import CONFIGURED, NUMBER, PLANTED, SECRETS, states

from gpuform.providers.values import Secret
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import ResourceState, Snapshot
from gpuform.stacks.resource_rules import find_lifecycle

Run = Callable[..., Any]

WRITING_COMMANDS = [
    ("convert", "--from", "state", "--out", "state.yaml"),
    ("convert", "--from", "state", "--to", "python", "--out", "state.py", "--set-secrets"),
    ("convert", "--from", "program", "--out", "program.yaml", "--set-secrets"),
    ("convert", "state.yaml", "--out", "topology.py"),
    ("stack", "export", "--file", "export.json"),
    ("stack", "import", "--file", "export.json"),
    ("stack", "output"),
    ("stack", "output", "--json"),
    ("stack", "history"),
    ("graph", "--output", "graph.dot"),
    ("graph", "--format", "html", "--output", "graph.html"),
    ("graph", "--format", "mermaid", "--output", "graph.md"),
    ("state", "list"),
    ("state", "show", "dev"),
    ("preview", "--save-plan", "plan.json"),
    ("preview", "--json"),
    ("preview", "--diff"),
    ("review", "plan.json", "--output", "review.html"),
    ("graph", "--plan", "plan.json", "--format", "html", "--output", "plan.html"),
    ("manifests",),
    ("status", "--prometheus", "gpuform.prom"),
    ("state", "protect", "train", "--yes"),
    ("new", "ci", "--forge", "github", "--force"),
    ("new", "together-training", "--dir", "new", "--force"),
]
WRITTEN_FILES = (
    *("state.yaml", "state.py", "program.yaml", "topology.py", "export.json", "plan.json"),
    *("graph.html", "plan.html", "review.html", "gpuform.prom"),
)
PROGRAM = """
import pulumi
pulumi.export("a", pulumi.Config().require_secret("own"))
pulumi.export("b", {"c": [pulumi.Output.secret("pl4nted")]})
"""


@pytest.mark.slow
@settings(
    max_examples=2,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(states(SECRETS))
def test_commands_write_no_secret_of_any_state(
    dev: Run, project: Path, salt: str, entries: list[ResourceState]
) -> None:
    for path in project.iterdir():
        if path.name not in ("Pulumi.yaml", "Pulumi.dev.yaml", ".pulumi"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (project / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {salt}\n")
    for entry in entries:
        if (lifecycle := find_lifecycle(entry.type)) is not None:
            entry.outputs["__provider"] = serialize_provider(lifecycle())
    crypter = PassphraseCrypter("", salt)
    snapshot = Snapshot("organization/demo/dev", entries, secrets_provider=crypter.provider)
    state = project / ".pulumi/stacks/demo/dev.json"
    (project / "program").mkdir()
    (project / "program" / "__main__.py").write_text(PROGRAM)
    (project / "Pulumi.yaml").write_text(
        "name: demo\nruntime: python\nmain: program\nbackend:\n  url: file://.\n"
    )
    assert dev("config", "set", "--secret", "own", CONFIGURED).code == 0
    # One as the engine writes it, and one whose secrets somebody has brought in in the clear.
    for state_json in (snapshot.to_json(crypter), snapshot.to_json(crypter, show_secrets=True)):
        state.write_bytes(state_json)
        for args in WRITING_COMMANDS:
            ran = dev(*args, *(["--force"] if args[0] == "convert" else []))
            assert ran.code in (0, 1), (args, ran.err)
            assert "internal error" not in ran.err
            assert_no_secret(ran.out + ran.err, str(args))
        for name in WRITTEN_FILES:
            assert (project / name).exists(), name
        own = (state, state.with_name("dev.json.bak"), project / "program" / "__main__.py")
        for path in project.rglob("*"):
            if path.is_file() and path not in own:
                assert_no_secret(path.read_text(errors="replace"), str(path))


def assert_no_secret(text: str, where: str) -> None:
    for secret in (PLANTED, CONFIGURED, str(int(NUMBER))):
        assert secret not in text, (where, text)


def test_export_encrypts_plaintext_secrets_of_the_state(dev: Run, project: Path, salt: str) -> None:
    entry = ResourceState("urn:pulumi:dev::demo::my:mod:T::a", True, "my:mod:T", id="a")
    entry.outputs = {"key": ["x", Secret(PLANTED)]}
    crypter = PassphraseCrypter("", salt)
    snapshot = Snapshot("organization/demo/dev", [entry], secrets_provider=crypter.provider)
    state = project / ".pulumi/stacks/demo/dev.json"
    state.write_bytes(snapshot.to_json(crypter, show_secrets=True))
    exported = dev("stack", "export")
    assert PLANTED not in exported.out
    (resource,) = exported.json["deployment"]["resources"]
    assert crypter.decrypt(resource["outputs"]["key"][1]["ciphertext"]) == json.dumps(PLANTED)
    assert PLANTED in dev("stack", "export", "--show-secrets").out
