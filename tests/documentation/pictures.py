"""Draw the pictures of the documentation from real runs: `python tests/documentation/pictures.py`.

A plan in a terminal, a review as a comment, and a graph, each for light and for dark pages. With
`--check` the program only names the pictures different from a run of today.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT: Final = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from documentation.comment import DARK, LIGHT, Colors, draw_comment  # noqa: E402
from documentation.page import Enter, Run, Step  # noqa: E402
from documentation.reader import open_reader, replace_variable_parts  # noqa: E402

COMMAND: Final = "$ gpuform preview --save-plan plan.json\n\n"
FOLDER: Final = ROOT / "docs" / "pictures"
SCENE: Final[tuple[Step, ...]] = (
    Enter(0, "examples/05-health-gated"),
    Run(0, "sed -i '/^outputs:/,$d' topology.yaml", 0, None),
    Run(0, "gpuform stack init prod --emulate && gpuform up --emulate --yes", 0, None),
    Run(0, "gpuform config set gpus 24", 0, None),
    Run(0, "sed -i 's/region: us-central-8/region: us-central-4/' topology.yaml", 0, None),
    Run(0, "gpuform preview --emulate --color always --save-plan plan.json >plan.txt", 0, None),
    Run(0, "gpuform review plan.json --format github --output comment.md", 0, None),
    Run(0, "gpuform graph --plan plan.json --format html --output graph.html", 0, None),
)


def main() -> int:
    """Draw or check the pictures; return 1 if `--check` finds one out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    code = 0
    for name, picture in draw_pictures():
        path = FOLDER / name
        if path.exists() and is_current(path.read_text(encoding="utf-8"), picture):
            continue
        code = 1
        sys.stderr.write(f"{name} {'is not current' if options.check else 'drawn'}\n")
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(picture, encoding="utf-8")
    return code if options.check else 0


def draw_pictures() -> Iterator[tuple[str, str]]:
    """Yield file name and content of each picture, from one run of the scene."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with open_reader(home) as reader:
            reader.follow(SCENE)
        files = {
            path.name: path.read_text()
            for path in (home / "05-health-gated").iterdir()
            if path.is_file()
        }
    for shade, colours in (("light", LIGHT), ("dark", DARK)):
        yield (
            f"plan-{shade}.svg",
            draw_terminal(COMMAND + files["plan.txt"], colours),
        )
        yield f"review-{shade}.svg", draw_comment(files["comment.md"], colours)
        yield f"graph-{shade}.svg", draw_graph(files["graph.html"], colours)


def is_current(stored_picture: str, new_picture: str) -> bool:
    """Return whether two pictures differ in ids and times at most."""
    return replace_variable_parts(stored_picture) == replace_variable_parts(new_picture)


def draw_terminal(text: str, colors: Colors) -> str:
    """Return a picture of a terminal with the text, which has ANSI color codes."""
    terminal_text = Text.from_ansi(text.rstrip())
    width = max(map(len, terminal_text.plain.splitlines())) + 2
    console = Console(record=True, width=width, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(terminal_text)
    picture = console.export_svg(title="gpuform", theme=_build_theme(colors), unique_id="plan")
    # The fonts would come from another host.
    return re.sub(r"@font-face \{.*?\}\n?", "", picture, flags=re.DOTALL)


def _build_theme(colors: Colors) -> TerminalTheme:
    def rgb(colour: str) -> tuple[int, int, int]:
        return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)

    palette = [colors.text, colors.remove, colors.add, colors.change]
    palette += [colors.dim, colors.remove, colors.dim, colors.text]  # a replacement is magenta
    ansi = [rgb(color) for color in palette]
    return TerminalTheme(rgb(colors.back), rgb(colors.text), ansi, ansi)


def draw_graph(page: str, colors: Colors) -> str:
    """Return the drawing of a page of `gpuform graph`, with fixed colors."""
    (drawing,) = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    (styles,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    rules = re.findall(
        r"^(?:svg|\.arrow|marker|\.(?:add|change|replace|remove) rect).*?\}",
        styles,
        re.DOTALL | re.MULTILINE,
    )
    style = "\n".join(rules)
    for name in ("text", "dim", "back", "panel", "line", "add", "change", "remove"):
        style = style.replace(f"var(--{name})", getattr(colors, name))
    named = drawing.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return named.replace("\n", f"\n<style>\n{style}\n</style>\n", 1) + "\n"


if __name__ == "__main__":
    sys.exit(main())
