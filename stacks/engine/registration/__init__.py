"""What a program says of its resources, as data, and the digests of it."""

from gpuform.stacks.engine.registration import digests
from gpuform.stacks.engine.registration.digests import (
    EXPORTS,
    INPUTS,
    UNKNOWN_MARK,
    DeletionRule,
    Digest,
    Registered,
    Rule,
    registration_digests,
)
from gpuform.stacks.engine.registration.file_hashes import with_file_hashes
from gpuform.stacks.engine.registration.registration import (
    Alias,
    Read,
    Registration,
    Source,
    UrnParts,
    alias_urns,
    from_request,
    position,
    read_from_request,
    source_of,
    timeouts_of,
)

__all__ = [
    "EXPORTS",
    "INPUTS",
    "UNKNOWN_MARK",
    "Alias",
    "DeletionRule",
    "Digest",
    "Read",
    "Registered",
    "Registration",
    "Rule",
    "Source",
    "UrnParts",
    "alias_urns",
    "digests",
    "from_request",
    "position",
    "read_from_request",
    "registration_digests",
    "source_of",
    "timeouts_of",
    "with_file_hashes",
]
