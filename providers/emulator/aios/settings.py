"""What tests and people may set of the registry; a reset brings the defaults back."""

from typing import Literal

from gpuform.providers.emulator.settings import Settings as _Settings


class Settings(_Settings):
    """Where deployed registries differ from each other."""

    kind = "aios.settings"

    query_envelope: Literal["both", "raw", "wrapped"] = "both"
    """What a query's body is: the filter itself, `{"query": filter}`, or either."""

    parser_failure: str | None = None
    """What the Parser says of creates, all of which fail below it, in an answer of 200."""

    keeps_status: bool = True
    """Whether records have a status: the reference says so, older code has none."""
