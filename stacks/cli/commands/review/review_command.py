"""`gpuform review`: what plans would do, for people who did not make them."""

from pathlib import Path

import click

from gpuform.stacks.cli.commands.review.forge_flags import forge_flags
from gpuform.stacks.cli.commands.review.review_output import FORMATS, write_review
from gpuform.stacks.cli.failures import (
    CHANGES,
    FAILED,
    FOUND,
    INCOMPLETE,
    POLICY_VIOLATION,
    SUCCESS,
)
from gpuform.stacks.cli.flags import output_flag, require_checks_flag
from gpuform.stacks.cli.session import common_flags, session
from gpuform.stacks.code_hosts.asked import Asked


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="github and gitlab are Markdown that folds; html is one page with nothing to load.",
)
@output_flag
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit with 2 if a plan would change anything, and with 5 if a gate stops one.",
)
@click.option(
    "--gates",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Put the plans before the gates of this file, instead of those of their own projects.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="gate:NAME",
    help="Let the plans pass this gate; for this review only.",
)
@click.option(
    "--fail-on-danger",
    is_flag=True,
    help="Exit with 3 if a plan destroys, replaces or takes capacity away.",
)
@require_checks_flag
@click.option(
    "--post",
    "to_post",
    is_flag=True,
    help="Also write it as a comment of the pull request, one for these stacks, and as the job's "
    "summary where GITHUB_STEP_SUMMARY names its file.",
)
@click.option(
    "--label",
    is_flag=True,
    help="With --post: label the pull request `gpuform: no changes`, `changes`, `dangerous` or "
    "`failed`.",
)
@forge_flags
@common_flags
def review(  # noqa: PLR0913, PLR0917 - the flags
    files: tuple[str, ...],
    form: str,
    output: Path | None,
    detailed_exitcode: bool,
    gates: Path | None,
    allow: tuple[str, ...],
    fail_on_danger: bool,
    require_checks: bool,
    to_post: bool,
    label: bool,
    asked: Asked,
) -> int:
    """Show saved plans to those who decide on them.

    FILE is a plan that `gpuform preview --save-plan` saved, with --all of several stacks, or what
    `--json` printed or `--event-log FILE` wrote of a preview of an update, a refresh or a destroy,
    by gpuform or the Pulumi CLI; - is stdin. The review of a preview that has failed begins with
    its errors, and ends with 1. Several are reviewed together, one line for each stack first. The
    plan of several stacks has one comment, whichever of them are in it. What destroys capacity or
    data leads, with the field that forces it. Secrets are masked, old ones as well. Markdown stays
    below 65,536 characters: what does not fit is counted. A plan holds what its gates say; where
    nobody has asked them yet, this folder's project's are.

    --post finds the comment of the same stacks again and edits it, also to say that nothing would
    change. Forge, repository and pull request are those of the CI that runs the command, or given
    by flags. The token is GITHUB_TOKEN or GH_TOKEN, for GitLab GITLAB_TOKEN.

    \b
    Examples:
      gpuform review plan.json
      gpuform review prod.json staging.json --format github --output comment.md
      pulumi preview --json | gpuform review - --format html --output plan.html
      gpuform review plan.json --post --label
    """
    from gpuform.stacks.cli.commands.review.review_gates import review_of  # noqa: PLC0415 - not for help

    if label and not to_post:
        raise click.UsageError("--label is for --post")
    with session() as current:
        found = review_of(files, gates, allow, current.environ)
        write_review(found, form, output, current)
        if to_post:
            from gpuform.stacks.cli.commands.review.review_posting import post_review  # noqa: PLC0415 - as above

            post_review(found, current, asked, label=label)
    if found.has_failed:
        return FAILED
    if (detailed_exitcode or fail_on_danger or require_checks) and found.is_stopped:
        return POLICY_VIOLATION
    if require_checks and found.unchecked:
        return INCOMPLETE
    if fail_on_danger and any(stack.dangers for stack in found.stacks):
        return FOUND
    return CHANGES if detailed_exitcode and found.has_changes else SUCCESS
