"""Models of TensorOne's GPU clusters: inputs, outputs, requests and answers."""
