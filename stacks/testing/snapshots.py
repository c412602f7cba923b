"""Compare runs with snapshots: YAML files beside the tests that `gpuform test --update` writes.

A snapshot has the fields of `expect`, so that it reads like an expectation of everything.
"""

import difflib
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.providers.values import Redactor
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import ResourceChange
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.testing.cases import Case, RunReport, get_address
from gpuform.stacks.testing.comparison import UnmetExpectation, get_verdicts
from gpuform.stacks.topology.files import format_path

FOLDER: Final = "snapshots"
_HEADER: Final = "# Written by `gpuform test --update`. Read its changes as you read code.\n"
_UNKNOWN: Final = "[known after apply]"
_NAMED_ID: Final = re.compile(r"\[id of .*\]")
_EMULATOR: Final = re.compile(r"127\.0\.0\.1:[0-9]+")


@dataclass(slots=True)
class Snapshots:
    """The snapshots of one `gpuform test`.

    With `update`, `save` writes files; without, nothing is written.
    """

    update: bool
    _new_contents: dict[Path, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find_differences(self, case: Case, report: RunReport) -> Iterator[UnmetExpectation]:
        """Yield a finding if the case has a snapshot different from the run.

        Only the values of the file are compared, not its layout or comments. With `update` nothing
        is yielded, and the new content is kept for `save`. Raises EngineError for an unreadable
        file.
        """
        if not case.expect.snapshot:
            return
        path, new_content = get_snapshot_path(case), _dump_yaml(build_content(report))
        old_content: str | _InvalidYaml | None
        try:
            old_content = _read_normalized(path)
        except _InvalidYaml as error:
            old_content = None if self.update else error
        if old_content == new_content:
            return
        position = case.get_position("expect", "snapshot")
        if self.update:
            with self._lock:
                self._new_contents[path] = _HEADER + new_content
        elif old_content is None:
            hint = "`gpuform test --update` writes it"
            yield UnmetExpectation(position, f"snapshot {path.name} does not exist yet: {hint}")
        elif isinstance(old_content, _InvalidYaml):
            yield UnmetExpectation(
                old_content.position, f"the snapshot is not valid YAML: {old_content.problem}"
            )
        else:
            old_lines, new_lines = old_content.splitlines(), new_content.splitlines()
            lines = difflib.unified_diff(old_lines, new_lines, "expected", "now", n=2, lineterm="")
            message = "\n  ".join([f"the run differs from {FOLDER}/{path.name}:", *lines])
            yield UnmetExpectation(position, message)

    def is_updated(self, case: Case) -> bool:
        """Return whether `save` will write the case's snapshot."""
        return get_snapshot_path(case) in self._new_contents

    def save(self) -> None:
        """Write the new and changed snapshots.

        Raises:
            EngineError: a file cannot be written.
        """
        for path, content in self._new_contents.items():
            try:
                path.parent.mkdir(exist_ok=True)
                replace_file(path, content.encode(), mode=0o644)
            except OSError as error:
                raise EngineError(f"cannot write {path}: {error.strerror}") from error


def get_snapshot_path(case: Case) -> Path:
    """Return the path of the case's snapshot, whether or not the file exists."""
    return case.file.parent / FOLDER / f"{case.file.stem}.{case.name}.yaml"


def list_unused_snapshots(cases: Iterable[Case]) -> list[Path]:
    """Return the snapshots beside the files of `cases` which belong to no case.

    The caller has read every case of these files: a snapshot of a case left out by a filter would
    count as unused. Files not written by `--update` are never returned, and neither are unreadable
    ones.
    """
    cases = list(cases)
    used_paths = {get_snapshot_path(case) for case in cases if case.expect.snapshot}
    stems: dict[Path, set[str]] = {}
    for case in cases:
        stems.setdefault(case.file.parent, set()).add(case.file.stem)
    return [
        path
        for folder, file_stems in stems.items()
        for path in sorted((folder / FOLDER).glob("*.*.yaml"))
        if path not in used_paths and _is_generated(path, folder, file_stems)
    ]


def remove_files(paths: Iterable[Path]) -> None:
    """Delete the existing files among `paths`. Raises EngineError for a file it cannot delete."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise EngineError(f"cannot remove {path}: {error.strerror}") from error


def _is_generated(path: Path, folder: Path, file_stems: Collection[str]) -> bool:
    """Return whether `--update` wrote the file for one of the test files or a deleted one."""
    stem = path.name.removesuffix(".yaml").rpartition(".")[0]
    test_files = (folder / f"{stem}.{extension}" for extension in ("yaml", "yml"))
    if stem not in file_stems and any(file.exists() for file in test_files):
        return False
    try:
        # Files that people put into the folder stay.
        return path.read_text(encoding="utf-8").startswith(_HEADER)
    except (OSError, UnicodeDecodeError):
        return False


class _InvalidYaml(Exception):
    """A snapshot that is not valid YAML: the position and the parser's message."""

    def __init__(self, position: SourcePosition, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


def _read_normalized(path: Path) -> str | None:
    """Return the file's values in the format of `--update`, or None for a missing file.

    Raises _InvalidYaml, and EngineError for an unreadable file.
    """
    try:
        return _dump_yaml(yaml.safe_load(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EngineError(f"cannot read {path}: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        position = SourcePosition(format_path(path), line, column)
        raise _InvalidYaml(position, error.problem or "invalid") from error
    except (yaml.YAMLError, ValueError) as error:
        raise _InvalidYaml(
            SourcePosition(format_path(path), 1, 1), str(error).splitlines()[0]
        ) from error


def _dump_yaml(content: Any) -> str:
    """Return values as YAML with sorted keys: equal values give equal texts."""
    return yaml.safe_dump(content, sort_keys=True, allow_unicode=True, width=100)


def build_content(report: RunReport) -> Any:
    """Return the snapshot of a run as plain YAML values, without empty fields.

    Ids differ from run to run, so each is replaced by the name of its object. Secrets are masked.
    """
    plan = report.plan
    # Names that are ids themselves are the same in every run.
    names = {
        platform_object["id"]: platform_object["name"]
        for kinds in report.final_state.objects.values()
        for objects in kinds.values()
        for platform_object in objects
        if platform_object["id"] != platform_object["name"]
    }
    content: dict[str, Any] = {"result": report.ending}
    if report.errors:
        content["error"] = list(report.errors)
    if plan is not None:
        content["plan"] = {
            get_address(change.type, change.urn): str(change.action) for change in plan.changes
        }
        content["properties"] = {
            get_address(change.type, change.urn): values
            for change in plan.changes
            if (values := dict(_list_changed_properties(change)))
        }
        content["gates"] = dict(get_verdicts(plan))
        content["hourly_cost"] = dict(plan.cost.after.sum_hourly_costs()) if plan.cost else {}
    content["outputs"] = {
        name: MASK if output.secret else output.value
        for name, output in report.final_state.outputs.items()
    }
    content["objects"] = {
        f"{platform}/{kind}": [
            {"name": platform_object["name"], "status": platform_object["status"]}
            for platform_object in sorted(objects, key=lambda item: str(item["name"]))
        ]
        for platform, kinds in report.final_state.objects.items()
        for kind, objects in kinds.items()
        if objects
    }
    # Short snapshots are read in reviews: empty fields say nothing new.
    non_empty = {key: value for key, value in content.items() if value not in ({}, [], None)}
    return _replace_volatile_values(non_empty, names, Redactor(report.secrets))


def _list_changed_properties(change: ResourceChange) -> Iterator[tuple[str, Any]]:
    """Yield path and planned value of each changed property; secrets are masked."""
    for planned in change.changes:
        if planned.action != "keep":
            value = _UNKNOWN if planned.unknown else planned.after
            yield planned.path, MASK if planned.secret else value


def _replace_volatile_values(value: Any, names: Mapping[str, str], redactor: Redactor) -> Any:
    """Return the value without secrets, and without ids and addresses, which no two runs share."""
    if isinstance(value, Mapping):
        return {key: _replace_volatile_values(item, names, redactor) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [_replace_volatile_values(item, names, redactor) for item in value]
        # Platforms list ids in any order, and no two runs have the same order.
        are_ids = all(isinstance(item, str) and _NAMED_ID.fullmatch(item) for item in items)
        return sorted(items) if are_ids else items
    if not isinstance(value, str):
        return value
    for id_, name in names.items():
        value = value.replace(id_, f"[id of {name}]")
    return redactor.redact(mask_emulator_addresses(value))


def mask_emulator_addresses(text: str) -> str:
    """Return the text with the addresses of emulators masked, whose ports no two runs share."""
    return _EMULATOR.sub("[emulator]", text)
