"""Fixtures that the courses of one process share: fakes, a warm process, and buckets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.fakes.serving import Fakes
from hostile.machines import warm_process
from hostile.playing import Stage


@pytest.fixture(scope="session")
def stage(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stage]:
    def bucket_server() -> object:
        return request.getfixturevalue("bucket_server")

    folder: Path = tmp_path_factory.mktemp("hostile")
    with warm_process() as warm, Fakes().serving() as fakes:
        yield Stage(warm, fakes, folder, bucket_server)
