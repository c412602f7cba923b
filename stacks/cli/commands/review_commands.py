"""Run `gpuform review` and `fetch-plan`: show saved plans to reviewers, fetch a reviewed plan."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuform.schemas.errors import EngineError
from gpuform.stacks.cli.failures import (
    CHANGES,
    FAILED,
    FOUND,
    INCOMPLETE,
    POLICY_VIOLATION,
    SUCCESS,
)
from gpuform.stacks.cli.flags import add_format_flags, file_option, output_flag, require_checks_flag
from gpuform.stacks.cli.session import (
    FORMATS,
    Session,
    add_common_flags,
    open_session,
    write_review,
)
from gpuform.stacks.code_hosts.review_target import CODE_HOSTS, PLAN_ARTIFACT, ReviewFlags

if TYPE_CHECKING:
    from gpuform.stacks.code_hosts.review_target import ReviewTarget
    from gpuform.stacks.review.facts import Review

_CODE_HOST_FLAGS = (
    click.option(
        "--forge",
        type=click.Choice(CODE_HOSTS),
        help="The code host of the pull request; default: the one whose CI runs the command.",
    ),
    click.option("--forge-url", metavar="URL", help="The address of the code host's REST API."),
    click.option(
        "--repository",
        metavar="OWNER/NAME",
        help="The repository; for GitLab also its id, for Azure DevOps PROJECT/NAME.",
    ),
    click.option(
        "--pull-request", type=click.IntRange(1), metavar="N", help="The pull or merge request."
    ),
)


def add_code_host_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a code host, passed to the command as one argument, `review_flags`."""

    @functools.wraps(command)
    def with_review_flags(
        *args: Any,
        forge: Any,
        forge_url: Any,
        repository: Any,
        pull_request: Any,
        **other_flags: Any,
    ) -> Any:
        review_flags = ReviewFlags(forge, forge_url, repository, pull_request)
        return command(*args, review_flags=review_flags, **other_flags)

    wrapped: Callable[..., Any] = with_review_flags
    # The help of click lists the flag added last first.
    for flag in reversed(_CODE_HOST_FLAGS):
        wrapped = flag(wrapped)
    return wrapped


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@add_format_flags(
    (*FORMATS, "stacks", "changed-stacks"),
    default="text",
    help_text="github and gitlab: Markdown with folded sections; html: one self-contained page; "
    "stacks and changed-stacks: a line PROJECT/STACK for each stack.",
)
@output_flag
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit with 2 if a plan changes anything, and with 5 if a gate stops one.",
)
@file_option("--gates", help="Evaluate the gates of this file, instead of those of the projects.")
@click.option(
    "--gates-from",
    metavar="REF",
    help="Evaluate the gates, prices and policies of this project at a git revision, such as "
    "origin/main, and show gates that the folder removes or weakens as dangerous.",
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
    help="Exit with 3 if a plan destroys, replaces or removes capacity.",
)
@require_checks_flag
@click.option(
    "--post",
    "to_post",
    is_flag=True,
    help="Also post it as a comment on the pull request, one for these stacks, and as the job's "
    "summary if GITHUB_STEP_SUMMARY is set.",
)
@click.option(
    "--label",
    is_flag=True,
    help="With --post: label the pull request `gpuform: no changes`, `changes`, `dangerous` or "
    "`failed`.",
)
@click.option(
    "--status",
    is_flag=True,
    help="With --post: set the status `gpuform` of the pull request or of its commit; it fails if "
    "a preview failed or a gate stops a plan.",
)
@add_code_host_flags
@add_common_flags
def review(  # noqa: PLR0913, PLR0917 - the flags
    files: tuple[str, ...],
    form: str,
    output: Path | None,
    detailed_exitcode: bool,
    gates: Path | None,
    gates_from: str | None,
    allow: tuple[str, ...],
    fail_on_danger: bool,
    require_checks: bool,
    to_post: bool,
    label: bool,
    status: bool,
    review_flags: ReviewFlags,
) -> int:
    """Show saved plans to the people who approve them.

    FILE is a plan that `gpuform preview --save-plan` saved, of one stack or with --all of several,
    or the output of `--json` or `--event-log FILE` of a preview of an update, a refresh or a
    destroy, by gpuform or the Pulumi CLI; - is stdin. The review of a failed preview begins with
    its errors, and exits with 1. Several plans become one review, which begins with one line for
    each stack. The plan of several stacks gets one comment. Changes that destroy capacity or data
    come first, with the field that forces them. Secrets are masked, including old values. Markdown
    has fewer than 65,536 characters: the review only counts the changes that do not fit. A plan
    contains the results of its gates; for a plan without them, the command evaluates the gates of
    this folder's project.

    --post edits the existing comment of the same stacks, also when the plan has no changes. Code
    host, repository and pull request are those of the CI that runs the command, or of the flags.
    The token is GITHUB_TOKEN or GH_TOKEN, for GitLab GITLAB_TOKEN, for Azure DevOps
    SYSTEM_ACCESSTOKEN or AZURE_DEVOPS_EXT_PAT, for Bitbucket BITBUCKET_TOKEN.

    \b
    Examples:
      gpuform review plan.json
      gpuform review prod.json staging.json --format github --output comment.md
      pulumi preview --json | gpuform review - --format html --output plan.html
      gpuform review plan.json --post --label
    """
    if (label or status) and not to_post:
        raise click.UsageError(f"{'--label' if label else '--status'} requires --post")
    if gates is not None and gates_from is not None:
        raise click.UsageError("--gates cannot be combined with --gates-from: leave one out")
    with open_session() as session:
        built_review = _build_review(
            files, gates, allow, session.environ, gates_from, keeps_digests=form == "json"
        )
        write_review(built_review, form, output, session)
        if to_post:
            _publish_review(built_review, session, review_flags, label=label, status=status)
    # In this order: a preview that failed says nothing about gates or danger.
    if built_review.has_failed:
        return FAILED
    if (detailed_exitcode or fail_on_danger or require_checks) and built_review.is_stopped:
        return POLICY_VIOLATION
    if require_checks and built_review.unchecked:
        return INCOMPLETE
    if fail_on_danger and built_review.is_dangerous:
        return FOUND
    return CHANGES if detailed_exitcode and built_review.has_changes else SUCCESS


def _build_review(
    files: Sequence[str],
    gates: Path | None,
    allow: Sequence[str],
    environ: Mapping[str, str],
    gates_from: str | None = None,
    *,
    keeps_digests: bool,
) -> "Review":
    """Read the plans of the files, evaluate the gates, and return the review.

    The gates are those of the file `gates`, of the git revision `gates_from`, or of the plans.

    The files are plans of one stack each, or one multi-stack plan. Gates over all stacks keep their
    results, except that `allow` counts for them.

    Raises:
        FileError: a file cannot be read.
        EngineError: a file is not a plan, or is a multi-stack plan among others.
    """
    import hashlib  # noqa: PLC0415 - not for help

    from gpuform.providers.context import RunContext  # noqa: PLC0415 - as above
    from gpuform.schemas.stacks_plan import StacksPlan  # noqa: PLC0415 - as above
    from gpuform.stacks.cli.terminal.screen import read_content  # noqa: PLC0415 - as above
    from gpuform.stacks.gates.evaluating import (  # noqa: PLC0415 - as above
        allow_gates,
        evaluate_gates,
    )
    from gpuform.stacks.review.facts import Review, StackFacts  # noqa: PLC0415 - as above
    from gpuform.stacks.review.plan_files import read_plans  # noqa: PLC0415 - as above

    contents = [read_content(name) for name in files]
    digest = hashlib.sha256(contents[0]).hexdigest()
    read_plans_of_files = [
        read_plans("stdin" if name == "-" else name, content, keeps_digests=keeps_digests)
        for name, content in zip(files, contents, strict=True)
    ]
    (first, *others) = read_plans_of_files
    if isinstance(first, StacksPlan) and not others:
        allowed = RunContext(environ).with_permissions(allow).permissions
        plans = tuple(evaluate_gates(first.plans, gates, allow, environ, gates_from))
        workspace_gates = None if first.gates is None else allow_gates(first.gates, allowed)
        return Review.from_stacks_plan(
            first.model_copy(update={"plans": plans, "gates": workspace_gates}), files[0], digest
        )
    single_stack_plans = []
    for name, plan in zip(files, read_plans_of_files, strict=True):
        if isinstance(plan, StacksPlan):
            hint = "review this file alone"
            raise EngineError(f"{name} is a plan of several stacks", hint=hint)
        single_stack_plans.append(plan)
    evaluated = evaluate_gates(single_stack_plans, gates, allow, environ, gates_from)
    return Review(list(map(StackFacts, evaluated, files)))


_POST_MESSAGES = {
    "added": "Added a comment",
    "edited": "Edited the comment",
    "left": "Left the comment unchanged: it shows a newer plan",
}


def _publish_review(
    review: "Review", session: Session, review_flags: ReviewFlags, *, label: bool, status: bool
) -> None:
    """Post the review as a comment, and report the result on stderr.

    The job summary is written first: it is there also when the code host cannot be reached.

    Raises:
        GpuformError: the pull request is not known, or the code host refused a request.
    """
    from gpuform.providers.errors import GpuformError  # noqa: PLC0415 - not for help
    from gpuform.stacks.code_hosts.posting import (  # noqa: PLC0415 - as above
        label_pull_request,
        open_code_host,
        post_review,
        set_review_status,
    )
    from gpuform.stacks.code_hosts.review_target import find_review_target  # noqa: PLC0415 - as above
    from gpuform.stacks.review.pages import LIMIT, render_markdown  # noqa: PLC0415 - as above

    review_target = find_review_target(review_flags, session.environ)
    # Kept out of the limit: the comment always says which commit was planned.
    origin = _describe_origin(review_target)
    _write_job_summary(render_markdown(review, folded=True) + origin, session)
    if review_target.pull_request is None:
        raise GpuformError(
            "cannot find the pull request: no pull request started this job",
            hint="pass it: --pull-request N",
        )
    with open_code_host(review_target, session.environ) as code_host:

        def render(limit: int) -> str:
            available_length = min(LIMIT, limit) - len(origin)
            folded = code_host.renders_html
            return render_markdown(review, folded=folded, limit=available_length) + origin

        posted = post_review(code_host, review, render)
        session.screen.warn(f"{_POST_MESSAGES[posted.outcome]} {posted.comment.url}".rstrip())
        if label:
            session.screen.warn(f"Labelled {label_pull_request(code_host).label}")
        if status:
            set_status = set_review_status(code_host, review)
            result = "failed" if set_status.is_failure else "passed"
            session.screen.warn(
                f"Set the status {set_status.key}: {result}, {set_status.description}"
            )


def _describe_origin(review_target: "ReviewTarget") -> str:
    """Return the commit and the job of the review as Markdown, or an empty text."""
    from gpuform.stacks.review.pages import format_code  # noqa: PLC0415 - not for help

    parts = [f"for {format_code(review_target.commit[:12])}"] if review_target.commit else []
    parts += [f"by [this job]({review_target.run_url})"] if review_target.run_url else []
    return f"\nPlanned {' '.join(parts)}.\n" if parts else ""


def _write_job_summary(markdown: str, session: Session) -> None:
    """Append the text to GitHub's job summary, if the job has one; a failure is only a warning."""
    path = session.environ.get("GITHUB_STEP_SUMMARY")
    # Set by GitHub alone: other CI systems have no summary of a job.
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")
    except OSError as error:
        session.screen.warn(f"warning: the job's summary cannot be written: {error.strerror}")


@click.command("fetch-plan")
@click.argument(
    "output", type=click.Path(dir_okay=False, path_type=Path), default="plan.json", metavar="FILE"
)
@click.option(
    "--commit", metavar="SHA", help="A commit of the branch; default: the commit of the CI job."
)
@click.option(
    "--path",
    metavar="PATH",
    help="The path of the plan in the job's artifact; default: the name of FILE.",
)
@click.option(
    "--job",
    default=PLAN_ARTIFACT,
    metavar="NAME",
    show_default=True,
    help="The job (GitLab) or the artifact without its -SHA (GitHub) that stores the plan.",
)
@add_code_host_flags
@add_common_flags
def fetch_plan(
    output: Path, commit: str | None, path: str | None, job: str, review_flags: ReviewFlags
) -> None:
    """Download the reviewed plan of a pull request, to apply the plan.

    In a job of a pull request or a merge queue, gets the plan of the pull request's last commit; in
    a job of a branch, the plan of the pull request that merged the commit into the branch.
    The workflows of `gpuform new ci` store the plan: on GitHub in the artifact gpuform-plan-SHA, on
    GitLab in the job gpuform-plan, of the pipeline or of the child pipeline that its job
    gpuform-plan-waves has triggered. Writes the plan to FILE; default: plan.json.

    \b
    Examples:
      gpuform fetch-plan && gpuform preview --plan plan.json
      gpuform fetch-plan --pull-request 12 plan.json
    """
    from gpuform.schemas.stacks_plan import StacksPlan  # noqa: PLC0415 - not for help
    from gpuform.stacks.code_hosts.posting import open_code_host  # noqa: PLC0415 - as above
    from gpuform.stacks.code_hosts.review_target import find_review_target  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.runs.plan_file import write_private_file  # noqa: PLC0415 - not for help
    from gpuform.stacks.review.plan_files import read_saved_plans  # noqa: PLC0415 - as above

    with open_session() as session:
        review_target = find_review_target(review_flags, session.environ)
        sha = commit or review_target.commit
        # A job of a merge knows its commit alone: the code host finds the pull request.
        if review_target.pull_request is None and not sha:
            raise click.UsageError("pass the pull request or the commit: --pull-request, --commit")
        with open_code_host(review_target, session.environ) as code_host:
            content = code_host.fetch_reviewed_plan(sha, path or output.name, job)
        reviewed_plan = read_saved_plans("the job's artifact", content, keeps_digests=False)
        # As it is: the digest of a multi-stack plan is that of its file.
        write_private_file(output, content)
        plans = reviewed_plan.plans if isinstance(reviewed_plan, StacksPlan) else (reviewed_plan,)
        names = ", ".join(plan.project_stack for plan in plans)
        session.screen.print(f"Wrote the plan of {names}, made {plans[-1].made_at}: {output}")
