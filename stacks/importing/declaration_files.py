"""Find and change the declarations of a project, in its topology files or its Python program.

`gpuform.stacks.operations.importing` opens them with `open_declarations`, and writes their edits.
Topologies and programs implement `ProjectDeclarations`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from gpuform.schemas.errors import EngineError
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.declaration_writer.declarations import Declarations, DeclaredReference
from gpuform.stacks.declaration_writer.edits import (
    ResourceCall,
    add_entries,
    add_resources,
    find_resource_calls,
    remove_import_options,
    remove_option,
)
from gpuform.stacks.declaration_writer.python_program import PythonNames, render_program
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import ScalarNode
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.project import Project, find_topology_file, get_folder_and_entry
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.expressions.template import has_expression
from gpuform.stacks.importing.declarations import DeclaredResource
from gpuform.stacks.importing.selection import ImportRefused, ObjectKey
from gpuform.stacks.review.value_text import short_type
from gpuform.stacks.topology.declarations import ALONE, Instance
from gpuform.stacks.topology.files import format_path, read_files
from gpuform.stacks.topology.planning import plan, read_plan_context
from gpuform.stacks.topology.registering import TopologyError

DeclaredNames = set[tuple[str, str]]
"""Resources by section and name."""


class ProjectDeclarations(Protocol):
    """The declarations of a project: its topology files, or its Python program."""

    @property
    def names(self) -> DeclaredNames:
        """Return section and name of each declared resource."""

    @property
    def pending_imports(self) -> Mapping[ObjectKey, str]:
        """Return the objects of `import` options, with the names of the entries."""

    @property
    def defaulted_variables(self) -> set[str]:
        """Return the configuration variables with a default."""

    @property
    def declared_variables(self) -> set[str] | None:
        """Return the declared configuration variables, or None if the project may read others."""

    def render(self, declared: Declarations) -> str:
        """Return the text of the declarations alone, as added to a file by an import."""

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


class TopologyDeclarations:
    """The entries of a topology and of the files that the topology includes.

    New entries are added to `target`, one of these files.

    Raises:
        TopologyError: the files are not valid.
        EngineError: `target` is not one of these files.
    """

    def __init__(self, topology: Path, target: Path, stack: str) -> None:
        self._target = target
        self._instances: list[Instance] = []
        self.defaulted_variables: set[str] = set()
        self.declared_variables: set[str] | None = None
        problems = Diagnostics()
        if topology.exists():
            topology_plan = plan(topology, read_plan_context(topology, stack), problems)
            if problems:
                raise TopologyError(problems)
            self._instances = [resource.instance for resource in topology_plan.resources]
            variables = topology_plan.topology.config.values()
            self.declared_variables = {variable.name for variable in variables}
            self.defaulted_variables = {
                variable.name for variable in variables if "default" in variable.fields
            }
        # The plan would not read a file that no topology includes.
        files = {topology, *(file.path for file in read_files(topology, Diagnostics()))}
        if target.resolve() not in {file.resolve() for file in files}:
            raise EngineError(
                f"{format_path(target)} is not part of {format_path(topology)}",
                hint=f"create it if needed, and include it: include: [{target.name}]; an "
                "import adds no entries to modules: every instance of the module would have them",
            )

    @property
    def names(self) -> DeclaredNames:
        """Return the names of the entries outside of modules, and of all instances."""
        declarations = (item.declaration for item in self._instances if not item.module)
        return {
            *((declaration.section, declaration.name) for declaration in declarations),
            *((instance.declaration.section, instance.name) for instance in self._instances),
        }

    @cached_property
    def pending_imports(self) -> Mapping[ObjectKey, str]:
        """Return the entry name by object, for each `import` option with a literal id.

        Instances of a `for_each` and ids that are expressions are left out.
        """
        pending_imports = {}
        for instance in self._instances:
            option = instance.declaration.options.get("import")
            # An object of a `for_each` has a key: one id cannot be of all its instances.
            if option is not None and isinstance(option.node, ScalarNode) and instance.key == ALONE:
                id_ = option.node.text
                if not has_expression(id_):
                    declaration = instance.declaration
                    pending_imports[declaration.platform, declaration.kind, id_] = instance.name
        return pending_imports

    def render(self, declared: Declarations) -> str:
        return render_topology(declared)

    def find_reference(self, platform: str, kind: str, name: str) -> DeclaredReference | None:
        """Return the reference to an entry, with the key for an instance of a `for_each`.

        None for resources of modules, which only their modules' outputs show, and for lookups by
        id.
        """
        instance = self._instances_by_name.get((platform, kind, name))
        if instance is None or instance.module or "id" in instance.declaration.options:
            return None
        # Without `for_each` an entry has one instance and no key.
        key = None if instance.declaration.is_single else instance.key
        return DeclaredReference(instance.declaration.section, instance.declaration.name, key=key)

    def build_addition(self, declared: Declarations) -> FileEdit:
        """Return the edit of the target file: each entry at the end of the entry's section."""
        before = read_text_file(self._target)
        after = add_entries(before or "", declared, format_path(self._target))
        return FileEdit(self._target, before, after)

    def build_import_removals(
        self, imported_resources: Iterable[tuple[str, str, str]]
    ) -> list[FileEdit]:
        """Return the edits for removing `import` options, one for each file.

        Entries of modules are skipped: an option there would be of all instances of the module.
        """
        entries_by_file: dict[str, list[tuple[str, str]]] = {}
        for key in imported_resources:
            instance = self._instances_by_name.get(key)
            if instance is not None and not instance.module:
                declaration = instance.declaration
                entries_by_file.setdefault(declaration.position.file, []).append(
                    (declaration.section, declaration.name)
                )
        edits = []
        for file, names in entries_by_file.items():
            before = read_text_file(Path(file))
            after = remove_option(before or "", names, "import", file)
            edits.append(FileEdit(Path(file), before, after))
        return edits

    @cached_property
    def _instances_by_name(self) -> Mapping[tuple[str, str, str], Instance]:
        return {
            (instance.declaration.platform, instance.declaration.kind, instance.name): instance
            for instance in self._instances
        }


def open_declarations(
    project: Project, stack: str, target: Path | None, *, python: bool
) -> ProjectDeclarations:
    """Return the declarations of the project's topology or program, read from the files.

    The program is used with `python`, or if there is no topology. A project with neither gets a new
    topology. `target` is the file for new entries, by default the topology or the program itself.
    """
    folder, entry = get_folder_and_entry(project.program)
    program = folder / ("__main__.py" if entry == "." else entry)
    topology = find_topology_file(folder)
    # A new project has neither: a topology needs no program.
    if python or (topology is None and program.exists()):
        return _ProgramDeclarations(_to_relative_path(target or program))
    topology = _to_relative_path(topology or folder / "topology.yaml")
    return TopologyDeclarations(topology, target or topology, stack)


def _to_relative_path(path: Path) -> Path:
    """Return a path inside the current folder as a relative one, as messages name files."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


_SECTIONS_BY_KIND = {kind: section for section, kind in SECTIONS.items()}


class _ProgramDeclarations:
    """The resources that the text of a Python program declares.

    Resources made in loops or with computed names are not found: the program is not run.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._source = read_text_file(path)
        self._resources: list[ResourceCall] = find_resource_calls(self._source or "", str(path))

    @property
    def names(self) -> DeclaredNames:
        """Return the section and the name of each resource in the program's text."""
        return {(_SECTIONS_BY_KIND[resource.kind], resource.name) for resource in self._resources}

    @property
    def pending_imports(self) -> Mapping[ObjectKey, str]:
        """Return the resource name by object, for each literal `import_` option."""
        importing_resources = (resource for resource in self._resources if resource.import_id)
        return {
            (resource.platform, resource.kind, resource.import_id): resource.name
            for resource in importing_resources
        }

    @property
    def defaulted_variables(self) -> set[str]:
        """Return no variables: the text of a program does not show defaults."""
        return set()

    @property
    def declared_variables(self) -> None:
        """Return None: a program may read any variable."""

    def render(self, declared: Declarations) -> str:
        return render_program(declared)

    def find_reference(self, platform: str, kind: str, name: str) -> DeclaredReference | None:
        """Return the reference to a resource in a top-level variable, or None."""
        key = (platform, kind, name)
        is_assigned = any(
            key == (resource.platform, resource.kind, resource.name) and resource.variable
            for resource in self._resources
        )
        return DeclaredReference(_SECTIONS_BY_KIND[kind], name) if is_assigned else None

    def build_addition(self, declared: Declarations) -> FileEdit:
        """Return the edit of the program, with the resources at the end.

        New statements refer to resources by the variables of the program.
        """
        names = PythonNames()
        for resource in self._resources:
            # A new statement can refer to a resource only by a variable.
            if resource.variable:
                names.assign(_SECTIONS_BY_KIND[resource.kind], resource.name, resource.variable)
        new_source = add_resources(self._source or "", declared, names, str(self._path))
        return FileEdit(self._path, self._source, new_source)

    def build_import_removals(
        self, imported_resources: Iterable[tuple[str, str, str]]
    ) -> list[FileEdit]:
        """Return the one edit that removes the resources' `import_` options from the program."""
        source = read_text_file(self._path) or ""
        after = remove_import_options(source, imported_resources, str(self._path))
        return [FileEdit(self._path, source, after)]
