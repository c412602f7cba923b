"""Restrict what a topology that an agent proposes may do with secrets.

No plan shows a secret. But an expression or the limits of a variable can make the plan
depend on one, and whoever proposes many of these learns the secret. So a proposal may
pass secrets on unchanged, and may evaluate them only as the project's own files do.
`scope` and `configuration` ask this module.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gpuform.providers.context import get_run_context
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, list_scalars, to_plain_value
from gpuform.stacks.document.reading import read_file
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.declarations import ConfigVariable

VARIABLE: Final = "GPUFORM_PROPOSED_TO"
"""The environment variable with the project folder that a topology is proposed to."""
_SECTIONS: Final = ("config", "inputs")
_NO_LIMITS: Final = ("default", "emulator_default", "description", "secret")


@dataclass(frozen=True, slots=True)
class TeamFiles:
    """The expressions and the limits of variables in the project's own files."""

    expressions: frozenset[str]
    limits: frozenset[str]

    def has_expression(self, text: str) -> bool:
        """Return True if a file contains `text` as a complete value."""
        return text in self.expressions

    def has_limits(self, variable: ConfigVariable) -> bool:
        """Return True if `variable` has no limits, or the limits of a variable in the files."""
        return _serialize_limits(variable.fields) in self.limits


def find_team_files() -> TeamFiles | None:
    """Return the files of the project for which an agent proposes this topology, or None.

    GPUFORM_PROPOSED_TO names that project's folder; without the variable nothing is proposed.
    """
    folder = get_run_context().environ.get(VARIABLE)
    return _read_folder(Path(folder)) if folder else None


def describe_unknown_limits(address: str) -> tuple[str, str]:
    """Return message and hint for a secret with limits unknown to the project's files."""
    return (
        (
            f"{address}: a proposal cannot check a secret against limits that no file of the "
            "project contains"
        ),
        "declare the type and the limits as the project's files do, or ask a person to change them",
    )


@cache
def _read_folder(folder: Path) -> TeamFiles:
    """Collect the expressions and declared limits in the folder's YAML files, once per folder."""
    roots = [read_file(file, file.name, Diagnostics()) for file in _list_files(folder)]
    values = (scalar.value for root in roots for scalar in list_scalars(root))
    expressions = (value for value in values if isinstance(value, str) and has_expression(value))
    limits = (_serialize_limits(fields) for root in roots for fields in _list_variables(root))
    return TeamFiles(frozenset(expressions), frozenset([_serialize_limits({}), *limits]))


def _list_files(folder: Path) -> Iterator[Path]:
    """Yield the YAML files in the folder and below, hidden files and folders left out."""
    for ending in ("yaml", "yml"):
        # Any YAML file of the project can be a module.
        for file in folder.rglob(f"*.{ending}"):
            is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
            if file.is_file() and not is_hidden:
                yield file


def _list_variables(root: MappingNode) -> Iterator[Mapping[str, Any]]:
    """Yield the fields of each configuration variable and input declared in a file."""
    for section in _SECTIONS:
        entry = root.entries.get(section)
        if entry is not None and isinstance(entry.node, MappingNode):
            values = to_plain_value(entry.node).values()
            yield from (fields for fields in values if isinstance(fields, Mapping))


def _serialize_limits(fields: Mapping[str, Any]) -> str:
    """Return the limits of a variable as JSON, for comparison with other limits."""
    limits = {"type": "string", **fields}
    # The other fields decide which values are wrong, and so reveal a secret.
    for name in _NO_LIMITS:
        limits.pop(name, None)
    return json.dumps(limits, sort_keys=True, default=str)
