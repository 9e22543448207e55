"""For people and programs: tables and exports, all worked out from records alone."""
