"""What a change of a field does, in the words of all that is generated from the models."""

from dataclasses import replace

from gpuform.schemas.rules import FieldRules


def effect(rules: FieldRules) -> str:
    """What a change of the field does to the resource, and what else to know of it."""
    if rules.spelling:
        return "as the fields it stands for"
    if rules.recorded:
        return "recorded, nothing is sent"
    if rules.local:
        return "nothing"
    if rules.at_create:
        return "holds for what is made later"
    found = "replaces" if rules.immutable else "in place"
    if rules.replace_if:
        found = f"in place, or replaces: {rules.replace_if.because}"
    notes = {"grow-only": rules.grow_only, "write-only": rules.write_only, "secret": rules.secret}
    return ", ".join([found, *(note for note, holds in notes.items() if holds)])


def with_effect(meaning: str, rules: FieldRules) -> str:
    """A field's description, with what a change does where that is not the usual thing."""
    found = effect(rules)
    return meaning if found == "in place" else f"{meaning} ({found})"


def inside(rules: FieldRules, outer: FieldRules) -> FieldRules:
    """The rules of a field in an object that is itself a field with rules."""
    return replace(
        rules.under(outer),
        local=rules.local or outer.local,
        recorded=rules.recorded or outer.recorded,
        at_create=rules.at_create or outer.at_create,
        write_only=rules.write_only or outer.write_only,
    )
