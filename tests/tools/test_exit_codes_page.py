"""The page of exit codes: every code of the commands, and no other."""

from gpuform.stacks.cli import failures
from gpuform.stacks.cli.app import cli
from gpuform.stacks.cli.failures import MEANINGS
from gpuform.stacks.cli.stack_runs import EXIT_CODES
from gpuform.stacks.operations.runs.options import ExitReason
from tools.reference.pages import render_exit_codes_page

CONSTANTS = {
    name: value
    for name, value in vars(failures).items()
    if name.isupper() and isinstance(value, int)
}


def test_every_code_has_a_meaning_under_its_name() -> None:
    assert {meaning.name: meaning.code for meaning in MEANINGS} == CONSTANTS
    assert [meaning.code for meaning in MEANINGS] == sorted(meaning.code for meaning in MEANINGS)


def test_meanings_name_only_existing_commands() -> None:
    commands = cli.list_commands(None)  # type: ignore[arg-type]
    assert {name for meaning in MEANINGS for name in meaning.commands} <= set(commands)


def test_the_page_has_every_code_and_every_reason() -> None:
    page = render_exit_codes_page()
    for meaning in MEANINGS:
        assert f"| `{meaning.code}` | {meaning.name} | " in page
        assert meaning.description in page
    for reason in ExitReason:
        assert f"| `{reason}` | `{EXIT_CODES[reason]}` |" in page
