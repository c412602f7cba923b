"""Property values as the engine has them, and their forms: on Pulumi's wire, in JSON, as paths.

Everything else of the engine stands on this room; it knows no resources.
"""

from gpuform.providers.values import (
    SECRET,
    SIGNATURE,
    UNKNOWN,
    UNKNOWN_TEXT,
    Archive,
    Asset,
    PropertyMap,
    PropertyValue,
    ResourceReference,
    Secret,
    Unknown,
    changed_keys,
    contains_secret,
    contains_unknown,
    equal,
    from_value,
    is_unknown_text,
    keep_ciphertexts,
    mark_echoed_secrets,
    mark_secret_outputs,
    secret_texts,
    secrets_in,
    to_struct,
    unwrap,
    unwrap_secrets,
    without_unknowns,
)
from gpuform.stacks.engine.values import durations, property_paths, value_json
from gpuform.stacks.engine.values.durations import seconds
from gpuform.stacks.engine.values.property_paths import Path, PathError, parse
from gpuform.stacks.engine.values.value_json import Crypter, Json, dump, load
from gpuform.stacks.engine.values.wire import from_struct

__all__ = [
    "SECRET",
    "SIGNATURE",
    "UNKNOWN",
    "UNKNOWN_TEXT",
    "Archive",
    "Asset",
    "Crypter",
    "Json",
    "Path",
    "PathError",
    "PropertyMap",
    "PropertyValue",
    "ResourceReference",
    "Secret",
    "Unknown",
    "changed_keys",
    "contains_secret",
    "contains_unknown",
    "dump",
    "durations",
    "equal",
    "from_struct",
    "from_value",
    "is_unknown_text",
    "keep_ciphertexts",
    "load",
    "mark_echoed_secrets",
    "mark_secret_outputs",
    "parse",
    "property_paths",
    "seconds",
    "secret_texts",
    "secrets_in",
    "to_struct",
    "unwrap",
    "unwrap_secrets",
    "value_json",
    "without_unknowns",
]
