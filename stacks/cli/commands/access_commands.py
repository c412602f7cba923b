"""Run `gpuform kubeconfig`, `ssh-config` and `connect`: commands that reach clusters and machines.

They call `stacks/access`, which reads the clusters of the state, and changes kubeconfig and SSH
files of the user.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import click

from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.access.cluster_access import ClusterAccess, get_state_location, list_clusters
from gpuform.stacks.cli.flags import emulate_flag, offline_flag
from gpuform.stacks.cli.opening import find_workspace
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.operations.opening.selected_stack import (
    create_passphrase_finder,
    enter_environment,
    read_config,
)

if TYPE_CHECKING:
    from gpuform.stacks.access.kubeconfig_files import ContextChange, Credential, KubeconfigFiles
    from gpuform.stacks.access.ssh_files import SshFiles, SshHost
    from gpuform.stacks.cli.terminal.screen import Screen


@dataclass(frozen=True, slots=True)
class ReachedStack:
    """A stack whose clusters are reached. `state_location` is the URL or path of its state.

    Creating one needs no passphrase.
    """

    session: Session
    workspace: Workspace
    stack: str
    state_location: str

    @classmethod
    def from_session(cls, session: Session) -> Self:
        """Find the stack of `--stack`, or the selected one, without opening the state."""
        workspace = find_workspace(session, runs_program=False)
        stack = workspace.resolve(session.stack)
        state_location = get_state_location(workspace.backend, workspace.project.name, stack)
        return cls(session, workspace, stack, state_location)

    @property
    def project(self) -> str:
        """Return the name of the stack's project."""
        return self.workspace.project.name

    @property
    def directory(self) -> Path:
        """Return the directory of the stack's project."""
        return self.workspace.project.directory

    def read_clusters(
        self, names: Sequence[str], *, offline: bool, emulate: bool
    ) -> list[ClusterAccess]:
        """Return the clusters named by `names`, or all clusters without names.

        The platforms are asked, unless `offline` is set; a warning names each cluster that is only
        as the state has it.

        Raises:
            EngineError: the stack has no cluster of a name, or its passphrase is wrong or missing.
        """
        screen = self.session.screen
        stack = self.workspace.open(
            self.stack, create_passphrase_finder(self.workspace, screen.create_passphrase_prompt())
        )
        # Where nothing is asked, the environment of the stack does not matter.
        with nullcontext() if offline else enter_environment(stack, emulate=emulate):
            clusters = list_clusters(stack, read_config(stack), names, offline=offline)
        for cluster in clusters:
            if cluster.stale_reason:
                screen.warn(
                    f"warning: {cluster.name}: shown from the state, because {cluster.stale_reason}"
                )
        return clusters


@click.command()
@click.argument("clusters", nargs=-1, metavar="[CLUSTER]...")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The kubeconfig; default: the files of KUBECONFIG, or ~/.kube/config.",
)
@click.option("--context", metavar="NAME", help="Name of the context; default: the cluster's name.")
@click.option(
    "--use",
    is_flag=True,
    help="Make the context the current one, even if another context is current.",
)
@click.option(
    "--force", is_flag=True, help="Replace entries of this name that gpuform did not write."
)
@click.option("--print", "to_stdout", is_flag=True, help="Print a kubeconfig; change no file.")
@click.option(
    "--remove", is_flag=True, help="Remove the entries that gpuform wrote for these clusters."
)
@click.option("--json", "-j", "as_json", is_flag=True, help="Print the result as JSON.")
@offline_flag
@emulate_flag
@add_stack_flags
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

    Requests the credentials from the platforms, and uses those of the state where a platform cannot
    be reached. Each cluster gets a context, a cluster and a user of its name; all other entries
    stay unchanged, byte for byte. The current context changes only if none is set. `gpuform up` and
    `destroy` remove the contexts of deleted clusters.

    \b
    Examples:
      gpuform kubeconfig
      gpuform kubeconfig train --use
      gpuform kubeconfig train --print > /dev/shm/train
      gpuform kubeconfig --remove
    """
    from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles  # noqa: PLC0415 - the engine

    if to_stdout and (remove or as_json):
        raise click.UsageError("--print cannot be combined with --remove or --json")
    with open_session() as session:
        files = KubeconfigFiles.from_environment(file, session.environ)
        reached_stack = ReachedStack.from_session(session)
        if remove:
            written_contexts = _remove_contexts(files, reached_stack, clusters)
            _report_written(reached_stack, written_contexts, "removed from", as_json=as_json)
            return
        reached_clusters = reached_stack.read_clusters(clusters, offline=offline, emulate=emulate)
        usable = _select_usable(reached_stack, reached_clusters, are_named=bool(clusters))
        if context and len(usable) != 1:
            raise click.UsageError(f"--context names one cluster, but {len(usable)} are selected")
        credentials = [_build_credential(cluster, context, files, to_stdout) for cluster in usable]
        if to_stdout:
            session.screen.write(_render_credentials(credentials))
            return
        written_contexts = files.add_credentials(
            credentials, reached_stack.directory, make_current=use, replace_foreign=force
        )
        _report_written(reached_stack, written_contexts, "in", as_json=as_json)


def _select_usable(
    reached_stack: "ReachedStack", clusters: "list[ClusterAccess]", *, are_named: bool
) -> "list[ClusterAccess]":
    """Return the clusters with a kubeconfig, and warn of the others.

    Raises:
        EngineError: a named cluster has no kubeconfig, or none has one.
    """

    usable = [cluster for cluster in clusters if cluster.access.kubeconfig is not None]
    reasons = [
        f"{cluster.name} has no kubeconfig: {cluster.access.no_kubeconfig}"
        for cluster in clusters
        if cluster.access.kubeconfig is None
    ]
    # Only a cluster that was asked for by name has to have a kubeconfig.
    if reasons and (are_named or not usable):
        raise EngineError("\n".join(reasons))
    if not usable:
        raise EngineError(
            f"stack '{reached_stack.stack}' has no clusters", hint="create them: `gpuform up`"
        )
    for reason in reasons:
        reached_stack.session.screen.warn(reason)
    return usable


def _build_credential(
    cluster: "ClusterAccess", context: str | None, files: "KubeconfigFiles", to_stdout: bool
) -> "Credential":
    """Build the credential of a cluster for a kubeconfig.

    The context's name is `context`, else (except with `to_stdout`) the name in the file already,
    else the cluster's.
    """
    from pydantic import SecretStr  # noqa: PLC0415 - not for help

    from gpuform.stacks.access.kubeconfig_files import Credential  # noqa: PLC0415 - as above

    name = context or cluster.access.name or cluster.name
    # A context that the user renamed keeps its name.
    if context is None and not to_stdout:
        contexts = files.find_contexts().items()
        name = next(
            (
                context_name
                for context_name, mark in contexts
                if mark.is_same_cluster(cluster.label)
            ),
            name,
        )
    return Credential.from_kubeconfig(
        name, cluster.label, cluster.access.kubeconfig or SecretStr("")
    )


def _render_credentials(credentials: "Sequence[Credential]") -> str:
    """Render the credentials as a complete kubeconfig."""
    from gpuform.stacks.access.kubeconfig_files import CredentialOptions, add_credentials  # noqa: PLC0415 - not for help

    return add_credentials("", "the kubeconfig", credentials, CredentialOptions())


def _remove_contexts(
    files: "KubeconfigFiles", reached_stack: "ReachedStack", names: Sequence[str]
) -> "list[ContextChange]":
    """Remove gpuform's contexts of this stack, or only the contexts selected by `names`.

    A name is that of a context or of a cluster.

    Raises:
        EngineError: a name has no such context; nothing was removed.
    """
    from gpuform.stacks.engine.urn import name_of  # noqa: PLC0415 - not for help

    own_contexts = {
        context: mark
        for context, mark in files.find_contexts().items()
        if mark.state == reached_stack.state_location
    }
    # A misspelt name would remove nothing, and the command would succeed.
    for name in names:
        if not any(name in (context, name_of(mark.urn)) for context, mark in own_contexts.items()):
            raise EngineError(
                f"gpuform wrote no context of {name!r} for stack '{reached_stack.stack}'",
                hint=f"existing contexts: {', '.join(sorted(own_contexts))}"
                if own_contexts
                else "gpuform wrote no context for this stack",
            )
    return files.remove_contexts(
        lambda context, mark: (
            mark.state == reached_stack.state_location
            and (not names or context in names or name_of(mark.urn) in names)
        )
    )


def _report_written(
    reached_stack: "ReachedStack",
    written_contexts: "list[ContextChange]",
    preposition: str,
    *,
    as_json: bool,
) -> None:
    """Print each context and its file, joined by `preposition`, or all contexts as JSON."""
    screen = reached_stack.session.screen
    if as_json:
        rows = [
            {"context": written.context, "file": str(written.path), "changed": written.changed}
            for written in written_contexts
        ]
        screen.print(format_json(rows, indent=2))
        return
    for written in written_contexts:
        unchanged = "" if written.changed else ", unchanged"
        screen.print(f"context {written.context}: {preposition} {written.path}{unchanged}")
    if not written_contexts:
        screen.print(f"gpuform wrote no contexts for stack {reached_stack.stack}.")


def check_login_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return a user's name, checked to be no option of ssh; a callback of click.

    Raises BadParameter; an empty name is returned unchecked.
    """
    from gpuform.schemas.access import is_valid_user  # noqa: PLC0415 - not for help

    if value and not is_valid_user(value):
        raise click.BadParameter(f"{value!r} is not a valid login name", context, parameter)
    return value


def check_jump_host(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Return a jump host, checked to be no option of ssh; a callback of click.

    Raises BadParameter; an empty text is returned unchecked.
    """
    from gpuform.schemas.access import is_valid_jump_host  # noqa: PLC0415 - not for help

    if value and not is_valid_jump_host(value):
        message = f"{value!r} is not a jump host: [USER@]HOST[:PORT]"
        raise click.BadParameter(message, context, parameter)
    return value


jump_flag = click.option(
    "--jump",
    default="",
    metavar="[USER@]HOST",
    callback=check_jump_host,
    help="Log in through this host (ssh -J); default: the declared ssh_jump of each cluster.",
)

user_flag = click.option(
    "--user",
    default="",
    metavar="NAME",
    callback=check_login_name,
    help="The login name; default: the platform's, else SSH's.",
)


@click.command()
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; default: a file of this stack in ~/.ssh/gpuform/.",
)
@click.option(
    "--install", is_flag=True, help="Include the file in ~/.ssh/config, by a line at its start."
)
@click.option("--print", "to_stdout", is_flag=True, help="Print the entries; change no file.")
@click.option(
    "--remove", is_flag=True, help="Delete the file; with --install also remove the line."
)
@click.option("--json", "-j", "as_json", is_flag=True, help="Print the hosts as JSON.")
@user_flag
@jump_flag
@offline_flag
@emulate_flag
@add_stack_flags
def ssh_config(  # noqa: PLR0913 - a flag each
    *,
    file: Path | None,
    install: bool,
    to_stdout: bool,
    remove: bool,
    as_json: bool,
    user: str,
    jump: str,
    offline: bool,
    emulate: bool,
) -> None:
    """Write the stack's machines as SSH hosts.

    Workers, Slurm's login node and public addresses become NODE.STACK.PROJECT, in a file of the
    stack's own. The command rewrites this file completely each time, so it contains no deleted
    machines. It changes your own configuration only with --install, by one line.

    \b
    Examples:
      gpuform ssh-config --install
      gpuform ssh-config --user ubuntu
      gpuform ssh-config --user ada --jump ssh.example.com
      gpuform ssh-config --print
    """
    from gpuform.stacks.access.ssh_files import (  # noqa: PLC0415 - not for help
        SshFiles,
        list_ssh_hosts,
        render_ssh_config,
    )

    if to_stdout and (install or remove or as_json):
        raise click.UsageError("--print cannot be combined with --install, --remove or --json")
    with open_session() as session:
        reached_stack = ReachedStack.from_session(session)
        files = SshFiles.for_stack(
            file, reached_stack.project, reached_stack.stack, reached_stack.state_location
        )
        if remove:
            _remove_hosts(files, session.screen, install=install)
            return
        clusters = reached_stack.read_clusters((), offline=offline, emulate=emulate)
        hosts = list_ssh_hosts(clusters, reached_stack.project, reached_stack.stack, user, jump)
        config = render_ssh_config(hosts, reached_stack.project, reached_stack.stack)
        if to_stdout:
            session.screen.write(config)
            return
        # Host names and users would be committed with the project.
        files.stack_file.refuse_inside(reached_stack.directory)
        changed = files.stack_file.update(lambda _: config)
        installed = install and files.install()
        if as_json:
            session.screen.print(format_json(_build_document(files, hosts), indent=2))
            return
        _print_hosts(files, hosts, session.screen, changed=changed, installed=installed)


def _remove_hosts(files: "SshFiles", screen: "Screen", *, install: bool) -> None:
    """Delete the stack's SSH file, and with `install` also its line in the user's configuration."""
    was_deleted = files.delete()
    screen.print(f"{files.stack_file.path}: {'deleted' if was_deleted else 'not found'}")
    if install and files.uninstall():
        screen.print(f"{files.user_config.path}: removed the line `{files.include_line}`")


def _build_document(files: "SshFiles", hosts: "list[SshHost]") -> dict[str, object]:
    """Return the JSON document of the SSH configuration: its files and hosts.

    A host's `problem` says why nobody can log in now.
    """
    return {
        "file": str(files.stack_file.path),
        "include": files.include_line,
        "included": files.is_included,
        "hosts": [
            {
                "name": host.alias,
                "cluster": host.cluster,
                "node": host.host.node,
                "role": host.host.role,
                "jump": host.host.jump_with_user,
                "problem": host.host.because,
            }
            for host in hosts
        ],
    }


def _print_hosts(
    files: "SshFiles", hosts: "list[SshHost]", screen: "Screen", *, changed: bool, installed: bool
) -> None:
    """Print the command for each host, the file, and the line to include the file, if missing.

    Unreachable hosts are warnings.
    """
    for host in hosts:
        if host.host.because:
            screen.warn(f"{host.alias}: {host.host.because}")
        else:
            screen.print(f"ssh {host.alias}")
    screen.print(f"{files.stack_file.path}: {'written' if changed else 'as it was already'}")
    if installed:
        screen.print(f"{files.user_config.path}: added `{files.include_line}` as its first line")
    elif not files.is_included:
        screen.print(
            f"{files.user_config.path} does not include this file yet. Add this line at its "
            f"start, or run the command again with --install:\n    {files.include_line}"
        )


@click.command()
@click.argument("cluster")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--node", default="", metavar="NAME", help="Log in to this machine of the cluster.")
@click.option(
    "--via",
    type=click.Choice(["kubectl", "ssh", "slurm"]),
    help="kubectl, SSH to a machine, or Slurm's login node; default: what the cluster supports.",
)
@click.option("--port", type=int, help="Print the address of this mapped port; run nothing.")
@click.option("--print", "to_stdout", is_flag=True, help="Print the command; do not run it.")
@user_flag
@jump_flag
@offline_flag
@emulate_flag
@add_stack_flags
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
    """Connect to a cluster.

    Runs kubectl with the cluster's context (`kubectl get nodes`, or the arguments after --), or
    SSH: to a node, to Slurm's login node, or to a cluster that is a single machine. SSH runs a
    command after -- on that machine. The exit code is that of kubectl or SSH. For a cluster with an
    SSH certificate authority, you log in with the browser when your certificate has ended.

    \b
    Examples:
      gpuform connect train -- get pods --all-namespaces
      gpuform connect train --node training-worker-0
      gpuform connect train --via slurm -- sinfo
      gpuform connect train --via slurm --user ada --jump ssh.example.com
      gpuform connect workbench --port 8888
    """
    from gpuform.stacks.access.cluster_access import (  # noqa: PLC0415 - the engine, not for help
        ConnectionRequest,
        build_command,
        execute_command,
        find_certificate_login,
        format_command,
        get_port_url,
    )
    from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles  # noqa: PLC0415 - as above

    with open_session() as session:
        reached_stack = ReachedStack.from_session(session)
        (reached_cluster,) = reached_stack.read_clusters(
            [cluster], offline=offline, emulate=emulate
        )
        if port is not None:
            session.screen.print(get_port_url(reached_cluster, port))
            return 0
        # kubectl is run with the context that `gpuform kubeconfig` wrote.
        contexts = KubeconfigFiles.from_environment(None, session.environ).find_contexts()
        request = ConnectionRequest(via, node, user, jump, command)
        words = build_command(reached_cluster, request, contexts)
        if to_stdout:
            session.screen.write(f"{format_command(words)}\n")
            return 0
        login = find_certificate_login(reached_cluster, request, words)
        if login is not None:
            from gpuform.stacks.access.ssh_certificates import renew_certificate  # noqa: PLC0415 - as above

            renew_certificate(*login, show=session.screen.warn)
        return execute_command(words)
