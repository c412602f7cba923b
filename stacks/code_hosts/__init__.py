"""Review plans on code hosts (GitHub, GitLab): comments, labels and stored plans."""
