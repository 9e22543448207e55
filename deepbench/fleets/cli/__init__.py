"""The verb of fleets."""
