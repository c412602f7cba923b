"""`gpuform ssh-config`: the stack's machines as hosts of OpenSSH."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.flags import emulate_flag, offline_flag
from gpuform.stacks.cli.session import session, stack_flags

if TYPE_CHECKING:
    from gpuform.stacks.access.ssh_files import SshFiles, SshHost
    from gpuform.stacks.cli.terminal.screen import Screen


def login_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A callback of click for the name of a user, who is no option of ssh."""
    from gpuform.schemas.access import is_user  # noqa: PLC0415 - not for help

    if value and not is_user(value):
        raise click.BadParameter(f"{value!r} is no login name", context, parameter)
    return value


def jump_host(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A callback of click for a jump host, which is no option of ssh."""
    from gpuform.schemas.access import is_jump  # noqa: PLC0415 - not for help

    if value and not is_jump(value):
        text = f"{value!r} is no jump host: [USER@]HOST[:PORT]"
        raise click.BadParameter(text, context, parameter)
    return value


jump_flag = click.option(
    "--jump",
    default="",
    metavar="[USER@]HOST",
    callback=jump_host,
    help="Log in through this host (ssh -J); the declared ssh_jump of a cluster when not given.",
)

user_flag = click.option(
    "--user",
    default="",
    metavar="NAME",
    callback=login_name,
    help="Who logs in; as the platform says, else as SSH does, when not given.",
)


@click.command()
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write; one for this stack in ~/.ssh/gpuform/ when not given.",
)
@click.option(
    "--install", is_flag=True, help="Have ~/.ssh/config include it, by a line at its start."
)
@click.option("--print", "to_stdout", is_flag=True, help="Print the entries; change no file.")
@click.option(
    "--remove", is_flag=True, help="Delete the file; with --install take the line out, too."
)
@click.option("--json", "-j", "as_json", is_flag=True, help="Say in JSON which hosts there are.")
@user_flag
@jump_flag
@offline_flag
@emulate_flag
@stack_flags
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
    """Write the stack's machines as hosts for SSH.

    Workers, Slurm's login node and public addresses become NODE.STACK.PROJECT, in a file of the
    stack's own, which is written whole each time: what is gone goes out of it. Your own
    configuration is left alone, but for one line with --install.

    \b
    Examples:
      gpuform ssh-config --install
      gpuform ssh-config --user ubuntu
      gpuform ssh-config --user ada --jump ssh.example.com
      gpuform ssh-config --print
    """
    from gpuform.stacks.access.ssh_files import (  # noqa: PLC0415 - as above
        SshFiles,
        config_text,
        ssh_hosts,
    )
    from gpuform.stacks.cli.commands.access.reaching import ReachedStack  # noqa: PLC0415 - as above

    if to_stdout and (install or remove or as_json):
        raise click.UsageError("--print goes with neither --install, --remove nor --json")
    with session() as current:
        place = ReachedStack.of(current)
        files = SshFiles.of(file, place.project, place.stack, place.state)
        if remove:
            _remove(files, current.screen, install=install)
            return
        clusters = place.clusters((), offline=offline, emulate=emulate)
        hosts = ssh_hosts(clusters, place.project, place.stack, user, jump)
        text = config_text(hosts, place.project, place.stack)
        if to_stdout:
            current.screen.write(text)
            return
        files.own.refuse_inside(place.directory)
        changed = files.own.update(lambda _: text)
        installed = install and files.install()
        if as_json:
            current.screen.print(format_json(_document(files, hosts), indent=2))
            return
        _tell(files, hosts, current.screen, changed=changed, installed=installed)


def _remove(files: "SshFiles", screen: "Screen", *, install: bool) -> None:
    found = files.remove()
    screen.print(f"{files.own.path}: {'deleted' if found else 'there is no such file'}")
    if install and files.uninstall():
        screen.print(f"{files.users.path}: without the line `{files.include}`")


def _document(files: "SshFiles", hosts: "list[SshHost]") -> dict[str, object]:
    return {
        "file": str(files.own.path),
        "include": files.include,
        "included": files.is_included,
        "hosts": [
            {
                "name": each.alias,
                "cluster": each.cluster,
                "node": each.host.node,
                "role": each.host.role,
                "jump": each.host.way,
                "problem": each.host.because,
            }
            for each in hosts
        ],
    }


def _tell(
    files: "SshFiles", hosts: "list[SshHost]", screen: "Screen", *, changed: bool, installed: bool
) -> None:
    for each in hosts:
        if each.host.because:
            screen.warn(f"{each.alias}: {each.host.because}")
        else:
            screen.print(f"ssh {each.alias}")
    screen.print(f"{files.own.path}: {'written' if changed else 'as it was already'}")
    if installed:
        screen.print(f"{files.users.path}: begins with `{files.include}` now")
    elif not files.is_included:
        screen.print(
            f"{files.users.path} does not include it yet. Put this line at its start, or run it "
            f"again with --install:\n    {files.include}"
        )
