"""The files by which OpenSSH learns of a stack's hosts: one for each stack, and the user's own.

A file for each stack has no entries of others: it is written whole, and goes with its hosts.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuform.stacks.access.user_file import UserFile

FOLDER: Final = "gpuform"
_BOM: Final = "\ufeff"
_SECTION: Final = re.compile(r"\s*(host|match)[\s=]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SshFiles:
    """A stack's file, and the configuration that includes it."""

    own: UserFile
    users: UserFile
    include: str
    """The line by which the one includes the other."""

    @classmethod
    def of(cls, file: Path | None, project: str, stack: str, state: str) -> "SshFiles":
        """In `~/.ssh/gpuform/`, or the file given. `state` tells stacks of one name apart."""
        ssh = Path.home() / ".ssh"
        digest = hashlib.sha256(state.encode()).hexdigest()[:8]
        path = file.absolute() if file else ssh / FOLDER / f"{project}-{stack}-{digest}.conf"
        included = path if file else path.with_name("*.conf")
        users = UserFile(ssh / "config", "SSH's configuration", is_private=False)
        return cls(UserFile(path, "the file"), users, f"Include {_quoted(included)}")

    @property
    def is_included(self) -> bool:
        """Whether the user's configuration has the line, for all hosts."""
        return self.include in _head(self.users.read())

    def install(self) -> bool:
        """Adds the line to the user's configuration; whether it was not there."""
        return self.users.update(self._with_line)

    def uninstall(self) -> bool:
        """Takes the line out; whether it was there."""
        return self.users.update(self._without_line)

    def remove(self) -> bool:
        """Deletes the stack's file; whether there was one."""
        return self.own.delete()

    def _with_line(self, text: str) -> str:
        """At the start: further down it would belong to the host above it."""
        if self.include in _head(text):
            return text
        end = "\r\n" if "\r\n" in text else "\n"
        return f"{self.include}{end}{text}"

    def _without_line(self, text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if line.rstrip("\r\n") != self.include)


def _head(text: str) -> list[str]:
    """The lines that hold for all hosts."""
    lines = text.removeprefix(_BOM).splitlines()
    end = next((n for n, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return [line.strip() for line in lines[:end]]


def _quoted(path: Path) -> str:
    """OpenSSH wants slashes, and quotes around spaces, on Windows as well."""
    text = path.as_posix()
    return f'"{text}"' if re.search(r"\s", text) else text
