"""Draw stacks as diagrams: their resources, containment, and dependencies.

`arranging` builds the nodes and puts them into boxes, `drawing` renders them. `gpuform graph` calls
this package.
"""
