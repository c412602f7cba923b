"""Test that a program in a process of its own results in the same state as in the engine's."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from conformance import program_process
from conformance.emulated import Platform, start_emulated_platform
from conformance.stacks import EmbeddedStack

from gpuform.providers.emulator.server import environment
from gpuform.stacks.engine.deployment import deployment
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-together-training"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VOLATILE = {"created", "modified", "ciphertext", "time"}


def strip_variable_state(value: Any, provider: str, key: str = "") -> Any:
    """Return the state without values that vary from run to run.

    These are times, nonces, the provider's id, and the stack frames of the process that runs the
    program.
    """
    if key in VOLATILE:
        return f"<{key}>"
    if key == "stackTrace":
        return [frame for frame in value if frame.get("sourcePosition", "").startswith("project:")]
    if isinstance(value, dict):
        return {name: strip_variable_state(item, provider, name) for name, item in value.items()}
    if isinstance(value, list):
        return [strip_variable_state(item, provider) for item in value]
    return value.replace(provider, "<provider>") if isinstance(value, str) else value


def run_life_cycle(
    directory: Path, source: Path, crypter: PassphraseCrypter, platform: Platform
) -> dict[str, Any]:
    """Run a plan, an up and a change, and return the state."""
    directory.mkdir()
    stack = EmbeddedStack(
        directory,
        crypter,
        config={"conformance:gpus": "16", "conformance:hush": "hush"},
        secret_keys=["conformance:hush"],
    )
    ignored = shutil.ignore_patterns("python", "Pulumi.*", ".*")
    shutil.copytree(source, directory, ignore=ignored, dirs_exist_ok=True)
    first = stack.plan()
    assert (sorted(first.operations), first.errors) == (["create", "create"], [])
    assert platform.list_writes() == []
    assert stack.apply().ok
    stack.config = {**stack.config, "conformance:gpus": "24"}
    assert stack.apply().operations == ["update"]
    assert [write.method for write in platform.list_writes()] == ["POST", "POST", "PUT"]
    latest = json.loads((directory / ".pulumi/stacks/conformance/dev.json").read_text())
    resources = latest["checkpoint"]["latest"]["resources"]
    (provider,) = (r["id"] for r in resources if r["type"].startswith("pulumi:providers:"))
    assert UUID.fullmatch(provider)
    result: dict[str, Any] = strip_variable_state(latest, provider)
    return result


@pytest.mark.parametrize("form", [".", "python"])
@pytest.mark.slow
def test_the_state_is_the_same_in_a_separate_process(
    form: str, tmp_path: Path, crypter: PassphraseCrypter, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = []
    for name in ("inside", "outside"):
        if name == "outside":
            monkeypatch.setattr(deployment, "run_program", program_process.run_program_in_process)
        with start_emulated_platform(seed="same", start=1_800_000_000.0) as platform:
            for variable, value in environment(platform.server.url).items():
                monkeypatch.setenv(variable, value)
            states.append(run_life_cycle(tmp_path / name, EXAMPLE / form, crypter, platform))
    inside, out = states
    entries = [state["checkpoint"]["latest"].pop("resources") for state in states]
    assert len(entries[0]) == 4
    for own_entry, other_entry in zip(*entries, strict=True):
        assert other_entry.keys() == own_entry.keys()
        for key, value in own_entry.items():
            assert (own_entry["urn"], key, other_entry[key]) == (own_entry["urn"], key, value)
    assert out == inside


@pytest.mark.slow
def test_a_failing_topology_is_reported_with_its_location(
    tmp_path: Path,
    crypter: PassphraseCrypter,
    monkeypatch: pytest.MonkeyPatch,
    platform: Platform,
) -> None:
    monkeypatch.setattr(deployment, "run_program", program_process.run_program_in_process)
    stack = EmbeddedStack(tmp_path, crypter)
    (tmp_path / "__main__.py").write_text("from gpuform.stacks import run\n\nrun()\n")
    volume = "data: {platform: together, volume_name: d, region: us-central-8, size_tib: 1}"
    late = "{{ shared_volumes.data.id | int }}"
    for message, position in (
        (f"shared_volumes: {{{volume}, x: {{}}}}", "topology.yaml:1:"),
        (f"shared_volumes: {{{volume}}}\noutputs: {{n: '{late}'}}", "topology.yaml:2:14: "),
    ):
        (tmp_path / "topology.yaml").write_text(message)
        result = stack.apply()
        assert not result.ok
        assert f"TopologyError: {position}" in result.errors[0]
    assert len(stack.resources) == 1


@pytest.mark.slow
def test_a_failing_program_fails_the_run_and_keeps_finished_steps(
    tmp_path: Path,
    crypter: PassphraseCrypter,
    monkeypatch: pytest.MonkeyPatch,
    platform: Platform,
) -> None:
    monkeypatch.setattr(deployment, "run_program", program_process.run_program_in_process)
    stack = EmbeddedStack(tmp_path, crypter)
    (tmp_path / "__main__.py").write_text(
        "from gpuform.providers.together import SharedVolume\n"
        "data = SharedVolume('data', volume_name='d', region='us-central-8', size_tib=1)\n"
        "data.id.apply(lambda _: 1 / 0)\n"
    )
    result = stack.apply()
    assert not result.ok
    assert "ZeroDivisionError" in result.errors[0]
    assert len(stack.resources) == 1
