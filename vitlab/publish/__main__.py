"""For maintainers: notebooks and exercises from their sources, references, the README's tables.

python -m vitlab.publish sync                       notebooks/source/*.py → notebooks/*.ipynb
python -m vitlab.publish check                      is every notebook its source's?
python -m vitlab.publish exercises                  the same without solutions → notebooks/exercises
python -m vitlab.publish reference --preset quick   figures/out/quick → figures/reference/quick, and outputs
python -m vitlab.publish imagenet --weights NAME    06–09 with a ViT of ImageNet → figures/reference/imagenet
python -m vitlab.publish runs STUDY … --preset full   finished runs of studies → figures/reference/full/runs
python -m vitlab.publish carry STUDY … --preset full  committed runs of older code, where both compute the same
python -m vitlab.publish second NN … --seed 1       verdicts of a second draw → figures/reference/second
python -m vitlab.publish hero --weights NAME        the front page's picture → figures/reference/hero.png
python -m vitlab.publish readme                     what README, site and docs/ledger.md say of the results
python -m vitlab.publish assignment 08 --out DIR    the exercises of a notebook as an nbgrader course
python -m vitlab.publish colab --repository OWNER/NAME    copies for Google Colab → notebooks/colab
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from vitlab import notebooks, paths


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of the maintainers; returns the exit status."""
    from vitlab.publish import imagenet

    parser = argparse.ArgumentParser(prog="python -m vitlab.publish", description=__doc__.splitlines()[0])
    commands = ("sync", "check", "exercises", "reference", "imagenet", "runs", "carry", "second", "hero", "readme")
    parser.add_argument("command", choices=(*commands, "assignment", "colab"))
    parser.add_argument(
        "notebooks",
        nargs="*",
        metavar="NN",
        help="reference, imagenet, second, assignment, colab: these only; runs, carry: studies",
    )
    parser.add_argument("--preset", default="quick", help="reference, imagenet, runs, carry, second: of this preset")
    parser.add_argument("--seed", type=int, default=0, help="runs, second: of the draw with this seed (%(default)s)")
    parser.add_argument(
        "--weights", default=imagenet.WEIGHTS, help="imagenet, hero: a timm name, or NAME@FILE (%(default)s)"
    )
    parser.add_argument("--about", default="", help="imagenet, hero: where the weights come from, in words")
    parser.add_argument("--revision", default="", help="carry: of git, with the older code (that of the provenance)")
    parser.add_argument("--out", metavar="DIR", help="assignment: the course's folder (course); colab: of the copies")
    parser.add_argument("--repository", metavar="OWNER/NAME", default="", help="colab: where the project is on GitHub")
    options = parser.parse_args(arguments)
    from vitlab.exercises import course
    from vitlab.publish import carry, colab, front, hero, reference, runs, second, source

    folder = notebooks.notebooks_dir()
    try:
        if options.command == "check":
            lines = source.problems(folder)
            print("\n".join(lines) or "every notebook is its source's")
            return 1 if lines else 0
        made = {
            "sync": lambda: source.sync(folder),
            "exercises": lambda: source.exercises(folder),
            "reference": lambda: reference.reference(folder, options.preset, options.notebooks),
            "imagenet": lambda: imagenet.imagenet(options.weights, options.preset, options.about, options.notebooks),
            "hero": lambda: hero.hero(options.weights, options.about),
            "readme": lambda: front.write(paths.ROOT),
            "runs": lambda: runs.publish(options.notebooks, options.preset, options.seed),
            "carry": lambda: carry.carry(options.notebooks, options.preset, options.revision),
            "second": lambda: second.second(folder, options.preset, options.seed, options.notebooks),
            "assignment": lambda: [course.write(which, options.out or "course") for which in options.notebooks],
            "colab": lambda: colab.write(
                options.repository, Path(options.out or paths.ROOT / colab.FOLDER), options.notebooks
            ),
        }[options.command]()
    except (ValueError, OSError) as error:
        print(f"vitlab.publish: {error}", file=sys.stderr)
        return 2
    print("\n".join(str(path) for path in made) or "nothing to do")
    return 0


if __name__ == "__main__":
    sys.exit(main())
