"""`gpuform logs`: what happened in a run."""

import json

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.session import session, stack_flags


@click.command()
@click.argument("number", type=click.IntRange(1), required=False)
@click.option("--json", "-j", "as_json", is_flag=True, help="One JSON object instead of text.")
@stack_flags
def logs(number: int | None, as_json: bool) -> None:
    """Show what happened in a run: what it changed, step by step, and what was said.

    NUMBER is that of `gpuform stack history`; the latest run when not given. It is what gpuform
    keeps beside the history, secrets masked; runs of the Pulumi CLI have none.

    \b
    Examples:
      gpuform logs
      gpuform logs 1 --stack prod
    """
    from gpuform.stacks.cli.opening import workspace_of  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.operations.run_reading import read_run  # noqa: PLC0415 - as above
    from gpuform.stacks.review.text.history_text import log_lines, run_lines  # noqa: PLC0415 - as above

    with session() as current:
        workspace = workspace_of(current, runs_program=False)
        stack = workspace.resolve(current.stack)
        run = read_run(workspace, stack, number)
        if as_json:
            document = run.log.model_dump(mode="json") if run.log else None
            found = {"number": run.number, "run": json.loads(run.entry.to_json()), "log": document}
            found["run"].pop("config")
            current.screen.print(format_json(found, indent=2))
            return
        paint = current.screen.paint
        current.screen.print("\n".join(run_lines(run.entry, run.number, stack, paint=paint)))
        told = list(log_lines(run.log, paint=paint)) if run.log else ["No log of it was kept."]
        if told:
            current.screen.print("\n" + "\n".join(told))
