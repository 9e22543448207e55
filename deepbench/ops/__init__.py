"""One file or folder per operation: sizes, inputs, float64 reference, FLOP, bytes and tolerance."""
