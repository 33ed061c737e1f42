"""The notebooks' knobs: what they draw against known answers, what a live front end and papermill get, bad files."""

import base64
import io
import struct
import sys
import zlib

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure
from PIL import Image
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from traitlets import TraitError

from vitlab import notebooks, widgets
from vitlab.analysis.rollout import overlay, rollout_from_maps
from vitlab.models import zoo
from vitlab.models.adapt import CONVENTIONS, resize_positions
from vitlab.models.vit import ViT, ViTConfig
from vitlab.models.zoo import Pretrained
from vitlab.widgets import pictures
from vitlab.widgets.choice import Choice
from vitlab.widgets.occlusion import hide, probabilities
from vitlab.widgets.upload import PictureUpload

knobs_module = sys.modules["vitlab.widgets.knobs"]  # `widgets.knobs` is the function
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(autouse=True)
def no_figure_is_left():
    plt.close("all")
    yield
    assert plt.get_fignums() == []


def drawn(made, **values):
    """The figure itself and its words, to look into the axes."""
    return made.draw(**{name: knob.value for name, knob in made.controls.items()} | values)


def line(n):
    """A draw whose answers are known: 1, 4, 9 …; 13 is refused."""
    if n == 13:
        raise ValueError("13 <given>, expected luck")
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, n])
    return figure, f"{n} squared is {n**2}."


def made_line():
    return widgets.knobs(line, "A line", n=widgets.Knob("how many", (1, 2, 13), 2))


def said(box):
    return box.children[-1].value


class TestOneMechanism:
    def test_a_picture_is_a_png_of_its_values(self):
        png, words = made_line().picture(n=1)
        assert Image.open(io.BytesIO(png)).size == (192, 96) and words == "1 squared is 1."
        assert png == made_line().picture(n=1)[0] != made_line().picture()[0]

    def test_a_turn_draws_again(self):
        box = made_line().widget()
        before = box.children[1].value
        assert said(box).count("2 squared is 4.") == 1
        box.children[0].index = 0  # what the browser sends
        assert box.children[0].value == 1
        assert box.children[1].value != before and "1 squared is 1." in said(box)
        assert 'alt="A line. 1 squared is 1."' in box.children[1].value

    def test_a_refusal_is_said_and_the_picture_stays(self):
        box = made_line().widget()
        before = box.children[1].value
        box.children[0].value = 13
        assert box.children[1].value == before and "13 &lt;given&gt;, expected luck" in said(box)
        box.children[0].value = 1
        assert "luck" not in said(box)

    def test_a_slider_for_numbers_a_list_for_words(self):
        draw = lambda number, word: line(number)  # noqa: E731
        made = widgets.knobs(
            draw, "Both", number=widgets.Knob("a number", (1, 2.5), 1), word=widgets.Knob("a word", ("x", "y"), "x")
        )
        number, word = made.widget().children[:2]
        assert (number.label, number.slider, number.texts, number.index) == ("a number", True, ["1", "2.5"], 0)
        assert (word.label, word.slider, word.texts, word.index) == ("a word", False, ["x", "y"], 0)

    def test_a_choice_that_is_refused_leaves_the_old_one(self):
        chosen = Choice([8, 16, 32], 16, label="patch size (px)")
        with pytest.raises(TraitError, match=r"value 99 given, expected one of \[8, 16, 32\]"):
            chosen.value = 99
        for index in (3, -1):
            with pytest.raises(TraitError, match=f"index {index} given, expected 0…2"):
                chosen.index = index
        assert (chosen.value, chosen.index) == (16, 1)
        chosen.value = 32
        assert chosen.index == 2

    def test_a_value_that_is_no_option_is_refused(self):
        with pytest.raises(ValueError, match=r"how many: 3 given at first, expected one of \[1, 2\]"):
            widgets.Knob("how many", (1, 2), 3)

    def test_figures_of_pyplot_are_closed_too_even_after_a_refusal(self):
        def draw(fails):
            figure, _ = plt.subplots()
            if fails:
                raise ValueError("no")
            return figure, "yes"

        made = widgets.knobs(draw, "pyplot's", fails=widgets.Knob("fails", (False, True), False))
        made.picture()
        with pytest.raises(ValueError, match="no"):
            made.picture(fails=True)
        assert plt.get_fignums() == []


class TestOutputs:
    @pytest.fixture
    def published(self, monkeypatch):
        found = []
        monkeypatch.setattr("IPython.display.publish_display_data", lambda data, metadata=None: found.append(data))
        return found

    def test_nobody_there_one_still_picture(self, published):
        made_line()._ipython_display_()
        assert [sorted(data) for data in published] == [["image/png", "text/plain"]]
        assert base64.b64decode(published[0]["image/png"]) == made_line().picture()[0]
        assert published[0]["text/plain"] == "A line. 2 squared is 4."

    def test_somebody_there_the_picture_first_then_the_widget(self, published, monkeypatch):
        monkeypatch.setattr(knobs_module, "somebody_is_there", lambda: True)
        made_line()._ipython_display_()
        assert sorted(published[0]) == ["image/png", "text/plain"] and VIEW not in published[0]
        assert VIEW in published[1] and published[1]["text/plain"] == ""
        assert "vitlab-knobs-rule" in published[2]["text/html"]

    def test_what_cannot_be_drawn_at_first_is_said(self, published):
        widgets.knobs(line, "A line", n=widgets.Knob("how many", (13,), 13))._ipython_display_()
        assert published == [{"text/plain": "A line: 13 <given>, expected luck"}]

    @pytest.mark.parametrize("allowed", [True, False])
    def test_who_can_be_asked_is_there(self, allowed, monkeypatch):
        class Shell:
            class kernel:
                get_parent = staticmethod(lambda channel: {"content": {"allow_stdin": allowed}})

        monkeypatch.setattr("IPython.get_ipython", lambda: Shell)
        assert knobs_module.somebody_is_there() is allowed

    @pytest.mark.slow
    def test_under_papermill_a_still_picture_and_nothing_else(self, tmp_path, monkeypatch):
        cell = (
            "from matplotlib.figure import Figure\nfrom vitlab import widgets\n"
            "widgets.knobs(lambda n: (Figure((2, 1)), f'{n}.'), 'Empty', n=widgets.Knob('n', (1, 2), 1))"
        )
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, tmp_path / "00_knobs.ipynb")
        monkeypatch.setenv("VITLAB_FIGURES", str(tmp_path))
        notebooks.execute(tmp_path / "00_knobs.ipynb", {}, "smoke")
        done = nbformat.read(tmp_path / "smoke" / "00_knobs" / "notebook.ipynb", as_version=4)
        outputs = done.cells[-1].outputs
        assert [(out.output_type, sorted(out.data)) for out in outputs] == [
            ("display_data", ["image/png", "text/plain"])
        ]
        assert "widgets" not in done.metadata

    def test_ipython_shows_nothing_beside(self, published):
        assert DisplayFormatter().format(made_line()) == ({}, {})
        assert len(published) == 1


class TestPatchSizes:
    @pytest.mark.parametrize("name, patch, size", [("ViT-B", 16, 224), ("ViT-H", 14, 224), ("Lab-Ti", 8, 32)])
    def test_cost_is_what_pytorch_counts(self, name, patch, size):
        config = ViTConfig(patch_size=patch, **{**zoo.VIT_SIZES[name], "image_size": size})
        with torch.device("meta"), FlopCounterMode(display=False) as counter, torch.no_grad():
            ViT(config, 0)(torch.empty(1, 3, size, size))
        assert 2 * widgets.cost(config).multiply_adds == counter.get_total_flops()

    def test_vit_b_by_hand(self):
        found = widgets.cost(ViTConfig())
        assert found.tokens == 197
        dense = 196 * 768 * 768 + 12 * 197 * 12 * 768**2 + 768 * 1000  # a block's matrices: 12 D²
        assert (found.dense, found.attention) == (dense, 12 * 2 * 197**2 * 768)

    def test_words_and_bars(self):
        figure, words = drawn(widgets.patch_sizes(torch.zeros(3, 32, 32, dtype=torch.uint8)))
        assert "14 × 14 patches and the class token are 197 tokens" in words and "17.56 billion" in words
        bars = figure.axes[1].patches
        chosen = sorted(bar.get_height() for bar in bars if bar.get_alpha() == 1)
        assert chosen == pytest.approx([0.7153, 16.8485], abs=1e-4)
        assert len(bars) == 2 * 7  # 7, 8, 14, 16, 28, 32, 56 all divide 224

    def test_a_patch_that_does_not_divide_the_image_is_refused(self):
        box = widgets.patch_sizes(torch.zeros(3, 32, 32, dtype=torch.uint8)).widget()
        box.children[1].value = 336
        box.children[2].value = 32
        assert "image_size 336 is not divisible by patch_size 32" in said(box)


class TestDataSizes:
    @pytest.fixture
    def stored(self):
        keys = [(m, n, s) for m in ("Lab-Ti/8", "BiT-Lab-Ti/8") for n in (50, 500) for s in (0, 1)]
        runs = pd.DataFrame(
            {"model": m, "n_train": n, "seed": s, "test_accuracy": 0.2 + 0.1 * s, "train_accuracy": n / 1000}
            for m, n, s in keys
        )
        histories = pd.DataFrame(
            {"model": m, "n_train": n, "seed": s, "step": t, "val_accuracy": t * (1 + s) / n, "train_loss": 1 / t}
            for m, n, s in keys
            for t in (5, 10)
        )
        return runs, histories

    def test_the_curves_are_those_of_the_size(self, stored):
        figure, words = drawn(widgets.data_sizes(*stored), n_train=500)
        assert "from 500 images (mean of 2 seeds)" in words
        assert (
            "ViT-Ti/8 gets 25.0% of the test images right and 50.0% of its own: a generalization gap of 25.0 points"
            in words
        )
        learning = {curve.get_label(): curve.get_ydata() for curve in figure.axes[1].lines}
        np.testing.assert_allclose(learning["ViT-Ti/8"], [1.5 * 5 / 500, 1.5 * 10 / 500])
        assert 500 in [curve.get_xdata()[0] for curve in figure.axes[0].lines]

    def test_loss_is_drawn_when_asked_for(self, stored):
        figure, _ = drawn(widgets.data_sizes(*stored), over_steps="training loss")
        assert figure.axes[1].get_ylabel() == "training loss (nats)"
        assert list(figure.axes[1].lines[-1].get_ydata()) == [0.2, 0.1]

    def test_no_runs_are_refused(self, stored):
        with pytest.raises(ValueError, match="no runs given"):
            widgets.data_sizes(stored[0].iloc[:0], stored[1])


class TestMaps:
    @pytest.mark.parametrize("convention", CONVENTIONS)
    def test_positions_are_resized_as_the_package_does(self, convention):
        pos = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
        figure, words = drawn(widgets.position_resizing({"noise": pos}, (4, 3)), convention=convention, rows=8)
        paper, chosen = (resize_positions(pos, (4, 3), (8, 6), name) for name in ("paper", convention))
        away = torch.linalg.vector_norm(chosen - paper) / torch.linalg.vector_norm(paper)
        assert f"4 × 3 → 8 × 6 patches: '{convention}' is {away:.1%} from" in words
        maps = [np.asarray(image.get_array()) for image in figure.axes[0].images]
        direction = torch.linalg.svd(pos - pos.mean(0), full_matrices=False)[2][0]
        wanted = ((chosen - pos.mean(0)) @ direction).reshape(8, 6)
        assert [one.shape for one in maps] == [(4, 3), (8, 6), (8, 6), (8, 6)]
        np.testing.assert_allclose(maps[2], wanted, atol=1e-5)
        np.testing.assert_allclose(maps[3], maps[2] - maps[1], atol=1e-5)

    def test_distance_modes_move_the_dots(self):
        rows = [
            {"model": model, "block": k, "head": h, "distance_px": 10.0 * h, "renormalized_px": 20.0 * h}
            for model in ("trained", "untrained")
            for k in (1, 2)
            for h in (1, 2)
        ]
        made = widgets.distance_modes(pd.DataFrame(rows).assign(prefix_mass=0.5), 64)
        limits = []
        for mode, factor in (("paper", 10), ("renormalized", 20)):
            figure, words = drawn(made, mode=mode, block=2)
            left, right = figure.axes
            np.testing.assert_allclose(right.collections[0].get_offsets(), [[50, factor], [50, 2 * factor]])
            assert left.collections[0].get_offsets()[:, 1].tolist() == [factor, 2 * factor] * 2
            assert f"block 2: head 1 looks {factor:.1f} px far (50% on prefix tokens)" in words
            limits += [left.get_ylim(), right.get_ylim()]
        assert len(set(limits)) == 1

    def test_rollout_is_the_packages_with_the_options_turned(self):
        rng = torch.Generator().manual_seed(0)
        maps = list(torch.randn(3, 2, 4, 10, 10, generator=rng).softmax(-1))
        masks = torch.zeros(2, 6, 6, dtype=torch.bool)
        masks[:, :2, :2] = True  # the first patch of 3 × 3
        images = np.ones((2, 6, 6, 3))
        made = widgets.rollout_variants(images, maps, (3, 3), masks=masks)
        figure, words = drawn(made, number=2, head_fusion="max", discard_ratio=0.5)
        chosen = rollout_from_maps(maps, (3, 3), head_fusion="max", discard_ratio=0.5)[1:]
        paper = rollout_from_maps(maps, (3, 3))[1:]
        found = [np.asarray(ax.images[0].get_array())[..., 0] for ax in figure.axes]
        wanted = [overlay(paper, (6, 6)), overlay(chosen, (6, 6)), overlay(chosen, (6, 6), smooth=False)]
        for shown, weights in zip(found[1:], wanted, strict=True):
            np.testing.assert_allclose(shown, weights[0], atol=1e-6)
        share = (chosen[0, 0, 0] / chosen.sum()).item()
        assert f"{share:.0%} of the rollout lies on the object, which covers 11% of the picture" in words


class MeanOfOnePatch(nn.Module):
    """Two classes: the logit of the first is the mean of the pixels of patch (1, 2) of 2 × 3, of the second 0."""

    def forward(self, x):
        rows, cols = x.shape[2] // 2, x.shape[3] // 3
        logit = x[:, :, rows:, 2 * cols :].mean(dim=(1, 2, 3))
        return torch.stack([logit, torch.zeros_like(logit)], dim=1)


class TestOcclusion:
    picture = torch.zeros(3, 8, 12, dtype=torch.uint8)
    picture[:, 4:, 8:] = 255  # white in that patch, black elsewhere
    pretrained = Pretrained(MeanOfOnePatch(), "toy", "nowhere", (8, 12))  # values −1 … 1

    def made(self):
        return widgets.occlusion(self.pretrained, self.picture, ("white", "black"), grid=(2, 3))

    def test_only_the_patch_that_is_used_counts(self):
        """White is 1, the mean of the picture −2/3: the first logit falls from 1 to −2/3, or stays."""
        before, after = 1 / (1 + np.exp(-1)), 1 / (1 + np.exp(2 / 3))
        for row in (1, 2):
            for column in (1, 2, 3):
                left = after if (row, column) == (2, 3) else before
                _, words = drawn(self.made(), row=row, column=column, size=1)
                assert f"white: {before:.1%} with everything seen, {left:.1%} with 1 × 1 patches" in words
        assert "nothing is hidden" in drawn(self.made(), size=0)[1]

    def test_what_is_hidden_has_the_mean_colour(self):
        x = torch.rand(2, 3, 8, 12, generator=torch.Generator().manual_seed(0))
        found = hide(x, (2, 3), 0, 1, 2)
        square = found[..., :, 4:]
        torch.testing.assert_close(square, x.mean((2, 3), keepdim=True).expand_as(square))
        assert torch.equal(found[..., :4], x[..., :4]) and not torch.equal(found, x)
        at_the_edge = hide(x, (2, 3), 1, 2, 3)  # more than there is
        assert (at_the_edge != x).any(dim=1)[:, 4:, 8:].all() and torch.equal(at_the_edge[:, :, :4], x[:, :, :4])
        with pytest.raises(ValueError, match="row 2, column 0, size 1 given, expected 0…1, 0…2"):
            hide(x, (2, 3), 2, 0, 1)

    def test_bars_are_the_probabilities(self):
        figure, _ = drawn(self.made(), row=2, column=3, size=1)
        widths = [bar.get_width() for bar in figure.axes[2].patches]
        both = torch.tensor([[1.0, 0.0], [-2 / 3, 0.0]]).softmax(-1).flatten()
        np.testing.assert_allclose(widths, 100 * both, rtol=1e-5)
        assert [label.get_text() for label in figure.axes[2].get_yticklabels()] == ["white", "black"]

    def test_a_model_without_classes_is_refused(self):
        with pytest.raises(ValueError, match="returned no logits"):
            probabilities(nn.Identity(), torch.zeros(1, 3, 8, 12))

    def test_a_picture_of_ones_own(self):
        box = self.made().widget()
        field = box.children[3]
        assert isinstance(field, PictureUpload)
        before = box.children[-2].value
        broken = encoded(Image.new("RGB", (30, 20), "white"))[:40]
        field.receive({"start": 0, "size": len(broken)}, [memoryview(broken)])
        assert "not a picture" in said(box) and box.children[-2].value == before
        whole = encoded(Image.new("RGB", (12, 8), "white"))
        field.receive({"start": 0, "size": len(whole)}, [memoryview(whole[:30])])
        assert box.children[-2].value == before  # half of it is no picture yet
        field.receive({"start": 30, "size": len(whole)}, [memoryview(whole[30:])])
        assert "a change of +0.0 points" in said(box)  # white everywhere: its mean is white too
        field.receive({"start": 0, "size": len(broken)}, [memoryview(broken)])
        assert "not a picture" in said(box)
        box.children[0].value = 2  # the last good picture is still there
        assert "a change of +0.0 points" in said(box)

    def test_a_huge_file_is_refused_before_it_comes(self):
        field = PictureUpload(label="x")
        field.receive({"start": 0, "size": 30_000_000}, [b""])
        assert field.complaint.startswith("a file of 30.0 MB given, expected at most 20 MB")

    def test_a_second_huge_file_is_refused_as_loudly_as_the_first(self):
        field, heard = PictureUpload(label="x"), []
        field.observe(lambda change: heard.append(change["new"]), "complaint")
        for _ in range(2):
            field.receive({"start": 0, "size": 30_000_000}, [b""])
        first, between, second = heard
        assert first == second != "" and between == ""


def encoded(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


class TestPictures:
    def test_pixels_come_back(self):
        pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
        found = widgets.picture_from(encoded(Image.fromarray(pixels)))
        assert found.dtype == torch.uint8 and np.array_equal(found.permute(1, 2, 0), pixels)

    def test_grey_and_palette_become_colour(self):
        for mode in ("L", "P", "1"):
            assert widgets.picture_from(encoded(Image.new(mode, (4, 3)))).shape == (3, 3, 4)

    def test_upright_as_the_camera_was_held(self):
        """Orientation 6: the first row of the file is the right-hand side of the picture."""
        image = Image.fromarray(np.array([[[255, 0, 0]] * 3, [[0, 0, 255]] * 3], np.uint8))
        exif = Image.Exif()
        exif[0x0112] = 6
        found = widgets.picture_from(encoded(image, exif=exif))
        assert found.shape == (3, 3, 2)
        assert found[:, 0, 1].tolist() == [255, 0, 0] and found[:, 0, 0].tolist() == [0, 0, 255]

    def test_transparent_is_white(self):
        pixels = np.array([[[0, 0, 0, 0], [0, 0, 0, 255], [0, 0, 0, 51]]], np.uint8)
        assert widgets.picture_from(encoded(Image.fromarray(pixels)))[0, 0].tolist() == [255, 0, 204]

    def test_large_pictures_are_scaled_down(self):
        assert widgets.picture_from(encoded(Image.new("RGB", (2048, 512)))).shape == (3, 256, 1024)

    @pytest.mark.parametrize("content", [b"", b"hello", b"<svg/>", encoded(Image.new("RGB", (64, 64), "red"))[:-30]])
    def test_what_is_no_picture(self, content):
        with pytest.raises(ValueError, match=f"not a picture that can be read: {len(content):,} bytes given"):
            widgets.picture_from(content)

    def test_too_many_bytes(self):
        with pytest.raises(ValueError, match="a file of 20.0 MB given, expected at most 20 MB"):
            widgets.picture_from(bytes(pictures.MAX_BYTES + 1))

    @pytest.mark.parametrize(
        "width, height, words", [(10_000, 5_001, "10,000 × 5,001"), (60_000, 60_000, "hundreds of millions of")]
    )
    def test_too_many_pixels_are_refused_by_the_header(self, width, height, words):
        """The file ends after its header: decoding it would fail in another way."""
        header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        chunk = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
        start = struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
        with pytest.raises(ValueError, match=f"a picture of {words} pixels given, expected at most 50 million"):
            widgets.picture_from(b"\x89PNG\r\n\x1a\n" + chunk + start)
