"""The processes that play cases side by side."""

import operator
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuform.schemas.cases_file import CaseInputs
from gpuform.stacks.testing import running
from gpuform.stacks.testing.playing import Part

_PROCESSES = 160


def test_no_process_loses_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start in one thread reaps the processes of all: their `join` must not come too late."""
    # Something of the standard library that takes two arguments and ends at once.
    monkeypatch.setattr(running, "play_in_process", operator.is_)
    part = Part(tmp_path, tmp_path, 0, CaseInputs(), is_begun=False)

    def told(_number: int) -> str:
        process = running.Process(part)
        process.play()
        return process.told

    with ThreadPoolExecutor(8) as threads:
        found = Counter(threads.map(told, range(_PROCESSES)))
    assert found == {"its process ended with 0": _PROCESSES}
