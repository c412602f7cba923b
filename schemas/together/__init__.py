"""Models of Together's clusters, volumes and claims: inputs, outputs, requests and answers."""
