"""What is wrong with an expression."""


class ExpressionError(Exception):
    """`str` says what is wrong; `hint` what to do.

    `tells_values` marks a text that may show what the expression was evaluated with.
    """

    def __init__(self, message: str, hint: str = "", *, tells_values: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.tells_values = tells_values
