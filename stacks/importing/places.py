"""Where a project's declarations are: topology files, or a Python program."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuform.stacks.declaration_writer.declarations import Declarations, ResourceReference
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.importing.chosen import Key, NotImported
from gpuform.stacks.importing.declaring import Known
from gpuform.stacks.review.value_text import short_type

Names = set[tuple[str, str]]
"""Resources by section and name."""


class DeclarationPlace(Protocol):
    """Where entries are written."""

    @property
    def names(self) -> Names:
        """The names that are declared already."""

    @property
    def pending(self) -> Mapping[Key, str]:
        """The objects that entries name to be imported, with the names of these entries."""

    @property
    def defaults(self) -> set[str]:
        """The configuration variables that have a value without the stack's."""

    def text(self, declared: Declarations) -> str:
        """These entries alone."""

    def reference(self, platform: str, kind: str, name: str) -> ResourceReference | None:
        """How a declared resource is referred to, if it can be."""

    def edit(self, declared: Declarations) -> "Edit":
        """The file with these entries added."""

    def finished(self, imported: Iterable[tuple[str, str, str]]) -> "list[Edit]":
        """The files without the `import` options of resources, by platform, kind and name."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A file's text before and after; None where there was no file."""

    path: Path
    before: str | None
    after: str

    @classmethod
    def of(cls, path: Path, after: str) -> "Edit":
        return cls(path, text_of(path), after)

    def apply(self) -> None:
        """Replaces the file in one step, unless it says so already. Raises EngineError."""
        if self.before == self.after:
            return
        try:
            replace_file(self.path, self.after.encode(), mode=0o644)
        except OSError as error:
            raise NotImported(f"{self.path} cannot be written: {error.strerror}") from error

    def undo(self) -> None:
        """Puts back what was there, unless somebody has changed the file since."""
        if text_of(self.path) != self.after or self.before == self.after:
            return
        if self.before is None:
            self.path.unlink()
        else:
            replace_file(self.path, self.before.encode(), mode=0o644)


def text_of(path: Path) -> str | None:
    """The file's text with its line breaks; None where there is none. Raises EngineError."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotImported(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NotImported(f"{path} is not UTF-8 text (byte {error.start})") from error


def known(place: DeclarationPlace, resources: Iterable[ResourceState]) -> list[Known]:
    """The resources of a state that new entries can refer to."""
    found = []
    for each in resources:
        platform, _, kind = short_type(each.type).partition(":")
        reference = place.reference(platform, kind, name_of(each.urn))
        if reference is not None and each.id:
            found.append(Known(platform, kind, each.id, each.outputs, reference))
    return found
