"""Write declarations as people write them: entries of a topology file, or a Python program.

`declarations` has the models. `topology_yaml` and `python_program` render complete files; `edits`
changes a person's file and leaves everything else in the file as it is. `convert` and `importing`
call this package.
"""
