"""Review plans on code hosts (GitHub, GitLab, Azure DevOps, Bitbucket).

`posting` writes a review as a comment, a label and a status, through the `CodeHost` that
`open_code_host` opens. `comment_api` has what all code hosts do alike, and `client` sends the
requests. The commands `gpuform review` and `fetch-plan` call this package.
"""
