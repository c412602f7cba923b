"""Parts of a log that a CI system folds, by the marks of each.

GitHub: `::group::` (workflow commands). GitLab: `section_start` (custom collapsible sections).
Azure Pipelines: `##[group]` (formatting commands).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from gpuform.stacks.engine.machine import CiJob

_ERASE = "\x1b[0K"


@dataclass(slots=True)
class Folds:
    """The marks around a part: `begin` is the line of its title, `end` the line after it."""

    _begin: Callable[[str, str], str]
    _end: Callable[[str], str]
    _name: str = ""

    def begin(self, title: str) -> str:
        """The line that begins a part."""
        self._name = f"gpuform_{time.time_ns()}"
        return self._begin(self._name, title)

    def end(self) -> str:
        """The line that ends the part begun last."""
        return self._end(self._name)


def folds_of(job: CiJob | None) -> Folds | None:
    """The marks of the job's system; None where there are none."""
    if job is None:
        return None
    if job.system.startswith("GitHub"):
        return Folds(lambda _, title: f"::group::{title}", lambda _: "::endgroup::")
    if job.system.startswith("GitLab"):
        return Folds(
            lambda name, title: f"{_section('start', name)}{title}",
            lambda name: _section("end", name),
        )
    if job.system.startswith("Azure"):
        return Folds(lambda _, title: f"##[group]{title}", lambda _: "##[endgroup]")
    return None


def _section(kind: str, name: str) -> str:
    return f"{_ERASE}section_{kind}:{int(time.time())}:{name}\r{_ERASE}"
