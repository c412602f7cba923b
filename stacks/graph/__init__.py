"""Draw stacks as diagrams: their resources, containment, and dependencies.

`nodes` builds the nodes, `arranging` puts them into boxes, and `diagrams` and `page` render the
drawing. `gpuform graph` calls this package.
"""
