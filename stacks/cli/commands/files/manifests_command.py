"""`gpuform manifests`: what people apply to clusters themselves."""

import click

from gpuform.stacks.cli.session import session, stack_flags


@click.command()
@click.argument("clusters", metavar="[CLUSTER]...", nargs=-1)
@stack_flags
def manifests(clusters: tuple[str, ...]) -> None:
    """Print the YAML of the stack's volume claims, for those who apply it themselves.

    It is what the program declares, of the clusters that are named (by their entry, their name or
    their id) or of all. No platform and no cluster is asked.

    \b
    Examples:
      gpuform manifests
      gpuform manifests train | kubectl apply -f -
    """
    from gpuform.stacks.cli.opening import workspace_of  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.manifests import as_yaml, chosen, claims_of  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.opening.selecting import passphrase_of  # noqa: PLC0415 - as above

    with session() as current:
        workspace = workspace_of(current)
        stack = workspace.open(current.stack, passphrase_of(workspace, current.screen.passphrase()))
        found = claims_of(stack.subject().program, stack.snapshot.resources)
        kept = chosen(found, clusters)
        if kept:
            current.screen.write(as_yaml(kept))
        else:
            current.screen.warn("The stack declares no volume claims.")
