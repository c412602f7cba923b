"""What a model finds wrong in a file's values, told at the place where each is written."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpuform.schemas.checking import KEY_PROBLEM_PREFIXES, validate_inputs
from gpuform.schemas.models import InputModel, Problem
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    MappingNode,
    Node,
    ScalarNode,
    find,
    find_key,
    plain,
    steps_of,
)
from gpuform.stacks.document.reading import read_file


def read_checked(
    path: Path, shown: str, model: type[InputModel], problems: Diagnostics
) -> tuple[MappingNode, dict[str, Any]]:
    """A file of this model: its tree, and its declared values; what is wrong goes to `problems`."""
    root = read_file(path, shown, problems)
    if problems:
        return root, {}
    values, found = validate_inputs(model, plain(root))
    tell(found, root, "", problems)
    return root, values


def tell(found: Iterable[Problem], root: Node, address: str, problems: Diagnostics) -> None:
    """Notes each problem where it is written; `address` is what `root` is the value of."""
    for problem in found:
        place, rule, reason = _told(root, problem)
        path = f"{address}.{problem.path}" if address else problem.path
        problems.add_once(place, rule, reason, f"{path}: {reason}")


def _told(root: Node, problem: Problem) -> tuple[SourcePosition, str, str]:
    steps = list(steps_of(problem.path))
    if problem.reason.startswith(KEY_PROBLEM_PREFIXES):
        return find_key(root, steps), "unknown-key", problem.reason
    node = find(root, steps)
    reason = problem.reason
    if reason.startswith("must be text") and isinstance(node, ScalarNode):
        reason = f'must be text, not {node.text}: write it in quotes, "{node.text}"'
    return node.place, "value", reason
