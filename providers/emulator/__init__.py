"""Serve the platforms' HTTP APIs as documented, for tests, for trials and for `--emulate`.

`server` runs the emulator in a thread or process; `app` puts the platforms together. No module of
this package imports the clients or the schemas, so that one misread document cannot hide on both
sides.
"""
