"""The runs of a stack, and what surrounds them: rights, ends of time, and the log."""
