"""Find files without owners by the rules of CODEOWNERS of GitHub and GitLab.

`ci_files` calls this module for `gpuform doctor --ci`.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

_GITHUB_FILES: Final = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
_GITLAB_FILES: Final = ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
"""Where the code hosts look, in this order: the first file counts."""
_SECTION: Final = re.compile(r"(\^?)\[[^\]]+\](?:\[\d+\])?(.*)")
_WILDCARDS: Final = {
    "/**/": "/(?:.*/)?",
    "**/": "(?:.*/)?",
    "**": ".*",
    "*": "[^/]*",
    "?": "[^/]",
}


def find_unowned(root: Path, paths: Iterable[str], *, is_gitlab: bool) -> list[str]:
    """Return the paths in `paths` without an owner in the repository's CODEOWNERS.

    The last line that matches a path decides, within each section of GitLab's. A line without an
    owner, or with `!` in front, takes the owners away.

    Raises:
        OSError, UnicodeDecodeError: the file cannot be read.
    """
    file = root / get_owners_path(root, is_gitlab=is_gitlab)
    owners_content = file.read_text(encoding="utf-8") if file.is_file() else ""
    sections = list(_iterate_sections(owners_content, is_gitlab=is_gitlab))

    def has_owner(path: str) -> bool:
        return any(
            next((owned for pattern, owned in reversed(lines) if pattern.fullmatch(path)), False)
            for lines in sections
        )

    return [path for path in paths if not has_owner(path)]


def get_owners_path(root: Path, *, is_gitlab: bool) -> str:
    """Return the path of the CODEOWNERS in effect; without a file, the path in the root."""
    names = _GITLAB_FILES if is_gitlab else _GITHUB_FILES
    return next((name for name in names if (root / name).is_file()), "CODEOWNERS")


def _iterate_sections(
    owners_content: str, *, is_gitlab: bool
) -> Iterator[list[tuple[re.Pattern[str], bool]]]:
    """Yield the lines of each section as patterns, each with whether owners are named.

    GitLab does not require the approval of an optional section: its lines are left out.
    """
    lines: list[tuple[re.Pattern[str], bool]] = []
    is_optional = has_default = False
    for line in owners_content.splitlines():
        pattern, *owners = re.split(r"(?<!\\)\s+", re.sub(r"(^|\s)#.*", "", line).strip())
        section = _SECTION.fullmatch(line.strip()) if is_gitlab else None
        if section is not None:
            yield lines
            lines, is_optional, has_default = [], bool(section[1]), "@" in section[2]
        elif pattern and not is_optional:
            is_owned = "@" in "".join(owners) or (has_default and not owners)
            body = pattern.removeprefix("!")
            lines.append(
                (_compile_pattern(body, is_gitlab=is_gitlab), is_owned and body == pattern)
            )
    yield lines


def _compile_pattern(pattern: str, *, is_gitlab: bool) -> re.Pattern[str]:
    """Return the regular expression for the paths matched by a pattern."""
    # On GitHub, a slash in the middle binds a pattern to the root, as in a .gitignore.
    is_bound = pattern.startswith("/") or (not is_gitlab and "/" in pattern.rstrip("/"))
    body = re.sub(
        r"/\*\*/|\*\*/|\*\*|\*|\?|.",
        lambda part: _WILDCARDS.get(part[0], re.escape(part[0])),
        pattern.strip("/").replace("\\ ", " "),
    )
    below = "(?:/.*)?"
    if pattern.endswith("/"):
        below = "/.*"
    elif pattern.rpartition("/")[2] == "*":
        below = ""
    return re.compile(("" if is_bound else "(?:.*/)?") + body + below)
