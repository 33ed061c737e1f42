"""Studies: what is run, run functions, evidence and the tables made of it (paper §4)."""
