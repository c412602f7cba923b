"""`sbatch`: what is asked for, and for how long it runs."""

import re
from getopt import gnu_getopt

from gpuform.providers.emulator.slurm.estate import Slurm
from gpuform.providers.emulator.slurm.jobs import Wanted
from gpuform.providers.emulator.slurm.refusal import Refused

_LONG = (
    *("wrap=", "job-name=", "nodes=", "nodelist=", "array=", "gres=", "gpus-per-node=", "output="),
    *("ntasks=", "no-requeue", "requeue", "exclusive", "hold", "parsable"),
)
_SHORT = "J:N:w:a:Ho:n:"
_NAMES = {"J": "job-name", "N": "nodes", "w": "nodelist", "a": "array", "H": "hold"}
_SLEEP = re.compile(r"sleep (\d+|infinity)")


def submit(slurm: Slurm, arguments: list[str]) -> str:
    """Only `--wrap 'sleep SECONDS'` and `sleep infinity` are emulated: by the emulator's clock."""
    given, scripts = gnu_getopt(arguments, _SHORT, _LONG)
    options = {_NAMES.get(name.lstrip("-"), name.lstrip("-")): value for name, value in given}
    sleep = _SLEEP.fullmatch(options.get("wrap", ""))
    if scripts or sleep is None:
        raise Refused("sbatch: error: only --wrap='sleep SECONDS' is emulated")
    names = [name for name in options.get("nodelist", "").split(",") if name]
    for name in names:
        if name not in slurm.nodes:
            raise Refused("sbatch: error: Batch job submission failed: Invalid node name specified")
    wanted = Wanted(
        name=options.get("job-name", "wrap"),
        count=max(_number(options.get("nodes", "1")), len(names)),
        nodes=names,
        gpus=_number(options.get("gpus-per-node", options.get("gres", "8").split(":")[-1])),
        runs_for=None if sleep[1] == "infinity" else float(sleep[1]),
        can_requeue="no-requeue" not in options,
        is_held="hold" in options,
    )
    first = slurm.submit(wanted, _tasks(options["array"]) if "array" in options else None)[0]
    label = first.label.split("_")[0]
    return f"{label}\n" if "parsable" in options else f"Submitted batch job {label}\n"


def _tasks(written: str) -> list[int]:
    first, _, last = written.partition("-")
    return list(range(_number(first), _number(last or first) + 1))


def _number(written: str) -> int:
    if not written.isdigit():
        raise Refused(f"sbatch: error: {written!r} is not emulated: write a number")
    return int(written)
