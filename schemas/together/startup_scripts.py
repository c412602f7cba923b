"""What a startup script of Slurm has to be: it names its interpreter, and a prolog asks no Slurm.

From Together's docs ('Slurm startup scripts', docs.together.ai/docs/slurm-startup-scripts) and
Slurm's 'Prolog and Epilog Guide' (slurm.schedmd.com/prolog_epilog.html): Slurm runs each as a
program of its own, and one that runs at the start of every job is no place for Slurm's commands.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.schemas.models import Problem

PROLOGS: Final = ("controller_prolog", "worker_prolog")
SCRIPTS: Final = (
    *PROLOGS,
    "controller_epilog",
    "worker_epilog",
    "login_init_script",
    "nodeset_init_script",
)

_COMMANDS: Final = (
    "sacct|sacctmgr|salloc|sattach|sbatch|sbcast|scancel|scontrol|scrontab|sdiag|sinfo|sprio|"
    "squeue|sreport|srun|sshare|sstat|strigger"
)
_SHEBANG: Final = re.compile(r"#![ \t]*/\S")
_SHELL: Final = re.compile(r"\b(?:ba|da|k|z)?sh\b")
_CALL: Final = re.compile(
    # Where a command begins: a line, after an operator or `$(`, and behind these words.
    r"(?:^|[;&|({`!]|\b(?:then|do|else|elif|if|while|until|time|exec|command|nohup|sudo|env)\b)"
    r"[ \t]*(?:\w+=\S*[ \t]+)*(?:/[\w./-]*/)?"
    rf"(?P<name>{_COMMANDS})(?=$|[\s;&|)`])"
)


def script_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the scripts of a declaration; no problem shows what is in one."""
    for name in SCRIPTS:
        text = values.get(name)
        if not isinstance(text, str):
            continue
        first = text.split("\n", 1)[0]
        if not _SHEBANG.match(first):
            yield Problem(
                name,
                "does not begin with a shebang, so that nobody knows what runs it: its first line "
                "must be such as #!/bin/bash",
            )
        elif first.endswith("\r"):
            yield Problem(
                name,
                "has Windows' line ends, which Linux takes for a part of the interpreter's name: "
                "save it with those of Unix",
            )
        elif name in PROLOGS and _SHELL.search(first):
            yield from _calls(name, text)


def _calls(name: str, text: str) -> Iterator[Problem]:
    for number, line in enumerate(text.split("\n"), start=1):
        found = None if line.lstrip().startswith("#") else _CALL.search(line)
        if found is not None:
            yield Problem(
                name,
                f"calls {found['name']} in line {number}: a prolog must call no command of "
                "Slurm, which would hold up every job: use the variables that Slurm sets for it, "
                "such as SLURM_JOB_ID",
            )
