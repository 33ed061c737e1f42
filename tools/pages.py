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
        "take. [Chapter 12](../notebooks/12_ledger_and_method.ipynb) explains how to read a verdict.",
        report.findings(),
        report.readme_table("../"),
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


CHAPTERS = {  # of each chapter the picture on the front page, and what it finds
    "00_start_here": ("paper.jpg", "The paper in one picture, and where to begin."),
    "01_vit_in_sixty_lines": ("patches.jpg", "Eq. 1–4 are the whole model: sixty lines, equal to timm's."),
    "02_train_it": ("accuracy_by_samples.png", "On real digits a ResNet learns faster; the ViT catches up."),
    "03_transfer": ("full.png", "Fine-tuned at twice the image size, every seed gains."),
    "04_data_or_inductive_bias": ("full.png", "With enough images a ViT overtakes a ResNet in transfer."),
    "05_compute": ("full.png", "Accuracy for compute, speed and memory."),
    "06_filters_and_positions": ("components.png", "Filters are a basis; positions a map."),
    "07_attention_distance": ("attention_distance.png", "The first heads look near, most later ones far."),
    "08_where_it_looks": ("photographs.jpg", "Rollout finds objects, and where it misleads."),
    "09_how_structure_comes_about": ("film.png", "Masked prediction makes heads local; labels do not."),
    "10_positions": ("positions.png", "None is worst; which kind hardly matters."),
    "11_more_choices": ("heads.png", "Pooling, optimizer, shape and axial attention."),
    "12_ledger_and_method": ("verdicts.png", "How a verdict is reached, and five planted fakes."),
    "A_synthetic_world": ("cues.jpg", "The images that we can make without end."),
}
PAPER = {  # figures and tables of the paper: the claim that stands for them
    "Fig. 1, Table 1": "C01", "Eq. 1–4": "C02", "Fig. 3": "C03", "Fig. 4": "C05", "Table 5": "C04",
    "Fig. 5, Table 6": "C07", "Fig. 6, 14": "C14", "Fig. 7 left": "C11", "Fig. 7 centre": "C10", "Fig. 7 right": "C12",
    "Fig. 8": "C18", "Fig. 9": "C16", "Fig. 10, Table 8": "C09", "Fig. 11": "C13", "Fig. 12": "C20", "Fig. 13": "C19",
    "Table 4, §3.2": "C08", "Table 7": "C17", "§4.6": "C15",
}  # fmt: skip
MARKS = {"reproduced": "✔", "partly reproduced": "~", "inconclusive": "~", "not reproduced": "✘"}


def chapters() -> str:
    """Tabulate the chapters: a thumbnail, a link and a finding of each, two in a row."""
    cells = []
    for stem, (picture, finding) in CHAPTERS.items():
        number, _, title = stem.partition("_")
        image = f'<img src="figures/reference/{stem}/{picture}" width="220" alt="{finding}">'
        name = title.replace("_", " ").capitalize().replace("Vit", "ViT")
        cells.append(f"{image}<br>**[{number} {name}](notebooks/{stem}.ipynb)** {finding}")
    rows = [f"| {' | '.join(cells[k : k + 2])} |" for k in range(0, len(cells), 2)]
    return "\n".join(["| | |", "|---|---|", *rows])


def paper() -> str:
    """Tabulate the paper's figures and tables with the verdict's mark, our figure as a thumbnail, four in a row."""
    from vitlab.claims import rules
    from vitlab.claims.claims import ALL

    cells = []
    for words, claim in PAPER.items():
        known, mark = ALL[claim], MARKS[rules.verdict(claim).ruling.verdict]
        folder = paths.ROOT / "figures" / "reference" / known.notebook
        image = next(folder.glob(f"{known.figure}.*")).relative_to(paths.ROOT).as_posix()
        thumbnail = f'<img src="{image}" width="150" alt="{known.short}">'
        cells.append(f"[{thumbnail}](docs/ledger.md)<br>{words} {mark}")
    cells += [""] * (-len(cells) % 4)
    rows = [f"| {' | '.join(cells[k : k + 4])} |" for k in range(0, len(cells), 4)]
    return "\n".join(["| | | | |", "|---|---|---|---|", *rows])


def film(path: Path = paths.ROOT / "figures" / "reference" / "film.gif") -> Path:
    """Draw the heads and the position map of a ViT at every evaluation of one masked pre-training, as a moving GIF."""
    import numpy as np
    from PIL import Image

    from vitlab import widgets
    from vitlab.studies import tables

    rows = tables.evidence("local_heads")
    one = rows[(rows["data"] == "photographs") & (rows["seed"] == 0)]
    side, patch = int(one["image_size"].iloc[0]), int(one["patch_size"].iloc[0])
    maps = {row.samples: tables.position_map(row.similarity) for row in tables.looks(one).itertuples()}
    uniform = tables.uniform_px(side, patch)
    made = widgets.training_film(tables.heads(one), maps, uniform=uniform, limit=uniform / 2, image_px=side)
    frames = [Image.open(io.BytesIO(frame.png)).convert("RGB") for frame in made.frames]
    sheet = Image.fromarray(np.concatenate([np.asarray(frames[k]) for k in (0, len(frames) // 2, -1)]))
    palette = sheet.quantize(26, kmeans=4)  # one for all frames: what stands still is stored once, 0.3 MB in all
    frames = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
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
        readme: {"findings": findings, "chapters": chapters(), "paper": paper()},
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
