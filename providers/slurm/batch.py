"""Batch jobs of Slurm: submitted once, found again by their names, and what they have printed.

Options are those of sbatch, squeue and scancel of Slurm 22.05 (their manual pages, of the same
names); accounting is not needed. What a job prints goes to a file that outlives Slurm's memory of
it (MinJobAge, 300 seconds by default), with its exit code and its nodes at the end.
"""

import hashlib
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gpuform.providers.context import PollResult, get_current_context, wait_until_done
from gpuform.providers.errors import GpuformError, NotReady, UnknownOutcome
from gpuform.providers.slurm.processes import Commands
from gpuform.providers.slurm.reading import (
    BatchRun,
    expanded,
    read_exit_codes,
    read_runs,
    show_exit_codes,
    show_runs,
)
from gpuform.providers.slurm.scheduler import refused
from gpuform.schemas.safe_text import escape_invisible

T = TypeVar("T")

MOST_OUTPUT = 256 * 1024
"""How many bytes of an output are read, from its end."""
MOST_SCRIPT = 32 * 1024
"""How many bytes a script may have: it travels as one argument, or in a URL."""
_MOST_QUOTED = 96 * 1024  # Linux takes 128 KiB as one argument, and ssh quotes it

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)
_NODE = re.compile(r"\w[\w.-]*", re.ASCII)
_SHEBANG = re.compile(r"#!\s*(/\S+)(?:[ \t]+(\S.*?))?\s*")
_NOT_OURS = ("--array", "--clusters", "--wait", "--test-only", "--wrap")
_AT_ONCE = 200
_EXIT = "gpuform: exit code "
_EXITED = re.compile(rf"^{_EXIT}(\d{{1,3}})(?: on (\S+))?\s*\Z", re.MULTILINE | re.ASCII)
# sbatch tells these when a job may have been made all the same.
_LOST = ("send/recv", "zero bytes", "unexpected message", "communication", "timed out")
_LOOK_SECONDS, _LOOK_EVERY = 30.0, 5.0

_WRAPPER = """\
script=$(mktemp) || exit 125
cat > "$script" <<'{mark}' || exit 125
{script}
{mark}
unset SLURM_EXPORT_ENV
{interpreter} "$script"
code=$?
rm -f "$script"
echo
echo "gpuform: exit code $code on $SLURM_JOB_NODELIST"
exit $code
"""


@dataclass(frozen=True)
class Batch:
    """A batch job as it is wanted. Raises GpuformError when it can be none.

    `name` is unique: by it the job is found again. `script` is the text for sbatch, with its
    `#!` and its `#SBATCH` lines; `nodes` are NodeNames, and the job runs on all of them alone.
    """

    name: str
    script: str
    nodes: Sequence[str]

    def __post_init__(self) -> None:
        _checked_name(self.name)
        for node in self.nodes:
            if not _NODE.fullmatch(node):
                raise GpuformError(
                    f"{escape_invisible(node)[:80]!r} is no name of a node of Slurm",
                    hint="compare with `sinfo -N`: write each node on its own",
                )
        if not self.nodes or len(set(self.nodes)) < len(self.nodes):
            why = "names a node twice" if self.nodes else "names no node"
            raise GpuformError(f"job {self.name} {why}", hint="name the nodes that it measures")
        if trouble := _trouble(self.script):
            raise GpuformError(f"the script of job {self.name} {trouble[0]}", hint=trouble[1])


class BatchJobs:
    """The batch jobs that one user has in the Slurm of a cluster.

    `folder` is an absolute path that the nodes share with the place where the commands run; outputs
    lie there. Without it that is the user's home, or the folder in which a pod runs its commands.
    Raises GpuformError when it cannot be one.
    """

    def __init__(self, commands: Commands, *, folder: str = "") -> None:
        is_plain = folder.isprintable() and "%" not in folder and "\\" not in folder
        if folder and (not folder.startswith("/") or not is_plain):
            raise GpuformError(
                f"{escape_invisible(folder)[:200]!r} is no folder for the outputs of jobs",
                hint="give an absolute path without % and backslashes",
            )
        self._commands = commands
        self._folder = folder.rstrip("/") + "/" if folder else ""
        self._uid: int | None = None

    def find(self, names: Collection[str]) -> dict[str, BatchRun]:
        """The newest job of each name, those that have ended included.

        A name is missing when there was no such job, or Slurm has forgotten it: `output` tells.
        Jobs of other users do not count.
        """
        found: dict[str, BatchRun] = {}
        wanted = sorted({_checked_name(name) for name in names})
        for first in range(0, len(wanted), _AT_ONCE):
            some = wanted[first : first + _AT_ONCE]
            found |= self._find(some)
        return found

    def submit(self, batch: Batch) -> str:
        """The id of the new job. It waits in the queue for its nodes, and nothing is evicted.

        When the answer is lost, the job is looked for by its name, for half a minute of the call's
        clock. Raises UnknownOutcome when it is not seen then: look before you submit it again.
        Raises GpuformError when Slurm refuses it, and Unreachable when it was not asked.
        """
        try:
            return self._submit(batch)
        except UnknownOutcome as lost:
            return self._found_after(lost, batch.name)

    def output(self, name: str) -> str:
        """What the job of a name has printed, its last MOST_OUTPUT bytes; empty without a file.

        `exit_code_of` reads its end. A job that still waits shows what an earlier one of its name
        has left. Raises GpuformError when the file cannot be read.
        """
        command = ("env", "LC_ALL=C", "tail", "-c", str(MOST_OUTPUT), "--", self._path(name))
        output = self._commands.run(command)
        if output.code and "No such file" in output.stderr:
            return ""
        if output.code:
            raise refused(command[2:], output, self._commands.place)
        return output.stdout

    def cancel(self, job_ids: Collection[str]) -> None:
        """Ends jobs; those that have ended, or that Slurm has forgotten, are left alone."""
        wrong = [each for each in job_ids if not (each.isascii() and each.isdecimal())]
        if wrong:
            raise GpuformError(
                f"{escape_invisible(wrong[0])[:80]!r} is no id of a job",
                hint="give ids as `submit` does",
            )
        if not job_ids:
            return
        command = ("scancel", *sorted(job_ids, key=int))
        output = self._commands.run(command, is_change=True, as_user=True)
        told = output.stderr.lower()
        if output.code and "invalid job id" not in told and "already completing" not in told:
            raise refused(command, output, self._commands.place)

    def _find(self, names: Collection[str]) -> dict[str, BatchRun]:
        uid = self._own_uid()
        runs = self._read(show_runs(names), lambda text: read_runs(text, uid=uid, names=names))
        if not any(run.ended for run in runs.values()):
            return runs
        codes = self._read(show_exit_codes(names), read_exit_codes)
        return {name: _with_exit_code(run, codes) for name, run in runs.items()}

    def _submit(self, batch: Batch) -> str:
        command = (
            *("sbatch", *_options_of(batch.script), "--parsable", f"--job-name={batch.name}"),
            *(f"--nodes={len(batch.nodes)}", f"--nodelist={','.join(batch.nodes)}", "--exclusive"),
            *("--no-requeue", "--open-mode=truncate", f"--output={self._path(batch.name)}"),
            f"--wrap={_wrapped(batch.script)}",
        )
        output = self._commands.run(command, is_change=True, as_user=True)
        if output.code:
            error = refused(command[:1], output, self._commands.place)
            if any(each in output.stderr.lower() for each in _LOST):
                raise UnknownOutcome(error.message, hint=error.hint)
            raise error
        job_id = output.stdout.strip().split(";")[0]
        if not (job_id.isascii() and job_id.isdecimal()):
            raise UnknownOutcome(
                f"sbatch ({self._commands.place}) told no id of a job: "
                f"{escape_invisible(output.stdout)[:80]!r}",
                hint=f"look for it: `squeue --name={batch.name} --states=all`",
            )
        return job_id

    def _found_after(self, lost: UnknownOutcome, name: str) -> str:
        def look() -> PollResult[str]:
            run = self.find([name]).get(name)
            return PollResult(
                "" if run is None else run.job_id, "not seen", is_done=run is not None
            )

        try:
            return wait_until_done(
                get_current_context(),
                look,
                label=f"job {name}",
                interval=_LOOK_EVERY,
                limit=_LOOK_SECONDS,
            )
        except NotReady as unseen:
            raise UnknownOutcome(
                f"nobody knows whether job {name} was submitted: {lost.message}; {unseen.reason}",
                hint=f"look for it: `squeue --name={name} --states=all`, and run again",
            ) from lost

    def _path(self, name: str) -> str:
        return f"{self._folder}gpuform-{_checked_name(name)}.out"

    def _own_uid(self) -> int:
        if self._uid is None:
            self._uid = self._read(("id", "-u"), int)
        return self._uid

    def _read(self, command: Sequence[str], reading: Callable[[str], T]) -> T:
        output = self._commands.run(command)
        if output.code:
            raise refused(command, output, self._commands.place)
        try:
            return reading(output.stdout)
        except ValueError as error:
            raise GpuformError(
                f"what `{' '.join(command[:3])}` printed ({self._commands.place}) cannot be read: "
                f"{escape_invisible(str(error))}",
                hint="nothing is guessed about jobs: run it there and look at the line",
            ) from error


def exit_code_of(output: str) -> int | None:
    """The exit code at the end of an output; None when the script has not come to its end."""
    found = _EXITED.search(output)
    return None if found is None else int(found[1])


def text_of_script(output: str) -> str:
    """Return what the script itself has printed, without the line at the end of an output."""
    found = _EXITED.search(output)
    return output if found is None else output[: found.start()]


def nodes_of(output: str) -> tuple[str, ...]:
    """Return the nodes of the job as Slurm told the script, from the end of an output.

    Empty when the script has not come to its end, or was sent by a version that did not ask.
    """
    found = _EXITED.search(output)
    try:
        return tuple(expanded(found[2] or "")) if found else ()
    except ValueError:
        return ()


def _with_exit_code(run: BatchRun, codes: dict[str, str]) -> BatchRun:
    return replace(run, exit_code=codes.get(run.job_id, "")) if run.ended else run


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise GpuformError(
            f"{escape_invisible(name)[:80]!r} is no name of a batch job",
            hint="use letters, digits, dots, hyphens and underscores, 128 at most",
        )
    return name


def _trouble(script: str) -> tuple[str, str] | None:
    """What keeps a script from being submitted, and what to do."""
    if not script.isprintable() and re.search(r"[\0\r\ud800-\udfff]", script):
        return "has a NUL, a DOS line break or half a character", "save it as UTF-8 text of Unix"
    if (size := len(script.encode())) > MOST_SCRIPT:
        return (
            f"has {size} bytes, and {MOST_SCRIPT} at most can be sent",
            "put the long part into a file on the cluster, and call it from the script",
        )
    if len(shlex.quote(script).encode()) > _MOST_QUOTED:
        return "has too many single quotes for one argument", "call a file on the cluster instead"
    if not _SHEBANG.fullmatch(script.split("\n", 1)[0]):
        return "does not begin with #! and a path", "begin it with `#!/bin/bash`"
    try:
        words = _options_of(script)
    except ValueError as error:
        return f"has an #SBATCH line that cannot be read: {error}", "close its quotes"
    if wrong := next((word for word in words if _is_for_others(word)), None):
        return (
            f"says #SBATCH {escape_invisible(wrong)[:80]}",
            "take it out: it is one job, of one cluster",
        )
    return None


def _is_for_others(word: str) -> bool:
    """Whether it asks for more jobs than one, elsewhere, or for an end that is waited for."""
    head = word.split("=", maxsplit=1)[0]
    is_short = re.match(r"-[aMW]", word) is not None
    # getopt takes the beginning of an option for the whole.
    is_long = len(head) > 2 and any(each.startswith(head) for each in _NOT_OURS)
    return is_short or is_long or word in ("--", ":", "hetjob")


def _options_of(script: str) -> list[str]:
    """The words of the #SBATCH lines, as far as sbatch reads them: to the first command.

    sbatch reads none of them in a script that it gets by --wrap.
    """
    return [word for line in _directives(script) for word in shlex.split(line, comments=True)]


def _directives(script: str) -> Iterator[str]:
    for line in script.split("\n"):
        if line.startswith("#SBATCH"):
            yield line.removeprefix("#SBATCH")
        elif line.strip() and not line.startswith("#"):
            return


def _wrapped(script: str) -> str:
    """A script that runs `script` by its own interpreter, and tells its exit code at the end."""
    interpreter, argument = _SHEBANG.fullmatch(script.split("\n", 1)[0]).groups()  # type: ignore[union-attr]
    words = [interpreter] if argument is None else [interpreter, argument]
    mark = f"SCRIPT_{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    text = script.removesuffix("\n")
    return _WRAPPER.format(mark=mark, script=text, interpreter=shlex.join(words))
