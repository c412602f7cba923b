"""Looks at all that a run needs, changes nothing, and says what to do about what is wrong."""
