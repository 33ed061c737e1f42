"""Capture: the true attention, an untouched model, and refusals in place of wrong or partial results."""

import runpy
import warnings
from pathlib import Path

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weights import open_attention

from vitlab.analysis.attention import (
    attention_maps,
    grid_size,
    n_prefix_tokens,
    patch_stride,
    reduce_attention,
    softmax_rows,
)
from vitlab.analysis.distance import mean_attention_distance
from vitlab.analysis.rollout import attention_rollout
from vitlab.models.vit import ViT, ViTConfig

CONFIG = ViTConfig(image_size=32, patch_size=8, dim=32, depth=3, n_heads=4, mlp_dim=64, n_classes=5, dropout=0.1)
SMALL = {"depth": 2, "embed_dim": 32, "num_heads": 2, "num_classes": 5}  # makes a timm model small
LOUD = 1.5  # factor on qkv weights: attention of a random model is otherwise close to uniform


def lab_vit(**options) -> ViT:
    model = ViT(ViTConfig(**{**CONFIG.__dict__, **options}), seed=0)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(LOUD)
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    return model.eval()


def pictures(batch: int = 2, height: int = 32, width: int = 32) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


def output_during(model: nn.Module, images: Tensor, reducer=lambda block, attn: None, **options) -> Tensor:
    """What the model computes while it is being captured."""
    outputs = []
    handle = model.register_forward_hook(lambda _, __, output: outputs.append(output))
    reduce_attention(model, images, {"any": reducer}, **options)
    handle.remove()
    return outputs[0]


def snapshot(model: nn.Module) -> list:
    """Everything of a model that a capture could leave changed."""
    modules = list(model.modules())
    names = ("training", "fused_attn", "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called")
    state = [[str(getattr(m, name, None)) for name in names] for m in modules]
    return [state, [(p.requires_grad, p.grad) for p in model.parameters()], [m.forward.__func__ for m in modules]]


class TestKnownAnswers:
    def test_equals_the_attention_in_the_open_in_float64_known_answers(self):
        model, images = lab_vit(depth=12), pictures()
        maps = attention_maps(model, images)
        expected = open_attention(model.double(), images.double())
        assert len(maps) == 12  # in block order, not 0, 1, 10, 11, 2
        for attn, wanted in zip(maps, expected, strict=True):
            torch.testing.assert_close(attn.double(), wanted, atol=1e-5, rtol=0)
        assert (expected[2] - expected[10]).abs().max() > 1e-2  # the order can be told

    @pytest.mark.parametrize("mask", [None, "bool", "float", "heads", "causal"])
    @pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"enable_gqa": True}])
    def test_rows_are_those_of_the_fused_kernel_known_answers(self, mask, options):
        draw = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(2, 4, 6, 8, generator=draw) for _ in range(3))
        if "enable_gqa" in options:
            k, v = k[:, :2], v[:, :2]
        options = options | {"is_causal": mask == "causal"}
        masks = {
            "bool": torch.rand(6, 6, generator=draw) > 0.3,
            "float": torch.randn(1, 1, 6, 6, generator=draw),
            "heads": torch.randn(1, 4, 6, 6, generator=draw),
        }
        fused = F.scaled_dot_product_attention(q, k, v, masks.get(mask), **options)
        full = v.repeat_interleave(2, 1) if "enable_gqa" in options else v
        parts = (slice(0, 1), slice(1, 4))
        halves = [softmax_rows(q, k, v, masks.get(mask), **options, heads=heads) for heads in parts]
        torch.testing.assert_close(torch.cat(halves, 1) @ full, fused, atol=1e-5, rtol=1e-5)


class TestUntouched:
    @pytest.mark.parametrize("fused", [True, False])
    @pytest.mark.parametrize("by_heads", [True, False])
    def test_output_is_bit_equal_during_and_after_whatever_a_reducer_does(self, fused, by_heads):
        model, images, seen = lab_vit(), pictures(), []
        for block in model.blocks:
            block.attn.fused_attn = fused

        def erase(block: int, attn: Tensor) -> None:
            seen.append(block)
            attn.zero_()

        with torch.no_grad():
            before = model(images)
        assert torch.equal(before, output_during(model, images, erase, by_heads=by_heads))
        assert seen == [0, 1, 2]
        assert all(block.attn.fused_attn == fused for block in model.blocks)
        with torch.no_grad():
            assert torch.equal(before, model(images))

    def test_everything_is_restored(self):
        model = lab_vit().train()
        model.blocks[1].eval()  # a model frozen in part
        model.blocks[2].requires_grad_(False)
        model.head.weight.grad = torch.ones_like(model.head.weight)
        before, random = snapshot(model), torch.get_rng_state()
        first = attention_maps(model, pictures())
        assert snapshot(model) == before
        assert torch.equal(random, torch.get_rng_state())
        assert not any(attn.requires_grad for attn in first)
        assert torch.equal(first[2], attention_maps(model, pictures())[2])  # dropout was off

    def test_by_heads_gives_the_same(self, monkeypatch):
        monkeypatch.setattr("vitlab.analysis.attention.CACHE_BYTES", 4 * 2 * 17 * 17 * 3)  # three heads at once
        model, sizes = lab_vit(), []

        def keep(block: int, attn: Tensor) -> Tensor:
            sizes.append(attn.shape[1])
            return attn

        parts = reduce_attention(model, pictures(), {"maps": keep}, by_heads=True)["maps"]
        assert sizes == [3, 1] * 3
        for a, b in zip(parts, attention_maps(model, pictures()), strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=0)

    @pytest.mark.parametrize("context", ["autocast", "inference_mode", "bfloat16", "double"])
    def test_precisions_and_modes(self, context):
        model, images = lab_vit(depth=6), pictures()
        exact = attention_maps(model, images)
        if context in ("bfloat16", "double"):
            dtype = getattr(torch, context.replace("double", "float64"))
            model, images = model.to(dtype), images.to(dtype)
        contexts = {"autocast": torch.autocast("cpu", torch.bfloat16), "inference_mode": torch.inference_mode()}
        with contexts.get(context, torch.no_grad()):
            before = model(images)
            maps = attention_maps(model, images)
            assert torch.equal(before, output_during(model, images))
        assert maps[0].dtype == (torch.float64 if context == "double" else torch.float32)
        rounded = context in ("autocast", "bfloat16")  # errors of bfloat16 grow with depth
        torch.testing.assert_close(maps[0].float(), exact[0], atol=0.02 if rounded else 1e-5, rtol=0)
        for a, b in zip(maps, exact, strict=True):
            torch.testing.assert_close(a.float(), b, atol=0.15 if rounded else 1e-5, rtol=0)
            torch.testing.assert_close(a.sum(-1), torch.ones_like(a.sum(-1)))  # float32 rows, not bfloat16

    @pytest.mark.parametrize("how", ["module", "a block"])
    def test_compiled_models_run_uncompiled(self, how):
        model, images = lab_vit(depth=2), pictures()
        wanted = attention_maps(model, images)
        if how == "module":
            model = torch.compile(model, backend=refuse_to_compile)
        else:
            model.blocks[1].compile(backend=refuse_to_compile)
        for a, b in zip(attention_maps(model, images), wanted, strict=True):
            assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore::UserWarning")
class TestFamilies:
    @pytest.mark.parametrize(
        ("name", "options", "prefix", "tokens"),
        [
            ("vit_tiny_patch16_224", SMALL, 1, 17),
            ("deit_tiny_distilled_patch16_224", SMALL, 2, 18),
            ("beit_base_patch16_224", SMALL, 1, 17),
            ("eva02_tiny_patch14_224", SMALL, 1, 17),
            ("vit_small_patch14_reg4_dinov2", SMALL, 5, 21),
            ("vit_small_patch16_dinov3", SMALL, 5, 21),
            ("vit_base_patch16_siglip_224", SMALL, 0, 16),
            ("vit_medium_patch16_reg4_gap_256", SMALL, 4, 20),
            ("vit_relpos_small_patch16_224", SMALL, 0, 16),
            ("vit_tiny_r_s16_p8_224", SMALL, 1, 17),
        ],
    )
    def test_captured(self, name, options, prefix, tokens):
        coverage = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "coverage.py"))
        torch.manual_seed(0)
        stride, _ = patch_stride(timm.create_model(name, **options))
        model = timm.create_model(name, img_size=4 * stride, **options)
        images = pictures(2, 4 * stride, 4 * stride)
        maps = attention_maps(model.eval(), images)
        assert [tuple(a.shape) for a in maps] == [(2, 2, tokens, tokens)] * 2
        assert n_prefix_tokens(model) == prefix
        assert grid_size(model, images) == (4, 4)
        assert coverage["open_coded_difference"](model, images, maps) < 1e-5
        with torch.no_grad():
            assert torch.equal(model(images), output_during(model, images, by_heads=True))

    def test_rectangular_and_dynamic_sizes(self):
        fixed = timm.create_model("vit_tiny_patch16_224", img_size=(32, 64), **SMALL)
        assert grid_size(fixed, pictures(1, 32, 64)) == (2, 4)
        assert attention_maps(fixed, pictures(1, 32, 64))[0].shape == (1, 2, 9, 9)
        free = timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True, **SMALL)
        for height, width in [(48, 32), (32, 80)]:
            tokens = 1 + height * width // 256
            assert attention_maps(free, pictures(1, height, width))[1].shape == (1, 2, tokens, tokens)
        padded = timm.create_model("vit_tiny_patch16_224", dynamic_img_size=True, dynamic_img_pad=True, **SMALL)
        assert attention_maps(padded, pictures(1, 40, 32))[0].shape == (1, 2, 7, 7)
        uneven = timm.create_model("vit_tiny_patch16_224", patch_size=(16, 8), img_size=32, **SMALL)
        assert patch_stride(uneven) == (16, 8)
        assert patch_stride(timm.create_model("vit_tiny_r_s16_p8_224")) == (32, 32)  # in pixels of the input


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "options", "reason"),
        [
            ("swin_tiny_patch4_window7_224", {}, "no `.blocks`"),
            ("resnet18", {}, "no `.blocks`"),
            ("xcit_nano_12_p16_224", {"depth": 1}, r"shape \[2, 4, 32, 32\]"),
            ("vit_small_patch16_18x2_224", SMALL, "more than once"),
            ("vit_dwee_patch16_reg1_gap_256", SMALL, "more than once"),
            ("convit_tiny", {"depth": 1}, "changes its softmax"),
            ("samvit_base_patch16_224", SMALL, "num_prefix_tokens"),
        ],
    )
    def test_with_the_reason(self, name, options, reason):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = timm.create_model(name, **options)
        side = 256 if "256" in name else 224
        before = snapshot(model)
        with pytest.raises(ValueError, match=f"(no plain ViT|cannot capture): .*{reason}"):
            attention_maps(model, pictures(2, side, side))
        assert snapshot(model) == before

    def test_blocks_that_do_not_run_or_run_twice(self):
        model = lab_vit()
        model.forward = lambda images: model.blocks[0](torch.zeros(len(images), 17, 32))
        with pytest.raises(ValueError, match="1 of the 3 blocks"):
            attention_maps(model, pictures())
        shared = lab_vit(depth=2)
        shared.blocks[1] = shared.blocks[0]
        with pytest.raises(ValueError, match="block 1 runs out of turn; either blocks are shared"):
            attention_maps(shared, pictures())
        model = lab_vit()
        with pytest.raises(ValueError, match="block 0 runs out of turn.* captured already"):
            reduce_attention(model, pictures(), {"again": lambda block, attn: attention_maps(model, pictures())})
        assert len(attention_maps(model, pictures())) == 3  # and free again


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (torch.zeros(2, 3, 32), r"\[2, 3, 32\], expected a tensor \[batch, channels, height, width\]"),
            (torch.zeros(0, 3, 32, 32), r"\[0, 3, 32, 32\], expected .*, not empty"),
            (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "torch.uint8 up to 0, expected floating point"),
            (torch.full((1, 3, 32, 32), 200.0), "torch.float32 up to 200, expected floating point, about -3…3"),
            (torch.full((1, 3, 32, 32), float("nan")), "up to nan"),
            (torch.zeros(2, 1, 32, 32), r"\[2, 1, 32, 32\], expected \['batch', 3, 32, 32\]; convert or resize them"),
            (torch.zeros(2, 3, 40, 32), r"\[2, 3, 40, 32\], expected \['batch', 3, 32, 32\]; convert or resize them"),
        ],
    )
    def test_images(self, images, message):
        for model in (lab_vit(depth=1), timm.create_model("vit_tiny_patch16_224", img_size=32, **SMALL)):
            for analyse in (attention_maps, attention_rollout, mean_attention_distance):
                with pytest.raises((ValueError, RuntimeError, AssertionError), match=message):
                    analyse(model, images)

    @pytest.mark.parametrize(
        ("dtype", "factor", "by"),
        [("float32", 0.999, "0.001"), ("float64", 0.999, "0.001"), ("bfloat16", 0.95, "0.0[45]")],
    )
    def test_rows_that_do_not_sum_to_one(self, dtype, factor, by):
        model = lab_vit(depth=2).to(getattr(torch, dtype))
        for block in model.blocks:
            block.attn.fused_attn = False
        assert len(attention_maps(model, pictures().to(getattr(torch, dtype)))) == 2
        model.blocks[1].attn.attn_drop = Weaken(factor)
        with pytest.raises(ValueError, match=f"attention of block 1 has a row whose sum differs from 1 by {by}"):
            attention_maps(model, pictures().to(getattr(torch, dtype)))

    def test_nan_in_attention(self):
        model = lab_vit()
        with torch.no_grad():
            model.blocks[1].attn.qkv.weight[0, 0] = float("nan")
        with pytest.raises(ValueError, match="attention of block 1 holds NaN"):
            attention_maps(model, pictures())


class Weaken(nn.Module):
    """Scale attention in place: what multiplies v is the result of the softmax, and no longer attention."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, attn: Tensor) -> Tensor:
        return attn.mul_(self.factor)


def refuse_to_compile(*_):
    raise AssertionError("compiled during capture")
