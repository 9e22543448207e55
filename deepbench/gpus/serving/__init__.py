"""Servers of language models: the kernels of their steps, and when a token comes."""
