"""Cases of a stack, played on the emulator by the real engine, and held against what they expect.

pytest loads this package with the plugin in every test run, so it imports nothing of the engine.
"""

from collections.abc import Sequence


class RunEnding(str):
    """The name of how a run ended, such as `failed`; `errors` are the messages of the run."""

    __slots__ = ("errors",)
    errors: Sequence[str]

    @classmethod
    def from_errors(cls, name: str, errors: Sequence[str]) -> "RunEnding":
        """Return the ending called `name`, with the run's error messages for failed assertions."""
        ending = cls(name)
        ending.errors = tuple(errors)
        return ending
