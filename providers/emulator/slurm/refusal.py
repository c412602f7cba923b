"""What a command of Slurm says instead of doing it."""


class Refused(Exception):
    """Goes to stderr as it is, with exit code 1."""
