"""The checkpoint as data: what Pulumi's state file says, version 3, and how it is written.

The snapshot manager keeps one `Snapshot`; it caches what `encode_resource` gives for the entries
that did not change and lets `join_checkpoint` put the text together. Files are the backend's,
rules over the whole snapshot `integrity`'s.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

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
    features_of,
)
from gpuform.stacks.engine.values import Crypter, Json, find_secrets, value_json

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
    "checkpoint_of",
    "decode_operation",
    "decode_resource",
    "encode_operation",
    "encode_resource",
    "join_checkpoint",
    "load_checkpoint",
    "magic_of",
    "timestamp",
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
"""What a version 4 checkpoint may declare; the CLI refuses any other, and so does this engine."""


def timestamp(moment: datetime | None = None) -> str:
    """RFC 3339 in UTC, as Pulumi writes times: without zeros at the end of a second's fraction.

    Now when no moment is given.
    """
    moment = (moment or datetime.now(UTC)).astimezone(UTC)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"{text.rstrip('0').removesuffix('.')}Z"


@dataclass(slots=True)
class SecretsProvider:
    """How the stack's secrets are encrypted: Pulumi's name of the scheme and its parameters."""

    type: str
    state: dict[str, Json] = field(default_factory=dict)


@dataclass(slots=True)
class Manifest:
    """When the checkpoint was made and by which engine; `magic` is the digest of `version`."""

    time: str = ""
    version: str = ENGINE_VERSION
    magic: str = ""

    def __post_init__(self) -> None:
        self.magic = self.magic or magic_of(self.version)
        self.time = self.time or timestamp()


def magic_of(version: str) -> str:
    """The magic that Pulumi expects with a version: its SHA-256 in hex, nothing for none."""
    return hashlib.sha256(version.encode()).hexdigest() if version else ""


@dataclass(slots=True)
class Snapshot:
    """Everything that a checkpoint says of one stack.

    `stack` is its full name, `organization/<project>/<stack>`. `extra` holds the parts of the
    checkpoint that this engine does not use and must not lose (snippets, extensions); `features`
    are those that the file declared when it was read.
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
        """The checkpoint file's text. With `show_secrets` it is readable, for exports only."""
        return join_checkpoint(
            self,
            [encode_resource(r, crypter, show_secrets=show_secrets) for r in self.resources],
            [
                encode_operation(o, crypter, show_secrets=show_secrets)
                for o in self.pending_operations
            ],
        )

    def has_plain_secrets(self) -> bool:
        """Whether the file that was read has a secret in the clear, as exports may."""
        entries = [*self.resources, *(each.resource for each in self.pending_operations)]
        return any(
            secret.ciphertext is None
            for entry in entries
            for value in (entry.inputs, entry.outputs, entry.replacement_trigger)
            for secret in find_secrets(value)
        )

    @classmethod
    def from_json(cls, data: "bytes | Checkpoint", crypter: Crypter | None) -> "Snapshot":
        """The snapshot in a checkpoint file; StateError when it is not one that Pulumi reads.

        The crypter may be None where the state holds no secret.
        """
        checkpoint = data if isinstance(data, Checkpoint) else load_checkpoint(data)
        latest = checkpoint.latest
        try:
            return cls(
                stack=checkpoint.stack,
                resources=[
                    decode_resource(entry, crypter, f"resources[{place}]")
                    for place, entry in enumerate(latest.get("resources", ()))
                ],
                pending_operations=[
                    decode_operation(entry, crypter, f"pending_operations[{place}]")
                    for place, entry in enumerate(latest.get("pending_operations", ()))
                ],
                secrets_provider=checkpoint.secrets_provider,
                manifest=_manifest(latest.get("manifest", {})),
                metadata=_shallow("metadata", latest.get("metadata", {})),
                extra={key: _shallow(key, latest[key]) for key in _CARRIED if latest.get(key)},
                features=checkpoint.features,
            )
        except ValueError as error:
            raise StateError(
                f"the checkpoint of {checkpoint.stack} is malformed: {error}"
            ) from error


# Parts of `latest` that are only carried through, with the feature that each declares.
_CARRIED = {"snippets": "snippets-prototype", "extensions": "extensionParameterization"}


def _shallow(name: str, value: Any) -> Any:
    """What is only carried through. Raises ValueError for what could not be written again."""
    level = [value]
    for _ in range(value_json.DEEPEST):
        level = [
            item
            for each in level
            if isinstance(each, dict | list)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return value
    raise ValueError(f"`{name}` is nested deeper than {value_json.DEEPEST}")


def _manifest(document: Mapping[str, Any]) -> Manifest:
    made = Manifest(str(document.get("time") or ""), str(document.get("version") or ""))
    made.magic = str(document.get("magic") or "")  # also a wrong one: integrity must see it
    return made


def join_checkpoint(
    snapshot: Snapshot, resources: Iterable[bytes], pending_operations: Iterable[bytes]
) -> bytes:
    """The checkpoint file's text from the texts of its entries, in their order.

    Of `snapshot` the entries only tell which features the file must declare.
    """
    features = _features(snapshot)
    version = value_json.dump({"version": 4, "features": features} if features else {"version": 3})
    stack = value_json.dump({"stack": snapshot.stack})
    parts = [version[:-1], b',"checkpoint":', stack[:-1], b',"latest":']
    parts.append(value_json.dump(_head(snapshot))[:-1])
    parts.extend(_list(b"resources", resources))
    parts.extend(_list(b"pending_operations", pending_operations))
    rest = value_json.dump({"metadata": snapshot.metadata, **snapshot.extra})
    # Once, and of all parts: the text of a large stack is the largest thing in memory.
    return b"".join([*parts, b",", rest[1:], b"}}"])


def _list(name: bytes, texts: Iterable[bytes]) -> Iterator[bytes]:
    """A member that is a list of these texts; nothing for an empty one."""
    before = b',"%s":[' % name
    for text in texts:
        yield before
        yield text
        before = b","
    if before == b",":
        yield b"]"


def _head(snapshot: Snapshot) -> dict[str, Json]:
    manifest = snapshot.manifest
    head: dict[str, Json] = {
        "manifest": {"time": manifest.time, "magic": manifest.magic, "version": manifest.version}
    }
    if snapshot.secrets_provider is not None:
        provider = snapshot.secrets_provider
        head["secrets_providers"] = {"type": provider.type, "state": provider.state}
    return head


def _features(snapshot: Snapshot) -> list[Json]:
    entries = [*snapshot.resources, *(o.resource for o in snapshot.pending_operations)]
    features: set[str] = set().union(*map(features_of, entries))
    features.update(feature for key, feature in _CARRIED.items() if key in snapshot.extra)
    # Programs cannot make byte strings here: they are only where the state had them before.
    features.update(snapshot.features & {"byteString"})
    return [*sorted(features)]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint file that is parsed but not decrypted: enough to find its secrets provider."""

    stack: str
    latest: dict[str, Any]
    features: frozenset[str] = frozenset()

    @property
    def secrets_provider(self) -> SecretsProvider | None:
        provider = self.latest.get("secrets_providers") or {}
        if not provider.get("type"):
            return None
        return SecretsProvider(provider["type"], provider.get("state") or {})


def load_checkpoint(data: bytes) -> Checkpoint:
    """Parse a checkpoint file; StateError for no JSON, another version or unknown features."""
    try:
        document = value_json.load(data)
    except ValueError as error:
        raise StateError(f"the checkpoint is not JSON: {error}", hint=_RESTORE) from error
    return checkpoint_of(document)


def checkpoint_of(document: Any) -> Checkpoint:
    """The checkpoint in a parsed file. Raises StateError.

    A stack that never had an update may have no `latest`: the CLI writes it as its only part that
    is missing, and never as null.
    """
    checkpoint = document.get("checkpoint") if isinstance(document, dict) else None
    if not isinstance(checkpoint, dict):
        raise StateError("the file is JSON but not a Pulumi checkpoint", hint=_RESTORE)
    features = _readable_features(document)
    latest, stack = checkpoint.get("latest", {}), checkpoint.get("stack", "")
    if not isinstance(latest, dict):
        raise StateError("the checkpoint's `latest` is not an object", hint=_RESTORE)
    if not isinstance(stack, str):
        raise StateError("the checkpoint's `stack` is not a text", hint=_RESTORE)
    provider = latest.get("secrets_providers") or {}
    for name, kind in _PARTS.items():
        found = latest.get(name, kind())
        if not isinstance(found, kind):
            told = "null" if found is None else f"a {type(found).__name__}"
            wanted = "a list" if kind is list else "an object"
            raise StateError(f"the checkpoint's `{name}` is {told}, not {wanted}", hint=_RESTORE)
    is_object = isinstance(provider, dict) and isinstance(provider.get("state") or {}, dict)
    if not is_object or not isinstance(provider.get("type") or "", str):
        raise StateError("the checkpoint's `secrets_providers` is malformed", hint=_RESTORE)
    return Checkpoint(stack, latest, features)


def refuse_newer(checkpoint: Checkpoint) -> None:
    """Raises UnknownFormat for what a newer Pulumi CLI may have added: a write would lose it.

    Of the CLIs that this engine follows nothing else is kept, as by themselves.
    """
    version = str((checkpoint.latest.get("manifest") or {}).get("version", ""))
    if _release(version) <= _release(ENGINE_VERSION):
        return
    entries = [each for each in checkpoint.latest.get("resources", ()) if isinstance(each, dict)]
    unknown = {name for entry in entries for name in entry.keys() - FIELDS}
    unknown |= checkpoint.latest.keys() - {*_PARTS, *_CARRIED, "secrets_providers"}
    if unknown:
        raise UnknownFormat(
            f"the checkpoint was written by Pulumi CLI {version} and has parts that this gpuform "
            f"does not know: {', '.join(sorted(unknown))}",
            hint="Nothing was changed: writing it would lose them. Use the Pulumi CLI for this "
            "stack, or upgrade gpuform.",
        )


def _release(version: str) -> tuple[int, int]:
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _readable_features(document: Mapping[str, Any]) -> frozenset[str]:
    version = document.get("version")
    if version not in (3, 4):
        found = "no version" if version is None else f"version {version}"
        raise UnknownFormat(
            f"the checkpoint has {found}; versions 3 and 4 can be read",
            hint="An older one is brought up to date by `pulumi up`, a newer one needs a newer "
            "gpuform.",
        )
    declared = document.get("features") or []
    if not isinstance(declared, list):
        raise StateError("the checkpoint's `features` is not a list", hint=_RESTORE)
    features = frozenset(map(str, declared))
    unknown = sorted(features - KNOWN_FEATURES)
    if unknown:
        raise UnknownFormat(
            f"the checkpoint uses features that gpuform does not know: {', '.join(unknown)}",
            hint="Use the Pulumi CLI for this stack, or upgrade gpuform.",
        )
    return features


_PARTS: dict[str, type] = {
    "resources": list, "pending_operations": list, "manifest": dict, "metadata": dict,
}  # fmt: skip
"""Parts of `latest` that may be missing: the CLI writes none of them as null."""

_RESTORE = "Restore it from the .bak file beside it or from .pulumi/backups."
