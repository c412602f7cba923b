"""Open what a command works with: its screen, its stack and its flags; and write a review in the
chosen form.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuform.schemas.safe_text import iterate_json_parts
from gpuform.stacks.cli.terminal.screen import Screen, deliver

if TYPE_CHECKING:
    from gpuform.stacks.review.facts import Review

_KEY = "gpuform.flags"
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Session:
    """One command at work. `stack` is the one named by --stack, if any."""

    screen: Screen
    stack: str | None
    verbose: bool
    environ: Mapping[str, str]


def remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """A callback of click that keeps a flag for `flag`, given before the command or after it."""
    source = context.get_parameter_source(parameter.name or "")
    if source is not None and source is not click.core.ParameterSource.DEFAULT:
        context.find_root().meta.setdefault(_KEY, {})[parameter.name] = value


_FLAGS = (
    click.option(
        "--cwd",
        "-C",
        type=click.Path(exists=True, file_okay=False),
        expose_value=False,
        callback=remember,
        help="Work as if started in this folder.",
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        expose_value=False,
        callback=remember,
        help="Colours: on a terminal, always or never. NO_COLOR turns `auto` off.",
    ),
    click.option(
        "--non-interactive",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Ask nothing and show no live display, also on a terminal.",
    ),
    click.option(
        "--verbose",
        "-v",
        is_flag=True,
        expose_value=False,
        callback=remember,
        help="Log requests and debug messages to stderr.",
    ),
)

_STACK = click.option(
    "--stack",
    "-s",
    metavar="NAME",
    expose_value=False,
    callback=remember,
    help="The stack to work on; the selected one when not given.",
)


def common_flags(command: F) -> F:
    """Adds the flags that every command takes."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def stack_flags(command: F) -> F:
    """Adds --stack and the flags that every command takes."""
    return _STACK(common_flags(command))


def flag(name: str, default: Any = None) -> Any:
    """The value of a flag that all commands take, as given to this one."""
    context = click.get_current_context(silent=True)
    given: dict[str, Any] = context.find_root().meta.get(_KEY, {}) if context else {}
    return given.get(name, default)


@contextlib.contextmanager
def session() -> Iterator[Session]:
    """The running command's session: in its folder, with its logging, until it ends."""
    screen = Screen.open(
        flag("color", "auto"),
        interactive=not flag("non_interactive", False),
        environ=os.environ,
    )
    verbose = flag("verbose", False)
    with contextlib.chdir(Path(flag("cwd") or ".")), _logging(screen, verbose=verbose):
        yield Session(screen, flag("stack"), verbose, os.environ)


class _Harmless(logging.Formatter):
    """As the screen shows the rest."""

    def __init__(self, screen: Screen) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._screen = screen

    def format(self, record: logging.LogRecord) -> str:
        return self._screen.harmless(super().format(record))


@contextlib.contextmanager
def _logging(screen: Screen, *, verbose: bool) -> Iterator[None]:
    """gpuform's own log on stderr. Other libraries' logs may hold headers and bodies."""
    logger = logging.getLogger("gpuform")
    if not verbose:
        yield
        return
    handler = logging.StreamHandler(screen.err)
    handler.setFormatter(_Harmless(screen))
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


FORMATS = ("text", "markdown", "github", "gitlab", "html", "json")


def write_review(found: "Review", form: str, output: Path | None, current: Session) -> None:
    """Writes it to the file, or to the screen without one."""
    deliver(_written(found, form, current, to_file=output is not None), output, current.screen)


def _written(found: "Review", form: str, current: Session, *, to_file: bool) -> Iterable[str]:
    """In parts, each of which but the last ends with its line."""
    if form == "text":
        from gpuform.stacks.review.paint import PLAIN  # noqa: PLC0415 - not for help
        from gpuform.stacks.review.text.plan_text import render_review  # noqa: PLC0415 - as above

        return [render_review(found, PLAIN if to_file else current.screen.paint) + "\n"]
    if form == "json":
        from gpuform.stacks.review.pages import build_review_document  # noqa: PLC0415 - as above

        return chain(iterate_json_parts(build_review_document(found), indent=2), ["\n"])
    if form == "html":
        from gpuform.stacks.review.pages import render_html  # noqa: PLC0415 - as above

        return [render_html(found)]
    from gpuform.stacks.review.pages import render_markdown  # noqa: PLC0415 - as above

    return [render_markdown(found, folded=form != "markdown")]
