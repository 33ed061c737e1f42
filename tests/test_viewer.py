"""The viewer's payload against the maps and `analysis`, its size, its page, what it refuses (§4.5, App. D.7, D.8)."""

import base64
import html
import io
import json
import re
import zlib

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from weights import rollout_from_maps

from vitlab.analysis.attention import attention_maps
from vitlab.analysis.distance import attention_distance
from vitlab.analysis.rollout import attention_rollout, rollout_matrix
from vitlab.models import zoo
from vitlab.widgets.viewer import attention_view, draw_still, encode, fit_size, view

GRID, HEADS, DEPTH = (3, 5), 2, 4


def made_maps(n_prefix=1, grid=GRID, depth=DEPTH, heads=HEADS, batch=1, spread=2.0, seed=0):
    """Attention as a softmax makes it, of logits with this standard deviation."""
    rng = torch.Generator().manual_seed(seed)
    n_tokens = n_prefix + grid[0] * grid[1]
    logits = spread * torch.randn(depth, batch, heads, n_tokens, n_tokens, generator=rng)
    return list(logits.softmax(-1))


def picture(grid=GRID, patch=16):
    return torch.rand(3, grid[0] * patch, grid[1] * patch, generator=torch.Generator().manual_seed(1))


def made_view(maps, grid=GRID, patch=16, n_prefix=1, **options):
    return attention_view(maps, picture(grid), grid, patch, n_prefix, **options)


def read_page(page):
    """What a browser finds in the page: metadata and arrays, by other means than the package's."""
    meta = json.loads(re.search(r'id="meta">(.*?)</script>', page, re.DOTALL)[1])
    data = zlib.decompress(base64.b64decode(re.search(r'id="packed">(.*?)</script>', page, re.DOTALL)[1]))
    arrays, start = {}, 0
    for entry in meta["arrays"]:
        values = np.frombuffer(data, {"float32": "<f4", "uint8": "u1"}[entry["type"]], np.prod(entry["shape"]), start)
        arrays[entry["name"]] = values.reshape(entry["shape"])
        start += values.nbytes
    assert start == len(data)
    return meta, arrays


def in_html(made):
    """What a front end is given that takes HTML."""
    return made._repr_mimebundle_()[0]["text/html"]


def shown_values(arrays):
    return (arrays["code"] / 255.0) ** 2 * arrays["peak"][..., None]


class TestPayload:
    @pytest.mark.parametrize("n_prefix", [1, 2, 5])
    def test_every_row_comes_back_within_a_20th_of_its_maximum(self, n_prefix):
        maps = made_maps(n_prefix)
        meta, arrays = read_page(made_view(maps, n_prefix=n_prefix).page())
        wanted = torch.stack(maps)[:, 0, :, :, n_prefix:].flatten(0, 1).double().numpy()
        wanted = np.concatenate([wanted, rollout_matrix(maps)[..., n_prefix:].double().numpy()])
        peak = wanted.max(-1)
        assert arrays["code"].shape == (DEPTH * HEADS + 1, n_prefix + 15, 15)
        np.testing.assert_allclose(arrays["peak"], peak, rtol=1e-3)
        assert (np.abs(shown_values(arrays) - wanted) <= peak[..., None] / 20).all()

    def test_codes_of_known_rows(self):
        code, peak = encode(torch.tensor([[0.0, (10 / 23) ** 2, 1.0], [0.0, 0.0, 0.0]]))
        assert code.tolist() == [[0, 111, 255], [0, 0, 0]] and peak.tolist() == [1.0, 0.0]
        assert len(encode(torch.linspace(0, 1, 10_000))[0].unique()) == 24

    @pytest.mark.parametrize("n_prefix", [0, 1, 5])
    def test_distances_are_those_of_the_analysis(self, n_prefix):
        maps = made_maps(n_prefix)
        _, arrays = read_page(made_view(maps, patch=(16, 8), n_prefix=n_prefix).page())
        wanted = torch.cat([attention_distance(a, GRID, (16, 8), n_prefix)[0] for a in maps])
        np.testing.assert_allclose(arrays["head_distance"][:-1], wanted, rtol=1e-3)
        np.testing.assert_allclose(arrays["distance"][:-1, max(n_prefix, 1) :].mean(-1), wanted, rtol=1e-3)

    def test_distance_of_one_query_by_hand(self):
        """All of a patch's attention on its neighbour to the right, half of another's on the class token."""
        attn = torch.eye(16)[None, None].clone()
        attn[0, 0, 1] = torch.eye(16)[2]
        attn[0, 0, 6] = 0.5 * torch.eye(16)[0] + 0.5 * torch.eye(16)[1]  # one row down from the first patch
        arrays = made_view([attn]).arrays
        assert arrays["distance"][0, 1] == 16
        assert arrays["distance"][0, 6] == 8  # the class token's half counts 0, as in mode "paper"
        assert arrays["on_prefix"][0, 6] == 0.5
        assert np.isnan(arrays["distance"][0, 0])  # the class token is nowhere

    @pytest.mark.parametrize("n_prefix, class_token", [(1, True), (0, False), (4, False)])
    def test_the_last_map_is_rollout(self, n_prefix, class_token):
        """Its first query is the class token's, or the mean over patches where there is none."""
        maps = made_maps(n_prefix)
        arrays = made_view(maps, n_prefix=n_prefix, class_token=class_token).arrays
        wanted = rollout_from_maps(maps, GRID, n_prefix, class_token=class_token)[0].flatten().numpy()
        assert np.abs(shown_values(arrays)[-1, 0] - wanted).max() <= wanted.max() / 20

    def test_merged_patches_by_hand(self):
        """2 × 2 patches as one: attention to them adds up, attention from them is averaged."""
        grid = (4, 2)
        attn = made_maps(1, grid, depth=1, heads=1)[0]
        arrays = made_view([attn], grid, pool=2).arrays
        upper = [1, 2, 3, 4]  # tokens of the upper cell, after the class token
        share = attn[0, 0, upper][:, upper].sum(1).mean().item()
        from_class = attn[0, 0, 0, upper].sum().item()
        found, within = shown_values(arrays)[0, :2, 0], float(arrays["peak"].max()) / 20
        assert found == pytest.approx([from_class, share], abs=within)
        distance = made_view([attn], grid).arrays["distance"][0, upper].mean()
        assert arrays["distance"][0, 1] == pytest.approx(distance, rel=1e-3)


class TestSize:
    def test_tiny_fits_two_megabytes_whatever_it_learned(self):
        """ViT-Ti/16, all 12 × 3 heads and rollout; logits of this spread are among the hardest to pack."""
        made = attention_view(made_maps(1, (14, 14), 12, 3, spread=0.7), picture((14, 14)), (14, 14), 16)
        assert len(in_html(made).encode()) <= 1_500_000

    def test_too_large_says_how_large_and_what_to_do(self):
        maps = made_maps(1, (32, 32), 1, 3)
        with pytest.raises(ValueError, match=r"1 blocks × 3 heads on 32 × 32 patches has [\d,]{9} bytes, .* choose"):
            attention_view(maps, picture((32, 32)), (32, 32), 8)
        made = attention_view(maps, picture((32, 32)), (32, 32), 8, pool=2)
        assert made.meta["grid"] == [16, 16] and len(made.page()) <= 2_000_000

    @pytest.mark.parametrize("depth, heads, side, n_prefix", [(24, 16, 14, 5), (6, 4, 8, 1), (12, 12, 24, 0)])
    def test_what_fitting_says_fits(self, depth, heads, side, n_prefix):
        empty = torch.empty(1, heads, n_prefix + side**2, n_prefix + side**2)
        found = fit_size([empty] * depth, (side, side), n_prefix)
        blocks, n_cells = found["blocks"], (side // found["pool"]) ** 2
        assert blocks[0] == 0 and (len(blocks) == 1 or blocks[-1] == depth - 1)
        assert blocks == sorted(set(blocks)) and len(blocks) >= min(3, depth)
        assert fit_size([torch.empty(1, 3, 197, 197)] * 12, (14, 14)) == {"blocks": list(range(12)), "pool": 1}
        assert len(blocks) * heads * n_cells * (n_cells + n_prefix + 1) * 0.62 * 4 / 3 < 1_750_000


class TestPage:
    def test_a_title_cannot_leave_its_place(self):
        title = '"><script>alert(1)</script></script><!-- & \u2028 $meta ${x}'
        made = made_view(made_maps(), title=title)
        page = made.page()
        assert "<script>alert" not in page and html.escape(title) in page
        assert read_page(page)[0]["title"] == title
        shown = in_html(made)
        frame = re.search(r'<iframe title="([^"]*)" style="[^"]*" srcdoc="([^"]*)"></iframe><p .*</p>$', shown)
        assert html.unescape(frame[1]).endswith(title)
        assert html.unescape(frame[2]) == page

    def test_a_still_stands_where_scripts_do_not_run(self):
        """As PNG, and inside the HTML, of which a notebook that is not trusted keeps no frame and no style."""
        data, metadata = made_view(made_maps(), title="A < B")._repr_mimebundle_()
        assert set(data) == {"text/html", "image/png", "text/plain"}
        png = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
        assert png.format == "PNG" and min(png.size) > 200
        alt = metadata["image/png"]["alt"]
        assert "A < B" in alt and "row 2, column 3 of 3 × 5" in alt
        cleaned = re.sub(r"<style>.*?</style>|<iframe .*?</iframe>", "", data["text/html"], flags=re.DOTALL)
        image = re.search(r'<img class="vitlab-still" alt="([^"]*)" src="data:image/png;base64,([^"]*)">', cleaned)
        assert html.unescape(image[1]) == alt and image[2] == data["image/png"]

    def test_the_still_holds_every_heads_map_from_its_query(self):
        maps = made_maps()
        made = made_view(maps, blocks=[3, 1])
        figure, words = draw_still(made.meta, made.arrays)
        sheet = figure.axes[1].images[0].get_array()
        place = 1 + 1 * 5 + 2  # the middle patch
        for column, block in enumerate((3, 1)):
            for head in range(HEADS):
                row = maps[block][0, head, place, 1:].reshape(GRID)
                tile = sheet[head * 4 : head * 4 + 3, column * 6 : column * 6 + 5]  # a gap of one patch between maps
                np.testing.assert_allclose(tile.filled(), (row / row.max()).sqrt(), atol=1 / 40)
        assert [tick.get_text() for tick in figure.axes[1].get_xticklabels()] == ["4", "2"]
        distances = made.arrays["distance"][:-1, place].reshape(2, HEADS)
        near, far = (divmod(int(at), HEADS) for at in (distances.argmin(), distances.argmax()))
        ends = [f"block {(4, 2)[b]}, head {h + 1} ({distances[b, h]:.1f} px)" for b, h in (near, far)]
        assert f"shortest in {ends[0]} and longest in {ends[1]}" in words

    def test_the_still_of_rollout_is_in_proportion(self):
        maps = made_maps()
        made = made_view(maps, show="rollout")
        figure, words = draw_still(made.meta, made.arrays)
        wanted = rollout_from_maps(maps, GRID)[0]
        np.testing.assert_allclose(figure.axes[1].images[0].get_array().filled(), wanted / wanted.max(), atol=1 / 20)
        row, col = divmod(int(wanted.argmax()), GRID[1])
        assert f"from class token to the 3 × 5 patches; it is highest at row {row + 1}, column {col + 1}" in words

    def test_the_page_asks_nothing_of_a_network(self):
        page = made_view(made_maps()).page()
        assert "default-src 'none'" in page
        assert not re.search(r"https?://|@import|\bimport\(|src=|url\(|fetch\(|XMLHttpRequest", page)

    def test_the_picture_is_the_image(self):
        image = picture()
        address = attention_view(made_maps(), image, GRID, 16).meta["picture"]
        shown = Image.open(io.BytesIO(base64.b64decode(address.removeprefix("data:image/png;base64,"))))
        np.testing.assert_array_equal(np.asarray(shown), (255 * image).round().byte().permute(1, 2, 0))
        found = attention_view(made_maps(), torch.rand(3, 600, 1200), GRID, 16).meta
        assert found["size"] == [600, 1200] and found["picture"].startswith("data:image/jpeg;base64,")
        assert Image.open(io.BytesIO(base64.b64decode(found["picture"].partition(",")[2]))).size == (512, 256)


class TestModels:
    @pytest.mark.slow
    def test_the_lab_model(self):
        pretrained = zoo.load("lab")
        image = torch.randint(0, 256, (3, 96, 96), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
        made = view(pretrained, image)
        x = pretrained.prepare(image[None])
        same = attention_view(attention_maps(pretrained.model, x), image / 255, (12, 12), 8)
        assert made.packed == same.packed
        rollout = attention_rollout(pretrained.model, x)[0].flatten().numpy()
        assert np.abs(shown_values(made.arrays)[-1, 0] - rollout).max() <= rollout.max() / 20
        assert made.meta["title"] == pretrained.name and made.meta["picture"] == same.meta["picture"]

    @pytest.mark.parametrize(
        "options, grid, tokens",
        [
            ({"img_size": (160, 96)}, (10, 6), ["class token"]),
            ({"class_token": False, "global_pool": "avg"}, (10, 10), ["mean of all patches"]),
            ({"reg_tokens": 4}, (10, 10), ["class token", *(f"prefix token {k}" for k in (2, 3, 4, 5))]),
            ({"num_heads": 1}, (10, 10), ["class token"]),
        ],
    )
    def test_timm_models(self, options, grid, tokens):
        model = timm.create_model("test_vit", **options).eval()
        made = view(model, torch.randn(3, grid[0] * 16, grid[1] * 16, generator=torch.Generator().manual_seed(0)))
        assert made.meta["grid"] == list(grid) and made.meta["tokens"] == tokens
        assert made.meta["heads"] == options.get("num_heads", 2)


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(maps=[torch.full((1, 2, 16, 16), torch.nan)]), "holds NaN"),
        (dict(maps=made_maps(heads=1) + made_maps()), r"blocks have \(images, heads\) \[\(1, 1\), \(1, 2\)\]"),
        (dict(grid=(4, 5)), r"expected \[batch, heads, 21, 21\]"),
        (dict(blocks=[0, 4]), r"blocks \[0, 4\] given, expected different numbers from 0 to 3"),
        (dict(blocks=[]), "different numbers"),
        (dict(pool=2), r"pool 2 given, expected a number that divides both sides of the grid \(3, 5\)"),
        (dict(show="all"), "show 'all' given, expected heads or rollout"),
        (dict(image=picture() * 4 - 2), "holds values -2…2, expected 0…1"),
        (dict(image=picture() * torch.nan), "holds values nan…nan"),
        (dict(image=picture() * 255), "divide bytes by 255"),
    ],
)
def test_what_cannot_be_shown_is_refused(change, message):
    given = dict(maps=made_maps(), image=picture(), grid=GRID, stride=16, n_prefix=1) | change
    with pytest.raises(ValueError, match=message):
        attention_view(**given)
