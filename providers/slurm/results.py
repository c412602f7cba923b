"""The number that a batch job has measured, found in what it printed."""

import json
import math
import re
import subprocess
import sys

from gpuform.providers.errors import GpuformError
from gpuform.schemas.visible import visible

_SECONDS = 10.0
_LONGEST_LINE = 10 * 1024
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
# Nothing can interrupt a search within this process, and a pattern may take for ever.
_SEARCH = """
import json, re, sys
pattern, lines = json.load(sys.stdin)
pattern = re.compile(pattern)
group = "value" if "value" in pattern.groupindex else 1
for line in reversed(lines):
    found = list(pattern.finditer(line))
    if found:
        print(json.dumps(found[-1][group]))
        break
else:
    print("null")
"""


SEARCH_COMMAND = (sys.executable, "-I", "-S", "-c", _SEARCH)
"""This Python, without anybody's modules, with a program that reads what it is given."""


def result_of(output: str, pattern: str) -> float | None:
    """The number in group `value`, or else group 1, of the last match of `pattern`.

    It is searched for line by line, in the first 10 KiB of each. None when nothing matches, or
    when the group holds no finite number. Raises GpuformError when `pattern` is no regular
    expression, has no group, or takes longer than ten seconds.
    """
    _check(pattern)
    lines = [line.rstrip("\r")[:_LONGEST_LINE] for line in output.split("\n")]
    try:
        done = subprocess.run(  # noqa: S603 - this Python, and a program of ours
            list(SEARCH_COMMAND),
            input=json.dumps([pattern, lines]),
            capture_output=True,
            check=True,
            timeout=_SECONDS,
            encoding="ascii",
        )
    except subprocess.TimeoutExpired:
        raise GpuformError(
            f"the pattern {_shown(pattern)} takes longer than {_SECONDS:g} seconds on the output",
            hint="repeat nothing within a repetition: `(a+)+` takes for ever, `a+` does not",
        ) from None
    except (subprocess.CalledProcessError, OSError) as error:
        raise GpuformError(
            f"the pattern {_shown(pattern)} could not be searched for: {error.__class__.__name__}",
            hint="try a simpler pattern, and see whether this machine has memory left",
        ) from error
    return _number(json.loads(done.stdout))


def _check(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise GpuformError(
            f"{_shown(pattern)} is not a regular expression: {error}",
            hint=r"write one such as `Avg bus bandwidth\s*:\s*([\d.]+)`",
        ) from None
    if not groups:
        raise GpuformError(
            f"the pattern {_shown(pattern)} has no group for the number",
            hint=r"put it in brackets: `Avg bus bandwidth\s*:\s*([\d.]+)`",
        )


def _number(text: str | None) -> float | None:
    if text is None or not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _shown(pattern: str) -> str:
    return repr(visible(pattern)[:200])
