"""Read YAML files into trees of nodes with positions, and report what is wrong in them.

Topologies, gates, prices, tests, stacks.yaml and the language server read their files here.
`text_edits` changes files without touching the rest of the text.
"""
