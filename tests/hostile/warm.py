"""Run commands in a warm process that can be killed: each is a forked child that reports its id.

Beside a command's folder lie `stdout`, `stderr` and `pid`. A command that is asked for with `learn`
tells what it imports, and the process imports that too: later commands find it there.
"""

import gc
import importlib
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from gpuform.stacks.cli import app
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter


def run(request: dict[str, Any]) -> int:
    """Return the exit code of the command, or of a killed one, the negative signal number."""
    beside = Path(request["folder"]).parent
    child = os.fork()
    if child == 0:
        try:
            _run_requested_course(request, beside)
            _main(request["arguments"], beside / "modules" if request["learn"] else None)
        finally:
            os._exit(70)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    (beside / "pid").unlink(missing_ok=True)  # before anybody else can have its number
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if request["learn"] and (beside / "modules").exists():
        _import(beside / "modules")
    return code


def _run_requested_course(request: dict[str, Any], beside: Path) -> None:
    os.chdir(request["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(beside / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    (beside / "pid").write_text(str(os.getpid()))
    os.environ.update(request["environ"])


def _main(arguments: list[str], modules: Path | None) -> NoReturn:
    code = 70
    try:
        app.cli.main(arguments, prog_name="gpuform")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        if modules is not None:
            names = [name for name in sys.modules if not name.startswith("__m")]
            modules.write_text(json.dumps(names))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _import(modules: Path) -> None:
    for name in json.loads(modules.read_text()):
        with suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no child looks through what it shares with this process


def main() -> None:
    passphrase, salt = sys.argv[1:]
    PassphraseCrypter(passphrase, salt).check()
    os.fsync = lambda _file: None  # a killed process leaves what it wrote; only a machine does not
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main()
