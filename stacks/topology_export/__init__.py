"""Where the nodes of a stack are, in the languages of schedulers.

`reading` makes one model of a stack, `labels` adds what clusters know of their nodes, and a module
for each format writes it. `applying` writes labels and objects through a cluster's own API.
"""
