"""Published times of kernels on GPUs, which GPU serves a language model best, and predictions of deployments."""
