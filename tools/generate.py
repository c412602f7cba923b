"""Write what is generated: resource classes, schemas, and the pages of `docs/reference`.

`python -m tools.generate`, in the repository's folder, writes each file that is not current.
`--check` writes nothing and fails when a file is not current, or should not be there. The source
are the models, the commands and the decisions of the package.
"""

import json
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Final

from gpuform.providers import codegen
from gpuform.providers.platform import list_own_platforms, platforms
from gpuform.providers.plugin.package_schema import build_package_schema
from gpuform.stacks.language.json_schema import (
    cases_schema_text,
    gates_schema_text,
    prices_schema_text,
    schema_text,
    stacks_schema_text,
)
from gpuform.stacks.language.plan_schema import plan_schema_text
from tools.reference.pages import GENERATED_FOLDERS, render_pages

ROOT: Final = Path(__file__).parents[1]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write or check the files below `root`; return 1 when `--check` finds one that is wrong."""
    command = codegen.create_parser("tools.generate", __doc__)
    options = command.parse_args(arguments)
    others = platforms().keys() - list_own_platforms().keys()
    if others:  # they would go into gpuform's own files
        names = ", ".join(sorted(others))
        command.error(f"the files are about gpuform's own platforms: uninstall {names} first")
    files = {root / path: text for path, text in generated_files()}
    is_wrong = codegen.write_or_check(files.items(), check=options.check)
    for orphan in find_orphans(root, files.keys()):
        if not options.check:
            orphan.unlink()
        state = "should not be there" if options.check else "removed"
        sys.stderr.write(f"{orphan.parent.name}/{orphan.name} {state}\n")
        is_wrong |= options.check
    return int(is_wrong)


def generated_files() -> Iterator[tuple[Path, str]]:
    """Yield the path of each generated file below the repository's folder, and its text."""
    for path, text in codegen.generate_files():
        yield Path("providers", path.parent.name, path.name), text
    schema = json.dumps(build_package_schema(), indent=2, ensure_ascii=False)
    yield Path("providers/plugin/schema.json"), f"{schema}\n"
    yield Path("schemas/topology.schema.json"), schema_text()
    yield Path("schemas/plan.schema.json"), plan_schema_text()
    yield Path("schemas/prices.schema.json"), prices_schema_text()
    yield Path("schemas/gates.schema.json"), gates_schema_text()
    yield Path("schemas/stacks.schema.json"), stacks_schema_text()
    yield Path("schemas/cases.schema.json"), cases_schema_text()
    for page, text in render_pages():
        yield Path("docs/reference", page), text


def find_orphans(root: Path, files: Container[Path]) -> list[Path]:
    """Return the files in folders of generated pages that are not generated."""
    folders = [root / "docs" / "reference" / name for name in GENERATED_FOLDERS]
    existing = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in existing if path not in files]


if __name__ == "__main__":
    sys.exit(main())
