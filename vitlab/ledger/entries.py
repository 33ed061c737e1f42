"""The entries of result.json files by claim: numbers, verdicts, and estimates as they were (all sections)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vitlab.ledger.claims import ALL
from vitlab.ledger.estimate import Estimate

NOT_YET = "not yet"  # the verdict on a claim without a number
Entry = Mapping[str, Any]
Entries = Sequence[tuple[str, Entry]]  # notebook and entry of its result.json


def by_claim(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Entries]:
    """Every claim's entries with their notebook, in the order in which they were recorded; none where there are none.

    Entries of claims that there are not, as code of another version may have left them, are passed over.

    >>> by_claim({})["C13"]
    []
    """
    found: dict[str, list[tuple[str, Entry]]] = {claim: [] for claim in ALL}
    for notebook, result in results.items():
        for entry in result["results"]:
            if entry["claim"] in found:
                found[entry["claim"]].append((notebook, entry))
    return dict(found)


def verdicts_of(entries: Entries) -> list[str]:
    """The verdicts on a claim, without repetition. As a rule it is one; each number keeps its own, as in notebook 00.

    >>> verdicts_of([])
    ['not yet']
    """
    return list(dict.fromkeys(entry["verdict"] for _, entry in entries)) or [NOT_YET]


def fields(number: Estimate) -> dict[str, Any]:
    """What result.json keeps of a number, from which `estimate` makes it again.

    >>> fields(Estimate.exact(197))
    {'value': 197, 'interval': None, 'n': 1, 'unit': '', 'counted': '', 'failed': 0}
    """
    return {
        "value": number.value,
        "interval": list(number.interval) if number.interval else None,
        "n": number.n,
        "unit": number.unit,
        "counted": "" if number.is_exact else number.counted,
        "failed": int(number.failed),
    }


def estimate(entry: Entry) -> Estimate:
    """The number of an entry of result.json.

    >>> print(estimate({"value": 197, "interval": None, "n": 1, "unit": "", "counted": ""}))
    197
    """
    if entry["interval"] is None and not entry["counted"]:
        return Estimate.exact(entry["value"], entry["unit"])
    low, high = entry["interval"] or (None, None)
    return Estimate(entry["value"], low, high, entry["n"], entry["unit"], entry["counted"], entry.get("failed", 0))
