"""Tables, exports and pages, computed from records alone."""
