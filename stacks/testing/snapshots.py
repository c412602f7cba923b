"""Snapshots: what a run has done, in files beside the tests that `--update` writes.

A snapshot has the words of `expect`, so that it reads like an expectation of everything.
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
from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.operations.runs.results import OutputValue
from gpuform.stacks.testing.cases import Case
from gpuform.stacks.testing.comparing import Finding, exercised
from gpuform.stacks.testing.playing import address_of
from gpuform.stacks.testing.report import Report
from gpuform.stacks.topology.files import format_path

FOLDER: Final = "snapshots"
_HEAD: Final = "# Written by `gpuform test --update`. Read its changes as you read code.\n"
_UNKNOWN: Final = "[known after apply]"
_NAMED_ID: Final = re.compile(r"\[id of .*\]")
_EMULATOR: Final = re.compile(r"127\.0\.0\.1:[0-9]+")


@dataclass(slots=True)
class Snapshots:
    """Those of one play. With `update` files are written in the end; without, nothing is."""

    update: bool
    _new: dict[Path, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def findings(self, case: Case, report: Report) -> Iterator[Finding]:
        """What differs from the case's snapshot, if it has one; of files the values count alone."""
        if not case.expect.snapshot:
            return
        path, now = path_of(case), _dumped(content_of(report))
        before: str | _NoYaml | None
        try:
            before = _read(path)
        except _NoYaml as error:
            before = None if self.update else error
        if before == now:
            return
        place = case.place("expect", "snapshot")
        if self.update:
            with self._lock:
                self._new[path] = _HEAD + now
        elif before is None:
            hint = "`gpuform test --update` writes it"
            yield Finding(place, f"there is no snapshot {path.name} yet: {hint}")
        elif isinstance(before, _NoYaml):
            yield Finding(before.place, f"it is no YAML: {before.problem}")
        else:
            lines = difflib.unified_diff(
                before.splitlines(), now.splitlines(), "expected", "now", n=2, lineterm=""
            )
            told = "\n  ".join(lines)
            yield Finding(place, f"it is not as in {FOLDER}/{path.name}:\n  {told}")

    def is_updated(self, case: Case) -> bool:
        """Whether the case's snapshot will be written."""
        return path_of(case) in self._new

    def save(self) -> None:
        """Writes what is new. Raises EngineError for a file that cannot be written."""
        for path, content in self._new.items():
            try:
                path.parent.mkdir(exist_ok=True)
                replace_file(path, content.encode(), mode=0o644)
            except OSError as error:
                raise EngineError(f"{path} cannot be written: {error.strerror}") from error


def path_of(case: Case) -> Path:
    """The file of a case's snapshot."""
    return case.file.parent / FOLDER / f"{case.file.stem}.{case.name}.yaml"


def stale(cases: Iterable[Case]) -> list[Path]:
    """The snapshots that no case has any more, beside the files of `cases`, which are whole.

    Raises EngineError for one that cannot be read.
    """
    cases = list(cases)
    used = {path_of(case) for case in cases if case.expect.snapshot}
    stems: dict[Path, set[str]] = {}
    for case in cases:
        stems.setdefault(case.file.parent, set()).add(case.file.stem)
    return [
        path
        for folder, known in stems.items()
        for path in sorted((folder / FOLDER).glob("*.*.yaml"))
        if path not in used and _is_ours(path, folder, known)
    ]


def remove(paths: Iterable[Path]) -> None:
    """Raises EngineError for a file that cannot be removed."""
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise EngineError(f"{path} cannot be removed: {error.strerror}") from error


def _is_ours(path: Path, folder: Path, known: Collection[str]) -> bool:
    """Whether it was written for one of the known files, or for one that is there no more."""
    stem = path.name.removesuffix(".yaml").rpartition(".")[0]
    others = (folder / f"{stem}.{ending}" for ending in ("yaml", "yml"))
    if stem not in known and any(file.exists() for file in others):
        return False
    try:
        return path.read_text(encoding="utf-8").startswith(_HEAD)
    except (OSError, UnicodeDecodeError):
        return False


class _NoYaml(Exception):
    """A snapshot that cannot be read as one: where, and why."""

    def __init__(self, place: SourcePosition, problem: str) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem


def _read(path: Path) -> str | None:
    """What a file has, as it would be written; None without one. Raises _NoYaml, EngineError."""
    try:
        return _dumped(yaml.safe_load(path.read_bytes()))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        place = SourcePosition(format_path(path), line, column)
        raise _NoYaml(place, error.problem or "it cannot be read") from error
    except (yaml.YAMLError, ValueError) as error:
        raise _NoYaml(
            SourcePosition(format_path(path), 1, 1), str(error).splitlines()[0]
        ) from error


def _dumped(content: Any) -> str:
    return yaml.safe_dump(content, sort_keys=True, allow_unicode=True, width=100)


def content_of(report: Report) -> Any:
    """The snapshot of a run. Ids, which differ from run to run, are called by what they are of."""
    plan = report.plan
    names = {
        each["id"]: each["name"]
        for kinds in report.left.objects.values()
        for objects in kinds.values()
        for each in objects
        if each["id"] != each["name"]
    }
    content: dict[str, Any] = {"result": report.ending}
    if report.errors:
        content["error"] = list(report.errors)
    if plan is not None:
        content["plan"] = {_address(each): str(each.action) for each in plan.changes}
        content["properties"] = {
            _address(each): values for each in plan.changes if (values := _properties(each))
        }
        content["gates"] = dict(exercised(plan))
        content["hourly_cost"] = dict(plan.cost.after.sum_hourly_costs()) if plan.cost else {}
    content["outputs"] = {name: _shown(each) for name, each in report.left.outputs.items()}
    content["objects"] = {
        f"{platform}/{kind}": [
            {"name": each["name"], "status": each["status"]}
            for each in sorted(objects, key=lambda one: str(one["name"]))
        ]
        for platform, kinds in report.left.objects.items()
        for kind, objects in kinds.items()
        if objects
    }
    filled = {key: value for key, value in content.items() if value not in ({}, [], None)}
    return _replaced(filled, names, Redactor(report.secrets))


def _address(change: ResourceChange) -> str:
    return address_of(change.type, change.urn)


def _properties(change: ResourceChange) -> dict[str, Any]:
    return {each.path: _after(each) for each in change.changes if each.action != "keep"}


def _after(change: PropertyChange) -> Any:
    if change.secret:
        return MASK
    return _UNKNOWN if change.unknown else change.after


def _shown(value: OutputValue) -> Any:
    return MASK if value.secret else value.value


def _replaced(value: Any, names: Mapping[str, str], redactor: Redactor) -> Any:
    """The value without secrets, and without ids and addresses, which no two runs share."""
    if isinstance(value, Mapping):
        return {key: _replaced(each, names, redactor) for key, each in value.items()}
    if isinstance(value, list | tuple):
        items = [_replaced(each, names, redactor) for each in value]
        # Ids come in any order.
        are_ids = all(isinstance(each, str) and _NAMED_ID.fullmatch(each) for each in items)
        return sorted(items) if are_ids else items
    if not isinstance(value, str):
        return value
    for known, name in names.items():
        value = value.replace(known, f"[id of {name}]")
    return redactor.redact(_EMULATOR.sub("[emulator]", value))
