"""Show plans and runs to people: as terminal text, Markdown, HTML and JSON.

`facts` computes counts and dangers of plans, `previews` reads plans from files, `pages` and `text`
render them. The commands that plan, `gpuform review` and the code hosts call this package.
"""
