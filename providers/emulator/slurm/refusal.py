"""What a command of Slurm says instead of doing it."""


class Refused(Exception):
    """Goes to stderr as it is, or to stdout, with exit code 1."""

    def __init__(self, told: str, *, on_stdout: bool = False) -> None:
        super().__init__(told)
        self.on_stdout = on_stdout
