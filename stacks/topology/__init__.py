"""Load, expand, check and register topology files.

`planning.plan` is the entry point: `loading` reads the files, `expanding` applies `for_each` and
`when`, and `scope` evaluates the values. `declaring` declares the result to gpuform's engine,
`registering` registers it with Pulumi's SDK.
"""
