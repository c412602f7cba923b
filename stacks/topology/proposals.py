"""What a topology that an agent proposes may do with secrets.

No plan shows a secret. But an expression can ask something of one, and let the plan turn out by the
answer; so can the limits of a variable. Who proposes many of them learns the secret. So a proposal
passes secrets on as they are, and asks of them only what the project's own files ask.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, list_scalars, to_plain_value
from gpuform.stacks.document.reading import read_file
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.topology.declarations import ConfigVariable

VARIABLE: Final = "GPUFORM_PROPOSED_TO"
"""The folder of the project that a topology is proposed to; not set where it is the project's."""
_SECTIONS: Final = ("config", "inputs")
_NO_LIMITS: Final = ("default", "emulator_default", "description", "secret")


@dataclass(frozen=True, slots=True)
class TeamFiles:
    """The expressions, and the limits of variables, in the project's own files."""

    expressions: frozenset[str]
    limits: frozenset[str]

    def has_expression(self, text: str) -> bool:
        """Whether a value with expressions stands in one of them, as it is."""
        return text in self.expressions

    def has_limits(self, variable: ConfigVariable) -> bool:
        """Whether a variable has no limits, or those of one in the files."""
        return _limits(variable.said) in self.limits


def team_files() -> TeamFiles | None:
    """Those of the project that this run proposes something to; None where it does not."""
    folder = os.environ.get(VARIABLE)
    return _read(Path(folder)) if folder else None


def unknown_limits(about: str) -> tuple[str, str]:
    """What is said of a secret with limits that are not the project's, and what to do."""
    return (
        f"{about}: a proposal holds a secret against limits that no file of the project has",
        "leave its type and its limits as they are, or let a person write them",
    )


@cache
def _read(folder: Path) -> TeamFiles:
    roots = [read_file(file, file.name, Diagnostics()) for file in _files(folder)]
    values = (each.value for root in roots for each in list_scalars(root))
    expressions = (each for each in values if isinstance(each, str) and has_expression(each))
    limits = (_limits(said) for root in roots for said in _variables(root))
    return TeamFiles(frozenset(expressions), frozenset([_limits({}), *limits]))


def _files(folder: Path) -> Iterator[Path]:
    for ending in ("yaml", "yml"):
        for file in folder.rglob(f"*.{ending}"):
            is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
            if file.is_file() and not is_hidden:
                yield file


def _variables(root: MappingNode) -> Iterator[Mapping[str, Any]]:
    for section in _SECTIONS:
        entry = root.entries.get(section)
        if entry is not None and isinstance(entry.node, MappingNode):
            said = to_plain_value(entry.node).values()
            yield from (each for each in said if isinstance(each, Mapping))


def _limits(said: Mapping[str, Any]) -> str:
    limits = {"type": "string", **said}
    for name in _NO_LIMITS:
        limits.pop(name, None)
    return json.dumps(limits, sort_keys=True, default=str)
