"""From a model to its kernels, and from measured kernels to the time of a model."""
