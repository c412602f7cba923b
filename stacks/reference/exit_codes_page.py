"""The page of exit codes."""

from collections.abc import Iterator
from typing import Final

from gpuform.stacks.cli.failures import MEANINGS, Meaning
from gpuform.stacks.cli.flags import page_of
from gpuform.stacks.cli.running import EXIT_CODES
from gpuform.stacks.reference.markdown import page, table

_LEAD: Final = """\
This page has every exit code of `gpuform`, what it means, and for which commands. A script can go
by the code alone: the text on stderr says the same in words.
"""
_AFTER: Final = """\
`gpuform connect` and a command that runs in the project's own virtual environment exit with the
code of what they have run.

## From Python

The [operations API](../guides/python.md) has no exit codes. `result.reason` says the same in words,
and what stops an operation before it begins is raised.
"""


def exit_codes_page() -> str:
    """The whole page."""
    return page("Exit codes", _LEAD, _parts())


def _parts() -> Iterator[str]:
    yield "## Codes"
    yield table(("code", "name", "commands", "meaning"), map(_row, MEANINGS))
    yield _AFTER
    reasons = [(f"`{reason}`", f"`{code}`") for reason, code in EXIT_CODES.items()]
    yield table(("`result.reason`", "exit code of the command"), reasons)
    yield (
        "## In a script\n\n"
        "<!-- not run: it stands for a line of your own script -->\n"
        "```bash\ngpuform drift --detailed-exitcode --stack prod\n"
        'case $? in\n  0) echo "as declared" ;;\n  2) echo "somebody changed something" ;;\n'
        '  *) echo "look at it" ;;\nesac\n```'
    )


def _row(each: Meaning) -> tuple[str, str, str, str]:
    links = [f"[{name}]({_target(name)})" for name in each.commands]
    return f"`{each.code}`", each.name, ", ".join(links) or "every command", each.text


def _target(command: str) -> str:
    return f"{page_of(command).removeprefix('reference/')}.md"
