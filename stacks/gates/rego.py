"""Evaluate gates that are written in Rego, with the program `opa` of the machine.

`evaluating` calls `find_rego_problems`. The policies get the plan as `input`, in the form of
`gpuform schema --of plan`, and define the set `deny` in the package `gpuform`. Command line and
answer are those of `opa eval` (https://www.openpolicyagent.org/docs/latest/cli/#eval).
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gpuform.providers.context import get_run_context
from gpuform.schemas.plan import Plan

QUERY: Final = "data.gpuform.deny"
TIME_LIMIT_S: Final = 60.0
"""How long one evaluation may take. A policy over 10,000 resources takes about a second."""
_MAX_ERRORS: Final = 3
_VARIABLES: Final = ("PATH", "HOME", "TMPDIR")
"""The variables that opa gets: policies can read the environment, which may have credentials."""
_INSTALL_PAGE: Final = "https://www.openpolicyagent.org/docs/latest/#running-opa"


def find_rego_problems(plan: Plan, policies: str, project: Path) -> Iterator[str]:
    """Yield the messages in `deny` of the policies for a plan.

    `policies` is a file, or a folder with files *.rego, relative to the folder `project`. A gate
    that cannot decide has a finding: `opa` or the policies are missing, wrong, or take too long.
    """
    path = project / policies
    program = shutil.which("opa")
    if not _exists(path):
        yield f"{policies} does not exist in {project.name}"
    elif program is None:
        yield f"{policies} needs the program opa, which is not in PATH: see {_INSTALL_PAGE}"
    else:
        yield from _run_opa(program, plan, policies, path)


def _exists(path: Path) -> bool:
    """Return whether a path exists; False for a text that cannot be the path of a file."""
    try:
        return path.exists()
    except OSError:
        return False


def _run_opa(program: str, plan: Plan, policies: str, path: Path) -> Iterator[str]:
    """Yield the findings of one run of opa."""
    environ = get_run_context().environ
    command = [
        *(program, "eval", "--format", "json", "--stdin-input"),
        # An error in a builtin makes a rule undefined, which would let the plan pass.
        "--strict-builtin-errors",
        *("--data", str(path), QUERY),
    ]
    try:
        done = subprocess.run(  # noqa: S603 - the project's own policies, as its Python gates
            command,
            input=plan.model_dump_json().encode(),
            capture_output=True,
            check=False,
            timeout=TIME_LIMIT_S,
            env={name: environ[name] for name in _VARIABLES if name in environ},
        )
    except subprocess.TimeoutExpired:
        yield f"{policies}: opa did not end within {TIME_LIMIT_S:.0f} s"
        return
    except OSError as error:
        yield f"{policies}: opa cannot be started: {error.strerror}"
        return
    try:
        answer = json.loads(done.stdout or b"{}")
        errors, result = answer.get("errors") or (), answer.get("result") or ()
    except (ValueError, AttributeError):
        errors, result = (), ()
        answer = None
    if answer is None or errors or done.returncode != 0:
        yield f"{policies}: opa failed: {_describe_failure(errors, done.stderr)}"
        return
    yield from _read_denials(policies, result)


def _read_denials(policies: str, result: Sequence[Any]) -> Iterator[str]:
    """Yield the messages in the answer's value of `deny`; one finding if there is no such set."""
    try:
        denials = result[0]["expressions"][0]["value"]
    # An answer without a result means that the query is undefined.
    except (IndexError, KeyError, TypeError):
        denials = None
    if not isinstance(denials, list):
        yield f"{policies} defines no set `deny` in the package gpuform: write `deny contains ...`"
        return
    for denial in denials:
        message = denial.get("msg", denial) if isinstance(denial, dict) else denial
        yield message if isinstance(message, str) else json.dumps(message, sort_keys=True)


def _describe_failure(errors: Sequence[Any], stderr: bytes) -> str:
    """Return the first errors of an answer with their positions, or the last line of stderr."""
    texts = []
    for error in errors[:_MAX_ERRORS]:
        location = error.get("location") or {}
        file = location.get("file")
        position = f"{Path(file).name}:{location.get('row')}: " if file else ""
        texts.append(f"{position}{error.get('message', error)}")
    lines = stderr.decode(errors="replace").strip().splitlines()
    return "; ".join(texts) or (lines[-1] if lines else "it gave no answer")
