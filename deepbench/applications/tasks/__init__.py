"""One file per application: its model, its data, its metric and its target."""
