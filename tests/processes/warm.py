"""A warm process that runs `gpuform` commands, each in a forked child.

Everything is imported and the key of the stacks' passphrase is derived once; a command then costs
what it does itself. Commands come as lines of JSON on stdin, results go as lines of JSON to stdout.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from gpuform.stacks.cli import app, running  # noqa: F401
from gpuform.stacks.cli.commands import (
    config_commands,  # noqa: F401
    stack_commands,  # noqa: F401
)
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter


def run(arguments: list[str], folder: str, environ: dict[str, str]) -> int:
    """The exit code of a command; what it says is in `stdout` and `stderr` beside the project."""
    child = os.fork()
    if child == 0:
        try:
            os.chdir(folder)
            for number, name in ((1, "stdout"), (2, "stderr")):
                os.dup2(os.open(f"../{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.environ.update(environ)
            _main(arguments)
        finally:
            os._exit(70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _main(arguments: list[str]) -> None:
    code = 70
    try:
        app.cli.main(arguments, prog_name="gpuform")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    passphrase, salt = sys.argv[1:]
    PassphraseCrypter(passphrase, salt).check()
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        Path(asked["folder"]).resolve(strict=True)
        print(json.dumps(run(**asked)), flush=True)  # noqa: T201 - the result


if __name__ == "__main__":
    main()
