"""A wing: from a network to its kernels, from measured kernels to the time of the network. Its door is `api.py`."""
