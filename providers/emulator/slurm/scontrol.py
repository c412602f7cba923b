"""`scontrol`: nodes shown, drained and resumed; jobs requeued."""

from gpuform.providers.emulator.slurm.estate import Slurm
from gpuform.providers.emulator.slurm.jobs import Job, Refused
from gpuform.providers.emulator.slurm.printing import node_text


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
