"""Find text that reads like a reference of another tool: Terraform, Pulumi YAML, CI systems, ERB.

gpuform takes such text as it stands, so that whoever is used to the other tool creates objects
with `${volume.id}` as the id of a volume. `topology` reports it, and `authoring` writes it in a
form that means the text itself.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

# Possessive throughout: no text makes these take more than linear time.
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_-]*+"
_INDEX: Final = r"\[[^\[\]{}]*+\]"
_STEPS: Final = rf"(?:\s*+(?:\.\s*+{_NAME}|{_INDEX}))*+"
_REST: Final = r"[^{}]*+\}"
_REFERENCE: Final = re.compile(
    # `${a.b}` of Terraform and Pulumi, `#{a.b}` of Ruby. Not a shell's `${VAR:-x}` or `${arr[0]}`.
    rf"[$#]\{{\s*+(?P<path>{_NAME}(?:{_INDEX})?+\s*+\.\s*+{_NAME}{_STEPS}){_REST}"
    # A root of Terraform with an index: `${var["x"]}`.
    rf"|\$\{{\s*+(?P<indexed>(?:var|local|module|data|each){_INDEX}{_STEPS})\s*+\}}"
    # A function of Terraform: `${join(",", var.names)}`.
    rf"|\$\{{\s*+{_NAME}\({_REST}"
    # A directive of Terraform.
    rf"|%\{{~?\s*+(?:if|for|else|endif|endfor)\b{_REST}"
    rf"|<%[-=]?\s*+(?P<erb>{_NAME}{_STEPS})?+[^%]*+%>"
)
_WHOLE: Final = re.compile(rf"\$\{{\s*+(?P<path>{_NAME})\s*+\}}")
"""A value that is one name, as Pulumi YAML refers to a resource."""
_BEFORE_EXPRESSION: Final = "$"
"""GitHub Actions and Azure Pipelines write `${{ ... }}`: gpuform would keep the dollar sign."""


@dataclass(frozen=True, slots=True)
class ForeignReference:
    """A part of a text that another tool would replace.

    `path` is what it refers to, in that tool's words; empty where it is no reference. `is_whole`
    says that the value is one bare name and nothing else.
    """

    text: str
    path: str = ""
    is_whole: bool = False

    @property
    def steps(self) -> list[str]:
        """The names and indexes of the path."""
        steps = re.findall(rf"{_NAME}|\[[^\[\]]*\]", self.path)
        return [step.strip("[]\"' ") for step in steps]


def find_foreign_references(parts: Sequence[object]) -> Iterator[ForeignReference]:
    """Yield the foreign references in a template's parts; what is no text is an expression."""
    for place, part in enumerate(parts):
        if not isinstance(part, str):
            continue
        for match in _REFERENCE.finditer(part):
            groups = match.groupdict()
            path = groups["path"] or groups["indexed"] or groups["erb"] or ""
            yield ForeignReference(match[0], path)
        whole = _WHOLE.fullmatch(part.strip())
        if whole and len(parts) == 1:
            yield ForeignReference(part.strip(), whole["path"], is_whole=True)
        if part.endswith(_BEFORE_EXPRESSION) and place + 1 < len(parts):
            yield ForeignReference("${{")


def has_foreign_reference(text: str) -> bool:
    """Return whether a text without expressions reads like another tool's reference."""
    return next(find_foreign_references((text,)), None) is not None
