"""Evaluate the gates of a project: the rules that a plan must pass before it is applied."""
