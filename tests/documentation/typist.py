"""Run a command on a terminal of its own, and answer its questions.

`python typist.py COMMAND ANSWER...`, used by `test_examples.py`: what is typed before a question is
shown does not count, so that a pipe cannot answer.
"""

import os
import pty
import sys
from typing import Final

QUESTION_ENDS: Final = (b"] ", b"): ", b": ", b"? ")


def main(command: str, *answers: str) -> int:
    """Return the exit code of `command`, after each question was given the next of `answers`."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "-c", command])
    remaining = list(answers)
    last_line = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # Linux ends a terminal whose last process has left with EIO
            break
        if not chunk:
            break
        sys.stdout.buffer.write(chunk)
        last_line = (last_line + chunk).rpartition(b"\n")[2]
        if remaining and _is_question(last_line):
            os.write(terminal, f"{remaining.pop(0)}\n".encode())
            last_line = b""
    sys.stdout.buffer.flush()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _is_question(line: bytes) -> bool:
    return line.replace(b"\x1b[0m", b"").endswith(QUESTION_ENDS)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
