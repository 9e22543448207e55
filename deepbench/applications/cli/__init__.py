"""Verbs of applications: one file each."""
