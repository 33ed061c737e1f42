"""The fixture that makes an attack, and keeps its counts for the summary line that `tests/conftest.py` writes."""

import os

import pytest

from attacks import outcomes


@pytest.fixture
def attack(record_property):
    """Do an attack by its name; fails where a try ended otherwise than right or with a refusal in words."""

    def attacked(name: str) -> dict:
        if not hasattr(os, "fork"):
            pytest.skip("tries are made in forked children, and this system cannot fork")
        tally = outcomes.run(name)
        record_property("attack", {kind: tally[kind] for kind in outcomes.KINDS})
        print(f"{outcomes.in_words(name, tally)} (seed {outcomes.SEED})")
        assert not tally["failures"], f"{len(tally['failures'])} failures:\n" + "\n".join(tally["failures"])
        return tally

    return attacked
