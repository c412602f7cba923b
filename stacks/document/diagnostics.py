"""Report problems of a file with their place, for people and for tools: text, JSON, SARIF and
GitHub's workflow commands.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

Severity = Literal["error", "warning"]


class SourcePosition(NamedTuple):
    """A place in a file: `line` and `column` count from 1, as editors do.

    `included` are the places that include a module file, from the nearest to the topology's.
    """

    file: str
    line: int = 1
    column: int = 1
    included: tuple[Any, ...] = ()
    """Places: a NamedTuple cannot name itself here."""
    is_outside_project: bool = False
    """Whether nothing that the file holds may be shown."""

    def __str__(self) -> str:
        way = "".join(f", included at {each.own}" for each in self.included)
        return f"{self.own}{way}"

    @property
    def own(self) -> str:
        """`file:line:column`, without what includes the file."""
        return f"{self.file}:{self.line}:{self.column}"


_PROBLEM_OUTSIDE: Final = (
    "this file is no sound topology; it is outside the project, so that nothing it holds is shown"
)
_HINT_OUTSIDE: Final = (
    "run `gpuform validate` in the project of that file, or copy it into this one"
)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem. `message` says what is wrong and why, `hint` what to do; neither has a secret.

    `rule` is a stable name for the sort of problem, for tools that group or silence by it.
    """

    place: SourcePosition
    rule: str
    message: str
    hint: str = ""
    severity: Severity = "error"

    def __post_init__(self) -> None:
        """Replace a problem of a file outside the project by one that shows none of its content."""
        if self.place.is_outside_project:
            object.__setattr__(self, "place", self.place._replace(line=1, column=1))
            object.__setattr__(self, "message", _PROBLEM_OUTSIDE)
            object.__setattr__(self, "hint", _HINT_OUTSIDE)

    def __str__(self) -> str:
        said = f"{'warning: ' if self.severity == 'warning' else ''}{self.message}"
        where = f"{self.place}: " if self.place.file else ""
        return f"{where}{said}" + (f"\n  {self.hint}" if self.hint else "")


@dataclass(slots=True)
class Diagnostics:
    """The problems found so far, each place and text once, however often a file is included."""

    found: dict[tuple[SourcePosition, str], Diagnostic] = field(default_factory=dict)

    def add(self, place: SourcePosition, rule: str, message: str, hint: str = "") -> None:
        """Notes an error."""
        self.add_once(place, rule, message, message, hint)

    def add_once(
        self, place: SourcePosition, rule: str, key: str, message: str, hint: str = ""
    ) -> None:
        """Notes an error, unless one with this `key` was noted for the place."""
        problem = Diagnostic(place, rule, message, hint)
        key = problem.message if place.is_outside_project else key
        self.found.setdefault(_key(problem.place, key), problem)

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Notes all of them."""
        for each in diagnostics:
            self.found.setdefault(_key(each.place, each.message), each)

    def __iter__(self) -> Iterator[Diagnostic]:
        """In the order of files and lines."""
        return iter(sorted(self.found.values(), key=lambda each: each.place))

    def __len__(self) -> int:
        return len(self.found)


def _key(place: SourcePosition, text: str) -> tuple[SourcePosition, str]:
    return place._replace(included=()), text


_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"


def text(found: Sequence[Diagnostic]) -> str:
    """`file:line:column: message`, with what to do on a line of its own."""
    return "\n".join(map(str, found))


def as_json(found: Sequence[Diagnostic]) -> str:
    """An array of objects: file, line, column, severity, rule, message, hint.

    What is wrong in a module file has `included_at`, too: the places that include it.
    """
    return json.dumps([_plain(each) for each in found], indent=2, ensure_ascii=False)


def sarif(found: Sequence[Diagnostic]) -> str:
    """A log of SARIF 2.1.0, as code scanning takes it."""
    rules = sorted({each.rule for each in found})
    driver = {"name": "gpuform", "rules": [{"id": rule} for rule in rules]}
    run = {"tool": {"driver": driver}, "results": [_result(each) for each in found]}
    log = {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2, ensure_ascii=False)


def github(found: Sequence[Diagnostic]) -> str:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    return "\n".join(map(_command, found))


FORMATS: Final[Mapping[str, Callable[[Sequence[Diagnostic]], str]]] = MappingProxyType(
    {"text": text, "json": as_json, "sarif": sarif, "github": github}
)
"""By the name that --format takes."""


def _plain(each: Diagnostic) -> dict[str, Any]:
    place = each.place
    included = [{"file": at.file, "line": at.line, "column": at.column} for at in place.included]
    return {
        "file": place.file,
        "line": place.line,
        "column": place.column,
        **({"included_at": included} if included else {}),
        "severity": each.severity,
        "rule": each.rule,
        "message": each.message,
        "hint": each.hint,
    }


def _result(each: Diagnostic) -> dict[str, Any]:
    place = each.place
    return {
        "ruleId": each.rule,
        "level": each.severity,
        "message": {"text": _whole(each)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": PurePath(place.file).as_posix()},
                    "region": {"startLine": place.line, "startColumn": place.column},
                }
            }
        ],
    }


def _command(each: Diagnostic) -> str:
    place = each.place
    given = {"file": place.file, "line": place.line, "col": place.column, "title": each.rule}
    shown = ",".join(f"{key}={_escaped(str(value), ':,')}" for key, value in given.items())
    return f"::{each.severity} {shown}::{_escaped(_whole(each))}"


def _escaped(value: str, more: str = "") -> str:
    """GitHub's own escapes, the per cent sign first."""
    for sign in f"%\r\n{more}":
        value = value.replace(sign, f"%{ord(sign):02X}")
    return value


def _whole(each: Diagnostic) -> str:
    included = "".join(f"\nincluded at {place.own}" for place in each.place.included)
    return f"{each.message}\n{each.hint}{included}" if each.hint else each.message + included
