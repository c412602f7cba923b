"""Objects that exist become resources: what they are, how they are declared, and where.

`chosen` finds them, `reading` asks the platforms, `declaring` makes entries of the answers, and
`places` puts the entries into the project's files.
"""
