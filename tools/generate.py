"""Write the generated files: resource classes, schemas, and the pages of `docs/reference`.

`python -m tools.generate`, in the repository's folder, writes each file that is out of date.
`--check` writes nothing, and fails if a file is out of date or should not exist. The sources are
the models, the commands and the decisions of the package.
"""

import json
import sys
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Final

from gpuform.providers import codegen
from gpuform.providers.platform import list_own_platforms, platforms
from gpuform.providers.plugin.package_schema import build_package_schema
from gpuform.stacks.json_schema import (
    render_file_schema,
    render_plan_schema,
    render_topology_schema,
)
from tools.reference.pages import GENERATED_FOLDERS, render_pages

ROOT: Final = Path(__file__).parents[1]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write or check the files below `root`; return 1 if `--check` finds a wrong file."""
    command = codegen.create_parser("tools.generate", __doc__)
    options = command.parse_args(arguments)
    others = platforms().keys() - list_own_platforms().keys()
    # Platforms of other packages would appear in gpuform's own files.
    if others:
        names = ", ".join(sorted(others))
        command.error(
            f"the generated files cover only gpuform's own platforms: uninstall {names} first"
        )
    files = {root / path: text for path, text in render_files()}
    is_wrong = codegen.write_or_check(files.items(), check=options.check)
    # The page of a removed command or kind would stay, because nothing writes the page again.
    for orphan in find_orphans(root, files.keys()):
        if not options.check:
            orphan.unlink()
        state = "should not exist" if options.check else "removed"
        sys.stderr.write(f"{orphan.parent.name}/{orphan.name} {state}\n")
        is_wrong |= options.check
    return int(is_wrong)


def render_files() -> Iterator[tuple[Path, str]]:
    """Yield the path of each generated file, relative to the repository's folder, and its text."""
    for path, text in codegen.generate_files():
        yield Path("providers", path.relative_to(Path(codegen.__file__).parent)), text
    schema = json.dumps(build_package_schema(), indent=2, ensure_ascii=False)
    yield Path("providers/plugin/schema.json"), f"{schema}\n"
    yield Path("schemas/topology.schema.json"), render_topology_schema()
    yield Path("schemas/plan.schema.json"), render_plan_schema()
    for kind in ("prices", "gates", "notify", "stacks"):
        yield Path(f"schemas/{kind}.schema.json"), render_file_schema(kind)
    yield Path("schemas/cases.schema.json"), render_file_schema("tests")
    for page, text in render_pages():
        yield Path("docs/reference", page), text


def find_orphans(root: Path, files: Container[Path]) -> list[Path]:
    """Return the files in the folders of generated pages that are not among `files`."""
    folders = [root / "docs" / "reference" / name for name in GENERATED_FOLDERS]
    existing = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in existing if path not in files]


if __name__ == "__main__":
    sys.exit(main())
