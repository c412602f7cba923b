"""`gpuform schema`: what editors need to complete and check topology files."""

from pathlib import Path

import click

from gpuform.stacks.cli.files import deliver
from gpuform.stacks.cli.flags import output_flag
from gpuform.stacks.cli.session import common_flags, session


@click.command()
@output_flag
@click.option(
    "--of",
    "what",
    type=click.Choice(["topology", "prices", "gates", "plan"]),
    default="topology",
    show_default=True,
    help="Of which files: topologies, prices.yaml, gates.yaml, or saved plans.",
)
@common_flags
def schema(output: Path | None, what: str) -> None:
    """Print the JSON Schema of topology files, for editors.

    An editor with a YAML language server then completes, explains and checks such files. Their
    first line says where the schema is, as in the example.

    \b
    Example:
      gpuform schema --output topology.schema.json
      # yaml-language-server: $schema=topology.schema.json
    """
    with session() as current:
        deliver(_text(what), output, current.screen)


def _text(what: str) -> str:
    from gpuform.stacks.language import (  # noqa: PLC0415 - not for help
        file_schemas,
        json_schema,
        plan_schema,
    )

    texts = {
        "topology": json_schema.schema_text,
        "prices": file_schemas.prices_schema_text,
        "gates": file_schemas.gates_schema_text,
        "plan": plan_schema.plan_schema_text,
    }
    return texts[what]()
