"""Sweeps: lists of runs that are computed once, stored, and gone on with after a kill. Knows no study; no section."""
