"""`gpuform schema`: what editors need to complete and check topology files."""

from pathlib import Path

import click

from gpuform.stacks.cli.files import deliver
from gpuform.stacks.cli.session import common_flags, session


@click.command()
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout.",
)
@common_flags
def schema(output: Path | None) -> None:
    """Print the JSON Schema of topology files, for editors.

    An editor with a YAML language server then completes, explains and checks such files. Their
    first line says where the schema is, as in the example.

    \b
    Example:
      gpuform schema --output topology.schema.json
      # yaml-language-server: $schema=topology.schema.json
    """
    from gpuform.stacks.language.json_schema import schema_text  # noqa: PLC0415 - not for help

    with session() as current:
        deliver(schema_text(), output, current.screen)
