"""For maintainers: a second draw's verdicts, of notebooks that ran with another seed, are committed (§4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from vitlab import notebooks, paths
from vitlab.ledger import second as ledger
from vitlab.publish.reference import has_run, refuse_paths, with_outputs
from vitlab.sweep import committed


@dataclass(frozen=True)
class Drawn:
    """What another seed changes of the evidence for a claim."""

    what: str
    study: str = ""  # whose committed runs decide the verdict: these need a second draw too


# Without C01, which counts parameters, and C11, which looks at one committed model and draws nothing.
DRAWN: Mapping[str, Drawn] = MappingProxyType(
    {
        "C02": Drawn("weights and images"),
        "C03": Drawn("trainings", "data_scaling"),
        "C04": Drawn("trainings", "data_scaling"),
        "C05": Drawn("trainings", "data_scaling"),
        "C06": Drawn("trainings", "compute_scaling"),
        "C07": Drawn("trainings", "compute_scaling"),
        "C08": Drawn("trainings", "transfer"),
        "C09": Drawn("trainings", "longer_positions"),
        "C10": Drawn("trainings", "local_heads"),
        "C12": Drawn("images, of the same model"),
        "C13": Drawn("images, of the same models"),
        "C14": Drawn("images, of the same model"),
        "C15": Drawn("trainings", "masked_pretraining"),
        "C16": Drawn("trainings", "head_rates"),
        "C17": Drawn("trainings", "resnet_optimizers"),
        "C18": Drawn("trainings", "vit_shapes"),
        "C19": Drawn("trainings", "axial_attention"),
        "C20": Drawn("measurements"),
        "C21": Drawn("trainings", "transfer"),
        "L01": Drawn("trainings", "local_heads"),
        "L02": Drawn("trainings", "local_heads"),
    }
)


def second(folder: Path, preset: str, seed: int, which: Sequence[str]) -> list[Path]:
    """Commit what notebooks, run with this seed, say of the claims that the seed draws anew; returns the files.

    A claim that committed runs decide is kept where these have a draw with this seed too. Everything is checked before
    anything is written; a notebook without such a claim leaves no file.

    Raises:
        ValueError: the seed is 0, no notebook is named, one has not run to its end, from this source and with this
            seed and no other parameter, or it shows a path of this machine.
    """
    if seed == 0 or not which:
        raise ValueError("name the notebooks, and with --seed the seed of the second draw, which is not 0")
    found = {}
    for path in map(notebooks.find, which):
        run = paths.figures_dir() / preset / path.stem
        if not has_run(run):
            raise ValueError(
                f"{path.stem} has not run to its end: vitlab run {path.stem[:2]} --preset {preset} --set SEED={seed}"
            )
        with_outputs(folder / "source" / f"{path.stem}.py", run / "notebook.ipynb", PRESET=preset, SEED=seed)
        refuse_paths((run / "result.json").read_text(encoding="utf-8"), str(run / "result.json"))
        result = paths.read_json(run / "result.json")
        if result["seed"] != seed:
            raise ValueError(f"{path.stem} was run with SEED = {result['seed']}: expected {seed}")
        entries = [entry for entry in result["results"] if _is_anew(entry["claim"], seed)]
        if entries:
            anew = {entry["claim"]: DRAWN[entry["claim"]].what for entry in entries}
            kept = {name: value for name, value in result.items() if name != "table"}
            found[path.stem] = kept | {"results": entries, "figures": {}, ledger.ANEW: anew}
    written = {paths.reference_dir(ledger.FOLDER) / stem / "result.json": result for stem, result in found.items()}
    for path, result in written.items():
        paths.write_json(path, result)
    return list(written)


def _is_anew(claim: str, seed: int) -> bool:
    drawn = DRAWN.get(claim)
    return drawn is not None and (not drawn.study or committed.archive(drawn.study, "full", seed).exists())
