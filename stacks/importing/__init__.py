"""Import existing objects of the platforms: select them, read them, and declare them.

`selection` selects the objects and finds those without an owner, `planning` decides what to do
about each of them, `declarations` reads them from the platforms and builds their entries, and
`declaration_files` finds and changes the project's entries.
"""
