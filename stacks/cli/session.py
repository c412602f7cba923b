"""Open the session of a command (screen, stack, flags, logging), and write reviews.

Every command calls `open_session`, and passes the session to the functions that it calls.
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

from gpuform.schemas.safe_text import escape_invisible, iterate_json_parts
from gpuform.stacks.cli.terminal.screen import Screen, write_parts

if TYPE_CHECKING:
    from gpuform.stacks.review.facts import Review

_FLAGS_KEY = "gpuform.flags"
Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Session:
    """A running command: its screen, the value of --stack, if any, and its environment."""

    screen: Screen
    stack: str | None
    verbose: bool
    environ: Mapping[str, str]


def remember_flag(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store a flag, given before or after the command, for `get_flag`; a callback of click.

    A flag's default is not stored.
    """
    # A default must not replace a value given before the command's name.
    source = context.get_parameter_source(parameter.name or "")
    if source is not None and source is not click.core.ParameterSource.DEFAULT:
        context.find_root().meta.setdefault(_FLAGS_KEY, {})[parameter.name] = value


_FLAGS = (
    click.option(
        "--cwd",
        "-C",
        type=click.Path(exists=True, file_okay=False),
        expose_value=False,
        callback=remember_flag,
        help="Work as if started in this folder.",
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        expose_value=False,
        callback=remember_flag,
        help="Colours: on a terminal, always or never. NO_COLOR turns `auto` off.",
    ),
    click.option(
        "--non-interactive",
        is_flag=True,
        expose_value=False,
        callback=remember_flag,
        help="Never ask, and show no live display, even on a terminal.",
    ),
    click.option(
        "--verbose",
        "-v",
        is_flag=True,
        expose_value=False,
        callback=remember_flag,
        help="Log requests and debug messages to stderr.",
    ),
)

_STACK = click.option(
    "--stack",
    "-s",
    metavar="NAME",
    expose_value=False,
    callback=remember_flag,
    help="The stack to work on; default: the selected one.",
)


def add_common_flags(command: Command) -> Command:
    """Add the flags of every command."""
    # The help of click lists the flag added last first.
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def add_stack_flags(command: Command) -> Command:
    """Add --stack and the flags of every command."""
    return _STACK(add_common_flags(command))


def get_flag(name: str, default: Any = None) -> Any:
    """Return the value of a common flag of the running command, or `default` without the flag."""
    # Without a running command there are no flags.
    context = click.get_current_context(silent=True)
    flag_values: dict[str, Any] = context.find_root().meta.get(_FLAGS_KEY, {}) if context else {}
    return flag_values.get(name, default)


@contextlib.contextmanager
def open_session() -> Iterator[Session]:
    """Yield the running command's session, with the folder of --cwd and the logging of --verbose.

    The working directory and the logging are restored at the end.
    """
    screen = Screen.open(
        get_flag("color", "auto"),
        interactive=not get_flag("non_interactive", False),
        environ=os.environ,
    )
    verbose = get_flag("verbose", False)
    with contextlib.chdir(Path(get_flag("cwd") or ".")), _log_to_screen(screen, verbose=verbose):
        yield Session(screen, get_flag("stack"), verbose, os.environ)


class _SafeFormatter(logging.Formatter):
    """A log formatter that escapes control characters as the screen does."""

    def __init__(self, screen: Screen) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._screen = screen

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a log record, escaped like all text on the screen."""
        # A logged message may contain text of a platform.
        return self._screen.escape(super().format(record))


@contextlib.contextmanager
def _log_to_screen(screen: Screen, *, verbose: bool) -> Iterator[None]:
    """Print gpuform's own log on stderr if `verbose`; logs of other libraries may hold secrets."""
    logger = logging.getLogger("gpuform")
    if not verbose:
        yield
        return
    handler = logging.StreamHandler(screen.err)
    handler.setFormatter(_SafeFormatter(screen))
    previous_level = logger.level
    logger.addHandler(handler)
    # The log of gpuform alone: httpx and others log URLs and headers.
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(previous_level)


FORMATS = ("text", "markdown", "github", "gitlab", "html", "json")


def write_review(review: "Review", form: str, output: Path | None, session: Session) -> None:
    """Write the review to the file, or to the screen without one."""
    write_parts(
        _render_review(review, form, session, to_file=output is not None), output, session.screen
    )


def _render_review(
    review: "Review", form: str, session: Session, *, to_file: bool
) -> Iterable[str]:
    """Return the review in parts; each part but the last ends with a line break.

    `form` is `text`, `json`, `html` or `markdown`, or `stacks` or `changed-stacks` for their names;
    any other gives Markdown with folded sections. With `to_file` text has no terminal colours.
    """
    if form in {"stacks", "changed-stacks"}:
        plans = (item.plan for item in review.stacks if form == "stacks" or item.command)
        # A name in a plan that somebody has edited may have line breaks.
        return [f"{escape_invisible(plan.project_stack)}\n" for plan in plans]
    if form == "text":
        from gpuform.stacks.review.paint import PLAIN  # noqa: PLC0415 - not for help
        from gpuform.stacks.review.plan_text import render_review  # noqa: PLC0415 - as above

        # A file gets no terminal colours.
        return [render_review(review, PLAIN if to_file else session.screen.paint) + "\n"]
    if form == "json":
        from gpuform.stacks.review.pages import build_review_document  # noqa: PLC0415 - as above

        return chain(iterate_json_parts(build_review_document(review), indent=2), ["\n"])
    if form == "html":
        from gpuform.stacks.review.pages import render_html  # noqa: PLC0415 - as above

        return [render_html(review)]
    from gpuform.stacks.review.pages import render_markdown  # noqa: PLC0415 - as above

    return [render_markdown(review, folded=form != "markdown")]
