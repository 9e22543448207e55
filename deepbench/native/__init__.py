"""C: the loader of shared libraries, declarations that several backends share, and the timing loop."""
