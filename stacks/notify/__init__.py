"""Notify people of what operations find and do: `notify.yaml`, and Apprise's services.

`rules` reads who gets which events, `findings` looks for events in a state, `sending` reports each
of them once.
"""
