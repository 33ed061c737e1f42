"""The command line `vitlab`: run notebooks, train, plan, check, report. No section of the paper."""
