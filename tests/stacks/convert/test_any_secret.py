"""Secrets of any shape, anywhere in a state, are in no written file and stay secret."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from support.strategies.secret_state_strategies import CONFIGURED, NUMBER, PLANTED, states

from gpuform.providers.context import read_run_context
from gpuform.providers.values import PropertyMap, PropertyValue, Secret
from gpuform.stacks.convert import NotConverted
from gpuform.stacks.convert.program_and_state import (
    build_declarations_from_program,
    build_declarations_from_state,
)
from gpuform.stacks.declaration_writer.python_program import render_program
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from gpuform.stacks.engine.language_host import Program, record
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.review.value_text import to_display_value


def has_same_secrets(before: PropertyValue, after: PropertyValue) -> bool:
    """Return whether the values are equal and all secrets of `before` are secret in `after`."""
    if isinstance(after, Secret):
        return bool(
            to_display_value(before, show_secrets=True)
            == to_display_value(after, show_secrets=True)
        )
    if isinstance(before, Secret):
        return before.value is None and after is None
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(
            has_same_secrets(before[k], after[k]) for k in before
        )
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(has_same_secrets, before, after))
    return bool(to_display_value(before) == to_display_value(after))


def get_program(folder: Path, secrets: Mapping[str, str]) -> Program:
    config = {f"demo:{key}": value for key, value in {"own": CONFIGURED, **secrets}.items()}
    return Program("demo", "dev", folder, folder, config, [*config], 16, read_run_context())


@pytest.mark.slow
@settings(max_examples=40)
@given(states())
def test_converting_a_state_writes_no_secret_and_keeps_all_of_them_secret(
    entries: list[ResourceState],
) -> None:
    declared, secrets = build_declarations_from_state(entries, {CONFIGURED: "own"})
    topology = render_topology(declared)
    for written in (topology, render_program(declared)):
        assert PLANTED not in written
        assert str(int(NUMBER)) not in written
        assert CONFIGURED not in written
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
        (folder / "topology.yaml").write_text(topology)
        by_urn = {entry.urn: entry for entry in entries}

        def same(asked: Any) -> tuple[str, PropertyMap]:
            entry = by_urn[asked.urn]
            return entry.id, entry.outputs

        program = get_program(folder, secrets)
        again = record(program, same, program.config)
    assert has_same_secrets(entries[0].outputs, again.outputs)
    for asked in again.declared:
        if asked.type != STACK_TYPE:
            inputs = {k: v for k, v in asked.inputs.items() if k != "__provider" and v is not None}
            assert has_same_secrets(by_urn[asked.urn].inputs, inputs)
            assert {*by_urn[asked.urn].dependencies} <= {*asked.dependencies}


PROGRAM = """
import json
import pulumi
from gpuform.providers.together import SharedVolume

config = pulumi.Config()
data = SharedVolume("data", volume_name="data", region="us-central-8", size_tib=5)
token, pin = config.require_secret("token"), config.require_secret("pin")
secret = pulumi.Output.secret
OUTPUTS = {
    "token": token,
    "prefixed": pulumi.Output.concat("prefix-", token, "@", data.id),
    "pin": pin.apply(json.loads),
    "with pin": pulumi.Output.concat("PIN ", pin, " of ", data.id),
    "object": secret({"a": "pl4nted", "pl4nted": [token]}),
    "whole": secret({"a": "pl4nted", "pl4nted": ["x"]}),
    "literal": secret("pl4nted"),
    "nothing": secret(None),
    "of what is plain": secret(data.id),
    "in the clear": pulumi.Output.unsecret(pin).apply(lambda text: f"is {text}"),
    "of all": pulumi.Output.all(token, data.id).apply(lambda both: {"t": both[0], "id": both[1]}),
}
pulumi.export("it", OUTPUTS["%s"])
"""


@pytest.mark.parametrize(
    ("output", "written"),
    [
        ("token", "{{ config.token }}"),
        ("prefixed", "{{ config.it }}{{ config.token }}@{{ shared_volumes.data.id }}"),
        ("pin", "{{ config.pin }}"),
        ("with pin", "{{ config.it }}{{ shared_volumes.data.id }}"),
        ("whole", "{{ config.it }}"),
        ("literal", "{{ config.it }}"),
        ("nothing", "it: null"),
        ("in the clear", "{{ config.it }}"),
        ("of all", 'id: "{{ shared_volumes.data }}", t: "{{ config.token }}"'),
    ],
)
def test_converting_a_program_moves_secrets_into_the_configuration(
    tmp_path: Path, output: str, written: str
) -> None:
    declared, secrets = convert_program(tmp_path, output)
    topology = render_topology(declared)
    assert written in topology
    assert not any(secret in topology for secret in (PLANTED, "9182736", "t0ken"))
    assert "t0ken" not in str(secrets)


def test_a_public_output_made_secret_by_the_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        NotConverted, match="the output it contains a secret that a topology cannot"
    ):
        convert_program(tmp_path, "of what is plain")


def convert_program(folder: Path, output: str) -> Any:
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (folder / "__main__.py").write_text(PROGRAM % output)
    config = {"demo:token": "t0ken", "demo:pin": "9182736"}
    return build_declarations_from_program(
        Program("demo", "dev", folder, folder, config, [*config], 16, read_run_context()), []
    )
