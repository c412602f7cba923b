"""`--filter`: some of the stacks, by name, by folder, or by what a git diff touches.

The forms are Terragrunt's: NAME, ./FOLDER, [REVISION] or [BASE...HEAD], each with `...` before it
for the dependants as well.
"""

import re
import subprocess
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from gpuform.stacks.multi_stack.members import EstateError, Member
from gpuform.stacks.multi_stack.ordering import Order

_DEPENDANTS: Final = "..."
_DIFF: Final = re.compile(r"\[(?P<base>[^\[\]]*?)(?:\.\.\.(?P<head>[^\[\]]*))?\]")
_REVISION: Final = re.compile(r"[^-\s]\S*")
_FORMS: Final = (
    "write a name such as network/prod or clusters-*/prod, a folder such as ./clusters, or a git "
    "diff such as [main]; `...` before it adds the dependants"
)


def filtered(order: Order, filters: Sequence[str]) -> set[str]:
    """The names of the members that one of the filters means; all of them without filters.

    Raises EstateError for a filter that nobody understands, or that means none.
    """
    if not filters:
        return set(order.estate.members)
    found: set[str] = set()
    for text in filters:
        what = text.removeprefix(_DEPENDANTS)
        chosen = _chosen(order, text, what)
        found |= order.dependants(chosen) if what != text else set(chosen)
    return found


def _chosen(order: Order, text: str, what: str) -> list[str]:
    estate, members = order.estate, order.estate.members.values()
    if what.startswith("["):
        match = _DIFF.fullmatch(what)
        if match is None:
            raise EstateError(f"--filter {text} is not understood", hint=_FORMS)
        # A diff may touch nothing: that is an answer.
        return _touched(order, match["base"], match["head"])
    if what.startswith((".", "/")):
        folder = Path(what)
        found = [each.name for each in members if _is_in(each, folder)]
    else:
        found = [each.name for each in members if _is_named(each, what)]
    if not found:
        names = ", ".join(estate.members)
        raise EstateError(
            f"--filter {text} means none of the stacks", hint=f"there is {names}; {_FORMS}"
        )
    return found


def _is_named(member: Member, pattern: str) -> bool:
    """By `PROJECT/STACK`, or by one of them alone."""
    texts = (member.name, member.project.name, member.stack)
    return any(fnmatchcase(text, pattern) for text in texts)


def _is_in(member: Member, pattern: Path) -> bool:
    """Whether its folder is this one, one that the pattern means, or below it."""
    parts = pattern.parts
    plain = next((at for at, part in enumerate(parts) if "*" in part), len(parts))
    start, own = Path(*parts[:plain]).resolve(), member.project.directory.resolve()
    if not own.is_relative_to(start):
        return False
    wanted, rest = parts[plain:], own.relative_to(start).parts
    return len(rest) >= len(wanted) and all(
        fnmatchcase(part, each) for part, each in zip(rest, wanted, strict=False)
    )


def _touched(order: Order, base: str, head: str | None) -> list[str]:
    """Members with a changed file in their folder, or among what their topology includes.

    A change outside of all of them, such as of a package that several programs import, touches
    those whose files name it; of stacks.yaml, all.
    """
    estate = order.estate
    for revision in (base, head or "HEAD"):
        if not _REVISION.fullmatch(revision):
            raise EstateError(f"{revision!r} is no revision of git", hint=_FORMS)
    top = Path(_git(estate.root, "rev-parse", "--show-toplevel").strip())
    what = [f"{base}...{head}"] if head else [_merge_base(estate.root, base)]
    names = _git(estate.root, "diff", "--name-only", "-z", "--no-renames", *what, "--")
    if head is None:  # what is not committed yet counts, too
        names += _git(
            estate.root, "ls-files", "--others", "--exclude-standard", "-z", "--full-name"
        )
    changed = [top / name for name in names.split("\0") if name]
    if estate.file is not None and estate.file.resolve() in changed:
        return list(estate.members)
    return [name for name in estate.members if _is_touched(name, order, changed)]


def _merge_base(root: Path, base: str) -> str:
    """A pull request is what came since it left the branch, not what the branch got meanwhile."""
    return _git(root, "merge-base", base, "HEAD").strip()


def _is_touched(name: str, order: Order, changed: Iterable[Path]) -> bool:
    member, files = order.estate.members[name], order.told[name].files
    own = member.project.directory.resolve()
    others = [
        each.project.directory.resolve()
        for each in order.estate.members.values()
        if each.project.path != member.project.path
    ]
    inner = [other for other in others if other.is_relative_to(own) and other != own]
    settings = member.project.settings_path(member.stack)
    for path in changed:
        if path in files or path == settings.resolve():
            return True
        if path.is_relative_to(own):
            if any(path.is_relative_to(other) for other in inner):
                continue
            if _is_settings_of_another(path, settings):
                continue
            return True
        if not any(path.is_relative_to(other) for other in others) and _names(member, path):
            return True
    return False


def _is_settings_of_another(path: Path, settings: Path) -> bool:
    is_settings = path.name.startswith("Pulumi.") and path.suffix == settings.suffix
    return is_settings and path.name not in (settings.name, f"Pulumi{settings.suffix}")


def _names(member: Member, path: Path) -> bool:
    """Whether a file of the member's folder names this one, as a `main` or an `import` does."""
    said = path.stem if path.suffix == ".py" and path.stem != "__init__" else path.name
    said = path.parent.name if path.name == "__init__.py" else said
    for file in member.project.directory.glob("*"):
        if file.suffix in (".yaml", ".yml", ".py", ".toml", ".txt") and file.is_file():
            try:
                if said in file.read_text(encoding="utf-8", errors="replace"):
                    return True
            except OSError:
                continue
    return False


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - revisions are checked, and no shell is between
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the person's own git
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise EstateError(
            "git cannot be run, which tells what was changed", hint="install git, or name stacks"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise EstateError(
            f"git cannot tell what was changed: {said[-1] if said else 'it failed'}",
            hint="in a CI job the base has to be fetched: `git fetch origin main`",
        )
    return done.stdout.decode(errors="surrogateescape")
