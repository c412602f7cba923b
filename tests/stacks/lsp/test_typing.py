"""A text that is typed letter by letter: at each moment there is an answer, and no failure."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.document.diagnostics import Diagnostic
from gpuform.stacks.lsp.checking import check, span_of
from gpuform.stacks.lsp.topologies import TopologyText

from .conftest import TOPOLOGY

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/topology.yaml"))


def asked(path: Path, text: str) -> None:
    """Everything that an editor asks at the end of a text."""
    topology = TopologyText(path, text)
    lines = topology.outline.lines
    line = max(len(lines) - 1, 0)
    column = len(lines[-1]) if lines else 0
    topology.completions(line, column)
    topology.hover(line, column)
    topology.definition(line, column)
    topology.meant(line, column)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_beginning_of_an_example_has_answers(example: Path) -> None:
    text = example.read_text(encoding="utf-8")
    for end in range(0, len(text), 3):
        asked(example, text[:end])


def test_every_beginning_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    for end in range(0, len(TOPOLOGY), 29):
        text = TOPOLOGY[:end]
        for found in check(path, {path: text}).values():
            for each in found:
                span = span_of(each, text.splitlines())
                assert isinstance(each, Diagnostic)
                assert 0 <= span.begin <= span.end


@given(st.text(alphabet=" \n\t:{}[]\"'-.#|clusters train platform together é🚀", max_size=80))
def test_any_text_has_answers(text: str) -> None:
    asked(Path("/nowhere/topology.yaml"), text)
    asked(Path("/nowhere/topology.yaml"), TOPOLOGY[:200] + text)
