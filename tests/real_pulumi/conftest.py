"""Mark the tests of this folder, and skip all of them where the Pulumi CLI is missing."""

from importlib.metadata import version
from pathlib import Path

import pytest
from processes.commands import Cli, run_gpuform
from processes.pinned_pulumi import find_pulumi, get_pulumi_version, has_language_host

ABSENT = "no Pulumi CLI is on PATH, and tests/processes/pinned_pulumi.py has built none"
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and record the versions in a result file."""
    versions: list[tuple[str, object]] = []
    if config.getoption("xmlpath") and find_pulumi() is not None:
        versions = [("pulumi_cli", get_pulumi_version()), ("pulumi_sdk", version("pulumi"))]
    for item in items:
        if HERE in item.path.parents:
            item.user_properties.extend(versions)
            item.add_marker("slow")
            item.add_marker("real_pulumi")
            if find_pulumi() is None:
                item.add_marker(pytest.mark.skip(reason=ABSENT))
            for marker in item.iter_markers("language_host"):
                if not has_language_host(*marker.args):
                    host = f"pulumi-language-{marker.args[0]}"
                    item.add_marker(pytest.mark.skip(reason=f"{host} is not on PATH"))


@pytest.fixture(scope="module")
def gpuform() -> Cli:
    return run_gpuform
