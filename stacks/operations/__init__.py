"""What can be done with a stack, for commands and programs alike: options in, a result out.

Nothing here prints, asks a terminal or ends the process.
"""
