"""Review plans on code hosts (GitHub, GitLab): comments, labels and stored plans.

`posting` writes a review as a comment, through the `CodeHost` that `opening` opens. `client` sends
the requests. The commands `gpuform review` and `fetch-plan` call this package.
"""
