"""Pulumi's engine for one process, in rooms: README.md says what each is for."""
