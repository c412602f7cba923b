"""`gpuform console`: expressions, evaluated against the stack."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click

from gpuform.schemas.errors import UserError
from gpuform.schemas.safe_text import MASK, format_json
from gpuform.stacks.cli.failures import FAILED, SUCCESS, explain
from gpuform.stacks.cli.flags import emulate_flag
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from gpuform.stacks.console.evaluating import Console

_PROMPT: Final = "> "
_LEAVE: Final = ("exit", "quit")


@click.command()
@click.option(
    "--expression",
    "-e",
    "expressions",
    multiple=True,
    metavar="EXPR",
    help="Evaluate this and exit; may be given several times.",
)
@click.option("--show-secrets", is_flag=True, help="Show secret values in the clear.")
@emulate_flag
@stack_flags
def console(expressions: tuple[str, ...], show_secrets: bool, emulate: bool) -> int:
    """Evaluate expressions as a topology has them, against the stack.

    `clusters.train.status`, `config.gpus * 2`, `scp.images('kr-west1') | first`: names are those of
    the topology, or of the state where a program declares it; values are those of the state. What
    is made of a secret shows as [secret], what no `up` has made yet as [unknown]. Nothing is locked
    or changed; only lookups ask a platform. On a terminal it asks for one expression after another,
    and Tab completes names; otherwise each line of stdin is one. Values are printed as JSON. Exits
    1 when an expression fails.

    \b
    Examples:
      gpuform console
      gpuform console -e 'clusters.train.num_gpus // 8'
      echo 'shared_volumes.data.size_tib' | gpuform console --stack prod
    """
    from gpuform.stacks.cli.opening import workspace_of  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.console.evaluating import Console  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.opening.selecting import passphrase_of  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.opening.worlds import world_for  # noqa: PLC0415 - as above

    with session() as current:
        workspace = workspace_of(current)
        stack = workspace.open(current.stack, passphrase_of(workspace, current.screen.passphrase()))
        with world_for(stack, emulate=emulate):
            opened = Console.of(stack, current.environ)
            if expressions:
                return _all(expressions, opened, current.screen, show_secrets)
            if not current.screen.interactive:
                return _all(sys.stdin, opened, current.screen, show_secrets)
            current.screen.print(f"{stack.project.name}/{stack.name}: Ctrl-D leaves")
            with _completing(opened):
                _all(_typed(), opened, current.screen, show_secrets)
            return SUCCESS


def _all(lines: Iterable[str], opened: "Console", screen: Screen, show_secrets: bool) -> int:
    """Each expression's value; one that fails does not keep the others from being shown."""
    from gpuform.stacks.console.source import shown  # noqa: PLC0415 - the engine, not for help

    code = SUCCESS
    for line in filter(None, map(str.strip, lines)):
        try:
            value = opened.evaluate(line)
        except UserError as error:
            code = FAILED
            for told in explain(error, verbose=False)[1]:
                screen.warn(told)
        else:
            found = shown(value, show_secrets=show_secrets)
            is_mark = found in (MASK, "[unknown]") and found != value
            screen.print(found if is_mark else format_json(found, indent=2))
    return code


def _typed() -> Iterator[str]:
    """What the person types, line by line."""
    while True:
        try:
            line = input(_PROMPT)
        except EOFError:
            return
        if line.strip() in _LEAVE:
            return
        yield line


@contextlib.contextmanager
def _completing(opened: "Console") -> Iterator[None]:
    """Lets Tab complete names, and the arrow keys bring back lines; where Python can."""
    try:
        import readline  # noqa: PLC0415 - changes what input() does
    except ImportError:
        yield
        return

    def complete(begun: str, at: int) -> str | None:
        return next((each for n, each in enumerate(opened.completions(begun)) if n == at), None)

    readline.set_completer_delims(" \t\n{}()[]|~+-*/%,:'\"")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
