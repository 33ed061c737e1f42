"""Capture: the true attention, an untouched model, and refusals in place of wrong or partial results."""

import importlib.util
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitlab.analysis.attention import (
    attention_gradients,
    attention_maps,
    grid_size,
    n_prefix_tokens,
    patch_stride,
    reduce_attention,
    softmax_rows,
    stream_attention,
)
from vitlab.models.vit import ViT, ViTConfig

CONFIG = ViTConfig(image_size=32, patch_size=8, dim=32, depth=12, n_heads=4, mlp_dim=64, n_classes=5, dropout=0.1)
SMALL = {"depth": 2, "embed_dim": 32, "num_heads": 2, "num_classes": 5}  # makes a timm model small
LOUD = 1.5  # factor on qkv weights: attention of a random model is otherwise close to uniform


NO_MODELS = """
import timm, torch
from vitlab.analysis import attention, distance, filters, positions, rollout
images, model = torch.zeros(2, 3, 160, 160), timm.create_model("test_vit", num_classes=5)
seeing = [attention.attention_maps, attention.grid_size, distance.mean_attention_distance]
seeing += [rollout.attention_rollout, rollout.last_block_attention, rollout.gradient_rollout]
reading = [filters.embedding_filters, positions.position_grid, positions.position_embeddings]
calls = [(f, (given, images)) for f in seeing for given in ("test_vit", model.state_dict())]
calls += [(f, (given,)) for f in reading for given in ("test_vit", model.state_dict())]
calls += [(f, (model, given)) for f in seeing for given in (images.numpy(), list(images))]
calls += [(rollout.gradient_rollout, (model, images, targets)) for targets in (2, [1, 3])]
for f, given in calls:
    try:
        f(*given)
    except (TypeError, ValueError) as error:
        print(error)
"""


def lab_vit(**options) -> ViT:
    model = ViT(ViTConfig(**{**CONFIG.__dict__, **options}), seed=0)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.qkv.weight.mul_(LOUD)
        model.head.weight.normal_(generator=torch.Generator().manual_seed(0))
    return model.eval()


def pictures(batch: int = 2, height: int = 32, width: int = 32) -> Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


def open_coded(model: ViT, images: Tensor) -> list[Tensor]:
    """Attention of every block by Eq. 1-7, written out in float64."""
    state = {name: value.detach().double() for name, value in model.state_dict().items()}
    x = F.conv2d(images.double(), state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=8)
    x = torch.cat([state["cls_token"].expand(len(images), -1, -1), x.flatten(2).transpose(1, 2)], 1)
    x = x + state["pos_embed"]
    maps = []
    for i in range(model.config.depth):
        p = {name.removeprefix(f"blocks.{i}."): v for name, v in state.items() if name.startswith(f"blocks.{i}.")}
        y = F.layer_norm(x, x.shape[-1:], p["norm1.weight"], p["norm1.bias"], 1e-6)
        heads = []
        matrices = []
        for h in range(4):
            rows = [slice(part * 32 + h * 8, part * 32 + h * 8 + 8) for part in range(3)]
            q, k, v = (y @ p["attn.qkv.weight"][r].T + p["attn.qkv.bias"][r] for r in rows)
            matrices.append(torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1))
            heads.append(matrices[-1] @ v)
        maps.append(torch.stack(matrices, 1))
        x = x + torch.cat(heads, -1) @ p["attn.proj.weight"].T + p["attn.proj.bias"]
        y = F.layer_norm(x, x.shape[-1:], p["norm2.weight"], p["norm2.bias"], 1e-6)
        y = F.gelu(y @ p["mlp.fc1.weight"].T + p["mlp.fc1.bias"])
        x = x + y @ p["mlp.fc2.weight"].T + p["mlp.fc2.bias"]
    return maps


def snapshot(model: nn.Module) -> list:
    """Everything of a model that a capture could leave changed."""
    modules = list(model.modules())
    names = ("training", "fused_attn", "_forward_hooks", "_forward_pre_hooks", "_forward_hooks_always_called")
    state = [[str(getattr(m, name, None)) for name in names] for m in modules]
    return [
        state,
        [(p.requires_grad, p.grad) for p in model.parameters()],
        [m.forward.__func__ for m in modules],
    ]


class TestKnownAnswers:
    def test_zero_queries_attend_uniformly_known_answers(self):
        model = lab_vit()
        for block in model.blocks:
            nn.init.zeros_(block.attn.qkv.weight)
        for attn in attention_maps(model, pictures()):
            torch.testing.assert_close(attn, torch.full((2, 4, 17, 17), 1 / 17))

    def test_equals_the_open_coded_float64_forward_known_answers(self):
        model, images = lab_vit(), pictures()
        maps, expected = attention_maps(model, images), open_coded(model, images)
        assert len(maps) == 12  # in block order, not 0, 1, 10, 11, 2
        for attn, wanted in zip(maps, expected, strict=True):
            torch.testing.assert_close(attn.double(), wanted, atol=1e-5, rtol=0)
        assert (expected[2] - expected[10]).abs().max() > 1e-2  # the order can be told

    @pytest.mark.parametrize("mask", [None, "bool", "float", "heads"])
    @pytest.mark.parametrize("options", [{}, {"scale": 0.3}, {"enable_gqa": True}])
    def test_rows_are_those_of_the_fused_kernel_known_answers(self, mask, options):
        draw = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(2, 4, 6, 8, generator=draw) for _ in range(3))
        if "enable_gqa" in options:
            k, v = k[:, :2], v[:, :2]
        masks = {
            None: None,
            "bool": torch.rand(6, 6, generator=draw) > 0.3,
            "float": torch.randn(1, 1, 6, 6, generator=draw),
            "heads": torch.randn(1, 4, 6, 6, generator=draw),
        }
        fused = F.scaled_dot_product_attention(q, k, v, masks[mask], **options)
        full = v.repeat_interleave(2, 1) if "enable_gqa" in options else v
        halves = [softmax_rows(q, k, heads, masks[mask], **options) for heads in (slice(0, 1), slice(1, 4))]
        torch.testing.assert_close(torch.cat(halves, 1) @ full, fused, atol=1e-5, rtol=1e-5)

    def test_causal_rows_known_answers(self):
        q = torch.zeros(1, 1, 3, 8)
        rows = softmax_rows(q, q, slice(None), is_causal=True)[0, 0]
        torch.testing.assert_close(rows, torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [1 / 3, 1 / 3, 1 / 3]]))


class TestUntouched:
    @pytest.mark.parametrize("by_heads", [False, True])
    def test_output_is_bit_equal_during_and_after(self, by_heads):
        model, images = lab_vit(), pictures()
        with torch.no_grad():
            before = model(images)
        seen = []
        during = stream_attention(
            model, images, lambda block, heads, attn: seen.append((block, heads)), by_heads=by_heads
        )
        assert torch.equal(before, during)
        assert [block for block, heads in seen if heads.stop == 4] == list(range(12))
        with torch.no_grad():
            assert torch.equal(before, model(images))

    def test_everything_is_restored(self):
        model = lab_vit().train()
        model.blocks[3].eval()  # a model frozen in part
        model.blocks[2].requires_grad_(False)
        model.head.weight.grad = torch.ones_like(model.head.weight)
        before, random = snapshot(model), torch.get_rng_state()
        first = attention_maps(model, pictures())
        assert snapshot(model) == before
        assert torch.equal(random, torch.get_rng_state())
        assert not any(attn.requires_grad for attn in first)
        assert torch.equal(first[5], attention_maps(model, pictures())[5])  # dropout was off

    def test_open_attention_is_seen_without_changing_the_flag(self):
        model, images = lab_vit(), pictures()
        fused = attention_maps(model, images)
        for block in model.blocks:
            block.attn.fused_attn = False
        with torch.no_grad():
            before = model(images)
        parts = reduce_attention(model, images, {"maps": lambda block, attn: attn}, by_heads=True)["maps"]
        assert torch.equal(before, stream_attention(model, images, lambda *_: None))
        assert not any(block.attn.fused_attn for block in model.blocks)
        for a, b in zip(fused, parts, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=0)

    @pytest.mark.parametrize("fused", [True, False])
    @pytest.mark.parametrize("by_heads", [True, False])
    def test_a_reducer_that_works_in_place_changes_no_output(self, fused, by_heads):
        model, images = lab_vit(), pictures()
        for block in model.blocks:
            block.attn.fused_attn = fused
        with torch.no_grad():
            before = model(images)
        assert torch.equal(before, stream_attention(model, images, lambda _, __, attn: attn.zero_(), by_heads=by_heads))

    def test_by_heads_gives_the_same(self, monkeypatch):
        monkeypatch.setattr("vitlab.analysis.attention.CACHE_BYTES", 4 * 2 * 17 * 17 * 3)  # three heads at once
        model, sizes = lab_vit(), []

        def keep(block: int, attn: Tensor) -> Tensor:
            sizes.append(attn.shape[1])
            return attn

        parts = reduce_attention(model, pictures(), {"maps": keep}, by_heads=True)["maps"]
        assert sizes == [3, 1] * 12
        for a, b in zip(parts, attention_maps(model, pictures()), strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=0)

    @pytest.mark.parametrize("context", ["autocast", "inference_mode", "bfloat16", "double"])
    def test_precisions_and_modes(self, context):
        model, images = lab_vit(), pictures()
        exact = attention_maps(model, images)
        if context in ("bfloat16", "double"):
            dtype = getattr(torch, context.replace("double", "float64"))
            model, images = model.to(dtype), images.to(dtype)
        contexts = {
            "autocast": torch.autocast("cpu", torch.bfloat16),
            "inference_mode": torch.inference_mode(),
        }
        with contexts.get(context, torch.no_grad()):
            before = model(images)
            maps = attention_maps(model, images)
            assert torch.equal(before, stream_attention(model, images, lambda *_: None))
        assert maps[0].dtype == (torch.float64 if context == "double" else torch.float32)
        rounded = context in ("autocast", "bfloat16")  # errors of bfloat16 grow with depth
        torch.testing.assert_close(maps[0].float(), exact[0], atol=0.02 if rounded else 1e-5, rtol=0)
        for a, b in zip(maps, exact, strict=True):
            torch.testing.assert_close(a.float(), b, atol=0.15 if rounded else 1e-5, rtol=0)
            torch.testing.assert_close(a.sum(-1), torch.ones_like(a.sum(-1)))  # float32 rows, not bfloat16

    @pytest.mark.parametrize("how", ["module", "in place", "a block"])
    def test_compiled_models_run_uncompiled(self, how):
        model, images = lab_vit(depth=2), pictures()
        wanted = attention_maps(model, images)
        if how == "module":
            model = torch.compile(model, backend=refuse_to_compile)
        else:
            (model if how == "in place" else model.blocks[1]).compile(backend=refuse_to_compile)
        for a, b in zip(attention_maps(model, images), wanted, strict=True):
            assert torch.equal(a, b)


@pytest.mark.filterwarnings("ignore::UserWarning")
class TestFamilies:
    @pytest.mark.parametrize(
        ("name", "options", "prefix", "tokens"),
        [
            ("vit_tiny_patch16_224", SMALL, 1, 17),
            ("deit_tiny_distilled_patch16_224", SMALL, 2, 18),
            ("deit3_small_patch16_224", SMALL, 1, 17),
            ("beit_base_patch16_224", SMALL, 1, 17),
            ("beitv2_base_patch16_224", SMALL, 1, 17),
            ("eva02_tiny_patch14_224", SMALL, 1, 17),
            ("vit_small_patch14_reg4_dinov2", SMALL, 5, 21),
            ("vit_small_patch16_dinov3", SMALL, 5, 21),
            ("vit_base_patch16_siglip_224", SMALL, 0, 16),
            ("vit_base_patch32_clip_224", SMALL, 1, 17),
            ("vit_base_patch16_gap_224", SMALL, 0, 16),
            ("vit_medium_patch16_reg4_gap_256", SMALL, 4, 20),
            ("vit_relpos_small_patch16_224", SMALL, 0, 16),
            ("vit_tiny_r_s16_p8_224", SMALL, 1, 17),
        ],
    )
    def test_captured(self, name, options, prefix, tokens):
        coverage = load_benchmark("coverage")
        torch.manual_seed(0)
        stride, _ = patch_stride(timm.create_model(name, **options))
        model = timm.create_model(name, img_size=4 * stride, **options)
        images = pictures(2, 4 * stride, 4 * stride)
        maps = attention_maps(model.eval(), images)
        assert [tuple(a.shape) for a in maps] == [(2, 2, tokens, tokens)] * 2
        assert n_prefix_tokens(model) == prefix
        assert grid_size(model, images) == (4, 4)
        assert coverage.open_coded_difference(model, images, maps) < 1e-5
        with torch.no_grad():
            assert torch.equal(model(images), stream_attention(model, images, lambda *_: None, by_heads=True))

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

    def test_hybrid_stride_is_in_input_pixels(self):
        assert patch_stride(timm.create_model("vit_tiny_r_s16_p8_224")) == (32, 32)


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "options", "reason"),
        [
            ("swin_tiny_patch4_window7_224", {}, "no `.blocks`"),
            ("resnet18", {}, "no `.blocks`"),
            ("xcit_nano_12_p16_224", {"depth": 1}, r"given \[2, 196, 128\]"),
            ("vit_small_patch16_18x2_224", SMALL, "more than once"),
            ("vit_dwee_patch16_reg1_gap_256", SMALL, "more than once"),
            ("convit_tiny", {"depth": 1}, r"given \[2, 196, 192\]"),
            ("samvit_base_patch16_224", SMALL, "num_prefix_tokens"),
        ],
    )
    def test_with_the_reason(self, name, options, reason):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = timm.create_model(name, **options)
        side = 256 if "256" in name else 224
        before = snapshot(model)
        with pytest.raises(ValueError, match=reason) as refusal:
            attention_maps(model, pictures(2, side, side))
        assert "cannot capture" in str(refusal.value)
        assert snapshot(model) == before

    def test_a_softmax_that_is_changed_before_use(self):
        model = lab_vit()
        for block in model.blocks:
            block.attn.fused_attn = False
        model.blocks[4].attn.attn_drop = Sharpen()
        with pytest.raises(ValueError, match="block 4: it changes its softmax before using it"):
            attention_maps(model, pictures())

    def test_blocks_that_do_not_run_or_run_twice(self):
        model = lab_vit()
        model.forward = lambda images: model.blocks[0](torch.zeros(len(images), 17, 32))
        with pytest.raises(ValueError, match="1 of the 12 blocks"):
            attention_maps(model, pictures())
        shared = lab_vit(depth=2)
        shared.blocks[1] = shared.blocks[0]
        with pytest.raises(ValueError, match="block 1 runs where block 0|block 0 runs where block 1|runs where"):
            attention_maps(shared, pictures())

    def test_nested_captures_of_one_model(self):
        model = lab_vit()
        with pytest.raises(ValueError, match="captured already"):
            reduce_attention(model, pictures(), {"again": lambda block, attn: attention_maps(model, pictures())})
        assert len(attention_maps(model, pictures())) == 12  # and free again


def test_every_analysis_says_the_same_of_what_is_no_model_and_no_tensor():
    """In a process without the checks of types that the tests have and users do not."""
    run = subprocess.run([sys.executable, "-c", NO_MODELS], capture_output=True, text=True, check=True)
    said = run.stdout.splitlines()
    assert said[:18] == [
        f"model is {given}, expected a torch.nn.Module; a name or weights alone are none "
        "(vitlab.models.zoo.load(name).model is one)"
        for _ in range(9)
        for given in ("str", "OrderedDict")
    ]
    shape = "expected a tensor [batch, channels, height, width]"
    assert said[18:30] == [f"images are {given}, {shape}" for _ in range(6) for given in ("ndarray", "list")]
    assert said[30:] == [
        f"targets {given} given, expected 2 classes from 0 to 4, integers in a tensor"
        for given in ("2 (int)", "[1, 3] (list)")
    ]


class TestThreads:
    def test_one_model_in_two_threads_is_refused_and_a_plain_forward_is_not_disturbed(self):
        model, images = lab_vit(), pictures()
        wanted, found = attention_maps(model, images), {}
        with torch.no_grad():
            logits = model(images)

        def other() -> None:
            with torch.no_grad():
                found["plain"] = model(images)
            try:
                attention_maps(model, images)
            except ValueError as error:
                found["refused"] = str(error)

        def reducer(block: int, attn: Tensor) -> Tensor:
            if block == 5:
                run_together(other)
            return attn

        maps = reduce_attention(model, images, {"maps": reducer})["maps"]
        assert torch.equal(found["plain"], logits)
        assert "captured already" in found["refused"]
        assert all(torch.equal(a, b) for a, b in zip(maps, wanted, strict=True))


class TestBadInput:
    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (torch.zeros(2, 3, 32), r"\[2, 3, 32\], expected a tensor \[batch, channels, height, width\]"),
            (torch.zeros(0, 3, 32, 32), "an empty batch"),
            (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "torch.uint8, expected floating point"),
            (torch.full((1, 3, 32, 32), 200.0), "values up to 200, expected about -3…3"),
            (torch.full((1, 3, 32, 32), float("nan")), "values up to nan"),
            (torch.zeros(1, 1, 32, 32), "1 channels, expected 3"),
            (torch.zeros(1, 3, 40, 32), "40 x 32 pixels, expected 32 x 32"),
        ],
    )
    def test_images(self, images, message):
        with pytest.raises(ValueError, match=message):
            attention_maps(lab_vit(), images)

    def test_nan_in_attention(self):
        model = lab_vit()
        with torch.no_grad():
            model.blocks[3].attn.qkv.weight[0, 0] = float("nan")
        with pytest.raises(ValueError, match="attention of block 3 holds NaN"):
            attention_maps(model, pictures())


class TestPeersOfTheBenchmark:
    """What `benchmarks/analysis.py` compares with is computed as it says, on the same weights."""

    def test_hugging_face_has_the_same_attention(self):
        pytest.importorskip("transformers")
        peers = load_benchmark("peers")
        model, images = timm.create_model("vit_tiny_patch16_224", img_size=32, **SMALL).eval(), pictures()
        twin = peers.hf_twin(model)
        for ours, theirs in zip(attention_maps(model, images), peers.hf_maps(twin, images), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


class TestGradients:
    def test_equals_autograd_through_open_attention(self):
        model, images = lab_vit(depth=3), pictures()
        maps, grads = attention_gradients(model, images, torch.tensor([1, 4]))
        kept = []
        for block in model.blocks:
            block.attn.fused_attn = False
            block.attn.attn_drop.register_forward_hook(lambda m, i, attn: kept.append(attn))
        logits = model(images)
        wanted = torch.autograd.grad(logits[0, 1] + logits[1, 4], kept)
        for a, b, da, db in zip(maps, kept, grads, wanted, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(da, db, atol=1e-6, rtol=1e-4)
            assert db.abs().max() > 1e-4

    @pytest.mark.parametrize("fused", [True, False])
    def test_model_is_untouched_and_may_be_frozen(self, fused):
        model = lab_vit(depth=2).train()
        free = attention_gradients(model, pictures())
        model.requires_grad_(False)
        for block in model.blocks:
            block.attn.fused_attn = fused
        before = snapshot(model)
        frozen = attention_gradients(model, pictures())
        assert snapshot(model) == before
        for a, b in zip(free[1], frozen[1], strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)

    def test_refused_without_gradients_or_logits(self):
        with torch.inference_mode(), pytest.raises(ValueError, match="inference_mode"):
            attention_gradients(lab_vit(), pictures())
        headless = timm.create_model("vit_tiny_patch16_224", img_size=32, global_pool="", **{**SMALL, "num_classes": 0})
        with pytest.raises(ValueError, match="no logits"):
            attention_gradients(headless, pictures())
        for targets in ([0], [0, 5], [-1, 0]):
            with pytest.raises(ValueError, match="expected 2 classes from 0 to 4"):
                attention_gradients(lab_vit(depth=1), pictures(), torch.tensor(targets))
        for floats in ([0.0, 1.0], [True, False]):
            with pytest.raises(ValueError, match="expected 2 classes from 0 to 4, integers in a tensor"):
                attention_gradients(lab_vit(depth=1), pictures(), torch.tensor(floats))
        recomputing = timm.create_model("vit_tiny_patch16_224", img_size=32, **SMALL)
        recomputing.set_grad_checkpointing()
        assert len(attention_maps(recomputing, pictures())) == 2
        with pytest.raises(ValueError, match="set_grad_checkpointing"):
            attention_gradients(recomputing, pictures())


class Sharpen(nn.Module):
    def forward(self, attn: Tensor) -> Tensor:
        return attn**2 / (attn**2).sum(-1, keepdim=True)


def refuse_to_compile(*_):
    raise AssertionError("compiled during capture")


def run_together(*calls) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def load_benchmark(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
