"""What is wrong in the texts of an editor: what `gpuform validate` says, before they are saved."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from gpuform.stacks.document.diagnostics import Diagnostic, Diagnostics, SourcePosition
from gpuform.stacks.document.reading import use_unsaved_texts
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.lsp.cursor import Span
from gpuform.stacks.topology.offline import read_plan_context
from gpuform.stacks.topology.planning import plan

_TOKEN: Final = re.compile(r"""(["'])(?:\\.|(?!\1).)*\1|[^\s:,\[\]{}#]+(?:[:][^\s,\[\]{}]+)*|.""")


def check(path: Path, texts: Mapping[Path, str]) -> dict[Path, list[Diagnostic]]:
    """The problems of a topology and of all that it includes, by file; `texts` are those of open
    files, by their resolved paths.
    """
    problems = Diagnostics()
    with use_unsaved_texts(texts):
        try:
            plan(path, read_plan_context(path, None), problems)
        except EngineError as error:  # a project that cannot be read
            place = SourcePosition(str(path))
            return {path: [Diagnostic(place, "project", error.message, error.hint or "")]}
    found: dict[Path, list[Diagnostic]] = {}
    for each in problems:
        found.setdefault((Path.cwd() / each.position.file).resolve(), []).append(each)
    return found


def span_of(problem: Diagnostic, lines: Sequence[str]) -> Span:
    """The word that a problem is about; the end of the text where the place is behind it."""
    line = min(problem.position.line - 1, max(len(lines) - 1, 0))
    text = lines[line].rstrip("\r\n") if lines else ""
    begin = min(problem.position.column - 1, len(text))
    found = _TOKEN.match(text, begin)
    return Span(line, begin, found.end() if found else begin)
