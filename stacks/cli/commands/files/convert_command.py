"""`gpuform convert`: what one form of declaration says, in another form."""

from pathlib import Path
from typing import Final, Literal

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.errors import EngineError

SOURCES: Final = ("topology", "state", "program", "terraform")


@click.command()
@click.argument("source", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from",
    "kind",
    type=click.Choice(SOURCES),
    default="topology",
    show_default=True,
    help="What is read: a topology file, the stack's state, the project's Python program, or "
    "Terraform's files with their state.",
)
@click.option(
    "--to",
    "form",
    type=click.Choice(["python", "yaml"]),
    help="What is written; python for a topology, else yaml, when not given.",
)
@click.option(
    "--out",
    "-o",
    help="The file to write, - for stdout; __main__.py or topology.yaml when not given.",
)
@click.option("--force", "-f", is_flag=True, help="Also where that file exists: it is replaced.")
@click.option(
    "--set-secrets",
    is_flag=True,
    help="Keep secret values that the new file asks for in the stack's configuration, encrypted.",
)
@click.option(
    "--emulate",
    is_flag=True,
    help="Run an emulator of the platforms while a program runs, for what it asks them.",
)
@stack_flags
def convert(
    source: Path | None,
    kind: Literal["topology", "state", "program", "terraform"],
    form: Literal["yaml", "python"] | None,
    out: str | None,
    **given: bool,
) -> int:
    """Say what is declared in another form: YAML, Python, from the state, from Terraform.

    A topology becomes a Python program that keeps its loops, references, options and typed
    configuration. The state, or a run of the project's Python program that changes nothing, becomes
    a topology of literal values and references. What cannot be said is named with its line, and
    then nothing is written. Plans of the old and of the new file are the same.

    Of Terraform's resources of Together and Samsung Cloud Platform the file gets the ids too, so
    that the next `up` takes them over; what it cannot say is listed, and the exit code is 1.

    \b
    Examples:
      gpuform convert --out program/__main__.py
      gpuform convert --from state --set-secrets
      gpuform convert --from terraform ../infrastructure
    """
    from gpuform.stacks.cli.commands.files.kept_secrets import keep_secrets  # noqa: PLC0415 - as above
    from gpuform.stacks.cli.opening import chosen_stack, workspace_of  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.converting import ConvertOptions  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.converting import convert as convert_to  # noqa: PLC0415 - as above

    form = form or ("python" if kind == "topology" else "yaml")
    with session() as current:
        target = _target(out, form, force=given["force"])
        folder = target.parent if target else Path()
        _refuse_needless(source, kind, form)
        options = ConvertOptions(kind, form, source, folder, current.stack, given["emulate"])
        result = convert_to(options, lambda: chosen_stack(current, workspace_of(current)))
        _write(result.text, target, current)
        for line in result.notes:
            current.screen.warn(line)
        if result.secrets:
            keep_secrets(result.secrets, current, wanted=given["set_secrets"])
    return SUCCESS if result.is_whole else FAILED


def _refuse_needless(source: Path | None, kind: str, form: str) -> None:
    if kind == "topology" and form == "yaml":
        raise click.UsageError("a topology is YAML already: `gpuform fmt` formats it")
    if kind in ("state", "program") and source is not None:
        raise click.UsageError(f"--from {kind} reads the project's own: name no file")


def _target(out: str | None, form: str, *, force: bool) -> Path | None:
    """The file to write; None for stdout. Raises EngineError for one that is there."""
    if out == "-":
        return None
    path = Path(out or ("__main__.py" if form == "python" else "topology.yaml"))
    if path.exists() and not force:
        raise EngineError(
            f"{path} exists; nothing was written",
            hint="--out FILE writes another one, --force this one",
        )
    return path


def _write(text: str, target: Path | None, current: Session) -> None:
    from gpuform.stacks.engine.machine import replace_file  # noqa: PLC0415 - not for help

    if target is None:
        current.screen.write(text)
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, text.encode())
    except OSError as error:
        raise click.FileError(str(target), error.strerror) from None
    current.screen.print(f"{target} is written.")
    program, topology = target.with_name("__main__.py"), target.with_name("topology.yaml")
    if target in (program, topology) and program.exists() and topology.exists():
        current.screen.print(
            f"{program} is what runs: {topology} is read only if the program does that."
        )
