"""Test that a `pulumi destroy` that would leave objects of interrupted creates is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuform.providers.context import read_run_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import EphemeralRecords, Intent, Intents, StoredObjects
from gpuform.providers.records.intents import (
    find_leftover_intents,
    is_destroy_command,
    refuse_incomplete_destroy,
)

URN = "urn:pulumi:dev::p::gpuform:together:Cluster::train"
INTENT = Intent(URN, "together", "Cluster", "train", "us-central-8", 1.0, id="c-1")


@pytest.mark.parametrize(
    ("intent", "stored", "is_leftover"),
    [
        (INTENT, [], True),
        (INTENT, [(URN, "c-1")], False),
        (INTENT, [(URN, "c-0")], True),  # made to take the other's place
        (Intent(URN, "together", "Cluster", "train", "", 1.0), [(URN, "c-0")], True),
        (Intent(URN, "together", "Cluster", "train", "", 1.0, outcome="nothing"), [], False),
        (Intent(URN, "together", "Cluster", "train", "", 1.0, is_refused=True), [], False),
        (Intent(URN, "scp", "NodePool", "train", "", 1.0, names=("n-1",)), [(URN, "p")], False),
        (Intent(URN, "scp", "NodePool", "train", "", 1.0, names=("n-1",)), [], True),
    ],
)
def test_an_intent_without_stored_objects_is_left_over(
    intent: Intent, stored: StoredObjects, is_leftover: bool
) -> None:
    assert bool(find_leftover_intents([intent], stored)) is is_leftover


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("pulumi destroy --yes", True),
        ("pulumi --stack dev down", True),
        ("pulumi up", False),
        ("pulumi refresh --target destroy", False),
        ("", False),
    ],
)
def test_only_destroy_commands_are_destroys(command: str, expected: bool) -> None:
    assert is_destroy_command(command.split()) is expected


class EmptyStateRecords(EphemeralRecords):
    """Records of a stack whose state has no resources."""

    def list_stored_objects(self) -> StoredObjects:
        return []


def run_plugin_under_command(command: str, **variables: str) -> str:
    """Return the output of a plugin's process started below the given command of the Pulumi CLI."""
    plugin = "from test_interrupted_creates import main; main()"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {plugin!r}], check=True)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", parent, command, "--yes"],
        env={"PYTHONPATH": str(Path(__file__).parent), **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return completed.stdout


def main() -> None:
    intents = Intents(EmptyStateRecords())
    intents.record(INTENT)
    creates_anew = read_run_context().creates_anew
    try:
        refuse_incomplete_destroy(intents, creates_anew=creates_anew)
    except GpuformError as error:
        print(error)  # noqa: T201 - the result


def test_destroy_is_refused_with_leftovers_and_up_is_not() -> None:
    output = run_plugin_under_command("destroy")
    assert "created c-1" in output
    assert "`pulumi up` resumes the create" in output
    assert "set GPUFORM_CREATE_ANEW=1" in output
    assert run_plugin_under_command("destroy", GPUFORM_CREATE_ANEW="1") == ""
    assert run_plugin_under_command("up") == ""
