"""Writes environment.yml, the conda form of requirements.lock (usage: python .ci/environment.py)."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = "3.11"  # the version the lock is resolved from and the tests run on

HEADER = f"""\
# Written by .ci/environment.py from requirements.lock: change pyproject.toml, then `make lock`.
# conda env create -f environment.yml; conda activate vitlab; pip install --no-deps --no-build-isolation -e .
name: vitlab
channels:
  - conda-forge
  - nodefaults
dependencies:
  - python={PYTHON}
  - pip
  - pip:
"""


def pins(lock: str) -> list[str]:
    """The requirements of a lock, markers included and hashes left out, in its order."""
    lines = (line.removesuffix("\\").strip() for line in lock.splitlines() if line[:1].isalnum())
    return list(lines)


def environment(lock: str) -> str:
    """The text of environment.yml for the text of a lock."""
    return HEADER + "".join(f'      - "{pin}"\n' for pin in pins(lock))


if __name__ == "__main__":
    text = environment((ROOT / "requirements.lock").read_text())
    (ROOT / "environment.yml").write_text(text)
