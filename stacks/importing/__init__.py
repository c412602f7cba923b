"""Import existing objects of the platforms: select them, read them, and declare them.

`selection` selects the objects, `planning` decides what to do about each of them, `declarations`
reads them from the platforms and builds their entries, and `project_declarations` and
`declaration_files` find and change the project's entries. `orphans` finds objects without an owner.
"""
