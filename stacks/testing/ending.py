"""How a run ended, as assertions compare it. Imported with the plugin: nothing heavy is here."""

from collections.abc import Sequence


class Ending(str):
    """The word for it; `errors` are what the run has said of it."""

    __slots__ = ("errors",)
    errors: Sequence[str]

    @classmethod
    def of(cls, word: str, errors: Sequence[str]) -> "Ending":
        ending = cls(word)
        ending.errors = tuple(errors)
        return ending
