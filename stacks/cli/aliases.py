"""The other names by which the Pulumi CLI knows its commands."""

from typing import Final

import click

ALIASES: Final = {
    "update": ("up",),
    "pre": ("preview",),
    "down": ("destroy",),
    "dn": ("destroy",),
    "list": ("ls",),
    "new": ("init",),
    "remove": ("rm", "delete"),
    "delete": ("rm",),
    "create": ("init",),
    "hist": ("history",),
}
"""A name, and what it stands for in a group that has no command of the name itself."""


class AliasedGroup(click.Group):
    """Finds a command by its other names, too; help has the first one alone."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        names = (cmd_name, *ALIASES.get(cmd_name, ()))
        found = (super(AliasedGroup, self).get_command(ctx, name) for name in names)
        return next((each for each in found if each is not None), None)
