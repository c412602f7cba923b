"""Read names of git revisions as branches first: for gates of a base branch, and for filters."""

import re
from collections.abc import Callable
from typing import Final

_NAME: Final = re.compile(r"[^~^:]+?(?=@\{|[~^:]|\Z)")
_BRANCHES: Final = ("refs/remotes/", "refs/heads/")


def prefer_branch(revision: str, list_refs: Callable[[str], str]) -> str:
    """Return `revision` with the full name of its branch, or unchanged if it names no branch.

    git prefers a tag to a branch of the same name, and a local branch to one of a remote. Whoever
    may push a tag `origin/main` would choose the gates that judge their change.

    Args:
        revision: a branch, or another revision of git: `origin/main`, `v1`, `main~2`.
        list_refs: returns the full names of refs that git lists for a pattern, one a line.
    """
    match = _NAME.match(revision)
    name = "" if match is None else match[0]
    for prefix in _BRANCHES if name else ():
        if f"{prefix}{name}" in list_refs(f"{prefix}{name}").splitlines():
            return f"{prefix}{revision}"
    return revision
