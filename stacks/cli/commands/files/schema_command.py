"""`gpuform schema`: what editors need to complete and check topology files."""

from pathlib import Path

import click

from gpuform.stacks.cli.flags import output_flag
from gpuform.stacks.cli.session import common_flags, session
from gpuform.stacks.cli.terminal.files import deliver


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
    with session() as current:
        if link:
            if output is not None or what != "topology":
                raise click.UsageError("--link stands for topologies, and names its file itself")
            current.screen.print(f"Editors find the schema by {_linked()}.")
            return
        deliver([_text(what)], output, current.screen)


def _linked() -> Path:
    from gpuform.stacks.engine.project import find_project  # noqa: PLC0415 - not for help
    from gpuform.stacks.projects import link_schema  # noqa: PLC0415 - as above

    return link_schema(find_project(Path.cwd()).directory)


def _text(what: str) -> str:
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
