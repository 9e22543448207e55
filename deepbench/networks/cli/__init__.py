"""Verbs of networks: one file each."""
