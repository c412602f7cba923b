"""Define the error of the emulator that a command shows without a traceback."""


class StoreError(Exception):
    """Raised where the store's file cannot be used; the message says why and what to do."""
