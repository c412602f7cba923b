"""Models of Samsung SCP's GPU nodes, pools and fabrics: inputs, outputs, requests, answers."""
