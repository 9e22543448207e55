"""One page that opens offline: what result files say, drawn in the browser from the numbers that are in it."""
