"""Any topology, as Python and back, registers the same."""

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

from gpuform.stacks.convert.errors import NotConverted
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
def test_python_and_back(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("yaml", "python", "again"):
            (folder / each).mkdir()
            (folder / each / "Pulumi.yaml").write_text(PROJECT)
        file = folder / "yaml" / "topology.yaml"
        file.write_text(text)
        expected = record_registrations(folder / "yaml")
        program = convert_topology_to_python(file, None, file.parent)
        ast.parse(program)
        (folder / "python" / "__main__.py").write_text(program)
        assert record_registrations(folder / "python") == expected
        python = build_program(folder / "python")
        if "upper" in text:
            # What a filter makes of an output cannot be told from outside.
            with pytest.raises(NotConverted, match="computed"):
                build_declarations_from_program(python, [])
            return
        declared, secrets = build_declarations_from_program(python, [])
        assert not secrets
        (folder / "again" / "topology.yaml").write_text(render_topology(declared))
        again = record_registrations(folder / "again")
        assert again["outputs"] == expected["outputs"]
        assert said(again) == said(expected)


def said(told: dict[str, Any], *but: str) -> dict[str, Any]:
    """The resources, without options that say what holds without them."""
    return {
        urn: {key: value or None for key, value in resource.items() if key not in but}
        for urn, resource in told["resources"].items()
    }


@pytest.mark.slow
@settings(max_examples=10)
@given(topologies())
def test_a_state_as_a_topology(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("yaml", "again"):
            (folder / each).mkdir()
            (folder / each / "Pulumi.yaml").write_text(PROJECT)
        (folder / "yaml" / "topology.yaml").write_text(text)
        expected = record_registrations(folder / "yaml")
        declared, secrets = build_declarations_from_state(build_state(folder / "yaml"), {})
        assert not secrets
        (folder / "again" / "topology.yaml").write_text(render_topology(declared))
        again = record_registrations(folder / "again")
        assert again["outputs"] == expected["outputs"]
        # A state does not keep earlier names.
        assert said(again, "aliases") == said(expected, "aliases")
