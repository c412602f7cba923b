"""Ask for answers while a text is typed letter by letter."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.document.diagnostics import DocumentDiagnostic
from gpuform.stacks.lsp.sources import check_topology, get_problem_span
from gpuform.stacks.lsp.topology_text import TopologyText

from .conftest import TOPOLOGY

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/topology.yaml"))


def ask_everything(path: Path, text: str) -> None:
    """Send every request of an editor at the end of a text."""
    topology = TopologyText(path, text)
    lines = topology.outline.lines
    line = max(len(lines) - 1, 0)
    column = len(lines[-1]) if lines else 0
    topology.list_completions(line, column)
    topology.describe_at(line, column)
    topology.find_definition(line, column)
    topology.find_meant_entry(line, column)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_every_prefix_of_an_example_gets_answers(example: Path) -> None:
    topology = example.read_text(encoding="utf-8")
    for end in range(0, len(topology), 3):
        ask_everything(example, topology[:end])


def test_every_prefix_of_a_topology_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    for end in range(0, len(TOPOLOGY), 29):
        topology = TOPOLOGY[:end]
        for problems in check_topology(path, {path: topology}).values():
            for problem in problems:
                span = get_problem_span(problem, topology.splitlines())
                assert isinstance(problem, DocumentDiagnostic)
                assert 0 <= span.begin <= span.end


@given(st.text(alphabet=" \n\t:{}[]\"'-.#|clusters train platform together é🚀", max_size=80))
def test_any_text_gets_answers(text: str) -> None:
    ask_everything(Path("/nowhere/topology.yaml"), text)
    ask_everything(Path("/nowhere/topology.yaml"), TOPOLOGY[:200] + text)
