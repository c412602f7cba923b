"""Find phrases that readers of this project's prose stumble over, and print what to write instead.

`python -m tools.prose`, in the repository's folder, reads the documentation, the examples, and the
docstrings and messages of the packages. `.ci/run` calls it. No maintained linter finds these
phrases: most are English words in a meaning that only this project gave them.
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_PACKAGES: Final = ("schemas", "providers", "stacks", "tools")
_TEXT_SUFFIXES: Final = (".md", ".yaml", ".yml", ".j2")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A regular expression for words that are no longer used, and the words to write instead.

    A space in `pattern` stands for any white space, because a phrase may continue on the next line.
    """

    pattern: str
    instead: str

    def find_in(self, prose: str) -> Iterator[re.Match[str]]:
        """Yield each place of the phrase, in upper or lower case."""
        yield from re.finditer(self.pattern.replace(" ", r"\s+"), prose, re.IGNORECASE)


PHRASES: Final = (
    Phrase(r"\bfore(told|tells?|sees?|seen|saw)\b", "predict"),
    # Not the flag --create-anew.
    Phrase(r"(?<![-\w])anew\b", "again; recreate"),
    # "Told apart" and "told to wait" are English.
    Phrase(r"\b(is|are|was|were|be|been) told\b(?! (apart|to)\b)", "report, show, say"),
    Phrase(r"\btells (of|what|which|whether|how|why|where)\b", "reports, shows, says"),
    Phrase(r"\b(go|goes|going|gone|went) on (with|from)\b", "resume, continue"),
    Phrase(r"\bshall\b", "must, will, want to"),
    Phrase(
        r"\b(it|this|that|which|they|these) (is|was|are|were) no "
        r"(?!longer|more|less|fewer|better|worse|different)\w+",
        "is not a",
    ),
    Phrase(r"\b(is|are|was|were) no\b(?! longer)[^.:;`]{1,40} any more\b", "is no longer a"),
    Phrase(r"\bthere (is|are) no [^.:;]{1,40}of (that|this) name\b", "NAME not found"),
    # Python's None has a capital.
    Phrase(r"\b(what|that) (is|are) (?-i:none)\b", "is not one"),
    Phrase(r"\b(those|ones) that there (is|are)\b", "the existing ones"),
    Phrase(r"\bmade and selected\b", "created and selected"),
    Phrase(r"\b(has|have) the whole way\b", "explains every step"),
    Phrase(r"\b(gives?|given) out\b", "output, return"),
    Phrase(r"\blet(s|ting)? go of\b", "detach, release"),
    Phrase(r"\botherwise than\b", "not as, differently from"),
    Phrase(r"\bcomes? out otherwise\b", "have another result"),
    Phrase(r"\basks nobody\b", "sends no request"),
    Phrase(r"\bnobody is (asked|declared|told)\b", "is not asked, no X is declared"),
    Phrase(r"\b(is|are) not there\b(?! (to|for))", "does not exist, not found"),
    Phrase(r"\b(takes?|taken|took) away\b", "remove"),
    Phrase(r"\b(cases?|tests?) (is|are|was|were) played\b", "runs"),
    Phrase(r"\bplays? (the|a|all|each|every) (test )?cases?\b", "run"),
    Phrase(r"\bovertaken\b", "outdated"),
    Phrase(r"\b(a|the|no) circles?\b", "cycle"),
    Phrase(r"\bestates?\b", "workspace"),
    Phrase(r"\bfootprints?\b", "resource usage"),
    Phrase(r"\b(real|emulated|another|its) worlds?\b", "environment"),
    Phrase(r"\bstands? (beside|behind|below|above)\b", "is beside, follows"),
)
"""The phrases to replace, each with other words. None may match plain English: see the tests."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of prose in a file, and the line on which it begins."""

    line: int
    prose: str


@dataclass(frozen=True, slots=True)
class Find:
    """A phrase that a file should not have."""

    file: Path
    line: int
    words: str
    instead: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.words}: write {self.instead}"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the finds in the files below `root`, or in the named files; return 1 if there are any.

    Args:
        arguments: the command line; None means that of this process.
        root: the repository's folder, whose files are read if the command line names none.
    """
    parser = argparse.ArgumentParser("tools.prose", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    files: Iterable[Path] = parser.parse_args(arguments).files or list_files(root)
    finds = [find for file in files for find in check_file(file)]
    for find in finds:
        sys.stdout.write(f"{find}\n")
    return int(bool(finds))


def list_files(root: Path) -> list[Path]:
    """Return the files with prose: pages, examples, sources and templates, in a fixed order.

    This module is left out.
    """
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    folders = [root / name for name in ("examples", *_PACKAGES)]
    suffixes = (".py", *_TEXT_SUFFIXES)
    sources = [path for folder in folders for path in sorted(folder.rglob("*"))]
    # This module has to name the phrases.
    return [*pages, *(path for path in sources if path.suffix in suffixes and path != _OWN_FILE)]


_OWN_FILE: Final = Path(__file__)


def check_file(file: Path) -> list[Find]:
    """Return the finds of a file, in the order of the file.

    Raises:
        SyntaxError: a Python file cannot be parsed.
    """
    text = file.read_text(encoding="utf-8")
    passages = read_python(text) if file.suffix == ".py" else read_page(text)
    finds: list[Find] = []
    for passage in passages:
        matches = [(match, phrase) for phrase in PHRASES for match in phrase.find_in(passage.prose)]
        for match, phrase in sorted(matches, key=lambda pair: pair[0].start()):
            line = passage.line + passage.prose.count("\n", 0, match.start())
            finds.append(Find(file, line, " ".join(match[0].split()), phrase.instead))
    return finds


def read_page(text: str) -> list[Passage]:
    """Return a page's prose as one passage, with code, links and comments blanked out."""
    for pattern in (_CODE_BLOCK, _CODE, _LINK, _COMMENT):
        text = pattern.sub(_blank, text)
    return [Passage(1, text)]


_CODE_BLOCK: Final = re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE)
# Code may continue on the next line of a wrapped paragraph.
_CODE: Final = re.compile(r"`[^`\n]*(\n[^`\n]+)?`")
_LINK: Final = re.compile(r"\]\([^)\s]*\)")
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)


_VALUE: Final = "{}"
"""Stands for code and for values, so that the words around them are not taken for one phrase."""


def _blank(match: re.Match[str]) -> str:
    """Return nothing but the line breaks of a match, so that later lines keep their numbers."""
    return "\n" * match[0].count("\n") or _VALUE


def read_python(text: str) -> list[Passage]:
    """Return the docstrings and the other texts of a module that may be sentences.

    A text without a space is a name or a key, not a sentence. Values in an f-string are left out.
    """
    lines = text.splitlines()
    passages: list[Passage] = []
    for node, value in _find_texts(ast.parse(text)):
        if " " in value:
            # A backslash behind the quotes hides the first line break from the value.
            line = node.lineno + lines[node.lineno - 1].endswith('"""\\')
            passages += [Passage(line, passage.prose) for passage in read_page(value)]
    return passages


def _find_texts(node: ast.AST) -> Iterator[tuple[ast.Constant | ast.JoinedStr, str]]:
    """Yield each text below a node with its value; the parts of an f-string are one text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node, node.value
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else _VALUE for part in node.values]
        yield node, "".join(map(str, parts))
        # The constant parts belong to the text that is already yielded.
        children = [part for part in node.values if isinstance(part, ast.FormattedValue)]
    for child in children:
        yield from _find_texts(child)


if __name__ == "__main__":
    sys.exit(main())
