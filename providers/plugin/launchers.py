"""The small program that the Pulumi CLI starts: it names the interpreter that has gpuform.

Neither an active virtualenv nor the current folder has a say in what is imported (`-P`).
"""

import re
import shlex
from pathlib import Path
from typing import Final

_MODULE: Final = "gpuform.providers.plugin"
_GONE: Final = (
    "the environment that the plugin of gpuform was installed from is gone; "
    "in the one that has gpuform now, run: gpuform plugin install"
)
_SHELL: Final = f"""\
#!/bin/sh
# Written by `gpuform plugin install`.
python={{python}}
if [ ! -x "$python" ]; then
    echo "$python is not there: {_GONE}" >&2
    exit 1
fi
exec "$python" -P -m {_MODULE} "$@"
"""
_BATCH: Final = f"""\
@echo off
rem Written by `gpuform plugin install`.
chcp 65001 >nul
if not exist "{{python}}" (
    echo "{{python}}" is not there: {_GONE} 1>&2
    exit /b 1
)
"{{python}}" -P -m {_MODULE} %*
"""
_NAMED: Final = (
    re.compile(r"^python=(.+)$", re.MULTILINE),
    re.compile(r'^if not exist "(.+)" \($', re.MULTILINE),
)


def launcher(python: Path, *, windows: bool) -> bytes:
    """A shell script, or for Windows a batch file, which starts the plugin with an interpreter."""
    if windows:
        text = _BATCH.format(python=str(python).replace("%", "%%"))
        return text.replace("\n", "\r\n").encode()
    return _SHELL.format(python=shlex.quote(str(python))).encode()


def interpreter(program: bytes) -> str | None:
    """The interpreter that a launcher starts, ours or pip's; None where it names none.

    pip's for Windows is an .exe with a line like a script's first one near its end.
    """
    text = program.decode("utf-8", "replace").replace("\r\n", "\n")
    shell, batch = (each.search(text) for each in _NAMED)
    if shell:
        return (shlex.split(shell[1]) or [""])[0]
    if batch:
        return batch[1].replace("%%", "%")
    if program.startswith(b"#!"):
        return _of_script(text)
    found = re.findall(rb'#!"?([^\r\n"]+python[^\r\n"]*)"?\r?\n', program)
    return found[-1].decode("utf-8", "replace").strip() if found else None


def _of_script(text: str) -> str:
    """The first line names it; a path that is too long for that stands in the second."""
    first, _, rest = text.removeprefix("#!").partition("\n")
    long = re.match(r"'''exec' (\"[^\"]+\"|\S+)", rest)
    return long[1].strip('"') if first.strip() == "/bin/sh" and long else first.strip()
