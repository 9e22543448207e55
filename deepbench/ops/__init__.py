"""One file an op: its sizes, inputs, float64 reference, FLOP, bytes and tolerance."""
