"""Tables of published kernel times, of ranked GPUs, and of predicted servers."""
