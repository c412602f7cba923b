"""Render every generated page of `docs/reference`.

`tools/generate.py` calls `render_pages`. This module renders the pages of evidence and exit codes,
and calls the modules beside it for the others.
"""

from collections.abc import Iterator
from typing import Final

from gpuform.providers.evidence import DECISIONS, Decision
from gpuform.stacks.cli.failures import MEANINGS, Meaning
from gpuform.stacks.cli.flags import find_help_page
from gpuform.stacks.cli.stack_runs import EXIT_CODES
from tools.reference.command_pages import render_command_pages
from tools.reference.configuration_page import render_configuration_page
from tools.reference.expressions_page import render_expressions_page
from tools.reference.file_pages import (
    render_prices_page,
    render_stacks_page,
    render_tests_page,
    render_topology_page,
)
from tools.reference.markdown import render_page, render_table
from tools.reference.plan_page import render_plan_page
from tools.reference.resource_pages import render_resource_pages

GENERATED_FOLDERS: Final = ("commands", "resources")
"""The folders that contain only generated pages."""


def render_pages() -> Iterator[tuple[str, str]]:
    """Yield the path below `docs/reference` and the text of each page."""
    yield "topology.md", render_topology_page()
    yield "expressions.md", render_expressions_page()
    yield "configuration.md", render_configuration_page()
    yield "exit-codes.md", render_exit_codes_page()
    yield "evidence.md", render_evidence_page()
    yield "plan-json.md", render_plan_page()
    yield "prices-and-gates.md", render_prices_page()
    yield "stacks.md", render_stacks_page()
    yield "tests.md", render_tests_page()
    for path, text in render_resource_pages():
        yield f"resources/{path}", text
    for path, text in render_command_pages():
        yield f"commands/{path}", text


_EVIDENCE_LEAD: Final = """\
This page lists every decision that gpuform cannot undo, the observations that it requires, and what
gpuform does without them.

One answer of a platform proves little: platforms are slow, return partial answers, and are
sometimes wrong. Other people and other machines work at the same time. Three rules hold for every
row below:

* **Silence is not an answer.** A list that is empty, incomplete or fails never means that nothing
  exists, that nothing runs or that nothing is used.
* **Only the source that knows counts.** A monitor, scheduler or registry counts only for the nodes
  and entries that its own answer names.
* **Without enough evidence gpuform loses nothing.** It waits, or stops with an error that names the
  missing evidence.
"""
_EVIDENCE_AFTER: Final = """\
## Read on

* [What counts as gone](../concepts/gone.md): when gpuform removes an object from the state.
* [Intents](../concepts/intents.md): how gpuform finds the object of an interrupted create.
* [Taking nodes away](../concepts/taking-nodes.md): what gpuform checks before it removes a node.
"""


def render_evidence_page() -> str:
    """Return the page of decisions and the evidence that they need, as Markdown."""
    rows = [
        (
            decision.name,
            decision.effect.value,
            decision.needs,
            _format_max_age(decision),
            decision.without,
        )
        for decision in DECISIONS
    ]
    head = ("decision", "effect", "evidence", "at most this old", "without it")
    return render_page(
        "What counts as evidence", _EVIDENCE_LEAD, [render_table(head, rows), _EVIDENCE_AFTER]
    )


def _format_max_age(decision: Decision) -> str:
    return "" if decision.max_age_s is None else f"{decision.max_age_s:.0f} s"


_EXIT_CODES_LEAD: Final = """\
This page lists every exit code of `gpuform` with its meaning and commands. A script needs only the
code: the message on stderr says the same in words.
"""
_EXIT_CODES_AFTER: Final = """\
`gpuform connect`, and commands that run in the project's own virtual environment, exit with the
code of the process that they ran.

## From Python

The [operations API](../guides/python.md) has no exit codes. `result.reason` says the same in words.
An error that stops an operation before it starts is raised.
"""


def render_exit_codes_page() -> str:
    """Return the page of exit codes, as Markdown."""
    return render_page("Exit codes", _EXIT_CODES_LEAD, _render_exit_codes_parts())


def _render_exit_codes_parts() -> Iterator[str]:
    yield "## Codes"
    yield render_table(("code", "name", "commands", "meaning"), map(_format_exit_code, MEANINGS))
    yield _EXIT_CODES_AFTER
    reasons = [(f"`{reason}`", f"`{code}`") for reason, code in EXIT_CODES.items()]
    yield render_table(("`result.reason`", "exit code of the command"), reasons)
    yield (
        "## In a script\n\n"
        # The tests of the documentation run each block that has no such comment.
        "<!-- not run: it stands for a line of your own script -->\n"
        "```bash\ngpuform drift --detailed-exitcode --stack prod\n"
        'case $? in\n  0) echo "as declared" ;;\n  2) echo "somebody changed something" ;;\n'
        '  *) echo "look at it" ;;\nesac\n```'
    )


def _format_exit_code(meaning: Meaning) -> tuple[str, str, str, str]:
    links = [f"[{name}]({_get_command_page(name)})" for name in meaning.commands]
    return (
        f"`{meaning.code}`",
        meaning.name,
        ", ".join(links) or "every command",
        meaning.description,
    )


def _get_command_page(command: str) -> str:
    return f"{find_help_page(command).removeprefix('reference/')}.md"
