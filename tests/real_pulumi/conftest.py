"""What needs the Pulumi CLI: everything in this folder is skipped, by name, where it is not."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.commands import Cli, in_a_warm_process

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("slow")
            item.add_marker("real_pulumi")
            if not shutil.which("pulumi"):
                item.add_marker(pytest.mark.skip(reason="the Pulumi CLI (pulumi) is not on PATH"))


@pytest.fixture(scope="module")
def gpuform() -> Iterator[Cli]:
    with in_a_warm_process() as cli:
        yield cli
