"""Run `gpuform plugin`, `login`, `logout`, `about`, `whoami`, `help` and `completion`."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import click
from click.shell_completion import CompletionItem

from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import AliasedGroup, emulated_state_flag, find_help_page
from gpuform.stacks.cli.session import Session, add_common_flags, add_stack_flags, open_session
from gpuform.stacks.engine.store import Backend, addresses, anchor_file_url, strip_credentials
from gpuform.stacks.help_pages import Page, UnknownPage, find_page, list_page_names, read_page


@click.group(cls=AliasedGroup)
def plugin() -> None:
    """Install the provider plugin for the Pulumi CLI, and maintain it.

    \b
    Examples:
      gpuform plugin install
      gpuform plugin doctor
    """


@plugin.command()
def install() -> None:
    """Install the plugin for the Pulumi CLI, to work without an active virtualenv.

    Writes the plugin to the folder `plugins` of PULUMI_HOME (~/.pulumi). The plugin runs with the
    Python that runs this command. You may run the command again, and must do so after each upgrade
    of gpuform.

    \b
    Examples:
      gpuform plugin install
      PULUMI_HOME=/opt/pulumi gpuform plugin install
    """
    from gpuform.providers.plugin import locations  # noqa: PLC0415 - not for help

    installation = locations.install(os.environ)
    state = "is installed" if installation.changed else "is installed already"
    click.echo(f"gpuform {installation.plugin.version} {state}: {installation.plugin.folder}")
    # Pulumi takes the newest version, not the one installed last.
    newer_versions = [
        plugin_version
        for plugin_version in installation.other_versions
        if plugin_version > installation.plugin
    ]
    for plugin_version in newer_versions:
        click.echo(
            f"warning: Pulumi uses the newest version, {plugin_version.folder}. To use "
            f"{installation.plugin.version}, uninstall {plugin_version.version}:\n  gpuform plugin "
            f"uninstall {plugin_version.version}",
            err=True,
        )


@plugin.command("uninstall")
@click.argument("version", required=False)
def remove_plugin(version: str | None) -> int:
    """Remove a version of the plugin from the Pulumi CLI's folder, or all of them.

    \b
    Examples:
      gpuform plugin uninstall 0.1.0
      gpuform plugin uninstall
    """
    from gpuform.providers.plugin import locations  # noqa: PLC0415 - not for help

    removed = locations.uninstall(os.environ, version)
    for plugin_version in removed:
        click.echo(f"removed {plugin_version.folder}")
    if removed:
        return SUCCESS
    click.echo(f"error: {version or 'the plugin'} is not installed", err=True)
    return FAILED


@plugin.command("doctor")
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of text.")
def check_plugin(as_json: bool) -> int:
    """Check the plugin that the Pulumi CLI uses, and say how to fix its problems.

    Starts the plugin and requests its version; changes nothing. Exits with 1 when it finds a
    problem, and with 0 when it finds only warnings.

    \b
    Examples:
      gpuform plugin doctor
      gpuform plugin doctor --json
    """
    from gpuform.stacks.cli.session import open_session  # noqa: PLC0415 - not for help
    from gpuform.stacks.cli.terminal.findings_view import show_findings  # noqa: PLC0415 - not for help
    from gpuform.stacks.doctor.plugin import PluginSearch, examine_plugin  # noqa: PLC0415

    with open_session() as session:
        findings = examine_plugin(PluginSearch(os.environ, _find_project_file()))
        return show_findings(findings, session.screen, as_json=as_json)


def _find_project_file() -> Path | None:
    """Return the path of the Pulumi.yaml of this folder's project, or None."""
    from gpuform.stacks.engine.project import find_project  # noqa: PLC0415 - not for help

    try:
        return find_project(Path.cwd()).path
    except EngineError:
        return None


_WIDTH: Final = 100
_SECTIONS: Final = ("", "start", "guides", "concepts", "reference")
"""The folders of pages, in the order of a reader."""


def _complete_page(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete names of commands and pages, or after a command the subcommands."""
    words: Sequence[str] = context.params.get("page") or ()
    path = _find_command_path(context, words)
    names = _list_subcommands(context, path) if path is not None else []
    if not words:
        names += list_page_names()
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help")
@click.argument("page", nargs=-1, shell_complete=_complete_page)
@add_common_flags
@click.pass_context
def help_(context: click.Context, page: tuple[str, ...]) -> None:
    """Show a page of the documentation, or list the pages.

    PAGE is a name from the list (guides/adopt), or its last part if only one page ends with it
    (adopt). PAGE can also be a command, or a command with its subcommand. #ANCHOR selects a section
    of the page. On a terminal, a pager shows the page: the one of the variable PAGER, else less.
    Elsewhere the output is Markdown.

    \b
    Examples:
      gpuform help
      gpuform help adopt
      gpuform help stack init
      gpuform help concepts/intents#what-is-kept
    """
    with open_session() as session:
        _show_markdown(
            session, _read_chosen_page(context, page) if page else "\n".join(_list_pages())
        )


def _read_chosen_page(context: click.Context, words: tuple[str, ...]) -> str:
    """Return the Markdown of the page, section or command named by the words.

    Raises:
        UnknownPage: the words name none.
    """
    page_name, _, anchor = words[0].partition("#")
    path = _find_command_path(context, (page_name, *words[1:]))
    if path is None:
        return _read_section(read_page(_find_page(context, page_name, words)), anchor)
    # Each command has one page, and each subcommand a part of that.
    if len(path) > 1:
        anchor = "-".join(["gpuform", *path])
    page = _read_section(read_page(find_help_page(path[0])), anchor)
    return page + (_list_other_pages(path[0], page_name) if len(path) == 1 else "")


def _find_page(context: click.Context, page_name: str, words: Sequence[str]) -> str:
    """Return the name of the page; for another tool's command, the error names gpuform's.

    Raises:
        UnknownPage: the words name no page.
    """
    from gpuform.stacks.cli.first_guesses import find_answer  # noqa: PLC0415 - for errors alone

    all_pages = "all pages: gpuform help"
    error = UnknownPage(f"unknown command {' '.join(words)}", hint=all_pages)
    if len(words) == 1:
        try:
            return find_page(page_name)
        except UnknownPage as unknown_page:
            error = unknown_page
    root = context.find_root().command
    assert isinstance(root, click.Group)  # noqa: S101 - `gpuform` itself
    answer = find_answer(words, click.UsageError(error.message), root)
    raise error if answer is None else UnknownPage(answer, hint=all_pages)


def _read_section(page: Page, anchor: str) -> str:
    """Return the section with this anchor, or the entire page for an empty anchor.

    Raises:
        UnknownPage: no heading has the anchor.
    """
    return page.get_section(anchor) if anchor else page.text


def _list_other_pages(command: str, word: str) -> str:
    """Return lines about other pages named like the command, or like the typed word."""
    page_names = list_page_names()
    others = {name for name in page_names if name.endswith((f"/{command}", f"/{word}"))}
    with contextlib.suppress(UnknownPage):
        others.add(find_page(word))
    others.discard(find_help_page(command))
    return "".join(f"\nSee also: `gpuform help {page}`\n" for page in sorted(others))


def _list_pages() -> Iterator[str]:
    """Yield the Markdown lines of the list of pages, by section."""
    yield "# The documentation of gpuform\n"
    yield "`gpuform help PAGE` shows a page, and `gpuform help COMMAND` the help of a command.\n"
    names = list_page_names()
    widest = max(map(len, names))
    # The sort is stable: within a section the pages keep their order.
    names.sort(key=lambda name: _SECTIONS.index(_get_section(name)))
    for section, section_names in groupby(names, _get_section):
        if section:
            yield f"## {section.capitalize()}\n"
        yield "```text"
        yield from (f"{name:<{widest}}  {read_page(name).title}" for name in section_names)
        yield "```\n"


def _get_section(name: str) -> str:
    """Return the folder in the name of a page, or an empty text."""
    return name.partition("/")[0] if "/" in name else ""


def _show_markdown(session: Session, markdown: str) -> None:
    """Show the text in a pager on an interactive terminal, rendered on others, else as Markdown."""
    screen = session.screen
    if not screen.is_terminal:
        screen.write(markdown.rstrip() + "\n")
        return
    rendered = _render_page(screen.escape(markdown), color=screen.paint.color)
    if not screen.interactive:
        screen.print_unescaped(rendered.rstrip())
        return
    os.environ.setdefault("LESS", "FRX")  # as git has it: a short page stays on the screen
    click.echo_via_pager(rendered, color=screen.paint.color)


def _render_page(markdown: str, *, color: bool) -> str:
    """Render Markdown for a terminal, at most `_WIDTH` columns wide."""
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.markdown import Markdown  # noqa: PLC0415 - as above

    console = Console(force_terminal=color, color_system="standard" if color else None)
    console.width = min(console.width, _WIDTH)
    with console.capture() as capture:
        console.print(Markdown(markdown, hyperlinks=False, code_theme="ansi_dark"))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _find_command_path(context: click.Context, words: Sequence[str]) -> tuple[str, ...] | None:
    """Return the names of the command named by the words or aliases, or None."""
    command: click.Command | None = context.find_root().command
    path = []
    for word in words:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
        if command is None or command.name is None:
            return None
        path.append(command.name)
    return tuple(path)


def _list_subcommands(context: click.Context, path: tuple[str, ...]) -> list[str]:
    """List the commands of the group at `path`; empty for a command or an unknown path."""
    command: click.Command | None = context.find_root().command
    for word in path:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
    return command.list_commands(context) if isinstance(command, click.Group) else []


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@add_common_flags
def completion(shell: str) -> None:
    """Print the script that makes a shell complete gpuform's commands.

    It completes commands, flags and pages of `gpuform help`, and for `gpuform offers` what the
    platforms offered lately.

    \b
    Install it, once for each user:
      bash (4.4 or newer):  echo 'eval "$(gpuform completion bash)"' >> ~/.bashrc
      zsh:                  echo 'eval "$(gpuform completion zsh)"' >> ~/.zshrc
      fish:                 gpuform completion fish > ~/.config/fish/completions/gpuform.fish

    In zsh, put this line after the line with `compinit`. A new shell completes with Tab.

    \b
    Examples:
      eval "$(gpuform completion bash)"
      gpuform completion fish > ~/.config/fish/completions/gpuform.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - not for help

    completion_class = get_completion_class(shell)
    assert completion_class is not None  # noqa: S101 - click has the three
    root = click.get_current_context().find_root().command
    with open_session() as session:
        # With this variable the script calls `gpuform` for completions; click answers.
        session.screen.write(
            completion_class(root, {}, "gpuform", "_GPUFORM_COMPLETE").source() + "\n"
        )


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of text.")
@emulated_state_flag
@add_stack_flags
def about(as_json: bool) -> None:
    """Show versions, the machine, the project, its backend and its stack.

    For bug reports and support: the command sends no request to a platform, and shows no value of
    the configuration or the environment. `gpuform doctor` finds problems. `gpuform whoami` prints
    only the user of the runs.

    \b
    Example:
      gpuform about
    """
    from gpuform.stacks.operations.about_facts import collect_facts as facts  # noqa: PLC0415 - not for help

    with open_session() as session:
        sections = facts(Path.cwd(), session.environ, session.stack)
        if as_json:
            session.screen.print(format_json(sections, indent=2))
            return
        for section, rows in sections.items():
            session.screen.print(session.screen.paint("bold", section))
            for name, value in rows.items():
                value_text = ", ".join(value) if isinstance(value, list) else str(value)
                session.screen.print(f"  {name.replace('_', ' '):<18}  {value_text}".rstrip())


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON, with the backend.")
@add_common_flags
def whoami(as_json: bool) -> None:
    """Show the user that runs are recorded for; with --verbose, the backend.

    \b
    Example:
      gpuform whoami --verbose
    """
    from gpuform.stacks.engine.project import NoProject, find_project  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.about_facts import describe_user  # noqa: PLC0415 - not for help

    with open_session() as session:
        try:
            project = find_project(Path.cwd())
        except NoProject:
            project = None
        user = describe_user(project, session.environ)
        if as_json:
            session.screen.print(format_json(user, indent=2))
        elif session.verbose:
            session.screen.print(f"User: {user['user']}\nBackend URL: {user['url']}")
        else:
            session.screen.print(user["user"])


_HOME_URL = "file://~"


@click.command()
@click.argument("url", required=False)
@click.option("--local", "-l", is_flag=True, help="Store state in your home folder: file://~.")
@add_common_flags
def login(url: str | None, local: bool) -> None:
    """Choose the backend that stores stacks: a folder or a bucket.

    URL is file://DIRECTORY, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or azblob://CONTAINER/PREFIX, as
    for the Pulumi CLI, which reads the same choice from the same file. PULUMI_BACKEND_URL and
    backend.url in Pulumi.yaml override the choice. The command checks that it can reach the
    backend; credentials stay where the cloud's own tools store them.

    \b
    Examples:
      gpuform login 's3://team-state/gpu?region=eu-central-1'
      gpuform login --local
    """
    if local and url is not None:
        raise click.UsageError("--local and a URL cannot be combined")
    with open_session() as session:
        chosen_url = (
            _HOME_URL if local else url or addresses.get_current_url(session.environ) or _HOME_URL
        )
        chosen_url = anchor_file_url(chosen_url, Path.cwd())
        # Tried before it is stored: a bucket that cannot be opened is an error here.
        Backend.open(chosen_url, session.environ)
        addresses.log_in(chosen_url, session.environ)
        session.screen.print(f"Logged in to {strip_credentials(chosen_url)}.")
        environment_url = session.environ.get("PULUMI_BACKEND_URL")
        if environment_url and environment_url != chosen_url:
            session.screen.warn(
                "warning: PULUMI_BACKEND_URL is set, so commands use "
                f"{strip_credentials(environment_url)}"
            )


@click.command()
@click.argument("url", required=False)
@click.option("--all", "everywhere", is_flag=True, help="Forget every backend.")
@click.option("--local", "-l", is_flag=True, help="Forget your home folder: file://~.")
@add_common_flags
def logout(url: str | None, everywhere: bool, local: bool) -> None:
    """Forget the backend chosen by `login`.

    The command keeps the state, and removes the backend's access token from Pulumi's credentials.

    \b
    Example:
      gpuform logout
    """
    if sum((everywhere, local, url is not None)) > 1:
        raise click.UsageError("pass only one of URL, --local and --all")
    with open_session() as session:
        if everywhere:
            addresses.log_out_of_all(session.environ)
            session.screen.print("Logged out of all backends.")
            return
        chosen_url = _HOME_URL if local else url or addresses.get_current_url(session.environ)
        anchored_url = anchor_file_url(chosen_url, Path.cwd())
        # The Pulumi CLI may have stored the URL as typed; `login` stores an absolute folder.
        if not any(
            addresses.log_out(candidate_url, session.environ)
            for candidate_url in (chosen_url, anchored_url)
            if candidate_url
        ):
            description = strip_credentials(chosen_url) if chosen_url else "any backend"
            raise EngineError(f"not logged in to {description}")
        session.screen.print(f"Logged out of {strip_credentials(chosen_url)}.")
