"""The command line: arguments -> operation -> view.

Only the command that is run imports what it needs: start-up is felt on every call.
"""


def main() -> None:
    """The console script `gpuform`; ends the process with the command's exit code."""
    from gpuform.stacks.cli.app import cli  # noqa: PLC0415 - importing a view must not need click

    cli.main(prog_name="gpuform")
