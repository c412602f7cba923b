"""What is wrong in a file, and where: the one form in which every problem is told."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
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
