"""The explorers against known answers; what a live front end and papermill are given."""

import ipywidgets
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch import nn

from vitlab import widgets
from vitlab.models import zoo
from vitlab.widgets import controls


def drawn(made, **values):
    """The figure itself and its words, to look into the axes."""
    return made.draw(**{name: control.value for name, control in made.controls.items()} | values)


def line(n):
    """A draw whose answers are known: 1, 4, 9 …; 13 is refused."""
    if n == 13:
        raise ValueError("13 <given>, expected luck")
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, n])
    return figure, f"{n} squared is {n**2}."


class TestControls:
    @pytest.fixture
    def explorer(self):
        return widgets.Explorer(line, "A line", n=widgets.choice("how many", (1, 2, 13), 2))

    @pytest.fixture
    def published(self, monkeypatch):
        """What a cell is given: outputs, and those that replace the one with a display id."""
        found = []
        publish = lambda data, metadata=None, **options: found.append((data, options))  # noqa: E731
        monkeypatch.setattr(controls, "publish_display_data", publish)
        return found

    def test_a_slider_for_numbers_a_list_for_words(self):
        number, word = widgets.choice("a number", (1, 2.5)), widgets.choice("a word", ("x", "y"), "y")
        assert isinstance(number, ipywidgets.SelectionSlider) and isinstance(word, ipywidgets.Dropdown)
        assert (number.value, word.value) == (1, "y")
        with pytest.raises(ValueError, match=r"how many: 3 given at first, expected one of \[1, 2\]"):
            widgets.choice("how many", (1, 2), 3)

    def test_nobody_there_one_still_picture_or_why_there_is_none(self, explorer, published):
        explorer._ipython_display_()
        widgets.Explorer(line, "A line", n=widgets.choice("how many", (13,)))._ipython_display_()
        (picture, _), (refused, _) = published
        assert sorted(picture) == ["image/png", "text/plain"] and picture["text/plain"] == "A line. 2 squared is 4."
        assert refused == {"text/plain": "A line: 13 <given>, expected luck"}

    def test_each_turn_replaces_the_picture_in_the_cell(self, explorer, published, monkeypatch):
        monkeypatch.setattr(controls, "somebody_is_there", lambda: True)
        explorer._ipython_display_()
        (box, _), (before, first) = published
        assert "application/vnd.jupyter.widget-view+json" in box and box["text/plain"] == ""
        explorer.controls["n"].value = 1
        after, again = published[2]
        assert after["text/plain"] == "A line. 1 squared is 1." and after["image/png"] != before["image/png"]
        assert again["update"] and not first["update"] and again["transient"] == first["transient"]
        explorer.controls["n"].value = 13  # refused: the picture stays
        assert len(published) == 3


def test_a_choice_of_nothing_asks_for_the_experiment():
    with pytest.raises(ValueError, match="learning rate: no value given, expected one or more; run the experiment"):
        controls.choice("learning rate", [])


class MeanOfOnePatch(nn.Module):
    """Two classes: the logit of the first is the mean of the pixels of patch (1, 2) of 2 × 3, of the second 0."""

    def forward(self, x):
        rows, cols = x.shape[2] // 2, x.shape[3] // 3
        logit = x[:, :, rows:, 2 * cols :].mean(dim=(1, 2, 3))
        return torch.stack([logit, torch.zeros_like(logit)], dim=1)


class TestOcclusion:
    @pytest.fixture
    def made(self):
        picture = torch.zeros(3, 8, 12, dtype=torch.uint8)
        picture[:, 4:, 8:] = 255  # white in that patch, black elsewhere
        pretrained = zoo.Pretrained(MeanOfOnePatch(), "toy", "nowhere", (8, 12))  # values −1 … 1
        return widgets.occlusion(pretrained, picture, ("white", "black"), grid=(2, 3))

    def test_only_the_patch_that_is_used_counts(self, made):
        """White is 1, the mean of the picture −2/3: the first logit falls from 1 to −2/3, or stays."""
        before, after = 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(2 / 3))
        for row, column, left in ((1, 3, before), (2, 2, before), (2, 3, after)):
            figure, words = drawn(made, row=row, column=column, size=1)
            assert f"white: {before:.1%} with everything seen, {left:.1%} with 1 × 1 patches" in words
        both = torch.tensor([[1.0, 0.0], [-2 / 3, 0.0]]).softmax(-1).flatten()
        np.testing.assert_allclose([bar.get_width() for bar in figure.axes[2].patches], 100 * both, rtol=1e-5)
        assert "nothing is hidden" in drawn(made, size=0)[1]

    def test_a_model_without_classes(self):
        features = zoo.Pretrained(nn.Identity(), "features", "nowhere", (8, 12))
        with pytest.raises(ValueError, match="features returned no logits"):
            drawn(widgets.occlusion(features, torch.zeros(3, 8, 12, dtype=torch.uint8), grid=(2, 3)))
