"""The flags that say where plans are reviewed, where the CI's variables do not."""

import functools
from collections.abc import Callable
from typing import Any

import click

from gpuform.stacks.code_hosts.asked import FORGES, Asked

_FLAGS = (
    click.option(
        "--forge",
        type=click.Choice(FORGES),
        help="Where the pull request is; the forge whose CI runs this when not given.",
    ),
    click.option("--forge-url", metavar="URL", help="The address of the forge's REST API."),
    click.option(
        "--repository", metavar="OWNER/NAME", help="The repository; for GitLab also its id."
    ),
    click.option(
        "--pull-request", type=click.IntRange(1), metavar="N", help="Its pull or merge request."
    ),
)


def forge_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags; the command gets them as one argument, `asked`."""

    @functools.wraps(command)
    def with_place(
        *args: Any, forge: Any, forge_url: Any, repository: Any, pull_request: Any, **more: Any
    ) -> Any:
        asked = Asked(forge, forge_url, repository, pull_request)
        return command(*args, asked=asked, **more)

    wrapped: Callable[..., Any] = with_place
    for flag in reversed(_FLAGS):
        wrapped = flag(wrapped)
    return wrapped
