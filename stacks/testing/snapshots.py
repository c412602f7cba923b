"""Snapshots: what a run has done, in files beside the tests that `--update` writes.

A snapshot has the words of `expect`, so that it reads like an expectation of everything.
"""

import difflib
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from gpuform.providers.values import Redactor
from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.visible import MASK
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.operations.runs.results import OutputValue
from gpuform.stacks.testing.cases import Case
from gpuform.stacks.testing.comparing import Finding, exercised
from gpuform.stacks.testing.playing import address_of
from gpuform.stacks.testing.report import Report

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
        """What differs from the case's snapshot, if it has one."""
        if not case.expect.snapshot:
            return
        path, now = path_of(case), text_of(report)
        place = case.place("expect", "snapshot")
        try:
            before = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            before = ""
        except OSError as error:
            raise EngineError(f"{path} cannot be read: {error.strerror}") from error
        if before == now:
            return
        if self.update:
            with self._lock:
                self._new[path] = now
        elif not before:
            hint = "`gpuform test --update` writes it"
            yield Finding(place, f"there is no snapshot {path.name} yet: {hint}")
        else:
            lines = difflib.unified_diff(
                before.splitlines(), now.splitlines(), "expected", "now", n=2, lineterm=""
            )
            shown = "\n  ".join(lines)
            yield Finding(place, f"it is not as in {FOLDER}/{path.name}:\n  {shown}")

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


def text_of(report: Report) -> str:
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
            _address(each): shown for each in plan.changes if (shown := _properties(each))
        }
        content["gates"] = dict(exercised(plan))
        content["hourly_cost"] = dict(plan.cost.after.hourly()) if plan.cost else {}
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
    redactor = Redactor(report.secrets)
    return _HEAD + yaml.safe_dump(
        _replaced(filled, names, redactor), sort_keys=True, allow_unicode=True, width=100
    )


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
