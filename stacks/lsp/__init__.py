"""Serve topology files to editors: diagnostics, completion, hovers, references, and renames.

`server` is the language server behind `gpuform lsp`. `topology_text` answers its questions about
one open file, with `cursor`, `sources` and `vocabulary`; `renaming` and `aliases` build renames.
`sources` also finds problems.
"""
