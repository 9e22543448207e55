"""From measured kernels to the time of a step."""
