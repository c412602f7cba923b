"""A project's requirements.txt: what `pip install --requirement` needs where it runs."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.wheel import FOLDER, NAME, write_wheel

FILE: Final = "requirements.txt"
EMPTY: Final = f"""\
# What the program needs beside gpuform, which is on no package index: `gpuform new ci` puts its
# wheel into {FOLDER}/ and names it here.
"""
_OURS: Final = re.compile(rf"\s*({NAME}\s*(\[[^\]]*\])?\s*([=<>~!@;#].*)?|\./{FOLDER}/{NAME}-.*)")


def require_here(project: Path, extras: Iterable[str]) -> Iterator[Path]:
    """Has a project's requirements name the gpuform that runs, as a wheel in the project.

    What else they name stays. The files that were written. Raises EngineError.
    """
    file = project / FILE
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else EMPTY
        wheel = write_wheel(project / FOLDER)
        wanted = ",".join(extras)
        line = f"./{FOLDER}/{wheel.name}" + (f"[{wanted}]" if wanted else "")
        kept = [each for each in before.splitlines() if not _OURS.fullmatch(each)]
        file.write_text("\n".join([*kept, line]) + "\n", encoding="utf-8", newline="\n")
    except OSError as error:
        raise EngineError(f"{error.filename} cannot be written: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise EngineError(f"{file} is not UTF-8 text (byte {error.start})") from error
    return iter((wheel, file))
