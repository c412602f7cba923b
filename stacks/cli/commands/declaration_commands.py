"""Run `gpuform convert`, `import`, `manifests` and `console`: commands around declarations."""

import contextlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from gpuform.schemas.errors import EngineError, GpuformError
from gpuform.schemas.safe_text import MASK, format_json
from gpuform.stacks.cli.failures import FAILED, SUCCESS, describe_failure
from gpuform.stacks.cli.flags import (
    OptionWithOldNames,
    emulate_flag,
    emulated_state_flag,
    lock_flag,
    output_flag,
    parallel_flag,
    preview_only_names,
    yes_flag,
)
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session
from gpuform.stacks.cli.terminal.screen import Screen, write_parts
from gpuform.stacks.operations.runs.options import ImportOptions

if TYPE_CHECKING:
    from gpuform.stacks.console import Console

_SOURCES: Final = ("topology", "state", "program", "terraform")


@click.command()
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from",
    "kind",
    type=click.Choice(_SOURCES),
    default="topology",
    show_default=True,
    help="The source: a topology file, the stack's state, the project's Python program, or "
    "Terraform's files with their state.",
)
@click.option(
    "--to",
    "form",
    type=click.Choice(["python", "yaml"]),
    help="The format to write; default: python for a topology, else yaml.",
)
@click.option(
    "--output",
    "-o",
    "out",
    cls=OptionWithOldNames,
    old_names=("--out",),
    help="The file to write, - for stdout; default: __main__.py or topology.yaml.",
)
@click.option("--force", "-f", is_flag=True, help="Replace the file if it exists.")
@click.option(
    "--set-secrets",
    is_flag=True,
    help="Store secret values that the new file reads in the stack's configuration, encrypted.",
)
@click.option(
    "--emulate",
    is_flag=True,
    help="Run an emulator of the platforms for the lookups of a program.",
)
@add_stack_flags
def convert(
    source: Path | None,
    kind: Literal["topology", "state", "program", "terraform"],
    form: Literal["yaml", "python"] | None,
    out: str | None,
    **flags: bool,
) -> int:
    """Convert declarations: to YAML or Python, from the state or from Terraform.

    A topology becomes a Python program that keeps its loops, references, options and typed
    configuration. The state, or a run of the project's Python program that changes nothing, becomes
    a topology of literal values and references. If a declaration cannot be converted, the command
    reports its line and writes nothing. The plans of the old and the new file are the same.

    For Terraform's resources of Together and Samsung Cloud Platform, the file also contains the
    ids, so that the next `up` imports them. Local modules become files beside the topology. The
    command lists the resources that it cannot convert, and exits with 1.

    \b
    Examples:
      gpuform convert --output program/__main__.py
      gpuform convert --from state --set-secrets
      gpuform convert --from terraform ../infrastructure
    """
    from gpuform.stacks.cli.commands.new_command import store_secrets  # noqa: PLC0415 - not for help
    from gpuform.stacks.cli.opening import find_workspace, select_stack  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.converting import ConvertOptions  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.converting import convert as convert_to  # noqa: PLC0415 - as above

    form = form or ("python" if kind == "topology" else "yaml")
    with open_session() as session:
        target = _choose_output_file(out, form, force=flags["force"])
        folder = target.parent if target else Path()
        _reject_needless_conversion(source, kind, form)
        options = ConvertOptions(
            kind, form, source, folder, session.stack, flags["emulate"], modules=target is not None
        )
        # A topology or Terraform's files are converted without a stack.
        result = convert_to(options, lambda: select_stack(session, find_workspace(session)))
        modules = {folder / name: content for name, content in result.modules.items()}
        for path in modules:
            _reject_existing_file(path, target, force=flags["force"])
        for path, content in modules.items():
            _write_declarations(content, path, session)
        _write_declarations(result.content, target, session)
        for line in result.notes:
            session.screen.warn(line)
        # The new file has no secrets: it names configuration keys.
        if result.secrets:
            store_secrets(result.secrets, session, stores=flags["set_secrets"])
    return SUCCESS if result.is_complete else FAILED


def _reject_needless_conversion(source: Path | None, kind: str, form: str) -> None:
    """Raise UsageError for YAML to YAML, and for a file beside `--from state` or `program`."""
    if kind == "topology" and form == "yaml":
        raise click.UsageError("a topology already is YAML: `gpuform fmt` formats it")
    if kind in ("state", "program") and source is not None:
        raise click.UsageError(f"--from {kind} reads the project: do not pass a file")


def _choose_output_file(out: str | None, form: str, *, force: bool) -> Path | None:
    """Return the file to write, or None if `out` is `-`, which means stdout.

    None as `out` means the default name of `form`: `__main__.py` for `python`, `topology.yaml` for
    `yaml`.

    Raises:
        EngineError: the file exists, and `force` is False.
    """
    if out == "-":
        return None
    path = Path(out or ("__main__.py" if form == "python" else "topology.yaml"))
    _reject_existing_file(path, force=force)
    return path


def _reject_existing_file(path: Path, other: Path | None = None, *, force: bool) -> None:
    """Raise EngineError if a file to write exists without `force`, or equals `other`."""
    if path == other:
        raise EngineError(
            f"{path} is also the file of a module; nothing was written",
            hint="write another file with --output FILE",
        )
    if path.exists() and not force:
        raise EngineError(
            f"{path} exists; nothing was written",
            hint="write another file with --output FILE, or replace this one with --force",
        )


def _write_declarations(content: str, target: Path | None, session: Session) -> None:
    """Write the content to the file `target` and report the file; None means stdout.

    Missing folders are created, and an existing file is replaced. Beside a program, a topology gets
    a note that gpuform runs the program. Raises FileError.
    """
    from gpuform.stacks.engine.machine import replace_file  # noqa: PLC0415 - not for help

    if target is None:
        session.screen.write(content)
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, content.encode())
    except OSError as error:
        raise click.FileError(str(target), error.strerror) from None
    session.screen.print(f"Wrote {target}.")
    program, topology = target.with_name("__main__.py"), target.with_name("topology.yaml")
    if target in (program, topology) and program.exists() and topology.exists():
        session.screen.print(
            f"gpuform runs {program}, not {topology}: the program must load the topology itself."
        )


@click.command()
@click.argument("clusters", metavar="[CLUSTER]...", nargs=-1)
@output_flag
@emulated_state_flag
@add_stack_flags
def manifests(clusters: tuple[str, ...], output: Path | None) -> None:
    """Print the YAML of the stack's volume claims, to apply it yourself.

    The YAML contains the claims that the program declares, of the named clusters (by entry, name or
    id) or of all. The command sends no request to a platform or a cluster.

    \b
    Examples:
      gpuform manifests
      gpuform manifests train | kubectl apply -f -
    """
    from gpuform.stacks.cli.opening import find_workspace  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.manifests import collect_claims, render_manifests, select_clusters  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.opening.selected_stack import create_passphrase_finder  # noqa: PLC0415 - as above

    with open_session() as session:
        workspace = find_workspace(session)
        stack = workspace.open(
            session.stack,
            create_passphrase_finder(workspace, session.screen.create_passphrase_prompt()),
        )
        claims = collect_claims(stack.build_target().program, stack.snapshot.resources)
        selected_claims = select_clusters(claims, clusters)
        if selected_claims:
            write_parts([render_manifests(selected_claims)], output, session.screen)
        else:
            # On stderr: stdout goes to `kubectl apply`.
            session.screen.warn("The stack declares no volume claims.")


_PROMPT: Final = "> "
_EXIT_WORDS: Final = ("exit", "quit")


@click.command()
@click.option(
    "--expression",
    "-e",
    "expressions",
    multiple=True,
    metavar="EXPR",
    help="Evaluate this expression and exit; may be repeated.",
)
@click.option("--show-secrets", is_flag=True, help="Show secret values in plain text.")
@emulate_flag
@add_stack_flags
def console(expressions: tuple[str, ...], show_secrets: bool, emulate: bool) -> int:
    """Evaluate expressions of the topology language against the stack.

    Examples: `clusters.train.status`, `config.gpus * 2`, `scp.images('kr-west1') | first`. Names
    are those of the topology, or of the state if a program declares the stack; values are those of
    the state. Values derived from a secret show as [secret], and those that no `up` has created yet
    as [unknown]. Takes no lock and changes nothing; only lookups request a platform. On a terminal
    the command asks for one expression after another, and Tab completes names; otherwise each line
    of stdin is an expression. Prints values as JSON. Exits with 1 when an expression fails.

    \b
    Examples:
      gpuform console
      gpuform console -e 'clusters.train.num_gpus // 8'
      echo 'shared_volumes.data.size_tib' | gpuform console --stack prod
    """
    from gpuform.stacks.cli.opening import find_workspace  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.console import Console  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.opening.selected_stack import (  # noqa: PLC0415 - as above
        create_passphrase_finder,
        enter_environment,
    )

    with open_session() as session:
        workspace = find_workspace(session)
        stack = workspace.open(
            session.stack,
            create_passphrase_finder(workspace, session.screen.create_passphrase_prompt()),
        )
        with enter_environment(stack, emulate=emulate):
            opened_console = Console.from_stack(stack, stack.run_context.environ)
            if expressions:
                return _print_values(expressions, opened_console, session.screen, show_secrets)
            if not session.screen.interactive:
                return _print_values(sys.stdin, opened_console, session.screen, show_secrets)
            session.screen.print(f"{stack.project.name}/{stack.name}: Ctrl-D leaves")
            with _complete_names(opened_console):
                _print_values(_read_lines(), opened_console, session.screen, show_secrets)
            return SUCCESS


def _print_values(
    lines: Iterable[str], console: "Console", screen: Screen, show_secrets: bool
) -> int:
    """Print the value of each expression, also after a failure, and return the exit code."""
    from gpuform.stacks.console import render_value  # noqa: PLC0415 - the engine, not for help

    code = SUCCESS
    for line in filter(None, map(str.strip, lines)):
        try:
            value = console.evaluate(line)
        except GpuformError as error:
            code = FAILED
            for line_of_error in describe_failure(error, verbose=False)[1]:
                screen.warn(line_of_error)
        else:
            shown_value = render_value(value, show_secrets=show_secrets)
            # A marker is printed bare; a text that only reads like one is printed as JSON.
            is_mark = shown_value in (MASK, "[unknown]") and shown_value != value
            screen.print(shown_value if is_mark else format_json(shown_value, indent=2))
    return code


def _read_lines() -> Iterator[str]:
    """Yield the lines typed by the user, until `exit`, `quit` or the end of the input."""
    while True:
        try:
            line = input(_PROMPT)
        except EOFError:
            return
        if line.strip() in _EXIT_WORDS:
            return
        yield line


@contextlib.contextmanager
def _complete_names(console: "Console") -> Iterator[None]:
    """Complete names with Tab and recall lines with the arrow keys, where Python supports both."""
    try:
        import readline  # noqa: PLC0415 - changes what input() does
    except ImportError:
        yield
        return

    def complete(prefix: str, index: int) -> str | None:
        return next(
            (
                name
                for number, name in enumerate(console.find_completions(prefix))
                if number == index
            ),
            None,
        )

    # Without a dot: names such as clusters.train.status are completed as one word.
    readline.set_completer_delims(" \t\n{}()[]|~+-*/%,:'\"")
    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)


def _parse_pairs(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Return the pairs of FIELD=VALUE; a callback of click. Raises BadParameter."""
    pairs = [pair_text.partition("=") for pair_text in values]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.BadParameter("write FIELD=VALUE")
    return tuple((name, value) for name, _, value in pairs)


@click.command("import")
@click.argument("type_", metavar="[TYPE]", required=False)
@click.argument("name", required=False)
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--all", "-a", "everything", is_flag=True, help="Import every object of the account.")
@click.option(
    "--platform", metavar="NAME", help="With --all: the platform of the account: together, scp, ..."
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="With --all: only objects of these types.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="PATTERN",
    help="With --all: only objects with these names.",
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    help="Only objects of these regions; gpuform asks scp in these regions instead of the "
    "default one.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="With --all: only objects with all of these tags.",
)
@click.option(
    "--set",
    "set_values",
    multiple=True,
    metavar="FIELD=VALUE",
    callback=_parse_pairs,
    help="An input that the platform does not report; '{{ config.NAME }}' for a secret.",
)
@click.option("--parent", metavar="URN", help="The parent resource of the imported resources.")
@click.option(
    "--protect/--no-protect",
    default=False,
    help="Whether to protect the imported resources from deletion.",
)
@click.option(
    "--output",
    "-o",
    "out",
    cls=OptionWithOldNames,
    old_names=("--out",),
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file of the topology or program to add the entries to.",
)
@click.option("--python", is_flag=True, help="Write Python, even if a topology exists.")
@click.option(
    *preview_only_names, is_flag=True, help="Show what would be written, and change nothing."
)
@yes_flag
@parallel_flag
@emulate_flag
@lock_flag
@add_stack_flags
def import_(**flags: Any) -> int:
    """Import existing objects into the stack, with their declarations.

    Imports one object by TYPE, NAME and ID (together:Cluster train 6f3a...), or all objects of an
    account. Writes their declarations into topology.yaml, or into the Python program, shows them,
    asks for confirmation, imports the objects into the state, and verifies the result with a plan
    that has no changes. Changes nothing on the platform. Skips objects that the stack already has,
    and refuses those of another stack of this backend. After an interruption, run the command
    again: it continues.

    Secrets become secret configuration and are not in the file. The existing content of a file
    stays unchanged, including comments and layout.

    \b
    Examples:
      gpuform import together:Cluster train 6f3a1c52-...
      gpuform import --all --platform tensorone --tag team=research
      gpuform import scp:NodePool train POOL001-krw1a/train-a/train --set server_type_id=...
    """
    yes = flags.pop("yes")
    options = ImportOptions(**flags)
    _check_import_options(options)
    from gpuform.stacks.cli.stack_runs import import_and_show  # noqa: PLC0415 - not for help

    with open_session() as session:
        return import_and_show(options, session, yes=yes)


def _check_import_options(options: ImportOptions) -> None:
    """Raise UsageError for missing options, or options of one object together with --all."""
    object_names = (options.type_, options.name, options.id_)
    if options.everything:
        if any(object_names):
            raise click.UsageError("--all cannot be combined with TYPE, NAME and ID")
        if not options.platform:
            from gpuform.providers.catalog import list_platforms_with_objects  # noqa: PLC0415 - not for help

            *names, last_name = list_platforms_with_objects()
            raise click.UsageError(
                f"--all requires --platform NAME: {', '.join(names)} or {last_name}. "
                "`gpuform orphans` lists objects without a stack"
            )
        return
    if not all(object_names):
        raise click.UsageError(
            "pass TYPE, NAME and ID of an object (`gpuform import together:Cluster train ID`), or "
            "--all and --platform (`gpuform import --all --platform together`)"
        )
    if options.platform or options.types or options.names or options.tags:
        raise click.UsageError("--platform, --type, --name and --tag require --all")
