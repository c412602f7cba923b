"""Record what `gpuform new ci` writes, and merge the files of a newer version with users' edits.

`gpuform new ci` writes the record beside Pulumi.yaml. `gpuform new ci --upgrade` reads the record,
renders each set of workflows with the same settings, and merges by `git merge-file`: the recorded
text is the base of both the edited file and the new text.
"""

import importlib.metadata
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml
from packaging.version import InvalidVersion, Version
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gpuform.schemas.errors import EngineError
from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_requirements import (
    LOCK_FILE,
    REQUIREMENTS_FILE,
    UPGRADE_COMMAND,
    WHEEL_FOLDER,
    Requirements,
    choose_requirements,
    write_with_line_breaks,
)
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings, render_workflows

RECORD_FILE: Final = ".gpuform-ci.yaml"
_RECORD_COMMENT: Final = f"""\
# What `gpuform new ci` has written. `{UPGRADE_COMMAND}` finds your edits by it:
# keep it in git, and do not edit it.
"""
_MARKER: Final = re.compile(r"<{7} ")
_RESTORE: Final = "use the gpuform that wrote .gpuform-ci.yaml, or restore that file from git"
_WRITE_AGAIN: Final = (
    "write the files again with `gpuform new ci --force`, and take your edits over from `git diff`"
)


class UpgradeConflict(EngineError):
    """Raised if edits of a user and a newer version change the same lines of a workflow."""

    help_page = "start/upgrade"


@dataclass(frozen=True, slots=True)
class WorkflowSet:
    """The files that one `gpuform new ci` of a version has written: path from the root -> text."""

    version: str
    settings: WorkflowSettings
    files: dict[str, str]
    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class CiRecord:
    """The sets of workflows of a project."""

    sets: tuple[WorkflowSet, ...] = field(default=())
    __pydantic_config__ = ConfigDict(extra="forbid")

    @classmethod
    def load(cls, project: Path) -> "CiRecord":
        """Return the record of a project; without a file, a record without sets.

        Raises:
            EngineError: the file cannot be read, or a newer gpuform has written it.
        """
        file = project / RECORD_FILE
        try:
            yaml_source = file.read_text(encoding="utf-8") if file.exists() else "sets: []"
            record = TypeAdapter(cls).validate_python(yaml.safe_load(yaml_source))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise EngineError(f"{file} cannot be read: {error}", hint=_WRITE_AGAIN) from error
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(map(str, problem["loc"]))
            message = f"{file} has an unknown format: {where}: {problem['msg']}"
            raise EngineError(message, hint=_RESTORE) from error
        for clouds in (workflow_set.settings.clouds for workflow_set in record.sets):
            if Clouds.from_urls(f"{name}://" for name in clouds.schemes).schemes != clouds.schemes:
                message = f"{file} has an unknown format: schemes: {', '.join(clouds.schemes)}"
                raise EngineError(message, hint=_RESTORE)
        return record

    def add(self, workflow_set: WorkflowSet) -> "CiRecord":
        """Return a record with `workflow_set` in place of the sets with common files."""
        paths = workflow_set.files.keys()
        others = (other for other in self.sets if not other.files.keys() & paths)
        return CiRecord((*others, workflow_set))

    def save(self, project: Path) -> Path:
        """Write the record into a project, and return the path.

        Raises:
            EngineError: the file cannot be written.
        """
        file = project / RECORD_FILE
        document = yaml.dump(asdict(self), Dumper=_BlockDumper, sort_keys=False, width=10_000)
        try:
            write_with_line_breaks(file, _RECORD_COMMENT + document)
        except OSError as error:
            raise EngineError(f"{file} cannot be written: {error.strerror}") from error
        return file


class _BlockDumper(yaml.SafeDumper):
    """Write texts of several lines as blocks, so that a diff of the record has lines."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar(
            "tag:yaml.org,2002:str", data, style="|" if "\n" in data else None
        )


_BlockDumper.add_representer(str, _BlockDumper.represent_str)
_BlockDumper.add_representer(tuple, _BlockDumper.represent_list)


def get_version() -> str:
    """Return the version of the running gpuform."""
    return importlib.metadata.version("gpuform")


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file after an upgrade; `text` None means that the file is absent.

    `outcome` says what happened; `conflicts` are the lines of the conflict markers.
    """

    path: str
    text: str | None
    outcome: str
    conflicts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What an upgrade writes: the merged workflows, the requirements and the record."""

    files: tuple[MergedFile, ...]
    requirements: Requirements
    record: CiRecord

    def write(self, repository: Repository) -> list[Path]:
        """Write all, the record last, and return the paths of requirements and record.

        A killed upgrade can be run again: the base of the merge is still the old one.

        Raises:
            EngineError: a file cannot be written.
        """
        _write_merged(repository.root, self.files)
        return [*self.requirements.write(repository.project), self.record.save(repository.project)]

    def reject_conflicts(self) -> None:
        """Raise UpgradeConflict if files have conflicts."""
        positions = [f"{file.path}:{line}" for file in self.files for line in file.conflicts]
        if positions:
            raise UpgradeConflict(
                "your edits and the new version change the same lines: " + ", ".join(positions),
                hint="edit the files: between <<<<<<< and >>>>>>> are your lines, those of the old "
                "version, and those of the new version",
            )


def plan_ci_files(
    repository: Repository,
    settings: WorkflowSettings,
    environ: Mapping[str, str],
    *,
    vendor: bool | None,
) -> tuple[CiRecord, Requirements]:
    """Return a project's record with a new last set of workflows, and the requirements.

    `vendor` None is that of the other sets, or else as `choose_requirements` decides. Nothing is
    written.

    Raises:
        EngineError: the workflows of another code host or stack install gpuform in another way, the
            requirements cannot be locked, or a file is a link.
    """
    _reject_links(repository)
    record = CiRecord.load(repository.project)
    rendered = _render_set(repository, settings)
    for path in rendered.files:
        _reject_link(repository.root, path)
    others = record.add(rendered).sets[:-1]
    if vendor is None and others:
        vendor = others[-1].settings.vendored
    workflow_sets = (*others, rendered)
    extras = sorted({extra for item in workflow_sets for extra in item.settings.extras})
    requirements = choose_requirements(repository.project, extras, environ, vendor=vendor)
    vendored = requirements.lock is None
    for other in others:
        if other.settings.vendored != vendored:
            flag = "--vendor" if vendored else "--no-vendor"
            raise EngineError(
                f"{next(iter(other.files))} installs gpuform in another way",
                hint=f"change it first: {UPGRADE_COMMAND} {flag}",
            )
    settings = replace(settings, vendored=vendored)
    return record.add(_render_set(repository, settings)), requirements


def _render_set(repository: Repository, settings: WorkflowSettings) -> WorkflowSet:
    """Return the files for workflow settings, rendered by the running version."""
    render = render_workflows
    if settings.every_stack:
        from gpuform.stacks.ci_stacks import render_stacks_workflows  # noqa: PLC0415 - topologies

        render = render_stacks_workflows
    return WorkflowSet(get_version(), settings, render(repository, settings))


def plan_upgrade(
    repository: Repository, environ: Mapping[str, str], *, vendor: bool | None
) -> Upgrade:
    """Return the upgrade of all workflows of a project to the running version of gpuform.

    `vendor` None installs gpuform as before. Nothing is written.

    Raises:
        EngineError: the project has no record, a newer gpuform has written it, a file has markers
            of an earlier conflict or cannot be read, git is missing, or the requirements cannot be
            locked.
    """
    project = repository.project
    _reject_links(repository)
    record = CiRecord.load(project)
    if not record.sets:
        raise EngineError(
            f"{project / RECORD_FILE} is missing, by which an upgrade finds your edits",
            hint=_WRITE_AGAIN,
        )
    _reject_newer_version(record)
    vendored = record.sets[-1].settings.vendored if vendor is None else vendor
    new_sets, files = [], []
    for old_set in record.sets:
        settings = replace(old_set.settings, vendored=vendored)
        new_set = _render_set(repository, settings)
        new_sets.append(new_set)
        for path in dict.fromkeys((*old_set.files, *new_set.files)):
            versions = old_set.files.get(path), new_set.files.get(path)
            files.append(_merge_file(repository.root, path, *versions, old_set.version))
    extras = sorted({extra for new_set in new_sets for extra in new_set.settings.extras})
    requirements = choose_requirements(project, extras, environ, vendor=vendored)
    return Upgrade(tuple(files), requirements, CiRecord(tuple(new_sets)))


def _reject_newer_version(record: CiRecord) -> None:
    """Raise EngineError if a newer gpuform has written a set: this one would undo its changes."""
    for version in (workflow_set.version for workflow_set in record.sets):
        try:
            is_newer = Version(version) > Version(get_version())
        except InvalidVersion as error:
            message = f"{RECORD_FILE} has an unknown format: version: {version}"
            raise EngineError(message, hint=_RESTORE) from error
        if is_newer:
            raise EngineError(
                f"gpuform {version} has written the workflows, and this is gpuform {get_version()}",
                hint="install that version, or restore earlier workflows from git",
            )


def _merge_file(
    root: Path, path: str, base: str | None, new: str | None, version: str
) -> MergedFile:
    """Return a file after the upgrade from the text `base` to `new`, with the edits in between."""
    current = _read_current(root, path)
    if new in {current, base}:
        return MergedFile(path, current, "unchanged")
    if new is None:
        if current == base:
            return MergedFile(path, None, "removed: gpuform no longer writes it")
        return MergedFile(path, current, "kept with your edits: gpuform no longer writes it")
    if current is None:
        if base is None:
            return MergedFile(path, new, "new")
        return MergedFile(path, None, "left out, because you have removed it")
    if current == base:
        return MergedFile(path, new, "changed")
    merged = _merge_texts(current, base or "", new, version)
    lines = merged.splitlines()
    conflicts = tuple(number for number, line in enumerate(lines, 1) if _MARKER.match(line))
    outcome = "merged with your edits"
    if conflicts:
        outcome += ", with conflicts"
    return MergedFile(path, merged, outcome, conflicts)


def _read_current(root: Path, path: str) -> str | None:
    """Return the text of a file, or None if there is none; each line break is `\\n`.

    Raises:
        EngineError: the file cannot be read, is a link, is outside of the repository, or has the
            markers of an earlier conflict.
    """
    _reject_link(root, path)
    try:
        content = (root / path).read_text(encoding="utf-8")  # with line breaks of any system
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"{root / path} cannot be read: {error}") from error
    for number, line in enumerate(content.splitlines(), 1):
        if _MARKER.match(line):
            raise UpgradeConflict(
                f"{path}:{number}: a conflict of an earlier upgrade is still there",
                hint="edit the file until no <<<<<<< is left, and run the command again",
            )
    return content


def _reject_links(repository: Repository) -> None:
    """Raise EngineError if a file written beside the workflows is a link out of the repository.

    Projects may share such files by links.
    """
    root = repository.root.resolve()
    for name in (RECORD_FILE, REQUIREMENTS_FILE, LOCK_FILE, WHEEL_FOLDER):
        target = (repository.project / name).resolve()
        if not target.is_relative_to(root) or target.is_relative_to(root / ".git"):
            raise _build_link_error(f"{repository.directory}/{name}".removeprefix("./"))


def _reject_link(root: Path, path: str) -> None:
    """Raise EngineError if a path, relative to `root`, is a link or outside of the repository."""
    # A hostile branch may have written the record, or a link to a file of git's own.
    if (root / path).resolve() != root.resolve() / path:
        raise _build_link_error(path)


def _build_link_error(path: str) -> EngineError:
    """Build the error of a path to which nothing is written: a branch may hold any link."""
    return EngineError(
        f"{path} is a link, or outside of the repository",
        hint=f"remove the link, or restore {RECORD_FILE} from git",
    )


def _merge_texts(current: str, base: str, new: str, version: str) -> str:
    """Return the three-way merge of texts by git, with markers around conflicts.

    Raises:
        EngineError: git is missing or fails.
    """
    labels = ("yours", f"gpuform {version}", f"gpuform {get_version()}")
    with TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("current", "base", "new")]
        for file, content in zip(files, (current, base, new), strict=True):
            file.write_text(content, encoding="utf-8", newline="\n")
        label_flags = [flag for label in labels for flag in ("-L", label)]
        try:
            merged = subprocess.run(  # noqa: S603 - git, with fixed arguments
                ["git", "merge-file", "--stdout", "--diff3", *label_flags, *files],  # noqa: S607
                capture_output=True,
                text=True,
                encoding="utf-8",
                check=False,
            )
        except OSError as error:
            raise EngineError(f"git cannot be run: {error}", hint="install git") from error
    # The exit code is the number of conflicts, at most 127; higher ones are errors.
    if not 0 <= merged.returncode <= 127:
        raise EngineError(f"git cannot merge: {merged.stderr.strip()}")
    return merged.stdout


def _write_merged(root: Path, files: Iterable[MergedFile]) -> None:
    """Write merged files, and remove absent ones.

    Raises:
        EngineError: a file cannot be written.
    """
    try:
        for file in files:
            target = root / file.path
            if file.text is None:
                target.unlink(missing_ok=True)
            elif file.outcome != "unchanged":
                target.parent.mkdir(parents=True, exist_ok=True)
                write_with_line_breaks(target, file.text)
    except OSError as error:
        raise EngineError(f"{error.filename} cannot be written: {error.strerror}") from error
