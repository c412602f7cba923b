"""Read and write the file of a multi-stack plan, of which a run reads the plans of its own stacks.

Multi-stack runs, `gpuform join` and rehearsals call this module. `review.plan_files` knows the
layout: one line for the plan of each stack.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from pydantic import ValidationError
from pydantic_core import from_json

from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.operations.runs.plan_file import (
    PlanRefused,
    build_unreadable_error,
    read_content,
    write_private_file,
)
from gpuform.stacks.review.plan_files import (
    encode_stacks_plan,
    read_saved_plan,
    read_saved_plans,
    split_stacks_plan,
)

_OUTLINE_FIELDS: Final = (
    *("project", "stack", "operation", "emulated", "errors"),
    *("stack_references", "planned_with", "stacks_digest"),
)
"""The fields that decide in which order plans are applied, and which plans belong together."""


@dataclass(frozen=True, slots=True)
class _PlanLine:
    """The place of one stack's plan in a file, and the SHA-256 of its JSON."""

    offset: int
    length: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class StacksPlanFile:
    """The file of a multi-stack plan, of which a run reads the plans of its own stacks only.

    `digest` is the SHA-256 of the file. `outline` has the plans of all stacks without their
    changes.
    """

    path: Path
    digest: str
    outline: StacksPlan
    _lines: Mapping[str, _PlanLine]
    _contents: Mapping[str, bytes]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the outline of a file.

        Raises:
            EngineError: the file cannot be read, or holds no such plan (the error says what it
                holds), or lacks a stack that was planned together with the others, or has one more.
        """
        try:
            # A pipe, such as that of a program which decrypts the plan, can be read only once.
            plan_file = None if path.is_fifo() else cls(path, *_read_outline(path), {})
        except OSError as error:
            raise build_unreadable_error(path, error) from error
        except (ValueError, KeyError, TypeError):
            # Another layout, or no plan: the reader of all layouts finds the place of an error.
            plan_file = None
        plan_file = plan_file or cls._read_complete(path)
        _require_planned_together(path, plan_file.outline)
        return plan_file

    @classmethod
    def _read_complete(cls, path: Path) -> Self:
        """Read the plans of all stacks of a file in any layout. Raises EngineError."""
        content = read_content(path)
        stacks_plan = read_saved_plans(str(path), content)
        if isinstance(stacks_plan, Plan):
            raise PlanRefused(
                f"{path} is a plan of a single stack",
                hint=f"apply it without --all: --plan {path}",
            )
        documents = json.loads(content)["plans"]
        contents = {
            plan.project_stack: json.dumps(document).encode()
            for plan, document in zip(stacks_plan.plans, documents, strict=True)
        }
        return cls(path, hashlib.sha256(content).hexdigest(), stacks_plan, {}, contents)

    def load_plan(self, name: str) -> Plan:
        """Return the complete plan of a stack of the file.

        Raises:
            EngineError: as `load_content`, or the plan is damaged.
        """
        content = self.load_content(name)
        try:
            return Plan.model_validate(from_json(content))
        except ValidationError:
            # The reader of single plans says which field is wrong.
            return read_saved_plan(f"{self.path} ({name})", content)

    def load_content(self, name: str) -> bytes:
        """Return the JSON of the plan of a stack as it stands in the file, for the check of a seal.

        Raises:
            EngineError: the file cannot be read, or was replaced since it was opened.
        """
        if name in self._contents:
            return self._contents[name]
        line = self._lines[name]
        try:
            with self.path.open("rb") as file:
                file.seek(line.offset)
                content = file.read(line.length)
        except OSError as error:
            raise build_unreadable_error(self.path, error) from error
        if hashlib.sha256(content).digest() != line.digest:
            raise PlanRefused(
                f"the plan {self.path} was replaced during the run",
                "find out who can write to the file, and make a new plan",
            )
        return content

    def load_changes(self, names: Iterable[str]) -> StacksPlan:
        """Return the plans of some stacks without the digests needed only for the apply.

        Raises:
            EngineError: as `load_plan`.
        """
        plans = tuple(self.load_plan(name).drop_digests() for name in names)
        return self.outline.model_copy(update={"plans": plans})

    def load_all(self) -> StacksPlan:
        """Return the complete plans of all stacks. Raises EngineError, as `load_plan`."""
        plans = tuple(self.load_plan(plan.project_stack) for plan in self.outline.plans)
        return self.outline.model_copy(update={"plans": plans})


def _read_outline(path: Path) -> tuple[str, StacksPlan, dict[str, _PlanLine]]:
    """Return digest, outline and lines of a file in the layout of `write_plan`.

    Raises OSError, and ValueError, KeyError or TypeError for another layout.
    """
    file_digest, offset = hashlib.sha256(), 0

    def read_lines(file: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal offset
        for line in file:
            yield line
            file_digest.update(line)
            # Moved when the next line is asked for: until then, the offset is that of this line.
            offset += len(line)

    outlines: list[dict[str, Any]] = []
    lines: dict[str, _PlanLine] = {}
    with path.open("rb") as file:
        parts = split_stacks_plan(read_lines(file))
        head = from_json(next(parts))
        for part in parts:
            document = from_json(part)
            outline = {name: document[name] for name in _OUTLINE_FIELDS}
            basis = {name: document["basis"][name] for name in ("options", "key", "seal")}
            outline |= {"summary": {}, "basis": {**basis, "state": {}, "config": {}, "program": {}}}
            name = f"{outline['project']}/{outline['stack']}"
            lines[name] = _PlanLine(offset, len(part), hashlib.sha256(part).digest())
            outlines.append(outline)
    stacks_plan = StacksPlan.model_validate({**head, "plans": outlines})
    return file_digest.hexdigest(), stacks_plan, lines


def _require_planned_together(path: Path, stacks_plan: StacksPlan) -> None:
    """Raise PlanRefused unless the file has exactly the stacks planned together.

    Whoever removes, adds or replaces a plan in the file would have to edit the digest in each
    other plan, and breaks their seals with it.
    """
    foreign_names = stacks_plan.list_foreign_names()
    if not foreign_names:
        return
    if len(foreign_names) < len(stacks_plan.plans):
        raise PlanRefused(
            f"{path} has plans that were not made together with the others: "
            f"{', '.join(foreign_names)}",
            hint="find out who can write to the file, and make a new plan",
        )
    raise PlanRefused(
        f"{path} does not have exactly the stacks that were planned together: stacks were removed "
        "or added, or an earlier release saved the plan",
        hint="find out who can write to the file, and make a new plan",
    )


def read_stacks_plan(path: Path) -> StacksPlan:
    """Return the complete multi-stack plan of a file. Raises EngineError, as `StacksPlanFile`."""
    return StacksPlanFile.open(path).load_all()


def require_stacks_digest(plan_file: StacksPlanFile | None, digest: str) -> None:
    """Raise PlanRefused unless the file of the plan has the digest of the reviewed plan.

    Without a plan, PlanRefused is raised too.
    """
    if plan_file is None:
        raise PlanRefused(
            "a digest was given, but no saved plan",
            hint="also pass the plan's file: --plan FILE",
        )
    if plan_file.digest != digest:
        raise PlanRefused(
            f"{plan_file.path} is not the reviewed plan: its digest is {plan_file.digest}, but "
            f"{digest or 'an empty one'} was given",
            hint="review it with `gpuform review`, which shows its digest and its changes",
        )


def write_stacks_plan(
    path: Path, stacks_plan: StacksPlan, load_plan: Callable[[str], Plan] | None
) -> str:
    """Write a multi-stack plan as `plan_file.write_plan` does, and return the digest of the file.

    The plans are those that `load_plan` returns, with None those of `stacks_plan`.

    Raises:
        PlanRefused: the file cannot be written.
        EngineError: `load_plan` raised it; an existing file is untouched.
    """
    plans = (
        plan if load_plan is None else load_plan(plan.project_stack) for plan in stacks_plan.plans
    )
    file_digest = hashlib.sha256()

    def read_chunks() -> Iterator[bytes]:
        for chunk in encode_stacks_plan(stacks_plan, plans):
            file_digest.update(chunk)
            yield chunk

    write_private_file(path, read_chunks())
    return file_digest.hexdigest()
