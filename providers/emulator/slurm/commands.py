"""Slurm's commands, as far as they are emulated: what they print and their exit codes.

Words and codes are those of Slurm 22.05; an option that is not emulated is an error that says so.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from getopt import GetoptError, gnu_getopt
from itertools import dropwhile

from gpuform.providers.emulator.slurm.estate import Slurm
from gpuform.providers.emulator.slurm.jobs import ACTIVE, CODES, Job, JobRequest, Refused
from gpuform.providers.emulator.slurm.printing import (
    COLUMNS,
    WIDE,
    partition_text,
    queue_text,
    scontrol,
    wide_text,
)

_SILENT = {
    "scontrol": "slurm_load_node",
    "squeue": "slurm_load_jobs",
    "sinfo": "slurm_load_partitions",
}


@dataclass(frozen=True)
class Result:
    out: str = ""
    err: str = ""
    code: int = 0


def run(slurm: Slurm, command: Sequence[str]) -> Result:
    """Runs one command as Slurm's administrator; the caller keeps what it did."""
    words = list(command)
    if words[:1] == ["sudo"]:
        words = [word for word in words[1:] if word not in ("-n", "--")]
    if words[:1] == ["env"]:
        words = list(dropwhile(lambda word: "=" in word, words[1:]))
    if words[:1] == ["tail"]:
        return _tail(slurm, words[1:])
    if words == ["id", "-u"]:
        return Result("0\n")
    program, *arguments = words or [""]
    if program not in _PROGRAMS:
        return Result(err=f"exec: {program!r}: executable file not found in $PATH\n", code=127)
    if not slurm.is_answering:
        told = _SILENT.get(program, program)
        if program == "scontrol" and arguments[:1] != ["show"]:
            told = "slurm_update"
        why = "Unable to contact slurm controller (connect failure)"
        return Result(err=f"{told} error: {why}\n", code=1)
    try:
        return Result(out=_PROGRAMS[program](slurm, arguments))
    except Refused as refused:
        told = f"{refused}\n"
        return Result(out=told, code=1) if refused.on_stdout else Result(err=told, code=1)
    except GetoptError as error:
        told = f"{program}: {error.msg}, or it is not emulated"
        return Result(err=f'{told}\nTry "{program} --help" for more information\n', code=1)


def _squeue(slurm: Slurm, arguments: list[str]) -> str:
    given, _ = gnu_getopt(
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
    options = {name.lstrip("-"): value for name, value in given}

    def option(short: str, long: str) -> str | None:
        return options.get(short, options.get(long))

    jobs = _chosen(slurm, option("t", "states"), option("w", "nodelist"))
    if (user := option("u", "user")) is not None:
        jobs = [job for job in jobs if job.wanted.user == user]
    if (names := option("n", "name")) is not None:
        jobs = [job for job in jobs if job.wanted.name in names.split(",")]
    if (labels := option("j", "jobs")) is not None:
        named = [job for label in labels.split(",") for job in slurm.named(label)]
        jobs = [job for job in jobs if job in named]
    has_header = option("h", "noheader") is None
    if (wide := option("O", "Format")) is not None:
        if has_header:
            raise Refused("squeue: error: --Format is emulated with --noheader alone")
        return wide_text(jobs, [_field(each) for each in wide.split(",")])
    form = option("o", "format")
    if form is not None and (unknown := _letters(form) - COLUMNS):
        raise Refused(f"squeue: error: not emulated: %{', %'.join(sorted(unknown))}")
    return queue_text(slurm, jobs, form, has_header=has_header)


def _chosen(slurm: Slurm, states: str | None, nodelist: str | None) -> list[Job]:
    codes = {code: state for state, code in CODES.items()}
    wanted = [
        codes.get(each.upper(), each.upper()) for each in (states or ",".join(ACTIVE)).split(",")
    ]
    known = {*CODES, *_NEVER_HERE, "ALL"}
    if unknown := [each for each in wanted if each not in known]:
        raise Refused(f"squeue: error: Invalid job state specified: {unknown[0]}")
    jobs = [job for job in slurm.jobs if job.state in wanted or "ALL" in wanted]
    jobs = [job for job in jobs if job.is_remembered(slurm.now)]
    if nodelist is None:
        return jobs
    for name in nodelist.split(","):
        if name not in slurm.nodes:
            raise Refused(f"squeue: error: Invalid node name {name}")
    return [job for job in jobs if set(job.nodes) & set(nodelist.split(","))]


def _field(written: str) -> tuple[str, int]:
    name, _, width = written.partition(":")
    if name not in WIDE:
        raise Refused(f"squeue: error: Invalid job format specification: {name}")
    return name, int(width or 20)


def _letters(form: str) -> set[str]:
    parts = form.split("%")[1:]
    return {part.lstrip(".0123456789")[:1] for part in parts}


def _scancel(slurm: Slurm, arguments: list[str]) -> str:
    given, labels = gnu_getopt(arguments, "vQu:", ["quiet", "verbose", "user="])
    jobs = [job for label in labels for job in slurm.named(label)]
    users = [value for name, value in given if name in ("-u", "--user")]
    jobs += [job for job in slurm.jobs if job.wanted.user in users]
    for label in labels:
        if not label.replace("_", "").isdigit():
            raise Refused(f"scancel: error: Invalid job id {label}")
    slurm.end([job for job in jobs if job.state in ACTIVE], "cancelled", "CANCELLED")
    return ""


def _sinfo(slurm: Slurm, arguments: list[str]) -> str:
    gnu_getopt(arguments, "")
    return partition_text(slurm)


_LONG = (
    *("wrap=", "job-name=", "nodes=", "nodelist=", "array=", "gres=", "gpus-per-node=", "output="),
    *("ntasks=", "no-requeue", "requeue", "exclusive", "hold", "parsable", "open-mode=", "error="),
    *("time=", "comment=", "partition=", "account=", "qos=", "mem=", "cpus-per-task="),
    *("ntasks-per-node=", "gpus="),
)
_SHORT = "J:N:w:a:Ho:n:e:t:p:A:q:c:G:"
_NAMES = {"J": "job-name", "N": "nodes", "w": "nodelist", "a": "array", "H": "hold", "o": "output"}
_SLEEP = re.compile(r"sleep (\d+|infinity)")
_LAST_WORDS = re.compile(r'^echo "([^"$]*\$code[^"$]*(?:\$SLURM_JOB_NODELIST)?)"$', re.MULTILINE)


def submit(slurm: Slurm, arguments: list[str]) -> str:
    """Scripts by --wrap alone: `sleep SECONDS` and `sleep infinity` sleep by the emulator's clock.

    Any other is one that measures its nodes: it runs and prints what their measures say, and then
    what it echoes with its `$code`.
    """
    given, scripts = gnu_getopt(arguments, _SHORT, _LONG)
    options = {_NAMES.get(name.lstrip("-"), name.lstrip("-")): value for name, value in given}
    script = options.get("wrap", "")
    if scripts or not script.strip():
        raise Refused("sbatch: error: only --wrap='SCRIPT' is emulated")
    sleep, last = _SLEEP.fullmatch(script), _LAST_WORDS.findall(script)
    names = [name for name in options.get("nodelist", "").split(",") if name]
    for name in names:
        if name not in slurm.nodes:
            raise Refused("sbatch: error: Batch job submission failed: Invalid node name specified")
    wanted = JobRequest(
        name=options.get("job-name", "wrap"),
        count=max(_number(options.get("nodes", "1")), len(names)),
        nodes=names,
        gpus=_number(options.get("gpus-per-node", options.get("gres", "8").split(":")[-1])),
        runs_for=float(sleep[1]) if sleep and sleep[1] != "infinity" else None,
        is_measuring=sleep is None,
        output=options.get("output", ""),
        last_words="".join(f"{line}\n" for line in last),
        can_requeue="no-requeue" not in options,
        is_held="hold" in options,
    )
    first = slurm.submit(wanted, _tasks(options["array"]) if "array" in options else None)[0]
    label = first.label.split("_")[0]
    return f"{label}\n" if "parsable" in options else f"Submitted batch job {label}\n"


def _tail(slurm: Slurm, arguments: list[str]) -> Result:
    """`tail -c BYTES -- FILE` of what a job prints; it needs no controller."""
    given, (path, *_) = gnu_getopt(arguments, "c:")
    text = slurm.file(path)
    if text is None:
        told = f"tail: cannot open '{path}' for reading: No such file or directory\n"
        return Result(err=told, code=1)
    return Result(text[-int(dict(given)["-c"]) :])


def _tasks(written: str) -> list[int]:
    first, _, last = written.partition("-")
    return list(range(_number(first), _number(last or first) + 1))


def _number(written: str) -> int:
    if not written.isdigit():
        raise Refused(f"sbatch: error: {written!r} is not emulated: write a number")
    return int(written)


_CHOICES = ("format", "Format", "states", "nodelist", "user", "jobs")
# States that Slurm knows and no emulated job ever has.
_NEVER_HERE = (
    "SUSPENDED", "TIMEOUT", "PREEMPTED", "CONFIGURING", "RESIZING", "SIGNALING",
    "STAGE_OUT", "STOPPED",
)  # fmt: skip
_PROGRAMS: dict[str, Callable[[Slurm, list[str]], str]] = {
    "scontrol": scontrol,
    "squeue": _squeue,
    "sinfo": _sinfo,
    "sbatch": submit,
    "scancel": _scancel,
}
