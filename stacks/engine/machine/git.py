"""What git says of the folder that a program is in; nothing where there is no git."""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

_TIMEOUT: Final = 10.0
"""Seconds after which a question to git is given up: a history is not worth more."""

_OUR_OWN: Final = (".pulumi", ".gpuform")  # what runs keep themselves is no change of the program
_REMOTE: Final = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^/]*@)?|[^/@:]+@)(?P<host>[^/:@]+)(?::\d+(?=/))?[/:]"
    r"(?P<owner>[^@]+)/(?P<repo>[^/@]+?)(?:\.git)?/?"
)


def git_facts(folder: Path) -> tuple[str, dict[str, str]]:
    """The title of the commit, and the facts by the names that Pulumi's history has for them.

    A remote is told by host, owner and name: its URL may hold a key.
    """
    told = _git(folder, "log", "-1", "--no-show-signature", "--format=%H%n%cn%n%ce%n%an%n%ae%n%s")
    if told is None:
        return "", {}
    head, committer, committer_email, author, author_email, title = told.split("\n")[:6]
    facts = {
        "git.head": head,
        "git.committer": committer,
        "git.committer.email": committer_email,
        "git.author": author,
        "git.author.email": author_email,
        **_place(folder),
        **_repository(folder),
    }
    excluded = [f":(exclude,top,glob)**/{name}/**" for name in _OUR_OWN]
    status = _git(folder, "status", "--porcelain", "--", ":/", *excluded)
    if status is not None:
        facts["git.dirty"] = "true" if status.strip() else "false"
    return title, facts


def _place(folder: Path) -> dict[str, str]:
    """The branch, unless the head is detached, and where the folder is in the repository."""
    told = _git(folder, "rev-parse", "--show-prefix", "--symbolic-full-name", "HEAD")
    prefix, name = (told or "\n").split("\n")[:2]
    facts = {"vcs.root": prefix.rstrip("/") or "."} if told else {}
    return facts | ({"git.headName": name} if name not in ("", "HEAD") else {})


def _repository(folder: Path) -> dict[str, str]:
    url = _git(folder, "remote", "get-url", "origin")
    found = _REMOTE.fullmatch((url or "").strip())
    if found is None:
        return {}
    return {"vcs.kind": found["host"], "vcs.owner": found["owner"], "vcs.repo": found["repo"]}


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None when it refuses, is missing or does not come back."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - whichever git the user has
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_TIMEOUT,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None
