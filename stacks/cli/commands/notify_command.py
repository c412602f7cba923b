"""Run `gpuform notify`: show the rules of notifications, and test their addresses."""

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import emulated_state_flag
from gpuform.stacks.cli.session import add_stack_flags, open_session


@click.command()
@click.option("--test", is_flag=True, help="Send a message to the address of each rule.")
@emulated_state_flag
@add_stack_flags
def notify(test: bool) -> int:
    """Show who is notified of what, or send a test to everybody.

    Shows the rules of notify.yaml and of `notify` in stacks.yaml, and whether the stack's
    configuration has the address of each. With --test sends a message by each rule, and exits with
    1 when one of them was not accepted, or has no address.

    \b
    Examples:
      gpuform notify
      gpuform notify --test --stack prod
    """
    from gpuform.stacks.cli.opening import find_workspace, select_stack  # noqa: PLC0415 - not for help
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - as above
    from gpuform.stacks.notify.rules import FILE, read_rules  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.notifying import describe_rules, send_test_messages  # noqa: PLC0415

    with open_session() as session:
        selected = select_stack(session, find_workspace(session, runs_program=False))
        rules = read_rules(selected.workspace.project.directory)
        if not rules:
            raise EngineError(
                "the project has no notification rules",
                f"write them into {FILE}, or as `notify` into stacks.yaml",
            )
        if not test:
            for line in describe_rules(selected.open(), rules):
                session.screen.print(line)
            return SUCCESS
        problems = send_test_messages(selected, rules)
        for name, problem in problems.items():
            if problem:
                session.screen.warn(f"error: {name}: {problem}")
            else:
                session.screen.print(f"{name}: sent")
        return FAILED if any(problems.values()) else SUCCESS
