"""Parse the resources that a program registers and reads, and compute their digests.

The resource monitor of `language_host` parses requests here; saved plans compare the digests.
"""

from gpuform.stacks.engine.registration import digests
from gpuform.stacks.engine.registration.digests import (
    EXPORTS,
    INPUTS,
    UNKNOWN_MARK,
    DeletionRule,
    Digest,
    RegistrationIndex,
    Rule,
    compute_registration_digests,
)
from gpuform.stacks.engine.registration.file_hashes import add_file_hashes
from gpuform.stacks.engine.registration.registration import (
    Alias,
    DeclarationSource,
    Read,
    Registration,
    UrnParts,
    find_source,
    format_position,
    list_alias_urns,
    parse_read,
    parse_registration,
    parse_timeouts,
)

__all__ = [
    "EXPORTS",
    "INPUTS",
    "UNKNOWN_MARK",
    "Alias",
    "DeclarationSource",
    "DeletionRule",
    "Digest",
    "Read",
    "Registration",
    "RegistrationIndex",
    "Rule",
    "UrnParts",
    "add_file_hashes",
    "compute_registration_digests",
    "digests",
    "find_source",
    "format_position",
    "list_alias_urns",
    "parse_read",
    "parse_registration",
    "parse_timeouts",
]
