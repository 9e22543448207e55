"""From a network to its kernels: one reader per framework or format, and what a trace is."""
