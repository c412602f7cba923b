"""Run `gpuform validate`, `fmt` and `schema`: commands that check and format topology files."""

import contextlib
import difflib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Final

import click

from gpuform.schemas.errors import EngineError
from gpuform.stacks.cli.failures import FAILED, SUCCESS, describe_failure
from gpuform.stacks.cli.flags import (
    add_format_flags,
    add_multi_stack_flags,
    emulated_state_flag,
    output_flag,
    reject_filter_without_all,
)
from gpuform.stacks.cli.session import Session, add_common_flags, add_stack_flags, open_session
from gpuform.stacks.cli.terminal.screen import Screen, write_parts

if TYPE_CHECKING:
    from gpuform.stacks.cli.stack_selection import ChosenStacks
    from gpuform.stacks.document.diagnostics import DocumentDiagnostic
    from gpuform.stacks.topology.planning import PlannedTopology

_FORMATS = ("text", "json", "sarif", "github")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@add_format_flags(
    _FORMATS,
    default="text",
    help_text="The format of problems: sarif for code scanning, github for a workflow's log.",
)
@emulated_state_flag
@add_multi_stack_flags
@add_stack_flags
def validate(
    files: tuple[Path, ...], form: str, every_stack: bool, filters: tuple[str, ...]
) -> int:
    """Check topology files: every problem at once, with file, line and column.

    Without FILE the command checks the project's topology.yaml, together with its gates.yaml and
    prices.yaml. It sends no request to a platform and needs no passphrase. It uses the plain values
    of the stack that --stack names, and treats all others as not known yet. Exits with 1 when it
    finds problems, and with 0 when it finds only warnings. A warning names a value that resembles
    an offer of a platform, but was not in the last `gpuform offers`.

    With --all the command checks all stacks and their references to each other: cycles, missing
    stacks and missing outputs, also of Python programs. It then shows the order of the stacks.

    \b
    Examples:
      gpuform validate
      gpuform validate --stack prod --format github
      gpuform validate --all
    """
    reject_filter_without_all(every_stack=every_stack, filters=filters)
    if every_stack and files:
        raise click.UsageError(
            "--all checks the topologies of all stacks: it cannot be combined with FILE"
        )
    with open_session() as session:
        return (
            _check_all_stacks(session, filters, form)
            if every_stack
            else _check_files(session, files, form)
        )


def _check_files(session: Session, files: tuple[Path, ...], form: str) -> int:
    """Check the files, or the project's topology, and the gates; return the exit code."""
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - not for help
    from gpuform.stacks.gates.file import check_gates  # noqa: PLC0415 - as above
    from gpuform.stacks.notify import check_rules  # noqa: PLC0415 - as above
    from gpuform.stacks.offers import find_misspelled_values, read_recent_offers  # noqa: PLC0415 - as above
    from gpuform.stacks.topology.planning import (  # noqa: PLC0415 - as above
        find_project_folder,
        find_topology,
        plan,
        read_plan_context,
    )

    problems, warnings, summaries = Diagnostics(), Diagnostics(), []
    for file in files or (find_topology(Path.cwd()),):
        # A list of its own: the summary says for each file whether the file is valid.
        file_problems = Diagnostics()
        topology = plan(file, read_plan_context(file, session.stack), file_problems)
        problems.extend(file_problems)
        folder = find_project_folder(file)
        # Only recent offers count: a platform may have new ones.
        warnings.extend(find_misspelled_values(topology, read_recent_offers(folder, time())))
        if not file_problems:
            summaries.append(_summarize_topology(str(file), topology))
        check_gates(folder, problems)
        check_rules(folder, problems)
    return _print_problems(session, list(problems), list(warnings), summaries, form)


def _check_all_stacks(session: Session, filters: Sequence[str], form: str) -> int:
    """Check the chosen stacks of the workspace together; print problems, return the exit code."""
    from gpuform.stacks.cli.stack_selection import choose_stacks  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.multi_stack import check_workspace  # noqa: PLC0415 - as above
    from gpuform.stacks.offers import find_misspelled_values, read_recent_offers  # noqa: PLC0415 - as above

    problems, warnings = Diagnostics(), Diagnostics()
    chosen_stacks = choose_stacks(session, filters, problems)
    topologies = check_workspace(chosen_stacks.order, chosen_stacks.names, problems)
    for workspace_stack in chosen_stacks.stacks:
        if workspace_stack.name in topologies:
            known_offers = read_recent_offers(workspace_stack.project.directory, time())
            warnings.extend(find_misspelled_values(topologies[workspace_stack.name], known_offers))
    summaries = [] if problems else list(_summarize_stacks(chosen_stacks, topologies))
    return _print_problems(session, list(problems), list(warnings), summaries, form)


def _summarize_stacks(
    chosen_stacks: "ChosenStacks", topologies: Mapping[str, "PlannedTopology"]
) -> Iterator[str]:
    """Yield a line for each stack with the number of resources, and the stacks read."""
    if not chosen_stacks.names:
        yield "No stack is affected: nothing to check."
    for name in chosen_stacks.names:
        topology = topologies.get(name)
        line = _summarize_topology(name, topology) if topology else f"{name} is a Python program"
        dependencies = chosen_stacks.list_dependencies(name)
        yield f"{line}; after {', '.join(dependencies)}" if dependencies else line


def _print_problems(
    session: Session,
    problems: Sequence["DocumentDiagnostic"],
    warnings: Sequence["DocumentDiagnostic"],
    summaries: Sequence[str],
    form: str,
) -> int:
    """Print problems and warnings in the format; return FAILED if there is a problem.

    The summaries are printed only as text and without problems.
    """
    from gpuform.stacks.document.diagnostics import FORMATS  # noqa: PLC0415 - not for help
    from gpuform.stacks.review.value_text import counted  # noqa: PLC0415 - the engine, not for help

    diagnostics = [*problems, *warnings]
    if diagnostics or form != "text":
        session.screen.print(FORMATS[form](diagnostics))
    if problems:
        # On stderr: stdout has the problems in the chosen format.
        session.screen.warn(f"error: {counted(len(problems), 'problem')}")
    elif form == "text":
        session.screen.print("\n".join(summaries))
    return FAILED if problems else SUCCESS


def _summarize_topology(label: str, topology: "PlannedTopology") -> str:
    """Return the message about a valid topology, with the number of resources as far as known."""
    from gpuform.stacks.review.value_text import counted  # noqa: PLC0415 - the engine, not for help

    summary = f"{label} is valid: {counted(len(topology.resources), 'resource')}"
    open_groups = topology.list_open_groups()
    return (
        f"{summary}, and an unknown number of resources of {', '.join(open_groups)}"
        if open_groups
        else summary
    )


_STDIN: Final = "-"


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@add_common_flags
def fmt(files: tuple[str, ...], check: bool, diff: bool) -> int:
    """Format topology files in place, and print the names of those that changed.

    Without FILE: topology.yaml of the current folder, else of the project around it, and the files
    that it includes. `-` formats stdin to stdout.

    Indents with two spaces, also in lists, removes spaces at the ends of lines and repeated empty
    lines, and breaks flow mappings and lists that are longer than 100 columns. Keeps comments, the
    order of keys, quotes and the text of every value. If formatting would change the meaning of a
    file, the command leaves it unchanged and reports it.

    \b
    Examples:
      gpuform fmt
      gpuform fmt --check --diff topology.yaml volumes.yaml
    """
    if _STDIN in files and len(files) > 1:
        raise click.UsageError("`-` cannot be combined with files")
    with open_session() as session:
        format_run = _FormatRun(session.screen, check=check, diff=diff)
        if files == (_STDIN,):
            format_run.format_stdin()
        elif files:
            # A pattern of the shell and a name may mean the same file.
            for path in dict.fromkeys(map(Path, files)):
                format_run.format_file(path)
        else:
            format_run.format_project()
        return int(format_run.failed or (check and format_run.changed))


@dataclass(slots=True)
class _FormatRun:
    """A run of `gpuform fmt`: a bad file does not keep the others from being formatted.

    `changed` is set where a file is or would be changed, `failed` where a file cannot be formatted.
    """

    screen: Screen
    check: bool
    diff: bool
    changed: bool = False
    failed: bool = False

    def format_stdin(self) -> None:
        """Format stdin to stdout; with --check or --diff only report a difference."""
        data = sys.stdin.buffer.read()
        with self._report_failure("stdin"):
            formatted_data = self._format_data(data, "stdin")
            if not (self.check or self.diff):
                self.screen.write(formatted_data.decode())

    def format_project(self) -> None:
        """Format the topology of this folder or the project around, and all included files.

        Raises:
            EngineError: there is no topology.
        """
        from gpuform.stacks.engine.project import find_topology_file  # noqa: PLC0415 - not for help
        from gpuform.stacks.topology.planning import find_topology  # noqa: PLC0415 - as above

        try:
            topology_file = find_topology_file(Path()) or find_topology(Path.cwd())
        except EngineError as error:
            raise EngineError(
                f"no topology.yaml in {Path.cwd()} or its project",
                hint="pass the files: gpuform fmt FILE...",
            ) from error
        formatted_paths: set[Path] = set()
        remaining_paths = [topology_file]
        while remaining_paths:
            path = remaining_paths.pop(0)
            # Files may include each other.
            if path.resolve() not in formatted_paths:
                formatted_paths.add(path.resolve())
                remaining_paths += self.format_file(path)

    def format_file(self, path: Path) -> list[Path]:
        """Format a file and return the included files; report a failure, and return none then.

        With --check or --diff nothing is written.
        """
        from gpuform.stacks.engine.machine import replace_file  # noqa: PLC0415 - not for help
        from gpuform.stacks.yaml_meaning import list_included_files  # noqa: PLC0415 - as above

        with self._report_failure(str(path)):
            data = _read_file(path)
            formatted_data = self._format_data(data, str(path))
            if formatted_data != data and not (self.check or self.diff):
                replace_file(path, formatted_data)
                self.screen.print(str(path))
            return [path.parent / name for name in list_included_files(formatted_data)]
        return []

    def _format_data(self, data: bytes, label: str) -> bytes:
        """Return the formatted text; print the difference with --diff, else the label with --check.

        A difference sets `changed`.
        """
        from gpuform.stacks.formatting import format_topology  # noqa: PLC0415 - not for help

        formatted_data = format_topology(data, label)
        if formatted_data != data:
            self.changed = True
            if self.diff:
                self.screen.write(
                    "".join(_build_diff(label, data.decode(), formatted_data.decode()))
                )
            elif self.check:
                self.screen.print(label)
        return formatted_data

    @contextlib.contextmanager
    def _report_failure(self, label: str) -> Iterator[None]:
        """Report an error of one file on stderr and set `failed`, instead of raising."""

        try:
            yield
        except (EngineError, OSError) as error:
            self.failed = True
            reported_error = (
                EngineError(f"{label}: {error.strerror}") if isinstance(error, OSError) else error
            )
            for line in describe_failure(reported_error, verbose=False)[1]:
                self.screen.warn(line)


def _read_file(path: Path) -> bytes:
    """Read a file. Raises EngineError for a folder."""

    if path.is_dir():
        raise EngineError(
            f"{path} is a folder", hint=f"pass the files in it: gpuform fmt {path}/*.yaml"
        )
    return path.read_bytes()


def _build_diff(label: str, before: str, after: str) -> Iterator[str]:
    """Yield the lines of a unified diff between a file and the formatted text."""
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    for line in difflib.unified_diff(*lines, fromfile=label, tofile=f"{label} (formatted)"):
        # As `diff` marks a last line without a line break.
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


@click.command()
@output_flag
@click.option(
    "--of",
    "what",
    type=click.Choice(
        ["topology", "prices", "gates", "notify", "stacks", "tests", "plan", "inventory"]
    ),
    default="topology",
    show_default=True,
    help="The kind of files: topologies, prices.yaml, gates.yaml, notify.yaml, stacks.yaml, "
    "tests/*.yaml, plans, node inventories.",
)
@click.option(
    "--link",
    is_flag=True,
    help="Write .gpuform/topology.schema.json instead, which refers to the installed schema.",
)
@add_common_flags
def schema(output: Path | None, what: str, link: bool) -> None:
    """Print the JSON Schema of topology files, for editors.

    An editor with a YAML language server then completes, explains and checks such files. The first
    line of a file names the schema, as in the examples. The file that --link writes is only for
    this machine: each clone of the project needs its own.

    \b
    Examples:
      gpuform schema --link
      # yaml-language-server: $schema=.gpuform/topology.schema.json
      gpuform schema --output topology.schema.json
      # yaml-language-server: $schema=topology.schema.json
    """
    with open_session() as session:
        if link:
            if output is not None or what != "topology":
                raise click.UsageError(
                    "--link is for topologies, and cannot be combined with --output"
                )
            session.screen.print(f"Editors find the schema by {_link_schema()}.")
            return
        write_parts([_render_schema(what)], output, session.screen)


def _link_schema() -> Path:
    """Write the file by which editors find the topology schema, and return the path."""
    from gpuform.stacks.engine.project import find_project  # noqa: PLC0415 - not for help
    from gpuform.stacks.new_project import link_schema  # noqa: PLC0415 - as above

    return link_schema(find_project(Path.cwd()).directory)


def _render_schema(kind: str) -> str:
    """Return the JSON schema for a kind of file: topology, prices, gates and so on."""
    from gpuform.stacks import json_schema  # noqa: PLC0415 - not for help

    renderers = {
        "topology": json_schema.render_topology_schema,
        "plan": json_schema.render_plan_schema,
        "inventory": json_schema.render_inventory_schema,
    }
    return renderers[kind]() if kind in renderers else json_schema.render_file_schema(kind)
