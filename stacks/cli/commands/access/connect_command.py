"""`gpuform connect`: runs what gets a person on a cluster."""

from typing import Literal

import click

from gpuform.stacks.cli.commands.access.ssh_config_command import jump_flag, user_flag
from gpuform.stacks.cli.flags import emulate_flag, offline_flag
from gpuform.stacks.cli.session import session, stack_flags


@click.command()
@click.argument("cluster")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--node", default="", metavar="NAME", help="Log in to this machine of the cluster.")
@click.option(
    "--via",
    type=click.Choice(["kubectl", "ssh", "slurm"]),
    help="kubectl, SSH to a machine, or Slurm's login node; what suits the cluster when not given.",
)
@click.option("--port", type=int, help="Print where this mapped port is reached; run nothing.")
@click.option("--print", "to_stdout", is_flag=True, help="Print the command; do not run it.")
@user_flag
@jump_flag
@offline_flag
@emulate_flag
@stack_flags
def connect(  # noqa: PLR0913 - a flag each
    *,
    cluster: str,
    command: tuple[str, ...],
    node: str,
    via: Literal["kubectl", "ssh", "slurm"] | None,
    port: int | None,
    to_stdout: bool,
    user: str,
    jump: str,
    offline: bool,
    emulate: bool,
) -> int:
    """Get on a cluster.

    Runs kubectl with the cluster's context (`kubectl get nodes`, or what stands after --), or SSH:
    to a node, to Slurm's login node, to a machine that is the cluster. A command after -- runs
    there. The exit code is that of what was run.

    \b
    Examples:
      gpuform connect train -- get pods --all-namespaces
      gpuform connect train --node training-worker-0
      gpuform connect train --via slurm -- sinfo
      gpuform connect train --via slurm --user ada --jump ssh.example.com
      gpuform connect workbench --port 8888
    """
    from gpuform.stacks.access.connecting import (  # noqa: PLC0415 - the engine, not for help
        Wish,
        command_for,
        port_url,
        quoted,
        run,
    )
    from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles  # noqa: PLC0415 - as above
    from gpuform.stacks.cli.commands.access.reaching import ReachedStack  # noqa: PLC0415 - as above

    with session() as current:
        place = ReachedStack.of(current)
        (found,) = place.clusters([cluster], offline=offline, emulate=emulate)
        if port is not None:
            current.screen.print(port_url(found, port))
            return 0
        contexts = KubeconfigFiles.of(None, current.environ).contexts()
        words = command_for(found, Wish(via, node, user, jump, command), contexts)
        if to_stdout:
            current.screen.write(f"{quoted(words)}\n")
            return 0
        return run(words)
