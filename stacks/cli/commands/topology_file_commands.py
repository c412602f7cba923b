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

from gpuform.stacks.cli.failures import FAILED, SUCCESS, describe_failure
from gpuform.stacks.cli.flags import multi_stack_flags, output_flag, reject_filter_without_all
from gpuform.stacks.cli.session import Session, common_flags, open_session, stack_flags
from gpuform.stacks.cli.terminal.screen import Screen, write_parts

if TYPE_CHECKING:
    from gpuform.stacks.cli.choosing import ChosenStacks
    from gpuform.stacks.document.diagnostics import Diagnostic
    from gpuform.stacks.topology.planning import PlannedTopology

_FORMATS = ("text", "json", "sarif", "github")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How problems are told: sarif for code scanning, github for a workflow's log.",
)
@multi_stack_flags
@stack_flags
def validate(
    files: tuple[Path, ...], form: str, every_stack: bool, filters: tuple[str, ...]
) -> int:
    """Check topology files: every problem at once, with file, line and column.

    Without FILE it checks the project's topology.yaml. The project's gates.yaml and prices.yaml
    are checked with it. Nothing is asked of a platform and no passphrase is needed; values that
    the stack named by --stack sets in the clear are used, any others count as not known yet.
    Exits 1 when there are problems. A warning is none: it tells a value that no platform offered
    when `gpuform offers` asked lately, and that looks like one that was.

    With --all it checks all stacks, with what they read of each other: circles, stacks and outputs
    that are not there, also of Python programs. It then shows the stacks in their order.

    \b
    Examples:
      gpuform validate
      gpuform validate --stack prod --format github
      gpuform validate --all
    """
    reject_filter_without_all(every_stack=every_stack, filters=filters)
    if every_stack and files:
        raise click.UsageError("--all checks the topologies of all stacks: name no FILE with it")
    with open_session() as current:
        return (
            _check_all_stacks(current, filters, form)
            if every_stack
            else _check_files(current, files, form)
        )


def _check_files(current: Session, files: tuple[Path, ...], form: str) -> int:
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - not for help
    from gpuform.stacks.gates.file import check_gates  # noqa: PLC0415 - as above
    from gpuform.stacks.offers import misspelt, seen_lately  # noqa: PLC0415 - as above
    from gpuform.stacks.topology.offline import (  # noqa: PLC0415 - as above
        find_project_folder,
        find_topology,
        read_plan_context,
    )
    from gpuform.stacks.topology.planning import plan  # noqa: PLC0415 - as above

    problems, warnings, valid = Diagnostics(), Diagnostics(), []
    for file in files or (find_topology(Path.cwd()),):
        found = Diagnostics()
        planned = plan(file, read_plan_context(file, current.stack), found)
        problems.extend(found)
        folder = find_project_folder(file)
        warnings.extend(misspelt(planned, seen_lately(folder, time())))
        if not found:
            valid.append(_summarize_topology(str(file), planned))
        check_gates(folder, problems)
    return _print_problems(current, list(problems), list(warnings), valid, form)


def _check_all_stacks(current: Session, filters: Sequence[str], form: str) -> int:
    from gpuform.stacks.cli.choosing import choose_stacks  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.multi_stack import check_workspace  # noqa: PLC0415 - as above
    from gpuform.stacks.offers import misspelt, seen_lately  # noqa: PLC0415 - as above

    problems, warnings = Diagnostics(), Diagnostics()
    chosen = choose_stacks(current, filters, problems)
    found = check_workspace(chosen.order, chosen.names, problems)
    for member in chosen.members:
        if member.name in found:
            seen = seen_lately(member.project.directory, time())
            warnings.extend(misspelt(found[member.name], seen))
    valid = [] if problems else list(_summarize_stacks(chosen, found))
    return _print_problems(current, list(problems), list(warnings), valid, form)


def _summarize_stacks(
    chosen: "ChosenStacks", found: Mapping[str, "PlannedTopology"]
) -> Iterator[str]:
    """Yield a line for each stack: its number of resources, and the stacks that it reads."""
    if not chosen.names:
        yield "No stack is touched: nothing is to be checked."
    for name in chosen.names:
        planned = found.get(name)
        line = _summarize_topology(name, planned) if planned else f"{name} is a Python program"
        before = chosen.list_dependencies(name)
        yield f"{line}; after {', '.join(before)}" if before else line


def _print_problems(
    current: Session,
    problems: Sequence["Diagnostic"],
    warnings: Sequence["Diagnostic"],
    valid: Sequence[str],
    form: str,
) -> int:
    from gpuform.stacks.document.diagnostics import FORMATS  # noqa: PLC0415 - not for help
    from gpuform.stacks.review.value_text import counted  # noqa: PLC0415 - the engine, not for help

    diagnostics = [*problems, *warnings]
    if diagnostics or form != "text":
        current.screen.print(FORMATS[form](diagnostics))
    if problems:
        current.screen.warn(f"error: {counted(len(problems), 'problem')}")
    elif form == "text":
        current.screen.print("\n".join(valid))
    return FAILED if problems else SUCCESS


def _summarize_topology(label: str, planned: "PlannedTopology") -> str:
    from gpuform.stacks.review.value_text import counted  # noqa: PLC0415 - the engine, not for help

    summary = f"{label} is valid: {counted(len(planned.resources), 'resource')}"
    later = planned.list_open_groups()
    return f"{summary}, and those of {', '.join(later)}, not known here" if later else summary


_STDIN: Final = "-"


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@common_flags
def fmt(files: tuple[str, ...], check: bool, diff: bool) -> int:
    """Format topology files in place, and print the names of those that changed.

    Without FILE: topology.yaml of the current folder, else of the project around it, and the files
    that it includes. `-` formats stdin to stdout.

    Indentation becomes two spaces, also of lists; spaces at the ends of lines and empty lines in a
    row go; braces that are too long for 100 columns are broken. Comments, the order of keys,
    quotes and the text of every value stay as they are. A file that would not mean exactly the
    same afterwards is left alone, and named.

    \b
    Examples:
      gpuform fmt
      gpuform fmt --check --diff topology.yaml volumes.yaml
    """
    if _STDIN in files and len(files) > 1:
        raise click.UsageError("`-` stands alone")
    with open_session() as current:
        run = _Run(current.screen, check=check, diff=diff)
        if files == (_STDIN,):
            run.format_stdin()
        elif files:
            for path in dict.fromkeys(map(Path, files)):
                run.format_file(path)
        else:
            run.format_project()
        return int(run.failed or (check and run.changed))


@dataclass(slots=True)
class _Run:
    """One run over several files: a bad one does not keep the others from being formatted."""

    screen: Screen
    check: bool
    diff: bool
    changed: bool = False
    failed: bool = False

    def format_stdin(self) -> None:
        data = sys.stdin.buffer.read()
        with self._report_failure("stdin"):
            made = self._format_text(data, "stdin")
            if not (self.check or self.diff):
                self.screen.write(made.decode())

    def format_project(self) -> None:
        """Format the topology of this folder or its project, and the files it includes."""
        from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help
        from gpuform.stacks.engine.project import find_topology_file  # noqa: PLC0415 - as above
        from gpuform.stacks.topology.offline import find_topology  # noqa: PLC0415 - as above

        try:
            found = find_topology_file(Path()) or find_topology(Path.cwd())
        except EngineError as error:
            raise EngineError(
                f"there is no topology.yaml in {Path.cwd()} or the project around it",
                hint="name the files: gpuform fmt FILE...",
            ) from error
        seen: set[Path] = set()
        waiting = [found]
        while waiting:
            path = waiting.pop(0)
            if path.resolve() not in seen:
                seen.add(path.resolve())
                waiting += self.format_file(path)

    def format_file(self, path: Path) -> list[Path]:
        """Format a file and return the files that it includes."""
        from gpuform.stacks.engine.machine import replace_file  # noqa: PLC0415 - not for help
        from gpuform.stacks.formatting.meaning import included  # noqa: PLC0415 - as above

        with self._report_failure(str(path)):
            data = _read(path)
            made = self._format_text(data, str(path))
            if made != data and not (self.check or self.diff):
                replace_file(path, made)
                self.screen.print(str(path))
            return [path.parent / name for name in included(made)]
        return []

    def _format_text(self, data: bytes, where: str) -> bytes:
        """Return the formatted text, and show it as the flags say."""
        from gpuform.stacks.formatting import formatted  # noqa: PLC0415 - not for help

        made = formatted(data, where)
        if made != data:
            self.changed = True
            if self.diff:
                self.screen.write("".join(_diff(where, data.decode(), made.decode())))
            elif self.check:
                self.screen.print(where)
        return made

    @contextlib.contextmanager
    def _report_failure(self, where: str) -> Iterator[None]:
        """Report an error of one file, and continue with the others."""
        from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help

        try:
            yield
        except (EngineError, OSError) as error:
            self.failed = True
            told = (
                EngineError(f"{where}: {error.strerror}") if isinstance(error, OSError) else error
            )
            for line in describe_failure(told, verbose=False)[1]:
                self.screen.warn(line)


def _read(path: Path) -> bytes:
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help

    if path.is_dir():
        raise EngineError(
            f"{path} is a folder", hint=f"name the files in it: gpuform fmt {path}/*.yaml"
        )
    return path.read_bytes()


def _diff(where: str, before: str, after: str) -> Iterator[str]:
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    for line in difflib.unified_diff(*lines, fromfile=where, tofile=f"{where} (formatted)"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


@click.command()
@output_flag
@click.option(
    "--of",
    "what",
    type=click.Choice(["topology", "prices", "gates", "stacks", "tests", "plan"]),
    default="topology",
    show_default=True,
    help="Of which files: topologies, prices.yaml, gates.yaml, stacks.yaml, tests/*.yaml, plans.",
)
@click.option(
    "--link",
    is_flag=True,
    help="Write .gpuform/topology.schema.json instead, which refers to the schema installed here.",
)
@common_flags
def schema(output: Path | None, what: str, link: bool) -> None:
    """Print the JSON Schema of topology files, for editors.

    An editor with a YAML language server then completes, explains and checks such files. Their
    first line says where the schema is, as in the examples. The file that --link writes is of this
    machine alone: whoever clones the project makes their own.

    \b
    Examples:
      gpuform schema --link
      # yaml-language-server: $schema=.gpuform/topology.schema.json
      gpuform schema --output topology.schema.json
      # yaml-language-server: $schema=topology.schema.json
    """
    with open_session() as current:
        if link:
            if output is not None or what != "topology":
                raise click.UsageError("--link stands for topologies, and names its file itself")
            current.screen.print(f"Editors find the schema by {_link_schema()}.")
            return
        write_parts([_render_schema(what)], output, current.screen)


def _link_schema() -> Path:
    from gpuform.stacks.engine.project import find_project  # noqa: PLC0415 - not for help
    from gpuform.stacks.projects import link_schema  # noqa: PLC0415 - as above

    return link_schema(find_project(Path.cwd()).directory)


def _render_schema(what: str) -> str:
    from gpuform.stacks.language import json_schema, plan_schema  # noqa: PLC0415 - not for help

    texts = {
        "topology": json_schema.schema_text,
        "prices": json_schema.prices_schema_text,
        "gates": json_schema.gates_schema_text,
        "stacks": json_schema.stacks_schema_text,
        "tests": json_schema.cases_schema_text,
        "plan": plan_schema.plan_schema_text,
    }
    return texts[what]()
