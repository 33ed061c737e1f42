"""What holds of every attention: bounds, sums, order of the batch, and the same in float64 written out."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from weights import rollout_from_maps

from vitlab.analysis.distance import attention_distance, head_reducer, pixel_distances
from vitlab.analysis.filters import filter_components, filter_tiles, low_frequency_share
from vitlab.analysis.masks import area_share, mass_inside
from vitlab.analysis.positions import position_similarity
from vitlab.analysis.rollout import overlay, rollout_matrix

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}
sides = st.integers(1, 6)
seeds = st.integers(0, 2**31)
quick = settings(max_examples=25, deadline=None, derandomize=True)


@st.composite
def attention(draw, blocks: int = 1, dtypes=(torch.float64, torch.float32)):
    """(maps [B H T T], grid, n_prefix) of random sharpness."""
    grid = draw(st.tuples(sides, sides))
    n_prefix, batch, heads = draw(st.integers(0, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 4))
    n_tokens = n_prefix + grid[0] * grid[1]
    generator = torch.Generator().manual_seed(draw(seeds))
    sharpness = draw(st.sampled_from([0.0, 1.0, 5.0, 30.0]))
    shape = (batch, heads, n_tokens, n_tokens)
    dtype = draw(st.sampled_from(dtypes))
    logits = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(blocks))
    return [(sharpness * each).softmax(-1).to(dtype) for each in logits], grid, n_prefix


def close(a: Tensor, b: Tensor, dtype: torch.dtype, scale: float = 1.0) -> bool:
    return bool((a.double() - b.double()).abs().max() <= TOLERANCE[dtype] * max(scale, 1e-12))


@quick
@given(attention(dtypes=tuple(TOLERANCE)), st.tuples(st.integers(1, 32), st.integers(1, 32)))
def test_distance_lies_between_zero_and_the_diagonal_and_equals_float64(case, stride):
    (attn,), grid, n_prefix = case
    diagonal = float(pixel_distances(grid, stride).max())
    table = pixel_distances(grid, stride, torch.float64)
    patches = attn.double()[..., n_prefix:, n_prefix:]
    for mode in ("paper", "renormalized"):
        found = attention_distance(attn, grid, stride, n_prefix, mode)
        assert found.isfinite().all()
        slack = TOLERANCE[attn.dtype] * diagonal
        assert -slack <= found.min() and found.max() <= diagonal + slack
        total = patches.sum(-1)
        rows = (patches * table).sum(-1)
        wanted = (rows if mode == "paper" else rows / total.clamp_min(1e-300)).mean(-1)
        if mode == "paper" or total.min() > 1e-3:  # else the little mass left is rounded away
            assert close(found, wanted, attn.dtype, diagonal)


@quick
@given(attention())
def test_distance_and_prefix_mass_add_up(case):
    (attn,), grid, n_prefix = case
    mass = head_reducer(grid, 16, n_prefix)(0, attn)[..., 2]
    assert ((mass >= 0) & (mass <= 1 + 1e-6)).all()
    assert close(mass + attn[..., n_prefix:, n_prefix:].sum(-1).mean(-1), torch.ones_like(mass), attn.dtype)
    if n_prefix == 0:
        paper, again = (attention_distance(attn, grid, 16, 0, mode) for mode in ("paper", "renormalized"))
        assert close(paper, again, attn.dtype, 16 * sum(grid))


@quick
@given(
    attention(blocks=4),
    st.sampled_from(["mean", "max", "min"]),
    st.sampled_from([0.0, 0.3, 0.9]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_rollout_is_a_share_of_one_and_follows_the_batch(case, fusion, ratio, class_token, random):
    maps, grid, n_prefix = case
    options = {"class_token": class_token and n_prefix > 0, "head_fusion": fusion, "discard_ratio": ratio}
    found = rollout_from_maps(maps, grid, n_prefix, **options)
    assert found.shape == (len(maps[0]), *grid)
    assert (found >= 0).all()
    assert (found.sum((1, 2)) <= 1 + 1e-5).all()
    if n_prefix == 0:
        assert close(found.sum((1, 2)), torch.ones(len(found)), found.dtype)
    order = random.sample(range(len(found)), len(found))
    moved = rollout_from_maps([attn[order] for attn in maps], grid, n_prefix, **options)
    assert close(found[order], moved, found.dtype)


@quick
@given(attention(blocks=5, dtypes=tuple(TOLERANCE)), st.sampled_from(["mean", "max", "min"]))
def test_rollout_equals_the_float64_product_also_of_half_precision_maps(case, fusion):
    maps, grid, n_prefix = case
    found = rollout_from_maps(maps, grid, n_prefix, head_fusion=fusion)
    assert found.dtype == torch.promote_types(maps[0].dtype, torch.float32)
    product = identity = torch.eye(maps[0].shape[-1], dtype=torch.float64).expand(len(maps[0]), -1, -1)
    fuse = {"mean": torch.mean, "max": torch.amax, "min": torch.amin}[fusion]
    for attn in maps:
        mixed = fuse(attn.double(), dim=1) + identity
        product = torch.bmm(mixed / mixed.sum(2)[:, :, None], product)
    if fusion == "mean":
        assert close(rollout_matrix([attn.double() for attn in maps]), product, torch.float64)
    assert close(product.sum(-1), torch.ones(product.shape[:2]), torch.float64)
    rows = product[:, 0] if n_prefix else product.mean(1)
    assert close(found.flatten(1), rows[:, n_prefix:], found.dtype)


@quick
@given(attention(blocks=2), st.integers(1, 3), seeds)
def test_overlay_and_masks(case, scale, seed):
    maps, grid, n_prefix = case
    rollout = rollout_from_maps(maps, grid, n_prefix)
    size = (grid[0] * scale, grid[1] * scale)
    exact = overlay(rollout, size, smooth=False)
    assert exact.shape == (len(rollout), *size)
    assert overlay(rollout, size).amax() <= 1
    assert ((exact.amax((1, 2)) == 1) | (rollout.sum((1, 2)) == 0)).all()
    masks = torch.rand(len(rollout), *size, generator=torch.Generator().manual_seed(seed)) > 0.5
    assert torch.allclose(mass_inside(torch.ones_like(rollout), masks).float(), area_share(masks), atol=1e-5)
    if (rollout.sum((1, 2)) > 0).all():
        inside, outside = mass_inside(rollout, masks), mass_inside(rollout, ~masks)
        assert torch.allclose(inside + outside, torch.ones_like(inside), atol=1e-4)


@quick
@given(sides, sides, st.integers(1, 9), seeds)
def test_positions(rows, cols, dim, seed):
    pos = torch.randn(rows * cols, dim, generator=torch.Generator().manual_seed(seed))
    similarity = position_similarity(pos, (rows, cols)).reshape(rows * cols, -1)
    assert similarity.abs().max() <= 1
    assert torch.allclose(similarity.diagonal(), torch.ones(rows * cols), atol=1e-5)
    assert torch.allclose(similarity, similarity.T)
    scaled = pos * torch.linspace(0.1, 9, len(pos))[:, None]  # a cosine does not see lengths
    assert torch.allclose(position_similarity(scaled, (rows, cols)).reshape(rows * cols, -1), similarity, atol=1e-5)


@quick
@given(st.integers(2, 40), st.integers(2, 5), seeds)
def test_filters(count, side, seed):
    filters = torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed))
    n = min(count, 3 * side * side)
    components, explained = filter_components(filters, n)
    assert torch.isclose(explained.sum(), torch.tensor(1.0), atol=1e-5)
    assert (explained.diff() <= 1e-6).all()
    rank = min(n, count - 1)  # the mean is gone: one direction fewer than samples
    gram = components[:rank].flatten(1) @ components[:rank].flatten(1).T
    assert torch.allclose(gram, torch.eye(rank), atol=1e-4)
    tiles = filter_tiles(components)
    assert tiles.min() >= 0 and tiles.max() <= 1
    share = low_frequency_share(components)
    assert ((share >= 0) & (share <= 1 + 1e-6)).all()
