"""Results of other programs, one format a file; each module ends in `FORMAT = MyFormat()`."""
