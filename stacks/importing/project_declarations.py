"""Define what an import needs of a project's declarations, and the edits of its files.

`declaration_files` implements `ProjectDeclarations` for topologies and for Python programs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gpuform.stacks.declaration_writer.declarations import Declarations, DeclaredReference
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.importing.declarations import DeclaredResource
from gpuform.stacks.importing.selection import ImportRefused, ObjectKey
from gpuform.stacks.review.value_text import short_type

DeclaredNames = set[tuple[str, str]]
"""Resources by section and name."""


class ProjectDeclarations(Protocol):
    """The declarations of a project: its topology files, or its Python program."""

    @property
    def names(self) -> DeclaredNames:
        """Return the names of declared resources."""

    @property
    def pending_imports(self) -> Mapping[ObjectKey, str]:
        """Return the objects of `import` options, with the names of the entries."""

    @property
    def defaulted_variables(self) -> set[str]:
        """Return the configuration variables with a default."""

    def render(self, declared: Declarations) -> str:
        """Return the text of the given entries alone."""

    def find_reference(self, platform: str, kind: str, name: str) -> DeclaredReference | None:
        """Return the reference to a declared resource, or None where entries cannot have one."""

    def build_addition(self, declared: Declarations) -> "FileEdit":
        """Return the edit of the file for adding the given entries."""

    def build_import_removals(
        self, imported_resources: Iterable[tuple[str, str, str]]
    ) -> "list[FileEdit]":
        """Return the edits for removing the `import` options of resources.

        The resources are given by platform, kind and name.
        """


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The text of a file before and after a change; `before` is None if the file does not exist."""

    path: Path
    before: str | None
    after: str

    @classmethod
    def for_file(cls, path: Path, after: str) -> "FileEdit":
        """Return the edit from the file's present text to `after`."""
        return cls(path, read_text_file(path), after)

    def apply(self) -> None:
        """Replace the file in one step, unless the edit changes nothing.

        What somebody wrote since the edit was built is lost.

        Raises:
            ImportRefused: the file cannot be written.
        """
        if self.before == self.after:
            return
        try:
            # An interrupted write must not leave half a program or topology.
            replace_file(self.path, self.after.encode(), mode=0o644)
        except OSError as error:
            raise ImportRefused(f"{self.path} cannot be written: {error.strerror}") from error

    def undo(self) -> None:
        """Restore the earlier text or delete the new file, unless somebody changed the file.

        Raises ImportRefused or OSError if the file cannot be read or restored.
        """
        # Somebody may have edited the file while the import ran.
        if read_text_file(self.path) != self.after or self.before == self.after:
            return
        if self.before is None:
            self.path.unlink()
        else:
            replace_file(self.path, self.before.encode(), mode=0o644)


def read_text_file(path: Path) -> str | None:
    """Return the text of the file with unchanged line breaks, or None without a file.

    Raises:
        ImportRefused: the file cannot be read, or is not UTF-8.
    """
    try:
        # Reading as text would change the line breaks of the file.
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ImportRefused(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ImportRefused(f"{path} is not UTF-8 text (byte {error.start})") from error


def list_declared_resources(
    declarations: ProjectDeclarations, resources: Iterable[ResourceState]
) -> list[DeclaredResource]:
    """Return the resources of a state with an id and an entry to refer to."""
    declared_resources = []
    for resource in resources:
        platform, _, kind = short_type(resource.type).partition(":")
        reference = declarations.find_reference(platform, kind, name_of(resource.urn))
        if reference is not None and resource.id:
            declared_resources.append(
                DeclaredResource(platform, kind, resource.id, resource.outputs, reference)
            )
    return declared_resources
