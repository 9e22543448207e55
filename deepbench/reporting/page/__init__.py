"""An HTML page about result files that works offline, and the parts that a site shares with it."""
