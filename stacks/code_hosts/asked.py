"""Where a person says that a plan is reviewed, before what the CI's variables say."""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

ForgeName: TypeAlias = Literal["github", "gitlab"]
FORGES: Final[tuple[ForgeName, ...]] = ("github", "gitlab")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says of a `place.Place`; None leaves it to the CI's variables."""

    forge: ForgeName | None = None
    url: str | None = None
    repository: str | None = None
    number: int | None = None
