"""Find the problems of open topologies, as `gpuform validate` reports them for saved files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic, SourcePosition
from gpuform.stacks.document.reading import use_unsaved_texts
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.lsp.cursor import Span
from gpuform.stacks.topology.offline import read_plan_context
from gpuform.stacks.topology.planning import plan

_TOKEN: Final = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1|[^\s:,\[\]{}#]+(?:[:][^\s,\[\]{}]+)*|.""")


def check_topology(
    path: Path, open_texts: Mapping[Path, str]
) -> dict[Path, list[DocumentDiagnostic]]:
    """Return the problems of a topology and of all included files, by file.

    `open_texts` are the texts of files that are open in the editor, by resolved path; other files
    are read from disk. Files without problems are missing in the result. If the project cannot be
    read, this is the only problem.
    """
    problems = Diagnostics()
    with use_unsaved_texts(open_texts):
        try:
            plan(path, read_plan_context(path, None), problems)
        except EngineError as error:  # a project that cannot be read
            position = SourcePosition(str(path))
            return {
                path: [DocumentDiagnostic(position, "project", error.message, error.hint or "")]
            }
    problems_by_file: dict[Path, list[DocumentDiagnostic]] = {}
    for problem in problems:
        # Positions name files relative to the current folder.
        problems_by_file.setdefault((Path.cwd() / problem.position.file).resolve(), []).append(
            problem
        )
    return problems_by_file


def get_problem_span(problem: DocumentDiagnostic, lines: Sequence[str]) -> Span:
    """Return the span of the word at a problem; an empty one if the position is behind the text."""
    line = min(problem.position.line - 1, max(len(lines) - 1, 0))
    text = lines[line].rstrip("\r\n") if lines else ""
    begin = min(problem.position.column - 1, len(text))
    token = _TOKEN.match(text, begin)
    return Span(line, begin, token.end() if token else begin)
