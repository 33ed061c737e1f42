"""What is run: every study as data."""

from __future__ import annotations

# Kind of run → version of its function in `run.py`; raised by hand when a change moves numbers, which makes the
# committed rows of the kind stale.
VERSION = {
    "scaling": 1,
    "design": 1,
    "subsets": 1,
    "curves": 1,
    "transfer": 1,
    "masked": 1,
    "local_heads": 1,
    "cifar10": 1,
}
VERSION |= dict.fromkeys(("filters", "positions", "distances", "rollout", "checks", "speed"), 1)  # of given weights
