"""Select, isolate and measure the tests of all folders."""

import gc
import itertools
import os
import re
import shutil
import signal
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings
from processes.limits import LAST_RESORT
from support.processor_time import limited_processor_time  # noqa: F401 - a fixture of all tests
from support.servers.bucket_server import BucketServer, serve_buckets

from gpuform.providers.context.run_context import close_all_clocks
from gpuform.providers.http import close_all_clients
from gpuform.stacks.engine import sdk_patches

# No test measures time: on a busy machine examples may take long to make and to run. What passes
# once passes always: a longer search, without `derandomize`, is for people who look at its finds.
settings.register_profile(
    "thorough",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
# Whoever waits for the tests gets the first quarter of the examples. The slow tests of .ci/run and
# those of the night run with `--hypothesis-profile=thorough`.
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=25)
settings.load_profile("quick")

# What a shell runs in the background ignores signals, and the commands of the tests would as well.
for _number in (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Keep what commands write for a user, such as selected stacks, out of this user's home.

    The paths of projects of an earlier session can come again, and with them its selections.
    """
    if not hasattr(config, "workerinput"):  # the processes of xdist inherit the variable
        os.environ["PULUMI_HOME"] = folder = tempfile.mkdtemp(prefix="pulumi-home-")
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))


ONE_CASE_IN = 24
ONE_TEST_IN = 8
ONE_REAL_CASE_IN = 24
"""Of the cases of a slow test .ci/run plays the first of every 24; of tests without cases by their
names one in eight. Of the programs that the real CLI plays it is one in 24; with what is marked
`in_every_run` they are up, preview, refresh, destroy, import and a kill, in 90 s of CPU. The night
plays all others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Deselect slow tests by order and name: every machine makes the same choice."""
    cases: Counter[str] = Counter()
    for item in items:
        if not item.get_closest_marker("slow"):
            continue
        if has_no_slow_test(item.path):
            raise pytest.UsageError(f"{item.nodeid} is slow without a `mark.slow` in its module")
        sampled = item.get_closest_marker("sampled")
        if sampled:
            is_deselected = zlib.crc32(item.nodeid.encode()) % sampled.args[0]
        elif item.get_closest_marker("in_every_run"):
            is_deselected = 0
        elif item.get_closest_marker("real_pulumi"):
            test = item.nodeid.partition("[")[0]
            is_deselected = cases[test] % ONE_REAL_CASE_IN if test.endswith("do_the_same") else 1
            cases[test] += 1
        elif hasattr(item, "callspec"):
            test = item.nodeid.partition("[")[0]
            is_deselected = cases[test] % ONE_CASE_IN
            cases[test] += 1
        else:
            is_deselected = zlib.crc32(item.nodeid.encode()) % ONE_TEST_IN
        if is_deselected:
            item.add_marker("exhaustive")


SLOW_FOLDERS = ("real_pulumi",)
"""Folders of this one whose conftest.py marks every test as slow."""
MIXED_FOLDERS = ("conformance", "stacks/code_hosts")
"""Folders whose conftest.py marks some cases as slow."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no module, and no folder, of which no test is played.

    A path that the command line names is always collected.
    """
    is_unused = {"not slow": has_slow_tests_only, "slow and not exhaustive": has_no_slow_test}
    markers = config.option.markexpr
    if markers not in is_unused or has_argument(config, collection_path):
        return None
    modules = [collection_path]
    if collection_path.is_dir():
        modules = [*collection_path.rglob("test_*.py")]
    elif not collection_path.match("test_*.py"):
        return None
    return (bool(modules) and all(map(is_unused[markers], modules))) or None


def has_argument(config: pytest.Config, path: Path) -> bool:
    """Return whether the command line names `path` or a part of `path`."""
    arguments = [Path(argument.partition("::")[0]).absolute() for argument in config.args]
    return any(argument.is_relative_to(path) for argument in arguments)


@cache
def has_slow_tests_only(module: Path) -> bool:
    """Return whether a test module marks all tests as slow."""
    pattern = r"(?m)^pytestmark = (\[[^\]]*)?pytest\.mark\.slow\b"
    is_marked = re.search(pattern, module.read_text(encoding="utf-8")) is not None
    return is_marked or get_folder(module) in SLOW_FOLDERS


@cache
def has_no_slow_test(module: Path) -> bool:
    """Return whether no test of a module can be marked as slow."""
    is_marked = re.search(r"\bmark\.slow\b", module.read_text(encoding="utf-8")) is not None
    return not is_marked and get_folder(module) not in SLOW_FOLDERS + MIXED_FOLDERS


def get_folder(module: Path) -> str:
    """Return the folder of a test module below this one."""
    return module.parent.relative_to(Path(__file__).parent).as_posix()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return a process more than there are cores: many tests wait for processes of their own."""
    return (os.cpu_count() or 1) + 1


TESTS_OF_A_COLLECTION = 200
_finished_tests = itertools.count(1)


def pytest_collection(session: pytest.Session) -> None:
    """Collect no garbage while tests are collected: everything that is made stays."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude all collected tests from later garbage collections, which would take seconds."""
    gc.freeze()
    # No collection of everything in the middle of a test: it takes up to two seconds.
    gc.set_threshold(5_000, 10, 1_000_000)
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Collect garbage after every few tests, and exclude the rest from later collections."""
    if next(_finished_tests) % TESTS_OF_A_COLLECTION == 0:
        gc.collect()
        gc.freeze()


# httpx gives up after five seconds: on a busy machine an answer may take longer.
for _part in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, _part, LAST_RESORT)

# The tests start many processes: each would compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the detection of CI systems: tests behave alike in CI and elsewhere."""
    monkeypatch.setenv("PULUMI_DISABLE_CI_DETECTION", "true")


@pytest.fixture(autouse=True)
def no_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the user's kubeconfig, from which deleted clusters would otherwise be removed."""
    monkeypatch.setenv("KUBECONFIG", os.devnull)


@pytest.fixture(autouse=True)
def one_pickler() -> Iterator[None]:
    """Restore the SDK's pickler after each test: wrappers do not accumulate in a process."""
    with sdk_patches.unwrap_pickler():
        yield


@pytest.fixture(scope="module", autouse=True)
def own_clients() -> Iterator[None]:
    """Close the clients that a process shares after each module: no other module meets them."""
    yield
    close_all_clients()
    close_all_clocks()


@pytest.fixture(scope="session")
def bucket_server() -> Iterator[BucketServer]:
    """Return a server of buckets that all tests of a process share."""
    with serve_buckets() as server:
        yield server
