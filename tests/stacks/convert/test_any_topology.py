"""Any topology registers the same resources after a conversion to Python and back."""

import ast
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from support.topologies.registrations import (
    build_program,
    build_state,
    record_registrations,
    topologies,
)

from gpuform.stacks.convert import NotConverted
from gpuform.stacks.convert.program_and_state import (
    build_declarations_from_program,
    build_declarations_from_state,
)
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from gpuform.stacks.operations.converting import convert_topology_to_python

PROJECT = "name: demo\nruntime: python\n"


@pytest.mark.slow
@settings(max_examples=10)
@given(topologies())
def test_a_topology_converted_to_python_and_back_registers_the_same(text: str) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        for name in ("yaml", "python", "again"):
            (folder / name).mkdir()
            (folder / name / "Pulumi.yaml").write_text(PROJECT)
        file = folder / "yaml" / "topology.yaml"
        file.write_text(text)
        expected = record_registrations(folder / "yaml")
        program = convert_topology_to_python(file, None, file.parent)
        ast.parse(program)
        (folder / "python" / "__main__.py").write_text(program)
        assert record_registrations(folder / "python") == expected
        python = build_program(folder / "python")
        if "upper" in text:
            # The result of a filter on an output is a computation of the program.
            with pytest.raises(NotConverted, match="computed"):
                build_declarations_from_program(python, [])
            return
        declarations, secrets = build_declarations_from_program(python, [])
        assert not secrets
        (folder / "again" / "topology.yaml").write_text(render_topology(declarations))
        again = record_registrations(folder / "again")
        assert again["outputs"] == expected["outputs"]
        assert omit_empty_options(again) == omit_empty_options(expected)


def omit_empty_options(recorded: dict[str, Any], *omitted: str) -> dict[str, Any]:
    """Return the resources with None for empty options."""
    return {
        urn: {key: value or None for key, value in resource.items() if key not in omitted}
        for urn, resource in recorded["resources"].items()
    }


@pytest.mark.slow
@settings(max_examples=10)
@given(topologies())
def test_a_state_converted_to_a_topology_registers_the_same(text: str) -> None:
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        for name in ("yaml", "again"):
            (folder / name).mkdir()
            (folder / name / "Pulumi.yaml").write_text(PROJECT)
        (folder / "yaml" / "topology.yaml").write_text(text)
        expected = record_registrations(folder / "yaml")
        declarations, secrets = build_declarations_from_state(build_state(folder / "yaml"), {})
        assert not secrets
        (folder / "again" / "topology.yaml").write_text(render_topology(declarations))
        again = record_registrations(folder / "again")
        assert again["outputs"] == expected["outputs"]
        # A state has no aliases.
        assert omit_empty_options(again, "aliases") == omit_empty_options(expected, "aliases")
