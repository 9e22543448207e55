"""One file a library: how to find it, how to call it, what it can do."""
