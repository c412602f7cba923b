"""What is wrong with an expression."""

from typing import Final

_LONGEST: Final = 500


class ExpressionError(Exception):
    """`str` says what is wrong; `hint` what to do.

    `tells_values` marks a text that may show what the expression was evaluated with. `where` is the
    part of the text that it is about, as it is written, if that is known.
    """

    def __init__(
        self, message: str, hint: str = "", *, tells_values: bool = False, where: str = ""
    ) -> None:
        super().__init__(_shortened(message))
        self.hint = _shortened(hint)
        self.tells_values = tells_values
        self.where = where


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
