"""Print nodes and jobs as the commands of Slurm 22.05 do, and run `scontrol`."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from zlib import crc32

from gpuform.providers.emulator.slurm.estate import Slurm
from gpuform.providers.emulator.slurm.jobs import CODES, Job, Refused
from gpuform.providers.emulator.together.catalogue import MACHINES
from gpuform.providers.emulator.together.nodes import GPUS_PER_WORKER

_PARTITION = "all"
_QUEUE = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_FIELD = re.compile(r"%(\.?)(\d*)([a-zA-Z])")


def node_text(slurm: Slurm, name: str) -> str:
    """The block of `scontrol show node`."""
    node, now = slurm.nodes[name], _time(slurm.now)
    machine = MACHINES[slurm.cluster.settings.gpu_type]
    cpus, memory = machine.num_cpu_cores, int(machine.memory_gib * 1024)
    gpus = sum(job.wanted.gpus for job in slurm.jobs_on(name))
    used = cpus * gpus // GPUS_PER_WORKER
    since, state = _time(node.running_at or slurm.now), "+".join(slurm.state(name))
    tres = f"cpu={cpus},mem={memory}M,billing={cpus},gres/gpu={GPUS_PER_WORKER}"
    lines = [
        f"NodeName={name} Arch=x86_64 CoresPerSocket={cpus // 2} ",
        f"CPUAlloc={used} CPUEfctv={cpus} CPUTot={cpus} CPULoad={used}.00",
        "AvailableFeatures=(null)",
        "ActiveFeatures=(null)",
        f"Gres=gpu:{GPUS_PER_WORKER}",
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
    if reason := slurm.reason(name):
        lines.append(f"Reason={reason.text} [slurm@{_time(reason.at)}]")
    return "\n   ".join(lines) + "\n\n"


def queue_text(slurm: Slurm, jobs: Iterable[Job], form: str | None, *, has_header: bool) -> str:
    """What `squeue` prints, by compact state and then by age."""
    wanted = _QUEUE if form is None else form
    rows = [_row(wanted, lambda letter: _HEADERS.get(letter, ""))] if has_header else []
    ordered = sorted(jobs, key=lambda job: (CODES[job.state], job.number))
    rows += [
        _row(wanted, lambda letter, job=job: _COLUMNS[letter](job, slurm))  # type: ignore[misc]
        for job in ordered
    ]
    return "".join(f"{row}\n" for row in rows)


def wide_text(jobs: Iterable[Job], fields: Sequence[tuple[str, int]]) -> str:
    """What `squeue --noheader --Format` prints: fields of a width."""
    ordered = sorted(jobs, key=lambda job: (CODES[job.state], job.number))
    return "".join(
        "".join(f"{WIDE[name](job)[:width]:<{width}}" for name, width in fields) + "\n"
        for job in ordered
    )


def partition_text(slurm: Slurm) -> str:
    """What `sinfo` prints."""
    rows = [("PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE", "NODELIST")]
    shown: dict[str, list[str]] = {}
    for name in slurm.nodes:
        shown.setdefault(_short(slurm.state(name)), []).append(name)
    rows += [
        (f"{_PARTITION}*", "up", "infinite", str(len(names)), state, hostlist(names))
        for state, names in sorted(shown.items())
    ]
    return "".join(f"{a:<9} {b:>5} {c:>10} {d:>6} {e:>6} {f}\n" for a, b, c, d, e, f in rows)


def hostlist(names: Sequence[str]) -> str:
    """Names written short: `w[0-2,7]`."""
    parts: dict[str, list[int]] = {}
    for name in names:
        stem, number = re.fullmatch(r"(.*?)(\d+)", name).groups()  # type: ignore[union-attr]
        parts.setdefault(stem, []).append(int(number))
    return ",".join(f"{stem}{_ranges(sorted(numbers))}" for stem, numbers in parts.items())


def _ranges(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    told = (f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
    return f"[{','.join(told)}]"


def _row(form: str, value: Callable[[str], str]) -> str:
    def written(field: re.Match[str]) -> str:
        dot, width, letter = field.groups()
        text = value(letter)
        if not width:
            return text
        cut = text[: int(width)]
        return cut.rjust(int(width)) if dot else cut.ljust(int(width))

    return _FIELD.sub(written, form)


def _where(job: Job, slurm: Slurm) -> str:
    return f"({slurm.reason_to_wait(job)})" if job.state == "PENDING" else hostlist(job.nodes)


def _elapsed(job: Job, slurm: Slurm) -> str:
    is_running = job.started_at is not None and job.holds_nodes
    seconds = int(slurm.now - (job.started_at or 0)) if is_running else 0
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _user_id(job: Job) -> str:
    user = job.wanted.user
    return "0" if user == "root" else str(1000 + crc32(user.encode()) % 50_000)


_COLUMNS: dict[str, Callable[[Job, Slurm], str]] = {
    "i": lambda job, _: job.label,
    "A": lambda job, _: str(job.number),
    "j": lambda job, _: job.wanted.name,
    "u": lambda job, _: job.wanted.user,
    "U": lambda job, _: _user_id(job),
    "n": lambda job, _: hostlist(job.wanted.nodes),
    "r": lambda job, slurm: slurm.reason_to_wait(job),
    "t": lambda job, _: CODES[job.state],
    "T": lambda job, _: job.state,
    "P": lambda _job, _: _PARTITION,
    "D": lambda job, _: str(len(job.nodes) or len(job.wanted.nodes) or job.wanted.count),
    "N": lambda job, _: hostlist(job.nodes),
    "R": _where,
    "M": _elapsed,
}
COLUMNS = frozenset(_COLUMNS)
_HEADERS = {
    "i": "JOBID", "A": "JOBID", "j": "NAME", "u": "USER", "t": "ST", "T": "STATE",
    "U": "UID", "n": "REQ_NODES", "r": "REASON",
    "P": "PARTITION", "D": "NODES", "N": "NODELIST", "R": "NODELIST(REASON)", "M": "TIME",
}  # fmt: skip
WIDE: dict[str, Callable[[Job], str]] = {
    "JobArrayID": lambda job: job.label,
    "JobID": lambda job: str(job.number),
    "BatchFlag": lambda job: str(int(job.wanted.is_batch)),
    "Requeue": lambda job: str(int(job.wanted.can_requeue)),
    "State": lambda job: job.state,
    "NodeList": lambda job: hostlist(job.nodes),
    "exit_code": lambda job: str(job.exit_code << 8),
}


def _short(state: list[str]) -> str:
    base, *flags = state
    if "DRAIN" in flags:
        return "drng" if base in ("ALLOCATED", "MIXED") or "COMPLETING" in flags else "drain"
    if "COMPLETING" in flags:
        return "comp"
    return {"ALLOCATED": "alloc", "MIXED": "mix"}.get(base, base.lower())


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def scontrol(slurm: Slurm, arguments: list[str]) -> str:
    """Runs one; raises Refused."""
    match arguments:
        case ["ping"]:
            return "Slurmctld(primary) at slurm-controller-0 is UP\n"
        case ["--version" | "-V"]:
            return "slurm-wlm 22.05.8\n"
        case ["show", "node" | "nodes", *names]:
            return _show(slurm, [name for each in names for name in each.split(",")])
        case ["update", *settings]:
            return _update(slurm, settings)
        case ["requeue", labels]:
            return _requeue(slurm, labels.split(","))
    raise Refused(f"scontrol: {' '.join(arguments[:2])} is not emulated")


def _show(slurm: Slurm, names: list[str]) -> str:
    for name in names:
        if name not in slurm.nodes:
            raise Refused(f"Node {name} not found", on_stdout=True)
    if not slurm.nodes:
        return "No nodes in the system\n"
    return "".join(node_text(slurm, name) for name in names or slurm.nodes)


def _update(slurm: Slurm, settings: list[str]) -> str:
    given = {key.lower(): value for key, _, value in (each.partition("=") for each in settings)}
    for each in settings:
        if each.partition("=")[0].lower() not in ("nodename", "state", "reason"):
            raise Refused(f"Update of this parameter is not supported: {each}\nRequest aborted")
    state = given.get("state", "").upper()
    if state not in ("", "DRAIN", "DOWN", "RESUME", "UNDRAIN"):
        raise Refused(f"Invalid input: State={given['state']}\nRequest aborted")
    if state in ("DRAIN", "DOWN") and not given.get("reason"):
        raise Refused("You must specify a reason when DOWNING or DRAINING a node. Request denied")
    names = given.get("nodename", "").split(",")
    for name in names:
        if name in slurm.nodes:
            _set(slurm, name, state, given.get("reason"))
    if not set(names) <= set(slurm.nodes):  # the others have been updated, as in Slurm
        raise Refused("slurm_update error: Invalid node name specified")
    return ""


def _set(slurm: Slurm, name: str, state: str, reason: str | None) -> None:
    is_in_service = not {"DRAIN", "DOWN"} & set(slurm.state(name))
    if state == "RESUME" and is_in_service:
        raise Refused("slurm_update error: Invalid node state specified")
    if state in ("RESUME", "UNDRAIN"):
        slurm.resume(name, also_down=state == "RESUME")
    elif state == "DRAIN":
        slurm.drain(name)
    elif state == "DOWN":
        slurm.take_down(name)
    if reason:
        slurm.explain(name, reason)


def _requeue(slurm: Slurm, labels: list[str]) -> str:
    problems: list[str] = []
    for label in labels:
        jobs = slurm.named(label)
        told = [problem for job in jobs if (problem := _problem(job, label))]
        if not jobs:
            told = [f"Invalid job id specified for job {label}"]
        problems += told
        slurm.end([job for job in jobs if not _problem(job, label)], "requeued", "PENDING")
    if problems:
        raise Refused("\n".join(problems))
    return ""


def _problem(job: Job, label: str) -> str | None:
    why = None
    if not job.wanted.is_batch:
        why = "Only batch jobs are accepted or processed"
    elif not job.wanted.can_requeue:
        why = "Requested operation is presently disabled"
    elif job.state == "PENDING":
        why = "Job is pending execution"
    if why is None:
        return None
    return f"{job.label}: {why}" if "_" in job.label else f"{why} for job {label}"
