"""`gpuform completion`, in the shells themselves."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
SCRIPTS = Path(sys.executable).parent


def run_shell(name: str, *script: str) -> str:
    env = {**os.environ, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    path = shutil.which(name, path=env["PATH"])
    if path is None:
        pytest.skip(f"{name} is not on this machine")
    done = subprocess.run([path, *script], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def complete_in_bash(*words: str) -> list[str]:
    """Return bash's completions of the last word."""
    line = " ".join(f'"{word}"' for word in words)
    script = (
        'eval "$(gpuform completion bash)"\n'
        "function_of() { complete -p gpuform | sed 's/.*-F \\([^ ]*\\) .*/\\1/'; }\n"
        f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}\n"
        '$(function_of) gpuform "${COMP_WORDS[COMP_CWORD]}" ""\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    return run_shell("bash", "--norc", "-c", script).split()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (("gpuform", "pre"), ["preview"]),
        (("gpuform", "stack", "in"), ["init"]),
        (("gpuform", "up", "--expect"), ["--expect-no-changes"]),
        (("gpuform", "help", "guides/ado"), ["guides/adopt"]),
        (("gpuform", "help", "destr"), ["destroy"]),
        (("gpuform", "help", "stack", "sel"), ["select"]),
        (("gpuform", "help", "preview", ""), []),
        (("gpuform", "completion", ""), ["bash", "zsh", "fish"]),
    ],
)
def test_bash_completes_commands_flags_and_pages(
    words: tuple[str, ...], completed: list[str]
) -> None:
    assert complete_in_bash(*words) == completed


def test_zsh_completes_commands() -> None:
    script = (
        "autoload -U compinit && compinit -u -D\n"
        'eval "$(gpuform completion zsh)"\n'
        "print -r -- $_comps[gpuform]\n"
        '_describe() { print -rl -- ${(P)3} }; compadd() { print -rl -- "$@" }\n'
        "words=(gpuform pre); CURRENT=2; _gpuform_completion\n"
    )
    output = run_shell("zsh", "-f", "-c", script)
    assert output.startswith("_gpuform_completion\n")
    assert "preview" in output


def test_fish_completes_commands() -> None:
    script = "gpuform completion fish | source; complete -C 'gpuform pre'"
    assert run_shell("fish", "--no-config", "-c", script).split()[0] == "preview"


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_each_shell(run: Run, name: str) -> None:
    ran = run("completion", name)
    assert ran.code == 0
    assert f"_GPUFORM_COMPLETE={name}_complete" in ran.out
    assert run("completion", "tcsh").code == 2
