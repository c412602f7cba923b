"""Fixtures that the courses of one process share: fakes, a warm process, and buckets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile.fakes.serving import FakePlatforms
from hostile.machines import start_command_server
from hostile.playing import CoursePlayer


@pytest.fixture(scope="session")
def player(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[CoursePlayer]:
    def bucket_server() -> object:
        return request.getfixturevalue("bucket_server")

    folder: Path = tmp_path_factory.mktemp("hostile")
    with start_command_server() as server, FakePlatforms().run_server() as fakes:
        yield CoursePlayer(server, fakes, folder, bucket_server)
