"""One file or folder per library: how to find it, how to call it, what it supports."""
