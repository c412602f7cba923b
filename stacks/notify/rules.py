"""Read and check the rules of notify.yaml beside `Pulumi.yaml`, and of `notify` in stacks.yaml.

Called by the reports of operations, by `gpuform notify` and `gpuform validate`, and for the
configuration keys that have the addresses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.schemas.errors import EngineError
from gpuform.schemas.notify import NAMESPACE, NotifyEvent

FILE: Final = "notify.yaml"
STACKS_FILE: Final = "stacks.yaml"


@dataclass(frozen=True, slots=True)
class Rule:
    """The events of which one address gets messages. `source` is where the rule is declared."""

    name: str
    events: frozenset[NotifyEvent]
    source: str

    @property
    def key(self) -> str:
        """Return the configuration key of the rule's address."""
        return f"{NAMESPACE}:{self.name}"


def read_rules(directory: Path) -> list[Rule]:
    """Read the rules of a project, and of the nearest stacks.yaml upwards.

    A rule of both files has the events of both.

    Raises:
        EngineError: with every problem and its position.
    """
    from gpuform.stacks.document.diagnostics import Diagnostics, format_text  # noqa: PLC0415 - a
    # project without rules reads no file.

    rules: dict[str, Rule] = {}
    problems = Diagnostics()
    for file, is_projects in _find_files(directory):
        for rule in _read_file(file, file.name, problems, is_projects=is_projects):
            earlier_rule = rules.get(rule.name, rule)
            events = earlier_rule.events | rule.events
            rules[rule.name] = Rule(rule.name, events, earlier_rule.source)
    if problems:
        raise EngineError(
            f"the notification rules are invalid:\n{format_text(list(problems))}",
            "`gpuform validate` reports all problems",
        )
    return list(rules.values())


def has_rules_file(directory: Path) -> bool:
    """Return True if there may be rules for a project: a look at names, which reads no file."""
    return bool(_find_files(directory))


def check_rules(directory: Path, problems: Any) -> None:
    """Add the problems of a project's notify.yaml, if there is one, to `problems` (Diagnostics)."""
    from gpuform.stacks.topology.files import format_path  # noqa: PLC0415 - as above

    path = directory / FILE
    if path.exists():
        _read_file(path, format_path(path), problems, is_projects=True)


def _find_files(directory: Path) -> list[tuple[Path, bool]]:
    """Return the files that may have rules, and whether each is the project's own."""
    own = directory / FILE
    files = [(own, True)] if own.is_file() else []
    for folder in (directory, *directory.absolute().parents):
        if (folder / STACKS_FILE).is_file():
            return [*files, (folder / STACKS_FILE, False)]
    return files


def _read_file(path: Path, label: str, problems: Any, *, is_projects: bool) -> list[Rule]:
    """Return the rules of a file; add its problems, with `label` as the file's name."""
    from gpuform.schemas.notify import NotifyInputs  # noqa: PLC0415 - as above
    from gpuform.schemas.stacks_plan import StacksInputs  # noqa: PLC0415 - as above
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.document.nodes import find_key_position  # noqa: PLC0415 - as above
    from gpuform.stacks.document.reading import read_checked  # noqa: PLC0415 - as above

    # `read_checked` stops at any problem, also at those of other files.
    own_problems = Diagnostics()
    model = NotifyInputs if is_projects else StacksInputs
    root, values = read_checked(path, label, model, own_problems)
    problems.extend(own_problems)
    if own_problems:
        return []
    rules: Mapping[str, Mapping[str, Any]] = values.get("notify") or {}
    return [
        Rule(
            name,
            frozenset(map(NotifyEvent, rule["events"])),
            str(find_key_position(root, ("notify", name))),
        )
        for name, rule in rules.items()
    ]
