"""What is shown, so that no part of it is a command to the terminal, or to a CI system.

GitHub takes lines that begin with `::`, and `##[` anywhere (workflow commands); Azure Pipelines
takes `##vso[` (logging commands), TeamCity `##teamcity[`. GitLab's sections need an escape.
"""

import re
from typing import Final

from gpuform.schemas.visible import visible_lines
from gpuform.stacks.review.paint import STYLED

_COMMAND: Final = re.compile(r"(?m)(^[^\S\n]*:(?=:)|#(?=#\w*\[))")


def harmless(text: str, *, color: bool, in_ci: bool) -> str:
    """The text with what cannot be seen as escapes; with `color`, gpuform's own styles stay."""
    parts = STYLED.split(text) if color else [text]
    shown = "".join(part if at % 2 else visible_lines(part) for at, part in enumerate(parts))
    return _COMMAND.sub(r"\1\\", shown) if in_ci else shown
