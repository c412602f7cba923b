"""Read and write Pulumi's checkpoint (deployment state, versions 3 and 4) as data.

`SnapshotManager` keeps one `Snapshot`, caches the encoded entries that did not change and joins
them with `join_checkpoint`. `store` reads and writes the files, `edits.verify` checks the rules
over a whole snapshot.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gpuform.providers.values import find_secrets
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.state.resource_state import (
    FIELDS,
    PendingOperation,
    ResourceState,
    StateError,
    UnknownFormat,
    decode_operation,
    decode_resource,
    encode_operation,
    encode_resource,
    find_required_features,
)
from gpuform.stacks.engine.value_json import Crypter, Json

__all__ = [
    "ENGINE_VERSION",
    "KNOWN_FEATURES",
    "Checkpoint",
    "Manifest",
    "PendingOperation",
    "ResourceState",
    "SecretsProvider",
    "Snapshot",
    "StateError",
    "UnknownFormat",
    "compute_magic",
    "decode_operation",
    "decode_resource",
    "encode_operation",
    "encode_resource",
    "format_timestamp",
    "join_checkpoint",
    "load_checkpoint",
    "parse_checkpoint",
]

ENGINE_VERSION = "v3.260.0-gpuform"
"""The manifest's version: the Pulumi release whose state format and rules this engine follows."""

KNOWN_FEATURES = frozenset(
    {
        "refreshBeforeUpdate",
        "views",
        "hooks",
        "taint",
        "replaceWith",
        "snippets-prototype",
        "extensionParameterization",
        "byteString",
    }
)
"""The features that a version 4 checkpoint may declare.

The Pulumi CLI refuses any other feature, and so does this engine.
"""


def format_timestamp(moment: datetime | None = None) -> str:
    """Format a time as RFC 3339 in UTC as Pulumi does: a second's fraction without trailing zeros.

    Args:
        moment: the time; None is now.
    """
    moment = (moment or datetime.now(UTC)).astimezone(UTC)
    formatted_time = moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"{formatted_time.rstrip('0').removesuffix('.')}Z"


@dataclass(slots=True)
class SecretsProvider:
    """How the stack's secrets are encrypted: Pulumi's name of the scheme and its parameters."""

    type: str
    state: dict[str, Json] = field(default_factory=dict)


@dataclass(slots=True)
class Manifest:
    """Time and engine version of a checkpoint; `magic` is the SHA-256 of `version`."""

    time: str = ""
    version: str = ENGINE_VERSION
    magic: str = ""

    def __post_init__(self) -> None:
        self.magic = self.magic or compute_magic(self.version)
        self.time = self.time or format_timestamp()


def compute_magic(version: str) -> str:
    """Return the manifest's magic for a version: its SHA-256 in hex, or "" for no version."""
    return hashlib.sha256(version.encode()).hexdigest() if version else ""


@dataclass(slots=True)
class Snapshot:
    """Everything that a checkpoint says about one stack.

    `stack` is its full name, `organization/<project>/<stack>`. `extra` holds the parts of the
    checkpoint that this engine does not use and must not lose (snippets, extensions); `features`
    are the ones that the file declared.
    """

    stack: str
    resources: list[ResourceState] = field(default_factory=list)
    pending_operations: list[PendingOperation] = field(default_factory=list)
    secrets_provider: SecretsProvider | None = None
    manifest: Manifest = field(default_factory=Manifest)
    metadata: dict[str, Json] = field(default_factory=dict)
    extra: dict[str, Json] = field(default_factory=dict)
    features: frozenset[str] = frozenset()

    def to_json(self, crypter: Crypter | None, *, show_secrets: bool = False) -> bytes:
        """Encode the checkpoint file.

        With `show_secrets`, secrets are in plain text: for exports only. Otherwise raises
        EngineError for a secret without a crypter.
        """
        return join_checkpoint(
            self,
            [encode_resource(r, crypter, show_secrets=show_secrets) for r in self.resources],
            [
                encode_operation(o, crypter, show_secrets=show_secrets)
                for o in self.pending_operations
            ],
        )

    def has_plain_secrets(self) -> bool:
        """Return True if the loaded file holds a secret in plain text, as exports may."""
        entries = [*self.resources, *(operation.resource for operation in self.pending_operations)]
        return any(
            secret.ciphertext is None
            for entry in entries
            for value in (entry.inputs, entry.outputs, entry.replacement_trigger)
            for secret in find_secrets(value)
        )

    @classmethod
    def from_json(cls, data: "bytes | Checkpoint", crypter: Crypter | None) -> "Snapshot":
        """Decode a checkpoint file into a snapshot.

        Args:
            data: the file, or the file as already parsed.
            crypter: decrypts the secrets; None where the state holds none.

        Raises:
            StateError: Pulumi would not read the file.
            EngineError: there is a secret, and the crypter is None or the wrong one.
        """
        checkpoint = data if isinstance(data, Checkpoint) else load_checkpoint(data)
        latest = checkpoint.latest
        try:
            return cls(
                stack=checkpoint.stack,
                resources=[
                    decode_resource(entry, crypter, f"resources[{index}]")
                    for index, entry in enumerate(latest.get("resources", ()))
                ],
                pending_operations=[
                    decode_operation(entry, crypter, f"pending_operations[{index}]")
                    for index, entry in enumerate(latest.get("pending_operations", ()))
                ],
                secrets_provider=checkpoint.secrets_provider,
                manifest=_parse_manifest(latest.get("manifest", {})),
                # Parts that are only carried through are encoded at the next save: a part that is
                # nested too deep must fail now, while nothing depends on the save.
                metadata=_check_nesting("metadata", latest.get("metadata", {})),
                extra={
                    key: _check_nesting(key, latest[key])
                    for key in _PASSED_THROUGH
                    if latest.get(key)
                },
                features=checkpoint.features,
            )
        except ValueError as error:
            raise StateError(
                f"the checkpoint of {checkpoint.stack} is malformed: {error}"
            ) from error


# Parts of `latest` that are only carried through, with the feature that each declares.
_PASSED_THROUGH = {"snippets": "snippets-prototype", "extensions": "extensionParameterization"}


def _check_nesting(name: str, value: Any) -> Any:
    """Return `value` unchanged if shallow enough to be encoded again.

    Raises:
        ValueError: `value` is nested deeper than `value_json.DEEPEST`.
    """
    level = [value]
    for _ in range(value_json.DEEPEST):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return value
    raise ValueError(f"`{name}` is nested deeper than {value_json.DEEPEST}")


def _parse_manifest(document: Mapping[str, Any]) -> Manifest:
    """Return the manifest of a state: a missing time is now, other missing fields are empty."""
    manifest = Manifest(str(document.get("time") or ""), str(document.get("version") or ""))
    manifest.magic = str(document.get("magic") or "")  # also a wrong one: integrity must see it
    return manifest


def join_checkpoint(
    snapshot: Snapshot, resources: Iterable[bytes], pending_operations: Iterable[bytes]
) -> bytes:
    """Join the encoded entries and operations into the checkpoint file.

    Args:
        snapshot: gives stack, manifest and metadata; its entries decide which features the file
            declares.
        resources: the encoded entries, in the order of the snapshot.
        pending_operations: the encoded pending operations.
    """
    features = _find_features(snapshot)
    # The Pulumi CLI writes version 4 only for a checkpoint with features.
    version = value_json.dump({"version": 4, "features": features} if features else {"version": 3})
    stack = value_json.dump({"stack": snapshot.stack})
    parts = [version[:-1], b',"checkpoint":', stack[:-1], b',"latest":']
    parts.append(value_json.dump(_build_manifest_and_secrets_provider(snapshot))[:-1])
    parts.extend(_join_list(b"resources", resources))
    parts.extend(_join_list(b"pending_operations", pending_operations))
    rest = value_json.dump({"metadata": snapshot.metadata, **snapshot.extra})
    # Once, and of all parts: the text of a large stack is the largest thing in memory.
    return b"".join([*parts, b",", rest[1:], b"}}"])


def _join_list(name: bytes, encoded_items: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the pieces of a JSON member `,"name":[...]`, or nothing for an empty list."""
    separator = b',"%s":[' % name
    for encoded_item in encoded_items:
        yield separator
        yield encoded_item
        separator = b","
    if separator == b",":
        yield b"]"


def _build_manifest_and_secrets_provider(snapshot: Snapshot) -> dict[str, Json]:
    """Build the first members of `latest`; without a secrets provider the manifest alone."""
    manifest = snapshot.manifest
    head: dict[str, Json] = {
        "manifest": {"time": manifest.time, "magic": manifest.magic, "version": manifest.version}
    }
    if snapshot.secrets_provider is not None:
        provider = snapshot.secrets_provider
        head["secrets_providers"] = {"type": provider.type, "state": provider.state}
    return head


def _find_features(snapshot: Snapshot) -> list[Json]:
    """Return the sorted features of the checkpoint format needed by the state."""
    entries = [*snapshot.resources, *(o.resource for o in snapshot.pending_operations)]
    features: set[str] = set().union(*map(find_required_features, entries))
    features.update(feature for key, feature in _PASSED_THROUGH.items() if key in snapshot.extra)
    # Programs cannot make byte strings here: they are only where the state had them before.
    features.update(snapshot.features & {"byteString"})
    return [*sorted(features)]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A parsed checkpoint file with encrypted secrets: enough to find its secrets provider."""

    stack: str
    latest: dict[str, Any]
    features: frozenset[str] = frozenset()

    @property
    def secrets_provider(self) -> SecretsProvider | None:
        """Return the secrets provider of the state, or None if there is none."""
        provider = self.latest.get("secrets_providers") or {}
        if not provider.get("type"):
            return None
        return SecretsProvider(provider["type"], provider.get("state") or {})


def load_checkpoint(data: bytes) -> Checkpoint:
    """Parse a checkpoint file.

    Raises:
        StateError: the file is no JSON, or has an unknown version or unknown features.
    """
    try:
        document = value_json.load(data)
    except ValueError as error:
        raise StateError(f"the checkpoint is not JSON: {error}", hint=_RESTORE_HINT) from error
    return parse_checkpoint(document)


def parse_checkpoint(document: Any) -> Checkpoint:
    """Validate a parsed file, without the entries inside, and return the checkpoint.

    A stack without any update may have no `latest`: the Pulumi CLI leaves that part out and never
    writes it as null.

    Raises:
        StateError: the file is not a checkpoint of a version and with features that this engine
            reads.
    """
    checkpoint = document.get("checkpoint") if isinstance(document, dict) else None
    if not isinstance(checkpoint, dict):
        raise StateError("the file is JSON but not a Pulumi checkpoint", hint=_RESTORE_HINT)
    features = _parse_features(document)
    latest, stack = checkpoint.get("latest", {}), checkpoint.get("stack", "")
    if not isinstance(latest, dict):
        raise StateError("the checkpoint's `latest` is not an object", hint=_RESTORE_HINT)
    if not isinstance(stack, str):
        raise StateError("the checkpoint's `stack` is not a string", hint=_RESTORE_HINT)
    provider = latest.get("secrets_providers") or {}
    for name, kind in _OPTIONAL_PARTS.items():
        part = latest.get(name, kind())
        if not isinstance(part, kind):
            actual_kind = "null" if part is None else f"a {type(part).__name__}"
            expected_kind = "a list" if kind is list else "an object"
            raise StateError(
                f"the checkpoint's `{name}` is {actual_kind}, not {expected_kind}",
                hint=_RESTORE_HINT,
            )
    is_object = isinstance(provider, dict) and isinstance(provider.get("state") or {}, dict)
    if not is_object or not isinstance(provider.get("type") or "", str):
        raise StateError("the checkpoint's `secrets_providers` is malformed", hint=_RESTORE_HINT)
    return Checkpoint(stack, latest, features)


def reject_unknown_newer_fields(checkpoint: Checkpoint) -> None:
    """Reject a checkpoint with fields of a newer Pulumi CLI, which the next write would lose.

    Unknown fields of releases up to `ENGINE_VERSION` pass: those CLIs drop them too. Pending
    operations are not examined.

    Raises:
        UnknownFormat: names the CLI's version and the unknown fields.
    """
    version = str((checkpoint.latest.get("manifest") or {}).get("version", ""))
    if _parse_release(version) <= _parse_release(ENGINE_VERSION):
        return
    entries = [entry for entry in checkpoint.latest.get("resources", ()) if isinstance(entry, dict)]
    unknown = {name for entry in entries for name in entry.keys() - FIELDS}
    unknown |= checkpoint.latest.keys() - {*_OPTIONAL_PARTS, *_PASSED_THROUGH, "secrets_providers"}
    if unknown:
        raise UnknownFormat(
            f"the checkpoint was written by Pulumi CLI {version} and has parts that this gpuform "
            f"does not know: {', '.join(sorted(unknown))}",
            hint="Nothing was changed: gpuform would lose these parts. Use the Pulumi CLI for "
            "this stack, or upgrade gpuform.",
        )


def _parse_release(version: str) -> tuple[int, int]:
    """Return major and minor version; (0, 0) for another text."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _parse_features(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the declared features. Raises UnknownFormat for an unknown version or feature."""
    version = document.get("version")
    if version not in (3, 4):
        found_version = "no version" if version is None else f"version {version}"
        raise UnknownFormat(
            f"the checkpoint has {found_version}; versions 3 and 4 can be read",
            hint="For an older version, run `pulumi up`; for a newer one, upgrade gpuform.",
        )
    declared = document.get("features") or []
    if not isinstance(declared, list):
        raise StateError("the checkpoint's `features` is not a list", hint=_RESTORE_HINT)
    features = frozenset(map(str, declared))
    unknown = sorted(features - KNOWN_FEATURES)
    if unknown:
        raise UnknownFormat(
            f"the checkpoint uses features that gpuform does not know: {', '.join(unknown)}",
            hint="Use the Pulumi CLI for this stack, or upgrade gpuform.",
        )
    return features


_OPTIONAL_PARTS: dict[str, type] = {
    "resources": list, "pending_operations": list, "manifest": dict, "metadata": dict,
}  # fmt: skip
"""Parts of `latest` that may be missing: the CLI writes none of them as null."""

_RESTORE_HINT = "Restore it from the .bak file beside it or from .pulumi/backups."
