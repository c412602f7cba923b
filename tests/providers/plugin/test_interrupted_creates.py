"""What a destroy by the CLI would leave, and when it is refused."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuform.providers.errors import GpuformError
from gpuform.providers.plugin.interrupted_creates import (
    find_leftover_intents,
    is_destroy_command,
    refuse_incomplete_destroy,
)
from gpuform.providers.records import Intent, Intents, Stored, Unkept

URN = "urn:pulumi:dev::p::gpuform:together:Cluster::train"
INTENT = Intent(URN, "together", "Cluster", "train", "us-central-8", 1.0, id="c-1")


@pytest.mark.parametrize(
    ("intent", "stored", "is_left"),
    [
        (INTENT, [], True),
        (INTENT, [(URN, "c-1")], False),
        (INTENT, [(URN, "c-0")], True),  # made to take the other's place
        (Intent(URN, "together", "Cluster", "train", "", 1.0), [(URN, "c-0")], True),
        (Intent(URN, "together", "Cluster", "train", "", 1.0, outcome="nothing"), [], False),
        (Intent(URN, "scp", "NodePool", "train", "", 1.0, names=("n-1",)), [(URN, "p")], False),
        (Intent(URN, "scp", "NodePool", "train", "", 1.0, names=("n-1",)), [], True),
    ],
)
def test_what_is_left(intent: Intent, stored: Stored, is_left: bool) -> None:
    assert bool(find_leftover_intents([intent], stored)) is is_left


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("pulumi destroy --yes", True),
        ("pulumi --stack dev down", True),
        ("pulumi up", False),
        ("pulumi refresh --target destroy", False),
        ("", False),
    ],
)
def test_the_command(command: str, is_one: bool) -> None:
    assert is_destroy_command(command.split()) is is_one


class Beside(Unkept):
    """Records beside a state without resources."""

    def stored(self) -> Stored:
        return []


def run_below(command: str) -> str:
    """What the process of a plugin says that was started by this command of the CLI."""
    plugin = "from test_interrupted_creates import main; main()"
    parent = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {plugin!r}], check=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", parent, command, "--yes"],
        env={"PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def main() -> None:
    intents = Intents(Beside())
    intents.record(INTENT)
    try:
        refuse_incomplete_destroy(intents)
    except GpuformError as error:
        print(error)  # noqa: T201 - the result


def test_a_destroy_is_refused_and_an_up_is_not() -> None:
    said = run_below("destroy")
    assert "created c-1" in said
    assert "`pulumi up` resumes the create" in said
    assert run_below("up") == ""
