"""Build the script that the Pulumi CLI starts as the plugin, and read the interpreter out of one.

`installing` writes the script, and `gpuform plugin doctor` reads it. The script starts Python with
`-P`, so that neither an active virtualenv nor the current folder changes which modules are
imported.
"""

import re
import shlex
from pathlib import Path
from typing import Final

_MODULE: Final = "gpuform.providers.plugin"
_REINSTALL_ADVICE: Final = (
    "the environment from which the gpuform plugin was installed no longer exists; "
    "in the environment that has gpuform now, run: gpuform plugin install"
)
_SHELL_SCRIPT: Final = f"""\
#!/bin/sh
# Written by `gpuform plugin install`.
python={{python}}
if [ ! -x "$python" ]; then
    echo "$python does not exist: {_REINSTALL_ADVICE}" >&2
    exit 1
fi
exec "$python" -P -m {_MODULE} "$@"
"""
_BATCH_FILE: Final = f"""\
@echo off
rem Written by `gpuform plugin install`.
chcp 65001 >nul
if not exist "{{python}}" (
    echo "{{python}}" does not exist: {_REINSTALL_ADVICE} 1>&2
    exit /b 1
)
"{{python}}" -P -m {_MODULE} %*
"""
_INTERPRETER_PATTERNS: Final = (
    re.compile(r"^python=(.+)$", re.MULTILINE),
    re.compile(r'^if not exist "(.+)" \($', re.MULTILINE),
)


def build_launcher(python: Path, *, windows: bool) -> bytes:
    """Return a shell script, or a batch file if `windows`, to start the plugin with `python`."""
    if windows:
        # In a batch file `%` begins a variable; doubling it keeps it in a path.
        batch_file = _BATCH_FILE.format(python=str(python).replace("%", "%%"))
        return batch_file.replace("\n", "\r\n").encode()
    return _SHELL_SCRIPT.format(python=shlex.quote(str(python))).encode()


def find_interpreter(program: bytes) -> str | None:
    """Return the path of the interpreter named in a launcher, or None if not found.

    Args:
        program: The contents of a launcher, written by `build_launcher` or by pip.
    """
    script = program.decode("utf-8", "replace").replace("\r\n", "\n")
    shell_match, batch_match = (pattern.search(script) for pattern in _INTERPRETER_PATTERNS)
    if shell_match:
        return (shlex.split(shell_match[1]) or [""])[0]
    if batch_match:
        return batch_match[1].replace("%%", "%")
    if program.startswith(b"#!"):
        return _read_shebang(script)
    # pip's .exe has the shebang near its end; its first part may contain `#!`, too.
    shebangs = re.findall(rb'#!"?([^\r\n"]+python[^\r\n"]*)"?\r?\n', program)
    return shebangs[-1].decode("utf-8", "replace").strip() if shebangs else None


def _read_shebang(script: str) -> str:
    """Return the interpreter named in the first lines of pip's script."""
    first_line, _, remaining_lines = script.removeprefix("#!").partition("\n")
    # For a path that is too long for line 1, pip starts /bin/sh, and line 2 names Python.
    exec_line = re.match(r"'''exec' (\"[^\"]+\"|\S+)", remaining_lines)
    return (
        exec_line[1].strip('"')
        if first_line.strip() == "/bin/sh" and exec_line
        else first_line.strip()
    )
