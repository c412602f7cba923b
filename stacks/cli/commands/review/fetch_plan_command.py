"""`gpuform fetch-plan`: the plan that was reviewed, for the job that applies it."""

from pathlib import Path

import click

from gpuform.stacks.cli.commands.review.forge_flags import forge_flags
from gpuform.stacks.cli.session import common_flags, session
from gpuform.stacks.code_hosts.asked import Asked


@click.command("fetch-plan")
@click.argument(
    "output", type=click.Path(dir_okay=False, path_type=Path), default="plan.json", metavar="FILE"
)
@click.option("--commit", metavar="SHA", help="A commit of the branch; the CI's when not given.")
@click.option(
    "--path",
    metavar="PATH",
    help="Where the plan is in what the job kept; FILE's name when not given.",
)
@forge_flags
@common_flags
def fetch_plan(output: Path, commit: str | None, path: str | None, asked: Asked) -> None:
    """Get the plan that a pull request was reviewed with, to apply it.

    In a job of a pull request, or of a merge queue, it is the plan of that pull request's last
    commit; else of the pull request by which the commit came to its branch. It is the plan that
    the workflows of `gpuform new ci` keep: on GitHub in the artifact gpuform-plan-SHA, on GitLab in
    the job gpuform-plan. Written to FILE, plan.json when not given.

    \b
    Examples:
      gpuform fetch-plan && gpuform preview --plan plan.json
      gpuform fetch-plan --pull-request 12 plan.json
    """
    from gpuform.schemas.stacks_plan import StacksPlan  # noqa: PLC0415 - as above
    from gpuform.stacks.code_hosts.opening import opened  # noqa: PLC0415 - as above
    from gpuform.stacks.code_hosts.place import place_of  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.plans.plan_file import write_plan  # noqa: PLC0415 - not for help
    from gpuform.stacks.review.previews import read_saved_plans  # noqa: PLC0415 - as above

    with session() as current:
        place = place_of(asked, current.environ)
        sha = commit or place.commit
        if place.number is None and not sha:
            raise click.UsageError("name the pull request or the commit: --pull-request, --commit")
        with opened(place, current.environ) as there:
            content = there.reviewed_plan(sha, path or output.name)
        found = read_saved_plans("what the job kept", content)
        write_plan(output, found)
        plans = found.plans if isinstance(found, StacksPlan) else (found,)
        names = ", ".join(f"{plan.project}/{plan.stack}" for plan in plans)
        current.screen.print(f"Plan of {names}, made {plans[-1].made_at}: {output}")
