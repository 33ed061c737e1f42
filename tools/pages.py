"""For maintainers: what README, the site's first page and docs/ledger.md say of the results.

python -m tools.pages         between the markers of README.md and docs/site/index.md; docs/ledger.md whole
python -m tools.pages film    figures/reference/film.gif, from the evidence
"""

from __future__ import annotations

import io
import re
import sys
import textwrap
from pathlib import Path

from vitlab import paths


def with_part(text: str, part: str, name: str) -> str:
    """Put a part between the markers <!-- name:begin --> and <!-- name:end --> of a page.

    Raises ValueError where they are not there once.
    """
    pattern = rf"(<!-- {name}:begin -->\n).*?(\n<!-- {name}:end -->)"
    made, count = re.subn(pattern, lambda found: found[1] + part + found[2], text, flags=re.S)
    if count != 1:
        raise ValueError(f"expected the markers <!-- {name}:begin --> and <!-- {name}:end --> once, found {count}")
    return made


def ledger() -> str:
    """Make docs/ledger.md: every number of every claim, pooled over seeds, with verdict and condition."""
    from vitlab.claims import report, rules
    from vitlab.claims.claims import ALL
    from vitlab.claims.verdicts import Verdict
    from vitlab.studies import tables

    parts = [
        "# The ledger",
        "Every number behind the verdicts, claim by claim: what the paper says (of L01 and L02: what later work says), "
        "what the committed evidence ([figures/evidence](../figures/evidence/)) says, pooled over all seeds, with its "
        "95 % interval and what *n* counts, and the verdict by the claim's rule in `vitlab/claims/rules.py` "
        "([LOG.md](LOG.md) dates the rules that were changed after a run). A number without *n* was counted or "
        "computed. Claims that are not reproduced say under which condition their effect is there, or what it would "
        "take. [Notebook 00](../notebooks/00_start_here.ipynb) explains how to read a verdict.",
        report.findings(),
    ]
    for known in ALL.values():
        ruling, numbers, note = rules.verdict(known.id)
        paper = f"; the paper: {known.paper}" if known.paper else ""
        reason = f" ({ruling.reason})" if ruling.reason else ""
        evidence = "; ".join(map(tables.about, known.study.split()))
        parts += [
            f"## {known.id} · {known.short[0].upper()}{known.short[1:]}",
            f"*{known.statement}* ({known.where}{paper}). [Notebook](../notebooks/{known.notebook}.ipynb).",
            f"Verdict: **{ruling.verdict}**{reason}. Evidence: {evidence}. "
            + (f"{note[0].upper()}{note[1:]}." if note else ""),
        ]
        if known.condition and ruling.verdict is not Verdict.REPRODUCED:
            parts.append(f"Where the effect is, or what it would take: {known.condition}")
        rows = [f"| {metric} | {number} |" for metric, number in numbers.items()]
        parts.append("\n".join(["| measured | ours |", "|---|---|", *rows]))
    return "\n\n".join(parts) + "\n"


def film(path: Path = paths.ROOT / "figures" / "reference" / "film.gif") -> Path:
    """Draw the heads and the position map of a ViT at every evaluation of one masked pre-training, as a moving GIF."""
    from PIL import Image

    from vitlab import widgets
    from vitlab.studies import tables

    rows = tables.evidence("local_heads")
    one = rows[(rows["data"] == "photographs") & (rows["seed"] == 0)]
    side, patch = int(one["image_size"].iloc[0]), int(one["patch_size"].iloc[0])
    maps = {row.samples: tables.position_map(row.similarity) for row in tables.looks(one).itertuples()}
    uniform = tables.uniform_px(side, patch)
    made = widgets.training_film(tables.heads(one), maps, uniform=uniform, limit=uniform / 2, image_px=side)
    frames = [Image.open(io.BytesIO(frame.png)).convert("RGB").quantize(64) for frame in made.frames]
    times = [1_500, *[350] * (len(frames) - 2), 3_000]
    with paths.writing(path) as temporary:
        frames[0].save(temporary, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    return path


def main(root: Path = paths.ROOT) -> int:
    """Write the pages; returns the exit status."""
    from vitlab.claims import report

    findings = "\n".join(textwrap.wrap(report.findings(), 119))
    readme, index = root / "README.md", root / "docs" / "site" / "index.md"
    pages = {
        readme: {"findings": findings, "ledger": report.readme_table()},
        index: {"findings": findings},
    }
    for page, parts in pages.items():
        text = page.read_text(encoding="utf-8")
        for name, part in parts.items():
            text = with_part(text, part, name)
        with paths.writing(page) as temporary:
            temporary.write_text(text, encoding="utf-8")
    with paths.writing(root / "docs" / "ledger.md") as temporary:
        temporary.write_text(ledger(), encoding="utf-8")
    print(*pages, root / "docs" / "ledger.md", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(print(film()) if sys.argv[1:] == ["film"] else main())
