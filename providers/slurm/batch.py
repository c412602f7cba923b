"""Submit batch jobs to Slurm exactly once, find them by their names, and read their output.

`results` calls it to certify nodes. Options are those of sbatch, squeue and scancel of Slurm 22.05
(manual pages of these names); accounting is not needed. Output goes to a file, with exit code and
nodes at its end, because Slurm forgets an ended job after MinJobAge, 300 seconds by default.
"""

import hashlib
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuform.providers.context import PollResult, get_current_context, wait_until_done
from gpuform.providers.errors import GpuformError, NotReady, UnknownOutcome
from gpuform.providers.slurm.parsing import (
    SlurmJob,
    build_batch_jobs_command,
    build_exit_codes_command,
    expand_hostlist,
    parse_batch_jobs,
    parse_exit_codes,
)
from gpuform.providers.slurm.processes import CommandRunner
from gpuform.providers.slurm.scheduler import build_command_error, run_and_parse
from gpuform.schemas.safe_text import escape_invisible

MAX_OUTPUT_BYTES = 256 * 1024
"""How many bytes at the end of an output are read."""
MAX_SCRIPT_BYTES = 32 * 1024
"""How many bytes a script may have: it travels as one argument, or in a URL."""
_MAX_QUOTED_BYTES = 96 * 1024  # Linux takes 128 KiB as one argument, and ssh quotes it

_JOB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,127}", re.ASCII)
_NODE_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
_SHEBANG = re.compile(r"#!\s*(/\S+)(?:[ \t]+(\S.*?))?\s*")
_REFUSED_OPTIONS = ("--array", "--clusters", "--wait", "--test-only", "--wrap")
_NAMES_PER_REQUEST = 200
"""How many names one squeue command gets: a pod gets them in the URL of a request."""
_EXIT_LINE_START = "gpuform: exit code "
_EXIT_LINE = re.compile(
    rf"^{_EXIT_LINE_START}(\d{{1,3}})(?: on (\S+))?\s*\Z", re.MULTILINE | re.ASCII
)
# Messages of sbatch after which a job may exist all the same.
_LOST_ANSWER_MESSAGES = (
    "send/recv",
    "zero bytes",
    "unexpected message",
    "communication",
    "timed out",
)
_SEARCH_TIMEOUT_S, _SEARCH_INTERVAL_S = 30.0, 5.0

_WRAPPER = """\
script=$(mktemp) || exit 125
cat > "$script" <<'{end_marker}' || exit 125
{script}
{end_marker}
unset SLURM_EXPORT_ENV
{interpreter} "$script"
code=$?
rm -f "$script"
echo
echo "gpuform: exit code $code on $SLURM_JOB_NODELIST"
exit $code
"""


@dataclass(frozen=True)
class BatchJob:
    """A batch job to submit.

    `name` is unique, since the job is found by it. `script` is the text for sbatch, with its `#!`
    and `#SBATCH` lines. `nodes` are NodeNames: the job runs on all of them and no others.

    Raises:
        GpuformError: name, nodes or script cannot be submitted.
    """

    name: str
    script: str
    nodes: Sequence[str]

    def __post_init__(self) -> None:
        _validate_name(self.name)
        for node in self.nodes:
            if not _NODE_NAME.fullmatch(node):
                raise GpuformError(
                    f"{escape_invisible(node)[:80]!r} is not the name of a node of Slurm",
                    hint="compare with `sinfo -N`, and write each node separately",
                )
        if not self.nodes or len(set(self.nodes)) < len(self.nodes):
            reason = "names a node twice" if self.nodes else "names no node"
            raise GpuformError(
                f"job {self.name} {reason}", hint="name each node that the job measures once"
            )
        if problem := _find_script_problem(self.script):
            raise GpuformError(f"the script of job {self.name} {problem[0]}", hint=problem[1])


class BatchQueue:
    """The batch jobs of one user in the Slurm of a cluster.

    `folder` is the absolute path for outputs, which the nodes share with the place where commands
    run. Empty, outputs go to the user's home, or to the folder in which a pod runs its commands.

    Raises:
        GpuformError: `folder` is no path that sbatch takes literally.
    """

    def __init__(self, commands: CommandRunner, *, folder: str = "") -> None:
        # sbatch expands % in an output path (`%j` is the job's id), and a backslash turns that off.
        is_plain = folder.isprintable() and "%" not in folder and "\\" not in folder
        if folder and (not folder.startswith("/") or not is_plain):
            raise GpuformError(
                f"{escape_invisible(folder)[:200]!r} is not a folder for the outputs of jobs",
                hint="declare an absolute path without % and backslashes",
            )
        self._commands = commands
        self._folder = folder.rstrip("/") + "/" if folder else ""
        self._uid: int | None = None

    def find_jobs(self, job_names: Collection[str]) -> dict[str, SlurmJob]:
        """Return the newest job of each name, ended ones included; other users' jobs do not count.

        A name is missing if there was no such job or Slurm has forgotten it: `read_output` shows
        which.

        Raises:
            GpuformError: a name is invalid, or squeue fails or prints something unexpected.
        """
        jobs: dict[str, SlurmJob] = {}
        valid_names = sorted({_validate_name(name) for name in job_names})
        # In chunks: the names travel as one argument, or in a URL.
        for first in range(0, len(valid_names), _NAMES_PER_REQUEST):
            chunk = valid_names[first : first + _NAMES_PER_REQUEST]
            jobs |= self._request_jobs(chunk)
        return jobs

    def submit(self, job: BatchJob) -> str:
        """Submit a job and return the job's id.

        The job waits in the queue for its nodes, and evicts nothing. If the answer is lost, the
        queue is searched for the job's name for 30 seconds of the run's clock.

        Raises:
            UnknownOutcome: nobody knows whether the job was submitted. Look before you submit
                again.
            GpuformError: Slurm refuses the job, or the queue cannot be searched after a lost
                answer.
            Unreachable: Slurm was not asked.
        """
        try:
            return self._run_sbatch(job)
        except UnknownOutcome as error:
            return self._find_after_lost_answer(error, job.name)

    def read_output(self, job_name: str) -> str:
        """Return the last MAX_OUTPUT_BYTES bytes of a job's output, or "" without a file.

        `parse_exit_code` reads the end. A job that still waits shows the output of an earlier job
        of its name.

        Raises:
            GpuformError: the file cannot be read.
        """
        command = (
            "env",
            # English messages: a missing file is recognized by tail's words.
            "LC_ALL=C",
            "tail",
            "-c",
            str(MAX_OUTPUT_BYTES),
            "--",
            self._get_output_path(job_name),
        )
        result = self._commands.run(command)
        if result.exit_code and "No such file" in result.stderr:
            return ""
        if result.exit_code:
            raise build_command_error(command[2:], result, self._commands.label)
        return result.stdout

    def cancel(self, job_ids: Collection[str]) -> None:
        """Cancel jobs; skip jobs which have ended or are unknown to Slurm by now.

        Raises:
            GpuformError: an id is no number (nothing is cancelled then), or scancel fails.
        """
        invalid_ids = [
            job_id for job_id in job_ids if not (job_id.isascii() and job_id.isdecimal())
        ]
        if invalid_ids:
            raise GpuformError(
                f"{escape_invisible(invalid_ids[0])[:80]!r} is not the id of a job",
                hint="pass ids as `submit` returns them",
            )
        if not job_ids:
            return
        command = ("scancel", *sorted(job_ids, key=int))
        output = self._commands.run(command, is_change=True, as_user=True)
        # scancel refuses jobs that have ended or are forgotten: nothing is left to cancel.
        message = output.stderr.lower()
        if (
            output.exit_code
            and "invalid job id" not in message
            and "already completing" not in message
        ):
            raise build_command_error(command, output, self._commands.label)

    def _request_jobs(self, job_names: Collection[str]) -> dict[str, SlurmJob]:
        """Return the newest job of each name, by one command, and a second one for exit codes.

        The second command runs only if one of the jobs has ended.
        """
        uid = self._get_uid()
        jobs = run_and_parse(
            self._commands,
            "jobs",
            build_batch_jobs_command(job_names),
            lambda text: parse_batch_jobs(text, uid=uid, job_names=job_names),
        )
        if not any(job.has_ended for job in jobs.values()):
            return jobs
        codes = run_and_parse(
            self._commands, "jobs", build_exit_codes_command(job_names), parse_exit_codes
        )
        return {
            name: replace(job, exit_code=codes.get(job.job_id, "")) if job.has_ended else job
            for name, job in jobs.items()
        }

    def _run_sbatch(self, job: BatchJob) -> str:
        """Submit a job by sbatch and return the id which sbatch prints.

        The job gets its nodes exclusively, and is never requeued.

        Raises:
            UnknownOutcome: the answer was lost, or has no id.
            GpuformError: sbatch refuses the job.
        """
        command = (
            *("sbatch", *_parse_sbatch_options(job.script), "--parsable", f"--job-name={job.name}"),
            # Exclusive: another job on the nodes would disturb the measurement.
            *(f"--nodes={len(job.nodes)}", f"--nodelist={','.join(job.nodes)}", "--exclusive"),
            *(
                # Slurm must not run the script again after a node failure: that loses output.
                "--no-requeue",
                "--open-mode=truncate",
                f"--output={self._get_output_path(job.name)}",
            ),
            f"--wrap={_wrap_script(job.script)}",
        )
        output = self._commands.run(command, is_change=True, as_user=True)
        if output.exit_code:
            error = build_command_error(command[:1], output, self._commands.label)
            if any(part in output.stderr.lower() for part in _LOST_ANSWER_MESSAGES):
                raise UnknownOutcome(error.message, hint=error.hint)
            raise error
        job_id = output.stdout.strip().split(";")[0]
        if not (job_id.isascii() and job_id.isdecimal()):
            raise UnknownOutcome(
                f"sbatch ({self._commands.label}) printed no job id: "
                f"{escape_invisible(output.stdout)[:80]!r}",
                hint=f"look for the job: `squeue --name={job.name} --states=all`",
            )
        return job_id

    def _find_after_lost_answer(self, submit_error: UnknownOutcome, job_name: str) -> str:
        """Search the queue for a job for 30 seconds, and return the id of the job.

        Raises:
            UnknownOutcome: the queue did not show the job, or the search was interrupted;
                `submit_error` is the lost answer.
        """

        def poll_queue() -> PollResult[str]:
            job = self.find_jobs([job_name]).get(job_name)
            return PollResult(
                "" if job is None else job.job_id, "not seen", is_done=job is not None
            )

        try:
            return wait_until_done(
                get_current_context(),
                poll_queue,
                label=f"job {job_name}",
                interval=_SEARCH_INTERVAL_S,
                limit=_SEARCH_TIMEOUT_S,
            )
        except NotReady as timeout:
            raise UnknownOutcome(
                f"job {job_name}: the result of its submission is unknown: "
                f"{submit_error.message}; {timeout.reason}",
                hint=f"look for the job (`squeue --name={job_name} --states=all`), and run "
                "the command again",
            ) from submit_error

    def _get_output_path(self, job_name: str) -> str:
        """Return the path of a job's output. Raises GpuformError for an invalid job name."""
        return f"{self._folder}gpuform-{_validate_name(job_name)}.out"

    def _get_uid(self) -> int:
        """Return the number of the user who runs the commands, asked once with `id -u`."""
        # The user does not change during a run: asked once.
        if self._uid is None:
            self._uid = run_and_parse(self._commands, "jobs", ("id", "-u"), int)
        return self._uid


def parse_exit_code(output: str) -> int | None:
    """Return the exit code at the end of an output; None if the script has not ended."""
    exit_line = _EXIT_LINE.search(output)
    return None if exit_line is None else int(exit_line[1])


def extract_script_output(output: str) -> str:
    """Return the output of the script itself, without the exit line at the end."""
    exit_line = _EXIT_LINE.search(output)
    return output if exit_line is None else output[: exit_line.start()]


def parse_job_nodes(output: str) -> tuple[str, ...]:
    """Return the nodes of a script's job, from the end of the output.

    Empty if the script has not ended, if the nodes cannot be parsed, or if a version sent the
    script that did not print them.
    """
    exit_line = _EXIT_LINE.search(output)
    try:
        return tuple(expand_hostlist(exit_line[2] or "")) if exit_line else ()
    except ValueError:
        return ()


def _validate_name(name: str) -> str:
    """Return `name` if valid as the name of a batch job. Raises GpuformError otherwise."""
    if not _JOB_NAME.fullmatch(name):
        raise GpuformError(
            f"{escape_invisible(name)[:80]!r} is not a name of a batch job",
            hint="use letters, digits, dots, hyphens and underscores, 128 at most",
        )
    return name


def _find_script_problem(script: str) -> tuple[str, str] | None:
    """Return why a script cannot be submitted, with a remedy, or None.

    Checked are characters, size, the first line, and #SBATCH options that change the kind of job.
    """
    if not script.isprintable() and re.search(r"[\0\r\ud800-\udfff]", script):
        return (
            "contains a NUL, a DOS line break or an incomplete character",
            "save the script as UTF-8 text with Unix line ends",
        )
    if (size := len(script.encode())) > MAX_SCRIPT_BYTES:
        return (
            f"has {size} bytes, more than the limit of {MAX_SCRIPT_BYTES}",
            "put the long part into a file on the cluster, and call the file from the script",
        )
    if len(shlex.quote(script).encode()) > _MAX_QUOTED_BYTES:
        return "has too many single quotes for one argument", "call a file on the cluster instead"
    if not _SHEBANG.fullmatch(script.split("\n", 1)[0]):
        return "does not begin with #! and a path", "begin the script with `#!/bin/bash`"
    try:
        words = _parse_sbatch_options(script)
    except ValueError as error:
        return f"has an invalid #SBATCH line: {error}", "close the quotes of the line"
    if refused_word := next((word for word in words if _is_refused_option(word)), None):
        return (
            f"contains #SBATCH {escape_invisible(refused_word)[:80]}",
            "remove the option: gpuform submits one job to one cluster",
        )
    return None


def _is_refused_option(word: str) -> bool:
    """Return True if an option asks for several jobs, another cluster, or a wait."""
    head = word.split("=", maxsplit=1)[0]
    is_short = re.match(r"-[aMW]", word) is not None
    # getopt accepts the beginning of an option for the complete option.
    is_long = len(head) > 2 and any(option.startswith(head) for option in _REFUSED_OPTIONS)
    return is_short or is_long or word in ("--", ":", "hetjob")


def _parse_sbatch_options(script: str) -> list[str]:
    """Return the words of the #SBATCH lines up to the first command, like sbatch.

    They become arguments, because sbatch reads no such lines in a script that it gets by --wrap.
    """
    return [
        word for line in _iterate_directives(script) for word in shlex.split(line, comments=True)
    ]


def _iterate_directives(script: str) -> Iterator[str]:
    """Yield the options of each #SBATCH line before the script's first command."""
    for line in script.split("\n"):
        if line.startswith("#SBATCH"):
            yield line.removeprefix("#SBATCH")
        elif line.strip() and not line.startswith("#"):
            return


def _wrap_script(script: str) -> str:
    """Return a script which runs `script`, then prints the exit code and the nodes."""
    interpreter, argument = _SHEBANG.fullmatch(script.split("\n", 1)[0]).groups()  # type: ignore[union-attr]
    words = [interpreter] if argument is None else [interpreter, argument]
    # A digest of the text cannot be a line of the text: the here-document ends where it should.
    end_marker = f"SCRIPT_{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    body = script.removesuffix("\n")
    return _WRAPPER.format(end_marker=end_marker, script=body, interpreter=shlex.join(words))
