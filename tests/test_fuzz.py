"""Random command lines, settings and damaged files end with the right answer or a refusal in words, never otherwise.

Bounded to 8 seconds with always the same tries; FUZZ_SEED=7 FUZZ_SECONDS=3600 for others and longer.
"""

import os
import random
import time
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

from vitlab import cli, exercises, notebooks, paths
from vitlab.claims import report
from vitlab.data import datasets
from vitlab.models import zoo
from vitlab.training import session

pytestmark = pytest.mark.slow
SEED, SECONDS = int(os.environ.get("FUZZ_SEED", 0)), float(os.environ.get("FUZZ_SECONDS", 8))
ODD = ["", "-1", "0", "1", "3", "1e9", "nan", "inf", "0.5", "None", "True", "x" * 300, "α", "../..", "[1]", "a=b", "\n"]


def tries(name, share):
    """Sources of randomness, one a try, until this test's share of the time is over."""
    end, number = time.monotonic() + share * SECONDS, 0
    while number < 5 or time.monotonic() < end:
        yield random.Random(f"{SEED} {name} {number}")
        number += 1


def refused(error):
    """Whether an error is a refusal in words: of a kind that users are told, with what was given or expected."""
    kinds = (ValueError, TypeError, OSError, ModuleNotFoundError, NotImplementedError)
    return isinstance(error, kinds) and len(str(error)) > 10


def test_command_lines(figures, tmp_path, monkeypatch, capsys):
    """What is mistyped is one line on stderr and status 2; nothing is written, nothing is started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(notebooks, "run", lambda *_: {})
    monkeypatch.setattr(session, "run", lambda *_, **__: [])
    monkeypatch.setattr(report, "write", lambda _: "")
    words = {
        "run": ["08", "8", "attention", "99", "--preset", "smoke", "quick", "--set", "SEED=1", "--jobs", "2"],
        "train": ["Lab-Mu/8", "digits", "photographs", "--set", "steps=3", "image_size=8", "--like", "JFT", "--plan"],
        "study": ["transfer", "all", "real_subsets", "--plan", "--preset", "smoke", "--seed", "1", "--minutes", "0"],
        "exercises": ["check", "x.ipynb", "file", "--seconds", "1"],
        "copy": [str(tmp_path / "file")],
        "report": ["--preset", "huge"],
        "doctor": [],
        "dance": ["--help"],
    }
    (tmp_path / "file").touch()
    for pick in tries("commands", 0.35):
        command = pick.choice(list(words))
        arguments = [command, *pick.choices(words[command] + pick.choices(ODD, k=2), k=pick.randint(0, 5))]
        arguments += ["--plan"] * (command in ("study", "train"))
        try:
            status = cli.main(arguments)
        except SystemExit as ended:
            status = ended.code
        said = capsys.readouterr().err
        assert status in (0, 1, 2, 3), (arguments, status)
        assert "Traceback" not in said and (status != 2 or said), (arguments, said)
        assert not (figures / "quick" / "07_attention_distance").exists(), arguments


def test_settings():
    """A setting is taken as it is, or refused by name."""
    for pick in tries("settings", 0.2):
        odd = [0, -1, 3, 0.5, float("nan"), None, "x", True, 10**12]
        values = {name: pick.choice(odd) for name in pick.sample(sorted(session.DEFAULTS), 2)}
        try:
            made = session.session("Lab-Mu/8", "world", settings=values)
            told = {}
            for part in (made, made.recipe, made.augmentation):
                told |= vars(part)
            assert all(told[name] == value or value is None for name, value in values.items()), (values, told)
        except Exception as error:
            assert refused(error), (values, repr(error))


def damaged(content, pick):
    """A file that was cut off, has a flipped bit or other bytes, or is empty."""
    made = bytearray(content)
    kind, place = pick.choice(["cut", "flip", "fill", "empty", "double"]), pick.randrange(len(made))
    if kind == "flip":
        made[place] ^= 1 << pick.randrange(8)
    elif kind == "fill":
        made[place : place + 64] = pick.randbytes(64)
    return bytes({"cut": made[:place], "empty": b"", "double": made + made}.get(kind, made))


def test_weight_files(tmp_path):
    """Damaged weights are refused, or are weights whose logits are numbers of the right shape."""
    whole, path = (paths.bundled_dir() / "lab-world.safetensors").read_bytes(), tmp_path / "x.safetensors"
    for pick in tries("weights", 0.2):
        path.write_bytes(damaged(whole, pick))
        try:
            found = zoo.load(str(path))
        except Exception as error:
            assert refused(error) and (path.name in str(error) or len(str(error)) > 20), repr(error)
            continue
        size = found.image_size if isinstance(found.image_size, tuple) else (found.image_size,) * 2
        with torch.inference_mode():
            assert found.model.eval()(torch.zeros(1, 3, *size)).ndim == 2


def test_images_and_notebooks(tmp_path):
    """A damaged picture is named; a damaged notebook is refused or read."""
    folder, size = tmp_path / "set" / "ant", 12
    folder.mkdir(parents=True)
    Image.fromarray(np.arange(size * size * 3, dtype=np.uint8).reshape(size, size, 3)).save(folder / "whole.png")
    picture = (folder / "whole.png").read_bytes()
    note = (paths.ROOT / "notebooks" / "exercises" / "00_start_here.ipynb").read_bytes()
    for pick in tries("files", 0.25):
        (folder / "bad.png").write_bytes(damaged(picture, pick))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert datasets.load(str(tmp_path / "set"), "test", image_size=size).images.shape[1:] == (3, size, size)
        except Exception as error:
            assert refused(error) and "bad.png" in str(error), repr(error)
        (tmp_path / "08_x.ipynb").write_bytes(damaged(note, pick))
        try:
            cells = exercises.read_cells(tmp_path / "08_x.ipynb")
            exercises.source_of(tmp_path / "08_x.ipynb", cells)
            assert all(isinstance(text, str) for _, text in cells)
        except Exception as error:
            assert refused(error) and "08_x.ipynb" in str(error), repr(error)
