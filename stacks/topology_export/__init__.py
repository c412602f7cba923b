"""Export the node topology of a stack in the formats of schedulers.

`reading` builds the model of a stack, with the labels of its clusters' nodes. `formats` renders the
model. `applying` writes labels and objects through a cluster's own Kubernetes API.
`stacks/operations/topology_export` and the command `gpuform export-topology` call this package.
"""
