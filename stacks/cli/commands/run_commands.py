"""Run `gpuform preview`, `up`, `refresh` and `destroy`, and `plan-part` and `join`.

Each command builds `RunArguments` and calls `stack_runs`, or `multi_stack_runs` with --all.
`plan-part` and `join` make the plan of `preview --all` on several machines.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from gpuform.stacks.cli.flags import (
    MultiStackFlags,
    RunArguments,
    add_format_flags,
    adopt_flag,
    all_flag,
    allow_flag,
    create_anew_flag,
    emulate_flag,
    file_option,
    filter_flag,
    jobs_flag,
    lock_flag,
    message_flag,
    parallel_flag,
    preview_only_names,
    pulumi_json_flag,
    reject_filter_without_all,
    require_checks_flag,
    yes_flag,
)
from gpuform.stacks.cli.session import add_common_flags, add_stack_flags, open_session
from gpuform.stacks.cli.terminal.screen import display_flags, show_reads_flag, show_secrets_flag
from gpuform.stacks.operations.runs.options import RunOptions

Command = TypeVar("Command", bound=Callable[..., Any])


def _run_command(options: RunOptions, flags: dict[str, Any]) -> int:
    """Run the operation on one stack, or with --all on all chosen ones; return the exit code."""
    from gpuform.stacks.cli import stack_runs  # noqa: PLC0415 - the engine, not for help

    multi_stack_flags = (
        MultiStackFlags(flags["filters"], flags["jobs"]) if flags["every_stack"] else None
    )
    reject_filter_without_all(every_stack=multi_stack_flags is not None, filters=flags["filters"])
    arguments = RunArguments.from_flags(options, flags)
    options = arguments.options
    if options.exclude and (options.target or options.target_replace):
        raise click.UsageError("--exclude cannot be combined with --target or --target-replace")
    with open_session() as session:
        if multi_stack_flags is not None:
            from gpuform.stacks.cli import multi_stack_runs  # noqa: PLC0415 - as above

            return multi_stack_runs.run_command(arguments, multi_stack_flags, session)
        return stack_runs.run_command(arguments, session)


def _add_run_flags(*flags: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator adding the flags, the flags of all runs, and --stack to a command."""

    def add_flags(command: Command) -> Command:
        # Decorators apply from the last to the first: help lists the flags in the order written.
        for flag in reversed((*flags, *_COMMON_FLAGS)):
            command = flag(command)
        return add_stack_flags(command)

    return add_flags


def _parse_pairs(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Parse KEY=VALUE, given several times, into pairs; a callback of click."""
    for pair_text in values:
        if "=" not in pair_text:
            raise click.BadParameter(f"write {pair_text!r} as KEY=VALUE", context, parameter)
    return tuple(
        (key, value) for key, _, value in (pair_text.partition("=") for pair_text in values)
    )


_COMMON_FLAGS = (
    all_flag,
    filter_flag,
    jobs_flag,
    parallel_flag,
    pulumi_json_flag,
    emulate_flag,
    click.option(
        "--config",
        "-c",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_parse_pairs,
        help="Set this in the stack's file first, as `gpuform config set` does.",
    ),
    click.option("--config-path", is_flag=True, help="The keys of --config are paths: a.b[0]."),
    *display_flags,
    file_option(
        "--profile",
        help="Write the durations (steps, provider calls, requests, waits) to this file, for a "
        "browser's trace viewer such as ui.perfetto.dev.",
    ),
    click.option(
        "--event-log",
        type=click.Path(dir_okay=False, path_type=Path),
        hidden=True,
        help="Write Pulumi's event log to this file.",
    ),
)

_REFRESH = click.option(
    "--refresh",
    "-r",
    is_flag=True,
    default=None,
    help="Refresh every resource from its platform first. --refresh=false overrides `options: "
    "{refresh: always}` of Pulumi.yaml.",
)
_EXPECT_NO_CHANGES = click.option(
    "--expect-no-changes", is_flag=True, help="Exit with 7 if anything changes (or would change)."
)
_DETAILED_EXITCODE = click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 2 if anything would change."
)
_GATES_FROM = click.option(
    "--gates-from",
    metavar="REF",
    help="Evaluate the gates, prices and policies of this git revision, such as origin/main, and "
    "show gates that the working folder removes or weakens as dangerous.",
)
_TARGET_FLAGS = (
    click.option(
        "--target",
        "-t",
        multiple=True,
        metavar="URN",
        help="Only this resource (and its provider): a URN, a name, or a pattern with * or **.",
    ),
    click.option(
        "--target-dependents", is_flag=True, help="Also update all dependents of the targets."
    ),
    click.option(
        "--exclude", "-x", multiple=True, metavar="URN", help="Leave this resource unchanged."
    ),
    click.option(
        "--exclude-dependents",
        is_flag=True,
        help="Also leave all dependents of the excluded resources unchanged.",
    ),
)
_REPLACE_FLAGS = (
    click.option(
        "--replace", multiple=True, metavar="URN", help="Replace this resource, even if unchanged."
    ),
    click.option(
        "--target-replace",
        multiple=True,
        metavar="URN",
        help="Replace this resource and change no other: --target URN --replace URN.",
    ),
)
_CONTINUE_ON_ERROR = click.option(
    "--continue-on-error",
    is_flag=True,
    help="When a resource fails, continue with those that do not depend on it.",
)
_SKIP_PREVIEW = click.option("--skip-preview", "-f", is_flag=True, help="Skip the preview.")
_CHANGE_FLAGS = (message_flag, lock_flag)
_ADOPTION_FLAGS = (adopt_flag, create_anew_flag)
_SAVE_PLAN = file_option(
    "--save-plan", help="Save the plan to this file, for `up --plan FILE`; secrets are masked."
)
_SAVE_PLAN_ALONE = file_option(
    "--save-plan",
    help="Save the plan to this file, for --plan FILE, and change nothing; secrets are masked.",
)
_REMOVE = click.option(
    "--remove",
    is_flag=True,
    help="After the destroy, remove the stack, its settings and its history.",
)
_EXCLUDE_PROTECTED = click.option(
    "--exclude-protected",
    is_flag=True,
    help="Keep protected resources and their dependencies; destroy everything else.",
)
_RUN_PROGRAM = click.option(
    "--run-program",
    is_flag=True,
    envvar="PULUMI_RUN_PROGRAM",
    help="Run the program first, to use its current components and providers.",
)
_CLEAR_PENDING = click.option(
    "--clear-pending-creates",
    is_flag=True,
    help="Forget interrupted creates whose result cannot be looked up.",
)
_NO_MESSAGE = click.option(
    "--message",
    "-m",
    expose_value=False,
    metavar="TEXT",
    help="Accepted for compatibility with Pulumi: a preview is not in the history.",
)
_PREVIEW_ONLY = click.option(
    *preview_only_names, is_flag=True, help="Only show a preview; change nothing."
)
_PLAN = file_option(
    "--plan",
    help="Make only the changes of this saved plan; refused if the state, configuration or "
    "program changed since.",
)
_REHEARSE = click.option(
    "--rehearse",
    is_flag=True,
    help="Play the plan on the emulator while things go wrong, and show what each hazard costs. "
    "With --save-plan the result is a part of the plan.",
)
_DIGEST = click.option(
    "--digest",
    metavar="DIGEST",
    help="With --plan: apply the plan only if it has this digest, which its review shows.",
)
_CHECK_PLAN = file_option(
    "--plan",
    help="Fail if `up --plan FILE` would be refused because the saved plan (of an update, "
    "destroy or refresh) is out of date.",
)


@click.command()
@_add_run_flags(
    _REFRESH,
    _EXPECT_NO_CHANGES,
    _DETAILED_EXITCODE,
    allow_flag,
    _GATES_FROM,
    require_checks_flag,
    *_TARGET_FLAGS,
    *_REPLACE_FLAGS,
    _SAVE_PLAN,
    _REHEARSE,
    _CHECK_PLAN,
    _NO_MESSAGE,
    show_secrets_flag,
    show_reads_flag,
    *_ADOPTION_FLAGS,
)
def preview(**flags: Any) -> int:
    """Show what `up` would change.

    Runs the program and compares its declarations with the state. Creates, changes and deletes
    nothing, and does not change the state.

    \b
    Examples:
      gpuform preview --stack dev
      gpuform preview --expect-no-changes
      gpuform preview --save-plan plan.json
      gpuform preview --save-plan plan.json --rehearse
      gpuform preview --plan plan.json
    """
    if flags["rehearse"] and flags["plan"]:
        raise click.UsageError(
            "--rehearse cannot be combined with --plan: `gpuform rehearse` has this option"
        )
    return _run_command(RunOptions("update", preview_only=True), flags)


@click.command()
@_add_run_flags(
    yes_flag,
    _SKIP_PREVIEW,
    _PREVIEW_ONLY,
    _REFRESH,
    _EXPECT_NO_CHANGES,
    allow_flag,
    _GATES_FROM,
    require_checks_flag,
    *_TARGET_FLAGS,
    *_REPLACE_FLAGS,
    _CONTINUE_ON_ERROR,
    _PLAN,
    _DIGEST,
    show_secrets_flag,
    show_reads_flag,
    *_CHANGE_FLAGS,
    *_ADOPTION_FLAGS,
)
def up(**flags: Any) -> int:
    """Create, update and delete resources until they match their declarations.

    Shows the plan, asks for confirmation, applies the plan and waits until every resource is ready.
    Records each completed change in the stack's state, even if another change fails. With --plan
    the command applies a saved plan of an update, a destroy or a refresh.

    \b
    Examples:
      gpuform up
      gpuform up --yes --emulate
      gpuform up --plan plan.json
    """
    return _run_command(RunOptions("update"), _set_preview_only(flags))


@click.command()
@_add_run_flags(
    yes_flag,
    _SKIP_PREVIEW,
    _PREVIEW_ONLY,
    _EXPECT_NO_CHANGES,
    allow_flag,
    _GATES_FROM,
    *_TARGET_FLAGS,
    _RUN_PROGRAM,
    _CLEAR_PENDING,
    _SAVE_PLAN_ALONE,
    _PLAN,
    _DIGEST,
    *_CHANGE_FLAGS,
    *_ADOPTION_FLAGS,
)
def refresh(**flags: Any) -> int:
    """Update the state with what the platforms report of every resource.

    Reads every resource of the stack and records the result in the state; changes nothing on a
    platform. With --plan the command applies the changes of the plan or a part of them, and refuses
    objects that have changed since the plan was made.

    \b
    Examples:
      gpuform refresh
      gpuform refresh --yes --expect-no-changes
      gpuform refresh --save-plan drift.json
    """
    return _run_command(RunOptions("refresh"), _set_preview_only(flags))


@click.command()
@_add_run_flags(
    yes_flag,
    _SKIP_PREVIEW,
    _PREVIEW_ONLY,
    _REFRESH,
    allow_flag,
    _GATES_FROM,
    require_checks_flag,
    *_TARGET_FLAGS,
    _EXCLUDE_PROTECTED,
    _RUN_PROGRAM,
    _CONTINUE_ON_ERROR,
    _SAVE_PLAN_ALONE,
    _PLAN,
    _DIGEST,
    _REMOVE,
    *_CHANGE_FLAGS,
    *_ADOPTION_FLAGS,
)
def destroy(**flags: Any) -> int:
    """Delete every resource of the stack.

    Deletes dependents first, and waits until each object no longer exists. Keeps the stack itself,
    its settings and its history, unless --remove is given.

    \b
    Examples:
      gpuform destroy --stack dev
      gpuform destroy --yes --emulate
      gpuform destroy --save-plan gone.json
    """
    if flags["remove"] and any(flags[name] for name in ("target", "exclude", "plan", "save_plan")):
        raise click.UsageError(
            "--remove cannot be combined with --target, --exclude, --plan or --save-plan"
        )
    if flags["exclude_protected"] and any(flags[name] for name in ("target", "remove", "plan")):
        raise click.UsageError(
            "--exclude-protected cannot be combined with --target, --remove or --plan"
        )
    return _run_command(RunOptions("destroy"), _set_preview_only(flags))


_PARTS = click.option(
    "--parts",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    default="parts",
    show_default=True,
    help="The folder of waves.json and of the parts.",
)


@click.command("plan-part")
@click.argument("stacks", nargs=-1, metavar="STACK...")
@_PARTS
@click.option(
    "--waves",
    is_flag=True,
    help="Plan nothing: choose the stacks, write waves.json, and print the parts of each wave as "
    "JSON for the matrix of a CI.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="WHAT",
    help="With --waves, only these stacks, as for `preview --all`; --stack NAME chooses the stacks "
    "of this name.",
)
@file_option(
    "--plan",
    help="With --waves, print the waves in which to apply this plan of `preview --all` or `join`, "
    "and write no file.",
)
@click.option(
    "--runners",
    type=click.IntRange(1),
    metavar="N",
    help="With --waves, at most this many parts in a wave, each of several stacks; default: one "
    "part for each stack.",
)
@add_format_flags(
    ("json", "gitlab"),
    default="json",
    help_text="With --waves, print the parts as JSON or as the jobs of a child pipeline of GitLab.",
)
@click.option(
    "--job",
    metavar="NAME",
    help="With --format gitlab, the hidden job .NAME that the jobs of the parts extend; default: "
    "gpuform-plan.",
)
@jobs_flag
@parallel_flag
@_REFRESH
@allow_flag
@_GATES_FROM
@_REHEARSE
@emulate_flag
@add_stack_flags
def plan_part(stacks: tuple[str, ...], parts: Path, *, waves: bool, **flags: Any) -> int:
    """Plan some of several stacks on this machine, as a part of one plan.

    With --waves the command chooses the stacks and writes waves.json. Each runner then plans the
    stacks of one part: STACK is PROJECT/STACK. It needs waves.json and the parts of the waves
    before, and writes the part of each stack to FOLDER/PROJECT/STACK.json. Planned outputs of the
    stacks that a stack reads come from their parts; their secrets are encrypted. `gpuform join`
    makes one plan of all parts. With --waves and --plan the command prints the waves of the apply.

    \b
    Examples:
      gpuform plan-part --waves --runners 8
      gpuform plan-part volumes/dev
      gpuform plan-part training/dev report/dev --parts parts
      gpuform plan-part --waves --plan plan.json --runners 8
      gpuform plan-part --waves --plan plan.json --format gitlab --job gpuform-apply
    """
    from gpuform.stacks.cli import multi_stack_parts  # noqa: PLC0415 - the engine, not for help

    filters, runners, jobs = flags["filters"], flags["runners"], flags["jobs"]
    form, job = flags.pop("form"), flags.pop("job")
    if job is not None and form != "gitlab":
        raise click.UsageError("--job requires --format gitlab")
    gitlab_job = job or "gpuform-plan" if form == "gitlab" else None
    multi_stack_parts.require_names(stacks, waves=waves)
    plan = flags["plan"]
    if not waves and (filters or runners or plan or gitlab_job):
        raise click.UsageError("--filter, --runners, --plan and --format require --waves")
    with open_session() as session:
        if waves and plan is not None:
            return multi_stack_parts.print_apply_waves(plan, filters, runners, gitlab_job, session)
        if waves:
            return multi_stack_parts.write_waves(parts, filters, runners, gitlab_job, session)
        if session.stack is not None:
            raise click.UsageError("--stack requires --waves: name the stacks as arguments")
        options = RunOptions("update", preview_only=True, save_plan=parts)
        arguments = RunArguments.from_flags(options, {**flags, "json": False})
        return multi_stack_parts.plan_part(parts, stacks, arguments, jobs, session)


@click.command()
@_PARTS
@file_option(
    "--save-plan",
    help="Save the plan to this file, for `up --all --plan FILE`; secrets are masked.",
)
@_EXPECT_NO_CHANGES
@_DETAILED_EXITCODE
@allow_flag
@_GATES_FROM
@require_checks_flag
@add_common_flags
def join(parts: Path, **flags: Any) -> int:
    """Join the parts of all stacks into one plan.

    The plan, its review and its gates are those of `gpuform preview --all --save-plan FILE` on one
    machine. Needs waves.json and the parts of all its stacks in FOLDER; a part that is missing, of
    another commit or release, edited, or planned with an older part is refused. Requests no
    platform; the states are read only for gates on the cost of stacks that are not planned.

    \b
    Examples:
      gpuform join --save-plan plan.json
      gpuform join --parts parts --detailed-exitcode
    """
    from gpuform.stacks.cli import multi_stack_parts  # noqa: PLC0415 - the engine, not for help

    options = RunOptions("update", preview_only=True)
    arguments = RunArguments.from_flags(options, {**flags, "json": False})
    with open_session() as session:
        return multi_stack_parts.join_parts(parts, arguments, session)


def _set_preview_only(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the flags, with --preview-only set if --save-plan is given.

    Raises:
        UsageError: --skip-preview goes with neither, as under the Pulumi CLI.
    """
    preview_flag = "--preview-only" if flags["preview_only"] else "--save-plan"
    is_preview = flags["preview_only"] or flags.get("save_plan") is not None
    if is_preview and flags["skip_preview"]:
        raise click.UsageError(f"--skip-preview and {preview_flag} cannot be combined")
    return {**flags, "preview_only": is_preview}
