"""Collect the problems of files with their positions, and format them for people and tools.

The readers of YAML files add problems to a `Diagnostics`; the commands print it as text, JSON,
SARIF or GitHub's workflow commands.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

Severity = Literal["error", "warning"]


class SourcePosition(NamedTuple):
    """A position in a file. `line` and `column` count from 1, as editors count.

    `included` holds the positions of the `include` entries that led to a module file, the nearest
    first and the topology's own last.
    """

    file: str
    line: int = 1
    column: int = 1
    included: tuple[Any, ...] = ()
    """Places: a NamedTuple cannot name itself here."""
    is_outside_project: bool = False
    """Whether nothing that the file holds may be shown."""

    def __str__(self) -> str:
        inclusions = "".join(f", included at {position.own}" for position in self.included)
        return f"{self.own}{inclusions}"

    @property
    def own(self) -> str:
        """Return the position as `file:line:column`, without including files."""
        return f"{self.file}:{self.line}:{self.column}"


_PROBLEM_OUTSIDE: Final = (
    "this file is not a valid topology; it is outside the project, so gpuform shows none of its "
    "text"
)
_HINT_OUTSIDE: Final = (
    "run `gpuform validate` in the project of that file, or copy the file into this project"
)


@dataclass(frozen=True, slots=True)
class DocumentDiagnostic:
    """One problem: `message` says what is wrong, `hint` what to do. Neither contains a secret.

    `rule` is the stable name of the kind of problem, by which tools group or silence problems.
    """

    position: SourcePosition
    rule: str
    message: str
    hint: str = ""
    severity: Severity = "error"

    def __post_init__(self) -> None:
        """Replace a problem of a file outside the project by one that shows none of its content."""
        if self.position.is_outside_project:
            # Only `__setattr__` of object can set a field of a frozen dataclass.
            object.__setattr__(self, "position", self.position._replace(line=1, column=1))
            object.__setattr__(self, "message", _PROBLEM_OUTSIDE)
            object.__setattr__(self, "hint", _HINT_OUTSIDE)

    def __str__(self) -> str:
        labeled_message = f"{'warning: ' if self.severity == 'warning' else ''}{self.message}"
        prefix = f"{self.position}: " if self.position.file else ""
        return f"{prefix}{labeled_message}" + (f"\n  {self.hint}" if self.hint else "")


@dataclass(slots=True)
class Diagnostics:
    """A collection of problems without duplicates.

    A module file that is included several times reports each of its problems once.
    """

    by_key: dict[tuple[SourcePosition, str], DocumentDiagnostic] = field(default_factory=dict)

    def add(self, position: SourcePosition, rule: str, message: str, hint: str = "") -> None:
        """Add an error, unless the position already has one with an equal message."""
        self.add_once(position, rule, message, message, hint)

    def add_once(
        self, position: SourcePosition, rule: str, key: str, message: str, hint: str = ""
    ) -> None:
        """Add an error, unless the position already has one with an equal `key`."""
        problem = DocumentDiagnostic(position, rule, message, hint)
        # Every problem of such a file has the same text, so one entry is enough.
        key = problem.message if position.is_outside_project else key
        self.by_key.setdefault(_make_key(problem.position, key), problem)

    def extend(self, diagnostics: Iterable[DocumentDiagnostic]) -> None:
        """Add all problems in `diagnostics`, without duplicates."""
        for diagnostic in diagnostics:
            self.by_key.setdefault(_make_key(diagnostic.position, diagnostic.message), diagnostic)

    def __iter__(self) -> Iterator[DocumentDiagnostic]:
        """Yield the problems sorted by file, line and column."""
        return iter(sorted(self.by_key.values(), key=lambda problem: problem.position))

    def __len__(self) -> int:
        return len(self.by_key)


def _make_key(position: SourcePosition, message: str) -> tuple[SourcePosition, str]:
    """Return the key that equal problems share, however the file was included."""
    # Two includes of one file differ only in `included`.
    return position._replace(included=()), message


_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def format_text(diagnostics: Sequence[DocumentDiagnostic]) -> str:
    """Format diagnostics for the terminal.

    `file:line:column: message`, hints on lines of their own.
    """
    return "\n".join(map(str, diagnostics))


def format_json(diagnostics: Sequence[DocumentDiagnostic]) -> str:
    """Format diagnostics as a JSON array of objects.

    The keys are file, line, column, severity, rule, message and hint. A problem in a module file
    also has `included_at`, the positions of the `include` entries.
    """
    return json.dumps(
        [_to_json_object(diagnostic) for diagnostic in diagnostics], indent=2, ensure_ascii=False
    )


def format_sarif(diagnostics: Sequence[DocumentDiagnostic]) -> str:
    """Format diagnostics as a SARIF 2.1.0 log for code scanning."""
    rules = sorted({diagnostic.rule for diagnostic in diagnostics})
    driver = {"name": "gpuform", "rules": [{"id": rule} for rule in rules]}
    run = {
        "tool": {"driver": driver},
        "results": [_to_sarif_result(diagnostic) for diagnostic in diagnostics],
    }
    log = {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def format_workflow_commands(diagnostics: Sequence[DocumentDiagnostic]) -> str:
    """Format diagnostics as workflow commands.

    GitHub shows workflow commands as annotations beside the lines of a pull request.
    """
    return "\n".join(map(_format_workflow_command, diagnostics))


FORMATS: Final[Mapping[str, Callable[[Sequence[DocumentDiagnostic]], str]]] = MappingProxyType(
    {
        "text": format_text,
        "json": format_json,
        "sarif": format_sarif,
        "github": format_workflow_commands,
    }
)
"""The formatters by the value of --format."""


def _to_json_object(diagnostic: DocumentDiagnostic) -> dict[str, Any]:
    """Return a diagnostic as a JSON object; `included_at` lists the including files, if any."""
    position = diagnostic.position
    included = [
        {"file": including.file, "line": including.line, "column": including.column}
        for including in position.included
    ]
    return {
        "file": position.file,
        "line": position.line,
        "column": position.column,
        **({"included_at": included} if included else {}),
        "severity": diagnostic.severity,
        "rule": diagnostic.rule,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
    }


def _to_sarif_result(diagnostic: DocumentDiagnostic) -> dict[str, Any]:
    position = diagnostic.position
    return {
        "ruleId": diagnostic.rule,
        "level": diagnostic.severity,
        "message": {"text": _format_full_message(diagnostic)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": PurePath(position.file).as_posix()},
                    "region": {"startLine": position.line, "startColumn": position.column},
                }
            }
        ],
    }


def _format_workflow_command(diagnostic: DocumentDiagnostic) -> str:
    """Format a diagnostic as GitHub's workflow command: `::error file=...,line=...::message`."""
    position = diagnostic.position
    names = ("file", "line", "col", "title")
    values = (position.file, position.line, position.column, diagnostic.rule)
    formatted_properties = ",".join(
        f"{name}={_escape_for_workflow_command(str(value), ':,')}"
        for name, value in zip(names, values, strict=True)
    )
    message = _escape_for_workflow_command(_format_full_message(diagnostic))
    return f"::{diagnostic.severity} {formatted_properties}::{message}"


def _escape_for_workflow_command(value: str, more_characters: str = "") -> str:
    """Percent-encode `%`, line breaks and `more_characters` for a workflow command of GitHub."""
    # The per cent sign comes first: each later replacement introduces new ones.
    for character in f"%\r\n{more_characters}":
        value = value.replace(character, f"%{ord(character):02X}")
    return value


def _format_full_message(diagnostic: DocumentDiagnostic) -> str:
    """Join the message, its hint and the places that include the file."""
    included = "".join(f"\nincluded at {position.own}" for position in diagnostic.position.included)
    hint = f"\n{diagnostic.hint}" if diagnostic.hint else ""
    return f"{diagnostic.message}{hint}{included}"
