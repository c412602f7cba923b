"""Format nodes and jobs as the commands of Slurm 22.05 print them, and run `scontrol`.

`commands` calls this module.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from zlib import crc32

from gpuform.providers.emulator.slurm.scheduler import CODES, CommandRefused, Job, SlurmCluster

_PARTITION = "all"
_DEFAULT_QUEUE_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_FIELD = re.compile(r"%(\.?)(\d*)([a-zA-Z])")


def format_node(slurm: SlurmCluster, name: str) -> str:
    """Return the block that `scontrol show node` prints for a node of `slurm`."""
    node, now = slurm.nodes[name], _format_time(slurm.now)
    machine = slurm.cluster.settings.machine
    cpus, memory = machine.num_cpu_cores, int(machine.memory_gib * 1024)
    gpus = sum(job.wanted.gpus for job in slurm.list_jobs_on(name))
    used = cpus * gpus // machine.num_gpus
    since, state = _format_time(node.running_at or slurm.now), "+".join(slurm.list_states(name))
    tres = f"cpu={cpus},mem={memory}M,billing={cpus},gres/gpu={machine.num_gpus}"
    lines = [
        f"NodeName={name} Arch=x86_64 CoresPerSocket={cpus // 2} ",
        f"CPUAlloc={used} CPUEfctv={cpus} CPUTot={cpus} CPULoad={used}.00",
        "AvailableFeatures=(null)",
        "ActiveFeatures=(null)",
        f"Gres=gpu:{machine.num_gpus}",
        f"NodeAddr={name} NodeHostName={name} Port=6818 Version=22.05.8",
        "OS=Linux 6.8.0 #1 SMP PREEMPT_DYNAMIC ",
        f"RealMemory={memory} AllocMem=0 FreeMem={memory} Sockets=2 Boards=1",
        f"State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A",
        f"Partitions={_PARTITION} ",
        f"BootTime={since} SlurmdStartTime={since}",
        f"LastBusyTime={now}",
        f"CfgTRES={tres}",
        f"AllocTRES=cpu={used},gres/gpu={gpus}" if used else "AllocTRES=",
        "CapWatts=n/a",
        "CurrentWatts=0 AveWatts=0",
        "ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s",
    ]
    if reason := slurm.get_reason(name):
        # Only a node that has a reason shows the line.
        lines.append(f"Reason={reason.text} [slurm@{_format_time(reason.at)}]")
    return "\n   ".join(lines) + "\n\n"


def format_queue(
    slurm: SlurmCluster, jobs: Iterable[Job], row_format: str | None, *, has_header: bool
) -> str:
    """Return the output of `squeue`: a row for each job, by compact state and then by age.

    `row_format` is that of `squeue -o`; None is Slurm's default.
    """
    used_format = _DEFAULT_QUEUE_FORMAT if row_format is None else row_format
    rows = [_format_row(used_format, lambda letter: _HEADERS.get(letter, ""))] if has_header else []
    ordered = sorted(jobs, key=lambda job: (CODES[job.state], job.number))
    rows += [
        _format_row(used_format, lambda letter, job=job: _COLUMNS[letter](job, slurm))  # type: ignore[misc]
        for job in ordered
    ]
    return "".join(f"{row}\n" for row in rows)


def format_wide_queue(jobs: Iterable[Job], fields: Sequence[tuple[str, int]]) -> str:
    """Return the output of `squeue --noheader --Format` for columns, each with a width.

    Jobs are sorted by compact state and then by age.
    """
    ordered = sorted(jobs, key=lambda job: (CODES[job.state], job.number))
    return "".join(
        "".join(f"{WIDE_COLUMNS[name](job)[:width]:<{width}}" for name, width in fields) + "\n"
        for job in ordered
    )


def format_partitions(slurm: SlurmCluster) -> str:
    """Return the output of `sinfo`: a row for each state of nodes, all in one partition."""
    rows = [("PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST")]
    names_by_state: dict[str, list[str]] = {}
    for name in slurm.nodes:
        names_by_state.setdefault(_get_short_state(slurm.list_states(name)), []).append(name)
    rows += [
        (f"{_PARTITION}*", "up", "infinite", str(len(names)), state, format_hostlist(names))
        for state, names in sorted(names_by_state.items())
    ]
    return "".join(f"{a:<9} {b:>5} {c:>10} {d:>6} {e:>6} {f}\n" for a, b, c, d, e, f in rows)


def format_hostlist(names: Sequence[str]) -> str:
    """Return node names in Slurm's short form: `w[0-2,7]`. Each name ends in a number."""
    parts: dict[str, list[int]] = {}
    for name in names:
        stem, number = re.fullmatch(r"(.*?)(\d+)", name).groups()  # type: ignore[union-attr]
        parts.setdefault(stem, []).append(int(number))
    return ",".join(f"{stem}{_format_ranges(sorted(numbers))}" for stem, numbers in parts.items())


def _format_ranges(numbers: list[int]) -> str:
    """Return node numbers as Slurm writes ranges: `[0-2,7]`, or `7` alone."""
    if len(numbers) == 1:
        return str(numbers[0])
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    ranges = (f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"[{','.join(ranges)}]"


def _format_row(row_format: str, get_field: Callable[[str], str]) -> str:
    """Return a row in a format of `squeue -o`; `get_field` returns the field for a letter.

    A field is cut and padded to the width in the format; a dot (`%.18i`) aligns the field to the
    right.
    """

    def format_field(field: re.Match[str]) -> str:
        dot, width, letter = field.groups()
        content = get_field(letter)
        if not width:
            return content
        cut = content[: int(width)]
        return cut.rjust(int(width)) if dot else cut.ljust(int(width))

    return _FIELD.sub(format_field, row_format)


def _format_location(job: Job, slurm: SlurmCluster) -> str:
    """Return the job's nodes, or in parentheses why a pending job waits, as `squeue` prints."""
    return (
        f"({slurm.get_wait_reason(job)})" if job.state == "PENDING" else format_hostlist(job.nodes)
    )


def _format_elapsed(job: Job, slurm: SlurmCluster) -> str:
    """Return the running time of a job in the form of `squeue`: `1-02:03:04`, `2:03:04`, `3:04`.

    A job that holds no nodes now, such as an ended one, shows `0:00`.
    """
    # squeue counts the time of running jobs alone; the others show 0:00.
    is_running = job.started_at is not None and job.holds_nodes
    seconds = int(slurm.now - (job.started_at or 0)) if is_running else 0
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _get_user_id(job: Job) -> str:
    """Return a made-up but constant user id for the job's user; 0 for root."""
    user = job.wanted.user
    # Any number will do, as long as a user always has the same.
    return "0" if user == "root" else str(1000 + crc32(user.encode()) % 50_000)


_COLUMNS: dict[str, Callable[[Job, SlurmCluster], str]] = {
    "i": lambda job, _: job.label,
    "A": lambda job, _: str(job.number),
    "j": lambda job, _: job.wanted.name,
    "u": lambda job, _: job.wanted.user,
    "U": lambda job, _: _get_user_id(job),
    "n": lambda job, _: format_hostlist(job.wanted.nodes),
    "r": lambda job, slurm: slurm.get_wait_reason(job),
    "t": lambda job, _: CODES[job.state],
    "T": lambda job, _: job.state,
    "P": lambda _job, _: _PARTITION,
    "D": lambda job, _: str(len(job.nodes) or len(job.wanted.nodes) or job.wanted.count),
    "N": lambda job, _: format_hostlist(job.nodes),
    "R": _format_location,
    "M": _format_elapsed,
}
COLUMNS = frozenset(_COLUMNS)
_HEADERS = {
    "i": "JOBID", "A": "JOBID", "j": "NAME", "u": "USER", "t": "ST", "T": "STATE",
    "U": "UID", "n": "REQ_NODES", "r": "REASON",
    "P": "PARTITION", "D": "NODES", "N": "NODELIST", "R": "NODELIST(REASON)", "M": "TIME",
}  # fmt: skip
WIDE_COLUMNS: dict[str, Callable[[Job], str]] = {
    "JobArrayID": lambda job: job.label,
    "JobID": lambda job: str(job.number),
    "BatchFlag": lambda job: str(int(job.wanted.is_batch)),
    "Requeue": lambda job: str(int(job.wanted.can_requeue)),
    "State": lambda job: job.state,
    "NodeList": lambda job: format_hostlist(job.nodes),
    "exit_code": lambda job: str(job.exit_code << 8),
}


def _get_short_state(state: list[str]) -> str:
    """Return a node's state (`list_states`) as `sinfo` shortens it, such as `alloc` or `drng`."""
    base, *flags = state
    if "DRAIN" in flags:
        return "drng" if base in ("ALLOCATED", "MIXED") or "COMPLETING" in flags else "drain"
    if "COMPLETING" in flags:
        return "comp"
    return {"ALLOCATED": "alloc", "MIXED": "mix"}.get(base, base.lower())


def _format_time(moment: float) -> str:
    """Return the time as Slurm prints times, in UTC without a zone: `2026-01-31T12:00:00`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def run_scontrol(slurm: SlurmCluster, arguments: list[str]) -> str:
    """Run `scontrol` with `ping`, `--version`, `show node`, `update` or `requeue`.

    Returns the output. Raises `CommandRefused` for other commands and for what Slurm refuses.
    """
    match arguments:
        case ["ping"]:
            return "Slurmctld(primary) at slurm-controller-0 is UP\n"
        case ["--version" | "-V"]:
            return "slurm-wlm 22.05.8\n"
        case ["show", "node" | "nodes", *names]:
            return _show_nodes(
                slurm, [name for name_list in names for name in name_list.split(",")]
            )
        case ["update", *settings]:
            return _update_nodes(slurm, settings)
        case ["requeue", labels]:
            return _requeue_jobs(slurm, labels.split(","))
    raise CommandRefused(f"scontrol: {' '.join(arguments[:2])} is not emulated")


def _show_nodes(slurm: SlurmCluster, names: list[str]) -> str:
    """Return the output of `scontrol show node` for the named nodes, or for all.

    Raises `CommandRefused` for an unknown name.
    """
    for name in names:
        if name not in slurm.nodes:
            # scontrol writes this message to stdout, unlike its others.
            raise CommandRefused(f"Node {name} not found", on_stdout=True)
    if not slurm.nodes:
        return "No nodes in the system\n"
    return "".join(format_node(slurm, name) for name in names or slurm.nodes)


def _update_nodes(slurm: SlurmCluster, settings: list[str]) -> str:
    """Run `scontrol update`: drain, undrain, resume or take down nodes, or set their reason.

    Raises `CommandRefused` for bad settings, before any change, and for unknown nodes, after the
    change of the others. The resume of a node in service raises at this node; nodes named before
    have changed.
    """
    values = {
        key.lower(): value for key, _, value in (setting.partition("=") for setting in settings)
    }
    for setting in settings:
        if setting.partition("=")[0].lower() not in ("nodename", "state", "reason"):
            raise CommandRefused(
                f"Update of this parameter is not supported: {setting}\nRequest aborted"
            )
    state = values.get("state", "").upper()
    if state not in ("", "DRAIN", "DOWN", "RESUME", "UNDRAIN"):
        raise CommandRefused(f"Invalid input: State={values['state']}\nRequest aborted")
    if state in ("DRAIN", "DOWN") and not values.get("reason"):
        raise CommandRefused(
            "You must specify a reason when DOWNING or DRAINING a node. Request denied"
        )
    names = values.get("nodename", "").split(",")
    for name in names:
        if name in slurm.nodes:
            # Slurm updates the nodes that exist before it complains of the others.
            _set_node_state(slurm, name, state, values.get("reason"))
    if not set(names) <= set(slurm.nodes):  # the others have been updated, as in Slurm
        raise CommandRefused("slurm_update error: Invalid node name specified")
    return ""


def _set_node_state(slurm: SlurmCluster, name: str, state: str, reason: str | None) -> None:
    """Resume, undrain, drain or take down a node, and store the reason if any.

    An empty `state` changes the reason alone. Raises `CommandRefused` for the resume of a node in
    service.
    """
    is_in_service = not {"DRAIN", "DOWN"} & set(slurm.list_states(name))
    # Slurm refuses to resume a node that is in service.
    if state == "RESUME" and is_in_service:
        raise CommandRefused("slurm_update error: Invalid node state specified")
    if state in ("RESUME", "UNDRAIN"):
        slurm.resume(name, also_down=state == "RESUME")
    elif state == "DRAIN":
        slurm.drain(name)
    elif state == "DOWN":
        slurm.take_down(name)
    if reason:
        slurm.set_reason(name, reason)


def _requeue_jobs(slurm: SlurmCluster, labels: list[str]) -> str:
    """Run `scontrol requeue`: put running and ended batch jobs back into the queue.

    Raises `CommandRefused` with the problems of jobs that cannot be requeued, after the others have
    been.
    """
    problems: list[str] = []
    for label in labels:
        jobs = slurm.find_jobs(label)
        job_problems = [problem for job in jobs if (problem := _find_requeue_problem(job, label))]
        if not jobs:
            job_problems = [f"Invalid job id specified for job {label}"]
        problems += job_problems
        slurm.end_jobs(
            [job for job in jobs if not _find_requeue_problem(job, label)], "requeued", "PENDING"
        )
    if problems:
        raise CommandRefused("\n".join(problems))
    return ""


def _find_requeue_problem(job: Job, label: str) -> str | None:
    """Return why a job cannot be requeued, in Slurm's words, or None."""
    reason = None
    if not job.wanted.is_batch:
        reason = "Only batch jobs are accepted or processed"
    elif not job.wanted.can_requeue:
        reason = "Requested operation is presently disabled"
    elif job.state == "PENDING":
        reason = "Job is pending execution"
    if reason is None:
        return None
    return f"{job.label}: {reason}" if "_" in job.label else f"{reason} for job {label}"
