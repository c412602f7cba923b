"""Run an emulator in this process for `--emulate`, and manage emulators in processes of their own.

Operations call `run_emulator`, for the length of a command. `gpuform emulator
start|env|status|stop` start, find and stop a process that runs `gpuform emulator`.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from gpuform.providers.context import (
    CLOCK_VARIABLE,
    EMULATOR_VARIABLE,
    RunContext,
    get_run_context,
    get_trust,
    read_run_context,
    use_run_context,
)
from gpuform.schemas.errors import EngineError

_STORE = Path(".gpuform", "emulator.db")
_PACKAGES = ("flask", "werkzeug", "wsproto")


def run_emulator(
    directory: Path, *, emulate: bool, root: Path | None = None
) -> AbstractContextManager[RunContext]:
    """Run a project's emulator while the context lasts; do nothing if `emulate` is False.

    The result is the present run context, with the emulator's variables if one runs; also calls
    without a context of their own use it meanwhile.

    The emulator's objects are in the nearest file in `directory` or above (see
    `create_shared_store`). If none exists, it is created in `directory`, or in `root`, the folder
    of the workspace that the stack belongs to, if any.

    Raises:
        EngineError: the packages of the emulator are missing, or the file's folder cannot be made.
    """
    if not emulate:
        return nullcontext(get_run_context())
    require_emulator()
    store = _find_store(directory)
    return _serve_store(root / _STORE if root is not None and not store.exists() else store)


def require_emulator() -> None:
    """Raise EngineError if the packages of the emulator are missing."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        # Imported here, because only this error says how gpuform was installed.
        from gpuform.stacks.engine.machine import get_pip_requirement  # noqa: PLC0415

        raise EngineError(
            f"the emulator requires packages that are not installed: {', '.join(missing)}",
            f"Install them: pip install '{get_pip_requirement('emulator')}'",
        )


def create_shared_store(folder: Path) -> Path:
    """Create the file of emulated objects for all projects of a folder, and return the path."""
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    store = folder / _STORE
    _make_folder(store)
    # The server writes the file when it starts.
    with serve(store_path=store):
        return store


def find_shared_store(directory: Path, root: Path) -> Path:
    """Return the file of a project's emulated objects: the nearest upwards, else `root`'s."""
    store = _find_store(directory)
    return store if store.exists() else root / _STORE


@contextmanager
def serve_emulators(stores: Sequence[Path]) -> Iterator[Mapping[Path, Mapping[str, str]]]:
    """Serve an emulator for each file, and yield each one's variables by file.

    The variables lead another process to the emulator; in this process they are not used.
    """
    require_emulator()
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    with ExitStack() as resources:
        variables = {}
        for store in stores:
            _make_folder(store)
            variables[store] = resources.enter_context(serve(store_path=store)).environment
        yield variables


def _find_store(directory: Path) -> Path:
    """Return the nearest existing store of `directory` or of a folder above.

    Without one, return the path of a new store in `directory`.
    """
    # Upwards, because the projects of a folder may share one (`gpuform emulator share`).
    candidates = [folder / _STORE for folder in (directory, *directory.parents)]
    return next((store for store in candidates if store.exists()), candidates[0])


@contextmanager
def _serve_store(store: Path) -> Iterator[RunContext]:
    """Serve an emulator, and yield a run context with the emulator's addresses."""
    from gpuform.providers.emulator.server import serve  # noqa: PLC0415 - Flask

    _make_folder(store)
    with (
        serve(store_path=store) as server,
        use_run_context(get_run_context().with_variables(server.environment)) as run_context,
    ):
        yield run_context


def _make_folder(store: Path) -> None:
    """Create the folder of an emulator's file. Raises EngineError."""
    try:
        store.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise EngineError(
            f"folder {store.parent} for emulated objects cannot be created: {error.strerror}"
        ) from error


_READY: Final = re.compile(r"^The emulator is at (\S+);", re.MULTILINE)
"""The line that `gpuform emulator` prints once it serves."""

START_TIMEOUT_S: Final = 60.0
"""How long a start may take. It takes about a second where nothing else runs."""
ANSWER_TIMEOUT_S: Final = 10.0
"""How long to wait for an emulator that may be starting or stopping right now."""
_PAUSE_S: Final = 0.05


@dataclass(frozen=True)
class RunningEmulator:
    """An emulator that answers at `url`: its data's identity, and its clock in Unix seconds."""

    url: str
    identity: str
    now: float


def start_emulator(port: int, store: Path | None, speed: float) -> RunningEmulator:
    """Start an emulator in the background, and wait until it answers.

    Args:
        port: on the loopback interface; 0 takes a free one.
        store: the file of its objects; None keeps them in memory.
        speed: seconds of its clock in a real one; 0 for a clock that others move.

    Raises:
        EngineError: the process ended, or did not serve in time; the error has what it printed.
    """
    from gpuform.stacks.operations.opening.interpreter import (  # noqa: PLC0415 - reads YAML
        build_command_start,
    )

    command = [*build_command_start(), "emulator", "--port", str(port), "--speed", f"{speed:g}"]
    command += [] if store is None else ["--store", str(store.absolute())]
    log_descriptor, log_name = tempfile.mkstemp(prefix="gpuform-emulator-", suffix=".log")
    # A file, not a pipe: the process outlives this one, and `$(gpuform emulator start)` would wait.
    with os.fdopen(log_descriptor, "w") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        url = _wait_for_address(process, Path(log_name))
        return require_emulator_at(url)
    # Also after Ctrl-C: nobody would know of the process.
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        Path(log_name).unlink(missing_ok=True)


def find_emulator_at(url: str) -> RunningEmulator | None:
    """Return the emulator which answers at `url`, or None if nobody or another server answers."""
    import httpx  # noqa: PLC0415 - only who uses an emulator pays for it

    try:
        answer = httpx.get(
            f"{url}/_emulator/clock",
            # Proxies of the environment are not meant for this machine's own ports.
            trust_env=False,
            verify=get_trust(url, read_run_context().environ),
            timeout=ANSWER_TIMEOUT_S,
        )
        report: Any = answer.raise_for_status().json()
        return RunningEmulator(url, str(report["emulator"]), float(report["now"]))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None


def require_emulator_at(url: str) -> RunningEmulator:
    """Return the emulator at `url`, after waiting up to 10 s for a response.

    Raises:
        EngineError: no emulator answers there in time.
    """
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while (emulator := find_emulator_at(url)) is None:
        if time.monotonic() >= deadline:
            raise EngineError(
                f"no emulator answers at {url}", hint='start one: eval "$(gpuform emulator start)"'
            )
        time.sleep(_PAUSE_S)
    return emulator


def stop_emulator(url: str, expected_identity: str) -> RunningEmulator | None:
    """Stop the emulator at `url` and wait for the end; return None where no emulator answers.

    The wait ends after 10 s, also where the emulator still answers.

    Args:
        url: its address.
        expected_identity: its identity, as the shell's variables have it; empty for any.

    Raises:
        EngineError: another emulator answers, or one that is part of another program.
    """
    import httpx  # noqa: PLC0415 - only who uses an emulator pays for it

    emulator = find_emulator_at(url)
    if emulator is None:
        return None
    # Another emulator may have taken the port since; stopping one needs its identity.
    if expected_identity and emulator.identity != expected_identity:
        raise EngineError(
            f"the emulator at {url} is {emulator.identity}, but {EMULATOR_VARIABLE} names "
            f"{expected_identity}: gpuform does not stop it",
            hint="to stop it, run `gpuform emulator stop --port PORT`",
        )
    answer = httpx.post(
        f"{url}/_emulator/stop",
        json={"emulator": emulator.identity},
        trust_env=False,
        verify=get_trust(url, read_run_context().environ),
        timeout=ANSWER_TIMEOUT_S,
    )
    if answer.is_error:
        raise EngineError(
            f"the emulator at {url} does not stop: it runs inside another program",
            hint="end the program that started it",
        )
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while find_emulator_at(url) is not None and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return emulator


def get_emulator_address(environ: Mapping[str, str]) -> str | None:
    """Return the address of the emulator set in a shell's variables, or None."""
    return environ.get(CLOCK_VARIABLE, "").rstrip("/") or None


def _wait_for_address(process: "subprocess.Popen[bytes]", log: Path) -> str:
    """Return the address printed into `log` by a starting emulator.

    Raises:
        EngineError: the process ended, or printed no address within `START_TIMEOUT_S`.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        has_ended = process.poll() is not None
        log_text = log.read_text(errors="replace")
        ready = _READY.search(log_text)
        if ready and not has_ended:
            return ready[1]
        if has_ended or time.monotonic() >= deadline:
            reason = log_text.strip().removeprefix("Error: ").removeprefix("error: ")
            raise EngineError(f"the emulator did not start: {reason or 'it printed no message'}")
        time.sleep(_PAUSE_S)
