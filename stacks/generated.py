"""Writes schemas and the reference of topology files: `python -m gpuform.stacks.generated`.

The models are the one source of truth. `--check` writes nothing and fails when a file is not
current.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuform.providers.generating import parser, refuse_other_platforms, write_or_check
from gpuform.stacks.language.file_schemas import gates_schema_text, prices_schema_text
from gpuform.stacks.language.json_schema import schema_text
from gpuform.stacks.language.page import reference_page
from gpuform.stacks.language.plan_schema import plan_schema_text

_FOLDER = Path(__file__).parent.parent / "schemas"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks; 1 when `--check` found a file that is not current."""
    command = parser("gpuform.stacks.generated", __doc__)
    options = command.parse_args(arguments)
    refuse_other_platforms(command)
    return write_or_check(generated(), check=options.check)


def generated() -> Iterator[tuple[Path, str]]:
    """Each generated file and its text."""
    yield _FOLDER / "topology.schema.json", schema_text()
    yield _FOLDER / "topology.md", reference_page()
    yield _FOLDER / "plan.schema.json", plan_schema_text()
    yield _FOLDER / "prices.schema.json", prices_schema_text()
    yield _FOLDER / "gates.schema.json", gates_schema_text()


if __name__ == "__main__":
    sys.exit(main())
