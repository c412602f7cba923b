"""A reader of the documentation: a shell of their own, in a home where nothing was done before."""

import os
import re
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from documentation.page import Enter, Run, Step, Write
from processes.commands import path_with_gpuform

ROOT: Final = Path(__file__).parents[2]
HOME: Final = "/home/ada"
"""What pages show for the reader's home."""

_LEFT_OUT: Final = shutil.ignore_patterns(".pulumi", ".gpuform", "Pulumi.*.yaml", "__pycache__")
_ALIKE: Final = (
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
    (r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{12,64}\b", "ID"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"\b\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)?)?Z?\b", "TIME"),
    (r"\b\d:\d\d:\d\d\b", "DURATION"),
    (r"\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?s\b|\b(\d+d)?(\d+h)?\d+m\b", "DURATION"),
    (r"\b(127\.0\.0\.1|localhost):\d+", "ADDRESS"),
    (r"\bgpuform \d+\.\d+\S*", "gpuform VERSION"),
    (r"[ \t]+$", ""),
)
"""What differs from run to run, and what it is compared as."""


class Surprise(AssertionError):
    """What happened is not what the page says."""


@dataclass
class Reader:
    """Does what a page says, step by step."""

    shell: "subprocess.Popen[str]"
    home: Path

    def follow(self, steps: Sequence[Step]) -> None:
        """Takes the steps in order; raises `Surprise` for the first that goes another way."""
        for step in steps:
            match step:
                case Enter(line, folder):
                    target = self.home / Path(folder).name
                    shutil.copytree(ROOT / folder, target, ignore=_LEFT_OUT)
                    self._expect(Run(line, f"cd {target}", 0, None))
                case Write(line, name, text, is_more):
                    self._write(line, name, text, is_more=is_more)
                case Run():
                    self._expect(step)

    def _write(self, line: int, name: str, text: str, *, is_more: bool) -> None:
        source = self.home / ".text"
        source.write_text(text, encoding="utf-8")
        arrow = ">>" if is_more else ">"
        script = f"mkdir -p $(dirname '{name}') && cat {source} {arrow} '{name}'; rm {source}"
        self._expect(Run(line, script, 0, None))

    def _expect(self, step: Run) -> None:
        code, printed = self._run(step.command)
        if code != step.exits:
            raise Surprise(
                f"line {step.line}: {step.command.strip()}\n"
                f"exits with {code}, not with {step.exits}:\n{printed}"
            )
        if step.output is not None and not is_alike(step.output, printed, self.home):
            raise Surprise(
                f"line {step.line}: {step.command.strip()}\nprints:\n{printed}"
                f"\nthe page says:\n{step.output}"
            )

    def stop_emulator(self) -> None:
        """Stop the emulator that the page has started: it is no process of the shell's group."""
        self._run(
            'case "$TOGETHER_BASE_URL" in http://127.0.0.1:*) '
            "port=${TOGETHER_BASE_URL##*:}; gpuform emulator stop --port ${port%%/*};; esac"
        )

    def _run(self, command: str) -> tuple[int, str]:
        """The exit code of a command in the shell, and what it printed."""
        assert self.shell.stdin
        assert self.shell.stdout
        script = self.home / ".command"
        script.write_text(command, encoding="utf-8")
        mark = secrets.token_hex(8)
        # In the shell itself, so that `cd` and `export` hold for what follows. The trap sees what
        # fails before the last line.
        self.shell.stdin.write(
            f"__failed=0; trap '__failed=$?' ERR; . {script} </dev/null; __code=$?; trap - ERR; "
            f"printf '\\n%s %s %s\\n' {mark} $__code $__failed\n"
        )
        self.shell.stdin.flush()
        lines = []
        for line in self.shell.stdout:
            if line.startswith(mark):
                _, code, failed = line.split()
                return int(code) or int(failed), "".join(lines)[:-1]
            lines.append(line)
        raise Surprise(f"the shell has ended: {''.join(lines)}")


def is_alike(said: str, printed: str, home: Path) -> bool:
    """Whether a page's text is what was printed; its line `...` stands for any lines."""
    return _fits(_lines(said, home), _lines(printed, home))


def _lines(text: str, home: Path) -> list[str]:
    return without_chance(text.replace(str(home), HOME).rstrip()).splitlines()


def without_chance(text: str) -> str:
    """A text whose ids, times and the like are those of every run."""
    for pattern, name in _ALIKE:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def _fits(said: list[str], printed: list[str]) -> bool:
    """Each part between two `...` at its first place, the last one at the end."""
    parts: list[list[str]] = [[]]
    for line in said:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    first, *rest = parts
    if printed[: len(first)] != first:
        return False
    if not rest:
        return len(printed) == len(first)
    at = len(first)
    for part in rest[:-1]:
        places = range(at, len(printed) - len(part) + 1)
        found = next((each for each in places if printed[each : each + len(part)] == part), None)
        if found is None:
            return False
        at = found + len(part)
    last = rest[-1]
    return len(printed) - len(last) >= at and printed[len(printed) - len(last) :] == last


@contextmanager
def reading(home: Path) -> Iterator[Reader]:
    """A reader with that home; what they have left running is ended."""
    home.mkdir()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile"],
        cwd=home,
        env=_environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    reader = Reader(shell, home)
    try:
        yield reader
    finally:
        with suppress(Surprise, OSError):
            reader.stop_emulator()
        os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()


def _environment(home: Path) -> dict[str, str]:
    """The variables of a reader, and those by which this machine reaches package indexes."""
    machine = re.compile(r"(PIP_|UV_|SSL_|https?_proxy|no_proxy)", re.IGNORECASE)
    return {
        **{name: value for name, value in os.environ.items() if machine.match(name)},
        "GPUFORM_REPOSITORY": str(ROOT),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": path_with_gpuform(),
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_DISABLE_CI_DETECTION": "true",
        "TZ": "UTC",
        "USER": "ada",
    }
