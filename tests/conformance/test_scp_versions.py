"""Test that the conformance suite also holds for version 1.3 of SCP's API, which has zones.

Every run of the suite uses one version, by `SCP_API_VERSION`. Here the fast tests run with the
other one; the nightly run has all tests with both.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT

FOLDER = Path(__file__).parent


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_fast_tests_of_scp_pass_with_the_version_that_has_zones() -> None:
    arguments = ["-q", str(FOLDER), "-k", "scp or pool", "-p", "no:cacheprovider"]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=FOLDER.parents[1],
        env={**os.environ, "SCP_API_VERSION": "1.3"},
        capture_output=True,
        text=True,
        timeout=LAST_RESORT,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
    passed = re.search(r"(\d+) passed", finished.stdout)
    assert passed is not None
    assert int(passed[1]) >= 10
