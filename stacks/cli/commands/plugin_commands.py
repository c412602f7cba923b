"""`gpuform plugin`: the provider plugin, for programs in any language and for `gpuform:form`."""

import os
from pathlib import Path

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS


@click.group()
def plugin() -> None:
    """Install the provider plugin for the Pulumi CLI, and look after it.

    \b
    Examples:
      gpuform plugin install
      gpuform plugin doctor
    """


@plugin.command()
def install() -> None:
    """Put the plugin where the Pulumi CLI finds it, with no virtualenv active.

    It goes into the folder `plugins` of PULUMI_HOME (~/.pulumi), and runs with the Python that runs
    this command. May be repeated; after an upgrade of gpuform it has to be.

    \b
    Examples:
      gpuform plugin install
      PULUMI_HOME=/opt/pulumi gpuform plugin install
    """
    from gpuform.providers.plugin import installing  # noqa: PLC0415 - not for help

    done = installing.install(os.environ)
    state = "is installed" if done.changed else "is installed already"
    click.echo(f"gpuform {done.installed.version} {state}: {done.installed.folder}")
    newer = [each for each in done.others if each > done.installed]
    for each in newer:
        click.echo(
            f"warning: Pulumi takes the newest, which is {each.folder}\n"
            f"  gpuform plugin uninstall {each.version}",
            err=True,
        )


@plugin.command()
@click.argument("version", required=False)
def uninstall(version: str | None) -> int:
    """Remove a version of the plugin from the Pulumi CLI's folder, or all of them.

    \b
    Examples:
      gpuform plugin uninstall 0.1.0
      gpuform plugin uninstall
    """
    from gpuform.providers.plugin import installing  # noqa: PLC0415 - not for help

    removed = installing.uninstall(os.environ, version)
    for each in removed:
        click.echo(f"removed {each.folder}")
    if removed:
        return SUCCESS
    click.echo(f"error: {version or 'the plugin'} is not installed", err=True)
    return FAILED


@plugin.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of text.")
def doctor(as_json: bool) -> int:
    """Say which plugin the Pulumi CLI takes, whether it works, and what to do if not.

    The plugin is started and asked for its version; nothing is changed. Exits with 1 when there is
    a problem; warnings are none.

    \b
    Examples:
      gpuform plugin doctor
      gpuform plugin doctor --json
    """
    from gpuform.stacks.cli.session import session  # noqa: PLC0415 - as above
    from gpuform.stacks.cli.terminal.findings_view import show_findings  # noqa: PLC0415 - not for help
    from gpuform.stacks.doctor.plugin import Surroundings, examine_plugin  # noqa: PLC0415

    with session() as current:
        found = examine_plugin(Surroundings(os.environ, _project()))
        return show_findings(found, current.screen, as_json=as_json)


def _project() -> Path | None:
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help
    from gpuform.stacks.engine.project import find_project  # noqa: PLC0415 - as above

    try:
        return find_project(Path.cwd()).path
    except EngineError:
        return None
