"""Writes schemas and the documentation's reference: `python -m gpuform.stacks.generated`.

The models, the commands and the source are the one source of truth. `--check` writes nothing and
fails when a file is not current, or should not be there.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuform.providers.codegen import (
    parser,
    refuse_other_platforms,
    remove_or_check,
    write_or_check,
)
from gpuform.stacks.language.json_schema import (
    cases_schema_text,
    gates_schema_text,
    prices_schema_text,
    schema_text,
    stacks_schema_text,
)
from gpuform.stacks.language.plan_schema import plan_schema_text
from gpuform.stacks.reference.pages import WHOLE_FOLDERS, pages

_FOLDER = Path(__file__).parent.parent / "schemas"
_REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes or checks; 1 when `--check` found a file that is not current."""
    command = parser("gpuform.stacks.generated", __doc__)
    options = command.parse_args(arguments)
    refuse_other_platforms(command)
    files = dict(generated())
    return write_or_check(files.items(), check=options.check) | remove_or_check(
        (_REFERENCE / each for each in WHOLE_FOLDERS), files, check=options.check
    )


def generated() -> Iterator[tuple[Path, str]]:
    """Each generated file and its text."""
    yield _FOLDER / "topology.schema.json", schema_text()
    yield _FOLDER / "plan.schema.json", plan_schema_text()
    yield _FOLDER / "prices.schema.json", prices_schema_text()
    yield _FOLDER / "gates.schema.json", gates_schema_text()
    yield _FOLDER / "stacks.schema.json", stacks_schema_text()
    yield _FOLDER / "cases.schema.json", cases_schema_text()
    for path, text in pages():
        yield _REFERENCE / path, text


if __name__ == "__main__":
    sys.exit(main())
