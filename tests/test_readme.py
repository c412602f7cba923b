"""The README says what is."""

from pathlib import Path

from gpuform.stacks.cli.app import _COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_it_leads_to_the_reference():
    assert "(schemas/topology.md)" in README
    assert (ROOT / "schemas" / "topology.md").exists()


def test_it_has_every_command():
    for name in _COMMANDS:
        assert f"| `gpuform {name}` |" in README
