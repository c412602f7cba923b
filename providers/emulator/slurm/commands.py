"""Run Slurm's commands, as far as they are emulated, in pods, and let tests change a Slurm.

Words and codes are those of Slurm 22.05; an option that is not emulated is an error that says so.
The controls are under `/_emulator/slurm/`; the emulated Together gives `SlurmExecutor` to its
Kubernetes. Frames of `v4.channel.k8s.io` begin with the number of a channel: 1 is stdout, 2 stderr,
and 3 says at the end how the command went.
"""

import json
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from getopt import GetoptError, gnu_getopt
from itertools import dropwhile
from typing import Any

from flask import Response, request
from pydantic import BaseModel
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.kubernetes.routes import Execution
from gpuform.providers.emulator.routing import PlatformControls, RouteTable, answer_json
from gpuform.providers.emulator.slurm.formatting import (
    COLUMNS,
    WIDE_COLUMNS,
    format_partitions,
    format_queue,
    format_wide_queue,
    run_scontrol,
)
from gpuform.providers.emulator.slurm.scheduler import (
    ACTIVE,
    CODES,
    CommandRefused,
    Job,
    JobRequest,
    Measurement,
    SlurmCluster,
)
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.catalogue import TogetherApiError
from gpuform.providers.emulator.together.operations import TogetherOperations

_CONNECTION_ERRORS = {
    "scontrol": "slurm_load_node",
    "squeue": "slurm_load_jobs",
    "sinfo": "slurm_load_partitions",
}


@dataclass(frozen=True)
class CommandResult:
    """The output and the exit code of a command."""

    out: str = ""
    err: str = ""
    code: int = 0


def run_command(slurm: SlurmCluster, command: Sequence[str]) -> CommandResult:
    """Run one command as Slurm's administrator and return its result; the caller saves `slurm`.

    Known are scontrol, squeue, sinfo, sbatch and scancel, `tail` of a job's output file and `id
    -u`, also behind `sudo` and `env`. A program that is not known has exit code 127; a refused
    command, and one without an answering controller, has 1.
    """
    words = list(command)
    # The document writes `sudo scontrol`; clients may also set variables with `env`.
    if words[:1] == ["sudo"]:
        words = [word for word in words[1:] if word not in ("-n", "--")]
    if words[:1] == ["env"]:
        words = list(dropwhile(lambda word: "=" in word, words[1:]))
    if words[:1] == ["tail"]:
        return _run_tail(slurm, words[1:])
    if words == ["id", "-u"]:
        return CommandResult("0\n")
    program, *arguments = words or [""]
    if program not in _PROGRAMS:
        return CommandResult(
            err=f"exec: {program!r}: executable file not found in $PATH\n", code=127
        )
    # Each program names the call that failed, in Slurm's own words.
    if not slurm.is_answering:
        message = _CONNECTION_ERRORS.get(program, program)
        if program == "scontrol" and arguments[:1] != ["show"]:
            message = "slurm_update"
        reason = "Unable to contact slurm controller (connect failure)"
        return CommandResult(err=f"{message} error: {reason}\n", code=1)
    try:
        return CommandResult(out=_PROGRAMS[program](slurm, arguments))
    except CommandRefused as refused:
        message = f"{refused}\n"
        return (
            CommandResult(out=message, code=1)
            if refused.on_stdout
            else CommandResult(err=message, code=1)
        )
    except GetoptError as error:
        message = f"{program}: {error.msg}, or it is not emulated"
        return CommandResult(
            err=f'{message}\nTry "{program} --help" for more information\n', code=1
        )


def _run_squeue(slurm: SlurmCluster, arguments: list[str]) -> str:
    """Run `squeue` and return the rows of the selected jobs, after a header unless `--noheader`.

    Raises `CommandRefused` for an unknown state, node or column and for `--Format` with a header,
    and `GetoptError` for an option that is not emulated.
    """
    parsed_options, _ = gnu_getopt(
        arguments,
        "haro:O:t:w:u:j:n:",
        [
            "noheader",
            "all",
            "array",
            "format=",
            "Format=",
            "states=",
            "nodelist=",
            "user=",
            "jobs=",
            "name=",
        ],
    )
    options = {name.lstrip("-"): value for name, value in parsed_options}

    def get_option(short: str, long: str) -> str | None:
        return options.get(short, options.get(long))

    jobs = _select_jobs(slurm, get_option("t", "states"), get_option("w", "nodelist"))
    if (user := get_option("u", "user")) is not None:
        jobs = [job for job in jobs if job.wanted.user == user]
    if (names := get_option("n", "name")) is not None:
        jobs = [job for job in jobs if job.wanted.name in names.split(",")]
    if (labels := get_option("j", "jobs")) is not None:
        labeled_jobs = [job for label in labels.split(",") for job in slurm.find_jobs(label)]
        jobs = [job for job in jobs if job in labeled_jobs]
    has_header = get_option("h", "noheader") is None
    if (wide_format := get_option("O", "Format")) is not None:
        # The widths of its header are not emulated.
        if has_header:
            raise CommandRefused("squeue: error: --Format is emulated with --noheader alone")
        return format_wide_queue(jobs, [_parse_field(field) for field in wide_format.split(",")])
    row_format = get_option("o", "format")
    if row_format is not None and (unknown := _find_column_letters(row_format) - COLUMNS):
        raise CommandRefused(f"squeue: error: not emulated: %{', %'.join(sorted(unknown))}")
    return format_queue(slurm, jobs, row_format, has_header=has_header)


def _select_jobs(slurm: SlurmCluster, states: str | None, nodelist: str | None) -> list[Job]:
    """Return the jobs in `states` (default: active ones) that have a node of `nodelist`.

    Jobs that Slurm no longer lists are left out; without `nodelist`, any nodes count. Raises
    `CommandRefused` for an unknown state or node.
    """
    codes = {code: state for state, code in CODES.items()}
    wanted_states = [
        codes.get(wanted_state.upper(), wanted_state.upper())
        for wanted_state in (states or ",".join(ACTIVE)).split(",")
    ]
    known_states = {*CODES, *_UNUSED_STATES, "ALL"}
    if unknown := [
        wanted_state for wanted_state in wanted_states if wanted_state not in known_states
    ]:
        raise CommandRefused(f"squeue: error: Invalid job state specified: {unknown[0]}")
    jobs = [job for job in slurm.jobs if job.state in wanted_states or "ALL" in wanted_states]
    # Slurm forgets ended jobs after MinJobAge.
    jobs = [job for job in jobs if job.is_remembered(slurm.now)]
    if nodelist is None:
        return jobs
    for name in nodelist.split(","):
        if name not in slurm.nodes:
            raise CommandRefused(f"squeue: error: Invalid node name {name}")
    return [job for job in jobs if set(job.nodes) & set(nodelist.split(","))]


def _parse_field(field: str) -> tuple[str, int]:
    """Return column and width of a `squeue --Format` field such as `name:20`; 20 by default.

    Raises `CommandRefused` for an unknown column.
    """
    name, _, width = field.partition(":")
    if name not in WIDE_COLUMNS:
        raise CommandRefused(f"squeue: error: Invalid job format specification: {name}")
    return name, int(width or 20)


def _find_column_letters(row_format: str) -> set[str]:
    """Return the letters of the columns in a `squeue -o` format, such as {"i", "T"}."""
    parts = row_format.split("%")[1:]
    return {part.lstrip(".0123456789")[:1] for part in parts}


def _run_scancel(slurm: SlurmCluster, arguments: list[str]) -> str:
    """Run `scancel`: cancel the active jobs with the labels or of the users. Prints nothing.

    Raises `CommandRefused` for a malformed label, and `GetoptError` for an option that is not
    emulated, and cancels nothing then. Unknown jobs are ignored.
    """
    parsed_options, labels = gnu_getopt(arguments, "vQu:", ["quiet", "verbose", "user="])
    jobs = [job for label in labels for job in slurm.find_jobs(label)]
    users = [value for name, value in parsed_options if name in ("-u", "--user")]
    jobs += [job for job in slurm.jobs if job.wanted.user in users]
    for label in labels:
        if not label.replace("_", "").isdigit():
            raise CommandRefused(f"scancel: error: Invalid job id {label}")
    # Nothing is cancelled before all labels are known to be valid.
    slurm.end_jobs([job for job in jobs if job.state in ACTIVE], "cancelled", "CANCELLED")
    return ""


def _run_sinfo(slurm: SlurmCluster, arguments: list[str]) -> str:
    """Return the output of `sinfo`, one row for each state of nodes.

    Other arguments are ignored. Raises `GetoptError` for any option.
    """
    gnu_getopt(arguments, "")
    return format_partitions(slurm)


_SBATCH_LONG_OPTIONS = (
    *("wrap=", "job-name=", "nodes=", "nodelist=", "array=", "gres=", "gpus-per-node=", "output="),
    *("ntasks=", "no-requeue", "requeue", "exclusive", "hold", "parsable", "open-mode=", "error="),
    *("time=", "comment=", "partition=", "account=", "qos=", "mem=", "cpus-per-task="),
    *("ntasks-per-node=", "gpus="),
)
_SBATCH_SHORT_OPTIONS = "J:N:w:a:Ho:n:e:t:p:A:q:c:G:"
_SBATCH_LONG_NAMES = {
    "J": "job-name",
    "N": "nodes",
    "w": "nodelist",
    "a": "array",
    "H": "hold",
    "o": "output",
}
_SLEEP_SCRIPT = re.compile(r"sleep (\d+|infinity)")
_LAST_WORDS = re.compile(r'^echo "([^"$]*\$code[^"$]*(?:\$SLURM_JOB_NODELIST)?)"$', re.MULTILINE)


def run_sbatch(slurm: SlurmCluster, arguments: list[str]) -> str:
    """Run `sbatch`: submit the script of --wrap as a job, and return the line with its number.

    With --parsable the line has only the number. `sleep SECONDS` and `sleep infinity` last by the
    emulator's clock. Any other script is a measurement of its nodes: length, exit code and output
    are those that tests have set (`Measurement`), followed by the lines that the script echoes with
    its `$code`. Some options, such as --time, are accepted without an effect. Raises
    `CommandRefused` without --wrap, for an unknown node and for a malformed number, and
    `GetoptError` for an option that is not emulated.
    """
    parsed_options, scripts = gnu_getopt(arguments, _SBATCH_SHORT_OPTIONS, _SBATCH_LONG_OPTIONS)
    options = {
        _SBATCH_LONG_NAMES.get(name.lstrip("-"), name.lstrip("-")): value
        for name, value in parsed_options
    }
    script = options.get("wrap", "")
    if scripts or not script.strip():
        raise CommandRefused("sbatch: error: only --wrap='SCRIPT' is emulated")
    sleep_match, last_words = _SLEEP_SCRIPT.fullmatch(script), _LAST_WORDS.findall(script)
    names = [name for name in options.get("nodelist", "").split(",") if name]
    for name in names:
        if name not in slurm.nodes:
            raise CommandRefused(
                "sbatch: error: Batch job submission failed: Invalid node name specified"
            )
    all_gpus = str(slurm.gpus_per_node)
    job_request = JobRequest(
        name=options.get("job-name", "wrap"),
        # As many nodes as are named, whatever --nodes says.
        count=max(_parse_number(options.get("nodes", "1")), len(names)),
        nodes=names,
        gpus=_parse_number(
            options.get("gpus-per-node", options.get("gres", all_gpus).split(":")[-1])
        ),
        runs_for=float(sleep_match[1]) if sleep_match and sleep_match[1] != "infinity" else None,
        is_measuring=sleep_match is None,
        output=options.get("output", ""),
        last_words="".join(f"{line}\n" for line in last_words),
        can_requeue="no-requeue" not in options,
        is_held="hold" in options,
    )
    first_job = slurm.submit(
        job_request, _parse_tasks(options["array"]) if "array" in options else None
    )[0]
    label = first_job.label.split("_")[0]
    return f"{label}\n" if "parsable" in options else f"Submitted batch job {label}\n"


def _run_tail(slurm: SlurmCluster, arguments: list[str]) -> CommandResult:
    """Run `tail` on the output file of a job; no controller is needed.

    With `-c BYTES` or `-n LINES`, by default 10 lines as in GNU coreutils. The exit code is 1 for a
    file that no started job has, and for any other option, or a number with a sign or unit.
    """
    try:
        parsed_options, paths = gnu_getopt(arguments, "c:n:")
    except GetoptError as error:
        return CommandResult(err=f"tail: {error}\n", code=1)
    option, count = (parsed_options or [("-n", "10")])[-1]
    if not count.isdecimal():
        return CommandResult(err=f"tail: invalid number: '{count}'\n", code=1)
    if not paths:
        return CommandResult()  # standard input, which is empty here
    path = paths[0]
    content = slurm.read_file(path)
    if content is None:
        message = f"tail: cannot open '{path}' for reading: No such file or directory\n"
        return CommandResult(err=message, code=1)
    parts = list(content) if option == "-c" else content.splitlines(keepends=True)
    return CommandResult("".join(parts[max(0, len(parts) - int(count)) :]))


def _parse_tasks(argument: str) -> list[int]:
    """Return the task numbers of an array such as `0-3` or `5`.

    Raises `CommandRefused`.
    """
    first, _, last = argument.partition("-")
    return list(range(_parse_number(first), _parse_number(last or first) + 1))


def _parse_number(argument: str) -> int:
    """Return an argument of sbatch as a number. Raises CommandRefused unless all are digits."""
    if not argument.isdigit():
        raise CommandRefused(f"sbatch: error: {argument!r} is not emulated: write a number")
    return int(argument)


# States that Slurm knows and no emulated job ever has.
_UNUSED_STATES = (
    "SUSPENDED", "TIMEOUT", "PREEMPTED", "CONFIGURING", "RESIZING", "SIGNALING",
    "STAGE_OUT", "STOPPED",
)  # fmt: skip
_PROGRAMS: dict[str, Callable[[SlurmCluster, list[str]], str]] = {
    "scontrol": run_scontrol,
    "squeue": _run_squeue,
    "sinfo": _run_sinfo,
    "sbatch": run_sbatch,
    "scancel": _run_scancel,
}


class _CommandBody(BaseModel, extra="forbid"):
    """A command with its arguments."""

    command: list[str]


class _ControllerBody(BaseModel, extra="forbid"):
    """Whether the controller answers."""

    is_answering: bool


class _MeasurementBody(Measurement):
    """A measurement with its node; "" is every node without a measurement of its own."""

    node: str = ""


class SlurmControls(PlatformControls):
    """Run commands, add and list jobs, set measurements of nodes, stop the controller."""

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", "/<cluster_id>/run", self._run_command),
            ("POST", "/<cluster_id>/jobs", self._add_job),
            ("GET", "/<cluster_id>/jobs", self._list_jobs),
            ("POST", "/<cluster_id>/measures", self._set_measurement),
            ("POST", "/<cluster_id>/controller", self._set_controller),
        )

    def _run_command(self, cluster_id: str) -> Response:
        """Run a command as in a pod of Slurm, `{"command": ["squeue"]}`; answer with the output."""
        body = _CommandBody.model_validate_json(request.get_data())
        with self._open_slurm(cluster_id) as slurm:
            result = run_command(slurm, body.command)
        return answer_json({"stdout": result.out, "stderr": result.err, "code": result.code})

    def _add_job(self, cluster_id: str) -> Response:
        """Submit the job in the body, of any kind and length, and answer with the job.

        The job starts at once where nodes are free.
        """
        job_request = JobRequest.model_validate_json(request.get_data())
        with self._open_slurm(cluster_id) as slurm:
            (job,) = slurm.submit(job_request)
        return answer_json(job.model_dump(mode="json"), 201)

    def _list_jobs(self, cluster_id: str) -> Response:
        """Answer with all jobs that the Slurm ever had, also those that squeue no longer lists."""
        with self._open_slurm(cluster_id) as slurm:
            return answer_json([job.model_dump(mode="json") for job in slurm.jobs])

    def _set_measurement(self, cluster_id: str) -> Response:
        """Set the measurement that scripts make on a node, and answer with it.

        The body is `{"node": "slurm-worker-1", "figure": 312.5}` or such. Without a node, it is the
        measurement on all nodes that have none of their own. Running jobs are not changed.
        """
        body = _MeasurementBody.model_validate_json(request.get_data())
        with self._open_slurm(cluster_id) as slurm:
            slurm.set_measurement(body.node, Measurement(**body.model_dump(exclude={"node"})))
        return answer_json(body.model_dump(mode="json"))

    def _set_controller(self, cluster_id: str) -> Response:
        """Set whether slurmctld answers commands; jobs go on without the controller."""
        body = _ControllerBody.model_validate_json(request.get_data())
        with self._open_slurm(cluster_id) as slurm:
            slurm.set_answering(is_answering=body.is_answering)
        return answer_json({"is_answering": body.is_answering})

    @contextmanager
    def _open_slurm(self, cluster_id: str) -> Iterator[SlurmCluster]:
        """Yield a cluster's Slurm, and save it unless the block raises.

        Raises `Refusal` 404 for an unknown cluster, and for one without Slurm.
        """
        now = self._clock.now()
        self._store.remove_expired(now)
        cluster = TogetherOperations(self._store, now).get_cluster(cluster_id)
        if cluster.settings.cluster_type != "SLURM":
            raise TogetherApiError(404, f"cluster {cluster_id!r} has no Slurm")
        slurm = SlurmCluster(self._store, cluster, now)
        yield slurm
        # Not after an error: a control that fails changes nothing.
        slurm.save()


_WEBSOCKET_PROTOCOL = "v4.channel.k8s.io"


class SlurmExecutor:
    """Runs the commands that clients execute in the pods of Slurm."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __call__(self, execution: Execution) -> Any:
        with self._store.transaction():
            now = self._clock.now()
            cluster = TogetherOperations(self._store, now).get_cluster(execution.cluster_id)
            slurm = SlurmCluster(self._store, cluster, now)
            result = run_command(slurm, execution.command)
            slurm.save()
        # Outside of the transaction: the client may read slowly.
        outputs = ((1, result.out), (2, result.err), (3, _build_exec_status(result)))
        frames = [bytes([channel]) + output.encode() for channel, output in outputs if output]
        _send_frames(execution.environ, frames)


def _send_frames(environ: Any, frames: Iterable[bytes]) -> None:
    """Accept the request's websocket, send all frames, and wait until the client hangs up.

    A client that hangs up early is no error.
    """
    connection: socket.socket = environ["werkzeug.socket"]
    websocket = WSConnection(ConnectionType.SERVER)
    # WSGI has changed the names of headers; wsproto wants them as they were sent.
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-").lower().encode(), value.encode())
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    websocket.initiate_upgrade_connection(headers, environ["PATH_INFO"])
    list(websocket.events())
    messages = [BytesMessage(data=frame) for frame in frames]
    try:
        for event in (
            AcceptConnection(subprotocol=_WEBSOCKET_PROTOCOL),
            *messages,
            CloseConnection(1000),
        ):
            # One by one: the official client does not see what came in the same record of TLS.
            connection.sendall(websocket.send(event))
        while connection.recv(4096):
            pass  # until the client has read it all and hangs up
    except OSError:
        return  # the client has not waited for the end


def _build_exec_status(result: CommandResult) -> str:
    """Return the Kubernetes Status of a command as JSON, which clients read from channel 3.

    A command that fails has its exit code as a cause.
    """
    if not result.code:
        return json.dumps({"metadata": {}, "status": "Success"})
    return json.dumps(
        {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: exit status {result.code}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(result.code)}]},
        }
    )
