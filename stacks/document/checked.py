"""Validate a YAML file against a model and report each problem at its position in the file.

The readers of gate, price, test and multi-stack files call `read_checked`; topologies call
`report_problems` with the nodes of their entries.
"""

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
    find_key_position,
    find_nearest_node,
    parse_path,
    to_plain_value,
)
from gpuform.stacks.document.reading import read_file


def read_checked(
    path: Path, file_label: str, model: type[InputModel], problems: Diagnostics
) -> tuple[MappingNode, dict[str, Any]]:
    """Read the file at `path` and validate all values against `model`.

    `file_label` is the name of the file in messages. Returns the tree and the values; wrong values
    stay. If `problems` holds any problem after reading, an earlier one included, nothing is
    validated and the values are empty. Adds every problem to `problems`.
    """
    root = read_file(path, file_label, problems)
    # The model would report what is missing from a tree that was read only in part.
    if problems:
        return root, {}
    values, model_problems = validate_inputs(model, to_plain_value(root))
    report_problems(model_problems, root, "", problems)
    return root, values


def report_problems(
    model_problems: Iterable[Problem], root: Node, address: str, problems: Diagnostics
) -> None:
    """Add `model_problems` to `problems`, each at the position of the wrong value.

    `address` is the property path of `root`, empty for the root of a file.
    """
    for problem in model_problems:
        position, rule, reason = _locate_problem(root, problem)
        path = f"{address}.{problem.path}" if address else problem.path
        problems.add_once(position, rule, reason, f"{path}: {reason}")


def _locate_problem(root: Node, problem: Problem) -> tuple[SourcePosition, str, str]:
    """Return the position, the rule and the reason with which to report a problem of a value.

    `root` is the validated node. The rule is the name of the broken check: `unknown-key` or
    `value`. The reason is that of the problem; for a number or a boolean in place of a text it also
    recommends quotes.
    """
    steps = list(parse_path(problem.path))
    if problem.reason.startswith(KEY_PROBLEM_PREFIXES):
        return find_key_position(root, steps), "unknown-key", problem.reason
    node = find_nearest_node(root, steps)
    reason = problem.reason
    # A number or boolean without quotes is the usual cause.
    if reason.startswith("must be text") and isinstance(node, ScalarNode):
        reason = f'must be text, not {node.text}: write it in quotes, "{node.text}"'
    return node.position, "value", reason
