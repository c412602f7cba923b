"""`gpuform kubeconfig`: the clusters' credentials in the user's kubeconfig."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.flags import emulate_flag, offline_flag
from gpuform.stacks.cli.session import session, stack_flags

if TYPE_CHECKING:
    from gpuform.stacks.access.kubeconfig import Credential
    from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles, Written
    from gpuform.stacks.access.reading import Cluster
    from gpuform.stacks.cli.commands.access.reaching import ReachedStack


@click.command()
@click.argument("clusters", nargs=-1, metavar="[CLUSTER]...")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The kubeconfig; the files of KUBECONFIG, or ~/.kube/config, when not given.",
)
@click.option(
    "--context", metavar="NAME", help="Name of the context; the cluster's when not given."
)
@click.option("--use", is_flag=True, help="Make it the current context, also where there is one.")
@click.option("--force", is_flag=True, help="Replace entries of this name that are not gpuform's.")
@click.option("--print", "to_stdout", is_flag=True, help="Print a kubeconfig; change no file.")
@click.option("--remove", is_flag=True, help="Take out what gpuform wrote of these clusters.")
@click.option("--json", "-j", "as_json", is_flag=True, help="Say in JSON what was done.")
@offline_flag
@emulate_flag
@stack_flags
def kubeconfig(  # noqa: PLR0913 - a flag each
    *,
    clusters: tuple[str, ...],
    file: Path | None,
    context: str | None,
    use: bool,
    force: bool,
    to_stdout: bool,
    remove: bool,
    as_json: bool,
    offline: bool,
    emulate: bool,
) -> None:
    """Put clusters' credentials into your kubeconfig.

    Asks the platforms for them; where that cannot be done, takes those of the state. Each gets a
    context, a cluster and a user of the cluster's name; all that is not gpuform's own stays as it
    is, to the byte. The current context changes only where there is none. `gpuform up` and
    `destroy` take the contexts of deleted clusters out again.

    \b
    Examples:
      gpuform kubeconfig
      gpuform kubeconfig train --use
      gpuform kubeconfig train --print > /dev/shm/train
      gpuform kubeconfig --remove
    """
    from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles  # noqa: PLC0415 - the engine
    from gpuform.stacks.cli.commands.access.reaching import ReachedStack  # noqa: PLC0415 - as above

    if to_stdout and (remove or as_json):
        raise click.UsageError("--print goes with neither --remove nor --json")
    with session() as current:
        files = KubeconfigFiles.of(file, current.environ)
        place = ReachedStack.of(current)
        if remove:
            done = _take_out(files, place, clusters)
            _tell(place, done, "taken out of", as_json=as_json)
            return
        found = place.clusters(clusters, offline=offline, emulate=emulate)
        usable = _usable(place, found, are_named=bool(clusters))
        if context and len(usable) != 1:
            raise click.UsageError(f"--context names one cluster, and these are {len(usable)}")
        credentials = [_credential(each, context, files, to_stdout) for each in usable]
        if to_stdout:
            current.screen.write(_text(credentials))
            return
        done = files.put(credentials, place.directory, use=use, force=force)
        _tell(place, done, "in", as_json=as_json)


def _usable(place: "ReachedStack", found: "list[Cluster]", *, are_named: bool) -> "list[Cluster]":
    """Those with a credential. EngineError for one that was named and has none, or if none has."""
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help

    usable = [each for each in found if each.access.kubeconfig is not None]
    reasons = [
        f"{each.name} has no kubeconfig: {each.access.no_kubeconfig}"
        for each in found
        if each.access.kubeconfig is None
    ]
    if reasons and (are_named or not usable):
        raise EngineError("\n".join(reasons))
    if not usable:
        raise EngineError(f"stack '{place.stack}' has no clusters", hint="make them: `gpuform up`")
    for reason in reasons:
        place.session.screen.warn(reason)
    return usable


def _credential(
    cluster: "Cluster", context: str | None, files: "KubeconfigFiles", to_stdout: bool
) -> "Credential":
    """Under the name given, else under that which it has there already, else the cluster's."""
    from pydantic import SecretStr  # noqa: PLC0415 - not for help

    from gpuform.stacks.access.kubeconfig import Credential  # noqa: PLC0415 - as above

    name = context or cluster.access.name or cluster.name
    if context is None and not to_stdout:
        there = files.contexts().items()
        name = next((each for each, mark in there if mark.is_same(cluster.mark)), name)
    return Credential.read(name, cluster.mark, cluster.access.kubeconfig or SecretStr(""))


def _text(credentials: "Sequence[Credential]") -> str:
    from gpuform.stacks.access.kubeconfig import CredentialOptions, with_credentials  # noqa: PLC0415 - as above

    return with_credentials("", "the kubeconfig", credentials, CredentialOptions())


def _take_out(
    files: "KubeconfigFiles", place: "ReachedStack", names: Sequence[str]
) -> "list[Written]":
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help
    from gpuform.stacks.engine.urn import name_of  # noqa: PLC0415 - as above

    ours = {
        context: mark for context, mark in files.contexts().items() if mark.state == place.state
    }
    for name in names:
        if not any(name in (context, name_of(mark.urn)) for context, mark in ours.items()):
            raise EngineError(
                f"there is no context of {name!r} that gpuform wrote for stack '{place.stack}'",
                hint=f"there are: {', '.join(sorted(ours))}" if ours else "there is none at all",
            )
    return files.take_out(
        lambda context, mark: (
            mark.state == place.state
            and (not names or context in names or name_of(mark.urn) in names)
        )
    )


def _tell(place: "ReachedStack", done: "list[Written]", where: str, *, as_json: bool) -> None:
    screen = place.session.screen
    if as_json:
        told = [
            {"context": each.context, "file": str(each.path), "changed": each.changed}
            for each in done
        ]
        screen.print(format_json(told, indent=2))
        return
    for each in done:
        unchanged = "" if each.changed else ", as it was already"
        screen.print(f"context {each.context}: {where} {each.path}{unchanged}")
    if not done:
        screen.print(f"There is no context that gpuform wrote for stack {place.stack}.")
