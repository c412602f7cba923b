"""Follow the documentation as a reader: in a shell and a home folder of their own."""

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
from processes.commands import build_path_with_gpuform

ROOT: Final = Path(__file__).parents[2]
HOME: Final = "/home/ada"
"""What pages show for the reader's home."""

_IGNORED_FILES: Final = shutil.ignore_patterns(
    ".pulumi", ".gpuform", "Pulumi.*.yaml", "__pycache__"
)
_VARIABLE_PARTS: Final = (
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


class PageContradicted(AssertionError):
    """A command behaved differently from the page's description."""


@dataclass
class Reader:
    """Follows a page, step by step."""

    shell: "subprocess.Popen[str]"
    home: Path

    def follow(self, steps: Sequence[Step]) -> None:
        """Take the steps in order. Raises PageContradicted for the first with another result."""
        for step in steps:
            match step:
                case Enter(line, folder):
                    target = self.home / Path(folder).name
                    shutil.copytree(ROOT / folder, target, ignore=_IGNORED_FILES)
                    self._check_step(Run(line, f"cd {target}", 0, None))
                case Write(line, name, text, is_more):
                    self._write(line, name, text, is_more=is_more)
                case Run():
                    self._check_step(step)

    def _write(self, line: int, name: str, text: str, *, is_more: bool) -> None:
        source = self.home / ".text"
        source.write_text(text, encoding="utf-8")
        arrow = ">>" if is_more else ">"
        script = f"mkdir -p $(dirname '{name}') && cat {source} {arrow} '{name}'; rm {source}"
        self._check_step(Run(line, script, 0, None))

    def _check_step(self, step: Run) -> None:
        code, printed = self._run(step.command)
        if code != step.exits:
            raise PageContradicted(
                f"line {step.line}: {step.command.strip()}\n"
                f"exits with {code}, not with {step.exits}:\n{printed}"
            )
        if step.output is not None and not matches_page(step.output, printed, self.home):
            raise PageContradicted(
                f"line {step.line}: {step.command.strip()}\nprints:\n{printed}"
                f"\nthe page says:\n{step.output}"
            )

    def stop_emulator(self) -> None:
        """Stop the emulator started by the page, which is not in the shell's process group."""
        self._run(
            'case "$TOGETHER_BASE_URL" in http://127.0.0.1:*) '
            "port=${TOGETHER_BASE_URL##*:}; gpuform emulator stop --port ${port%%/*};; esac"
        )

    def _run(self, command: str) -> tuple[int, str]:
        """Run a command in the shell, and return the exit code and the output."""
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
        raise PageContradicted(f"the shell has ended: {''.join(lines)}")


def matches_page(expected: str, printed: str, home: Path) -> bool:
    """Return whether the output is as on the page; the line `...` stands for any lines."""
    return _match_lines(_normalize_lines(expected, home), _normalize_lines(printed, home))


def _normalize_lines(text: str, home: Path) -> list[str]:
    return replace_variable_parts(text.replace(str(home), HOME).rstrip()).splitlines()


def replace_variable_parts(output: str) -> str:
    """Return the text with ids, times and the like replaced by fixed words."""
    for pattern, name in _VARIABLE_PARTS:
        output = re.sub(pattern, name, output, flags=re.MULTILINE)
    return output


def _match_lines(expected_lines: list[str], printed_lines: list[str]) -> bool:
    """Return whether the printed lines match.

    Each part between two `...` is taken at its first place, the last part at the end.
    """
    parts: list[list[str]] = [[]]
    for line in expected_lines:
        if line == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    first, *rest = parts
    if printed_lines[: len(first)] != first:
        return False
    if not rest:
        return len(printed_lines) == len(first)
    position = len(first)
    for part in rest[:-1]:
        candidates = range(position, len(printed_lines) - len(part) + 1)
        match = next(
            (start for start in candidates if printed_lines[start : start + len(part)] == part),
            None,
        )
        if match is None:
            return False
        position = match + len(part)
    last_part = rest[-1]
    return (
        len(printed_lines) - len(last_part) >= position
        and printed_lines[len(printed_lines) - len(last_part) :] == last_part
    )


@contextmanager
def open_reader(home: Path) -> Iterator[Reader]:
    """Yield a reader with the home folder; processes left by the reader are killed at the end."""
    home.mkdir()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile"],
        cwd=home,
        env=_build_environment(home),
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
        with suppress(PageContradicted, OSError):
            reader.stop_emulator()
        os.killpg(shell.pid, signal.SIGKILL)
        shell.communicate()


def _build_environment(home: Path) -> dict[str, str]:
    """Return a reader's variables, with this machine's variables of package indexes."""
    machine = re.compile(r"(PIP_|UV_|SSL_|https?_proxy|no_proxy)", re.IGNORECASE)
    return {
        **{name: value for name, value in os.environ.items() if machine.match(name)},
        "GPUFORM_REPOSITORY": str(ROOT),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PATH": build_path_with_gpuform(),
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_DISABLE_CI_DETECTION": "true",
        "TZ": "UTC",
        "USER": "ada",
    }
