"""C code and C interfaces: loading shared libraries, declarations that several backends share, the timing loop."""
