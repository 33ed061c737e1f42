"""Weight files in every dialect: the authors' .npz, timm's and others' safetensors, folders, the hub; bad files."""

import argparse
import json
import pickle
import socket
import time
from pathlib import Path

import huggingface_hub.constants
import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from timm.models import save_for_hf
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from weights import randomise

from vitlab.models import weights, zoo
from vitlab.models.vit import ViT, ViTConfig

D, HEADS = 12, 3  # heads are 4 wide: no rule of thumb finds them
SHAPE = {"img_size": 32, "patch_size": 8, "embed_dim": D, "num_heads": HEADS, "num_classes": 5, "depth": 2}


def vit() -> VisionTransformer:
    return randomise(VisionTransformer(**SHAPE, mlp_ratio=20 / 12))


def saved(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    np.savez(path, **arrays)
    return path


def pictures(side: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("prefix", ["", "opt/target/"])
def test_a_released_file_is_read_under_timms_names(tmp_path, prefix):
    theirs, before = vit(), torch.get_rng_state()
    path = saved(tmp_path / "ViT.npz", {prefix + name: array for name, array in as_released(theirs).items()})
    found = zoo.load(path)
    assert torch.equal(torch.get_rng_state(), before)
    state, expected = found.model.state_dict(), theirs.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], expected[key]) for key in expected)
    assert (found.name, found.image_size, found.mean) == ("ViT", (32, 32), (0.5, 0.5, 0.5))
    assert found.model.config.n_heads == HEADS and found.source.endswith("read as a ViT with 3 heads")


def test_the_pre_training_head_comes_along(tmp_path):
    kernel, bias = np.random.default_rng(0).normal(size=(D, D)).astype(np.float32), np.ones(D, np.float32)
    arrays = as_released(vit()) | {"pre_logits/kernel": kernel, "pre_logits/bias": bias}
    found = zoo.load(saved(tmp_path / "ViT.npz", arrays))
    assert found.model.config.head == "tanh"
    y = found.model.forward_features(pictures())[:, 0].detach().double().numpy()
    z = np.tanh(y @ arrays["pre_logits/kernel"] + arrays["pre_logits/bias"])
    logits = z @ arrays["head/kernel"] + arrays["head/bias"]
    np.testing.assert_allclose(found.model(pictures()).detach().numpy(), logits, atol=1e-4)


def as_released(model: nn.Module) -> dict[str, np.ndarray]:
    """A ViT of timm's names turned back into the release's layout, layer by layer."""
    state = {key: value.detach().numpy() for key, value in model.state_dict().items()}
    heads, dim = model.blocks[0].attn.num_heads, state["cls_token"].shape[-1]
    arrays = {"cls": state["cls_token"], "Transformer/posembed_input/pos_embedding": state["pos_embed"]}
    arrays["embedding/kernel"] = state["patch_embed.proj.weight"].transpose(2, 3, 1, 0)
    arrays["embedding/bias"] = state["patch_embed.proj.bias"]
    for theirs, ours in {"head": "head", "pre_logits": "pre_logits.fc"}.items():
        if f"{ours}.weight" in state:
            arrays |= {f"{theirs}/kernel": state[f"{ours}.weight"].T, f"{theirs}/bias": state[f"{ours}.bias"]}
    norms = {"Transformer/encoder_norm": "norm"}
    for i in range(len(model.blocks)):
        block, to = f"blocks.{i}", f"Transformer/encoderblock_{i}"
        norms |= {f"{to}/LayerNorm_0": f"{block}.norm1", f"{to}/LayerNorm_2": f"{block}.norm2"}
        attention = f"{to}/MultiHeadDotProductAttention_1"
        weights, biases = state[f"{block}.attn.qkv.weight"], state[f"{block}.attn.qkv.bias"]
        for j, part in enumerate(("query", "key", "value")):
            rows = slice(j * dim, (j + 1) * dim)
            arrays[f"{attention}/{part}/kernel"] = weights[rows].T.reshape(dim, heads, dim // heads)
            arrays[f"{attention}/{part}/bias"] = biases[rows].reshape(heads, dim // heads)
        arrays[f"{attention}/out/kernel"] = state[f"{block}.attn.proj.weight"].T.reshape(heads, dim // heads, dim)
        arrays[f"{attention}/out/bias"] = state[f"{block}.attn.proj.bias"]
        for j in (0, 1):
            arrays[f"{to}/MlpBlock_3/Dense_{j}/kernel"] = state[f"{block}.mlp.fc{j + 1}.weight"].T
            arrays[f"{to}/MlpBlock_3/Dense_{j}/bias"] = state[f"{block}.mlp.fc{j + 1}.bias"]
    for theirs, ours in norms.items():
        arrays |= {f"{theirs}/scale": state[f"{ours}.weight"], f"{theirs}/bias": state[f"{ours}.bias"]}
    return arrays


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Lab-Ti/8", {"n_classes": 5}),
        ("Lab-Ti/8", {"n_classes": 5, "image_size": 64, "head": "tanh"}),
        ("test_vit", {"n_classes": 5, "image_size": 32}),
    ],
)
def test_a_released_file_of_a_named_model(tmp_path, name, settings):
    model = randomise(zoo.create(name, **settings))
    path = saved(tmp_path / "ViT.npz", as_released(model))
    found = zoo.load(f"{name}@{path}")
    side = settings.get("image_size", 32)
    assert found.image_size == (side, side) and found.source == str(path)
    assert torch.equal(found.model(pictures(side)), model(pictures(side)))


def test_a_name_of_other_heads_is_refused(tmp_path):
    path = saved(tmp_path / "ViT.npz", as_released(timm.create_model("test_vit", img_size=32, num_heads=4)))
    with pytest.raises(ValueError, match="does not fit test_vit: it was made for 4 heads, not 2"):
        zoo.load(f"test_vit@{path}")


def test_a_file_without_a_head_has_a_zero_one_in_our_models(tmp_path):
    model = randomise(zoo.create("Lab-Ti/8"))
    arrays = {name: array for name, array in as_released(model).items() if not name.startswith("head/")}
    path = saved(tmp_path / "ViT.npz", arrays)
    found = zoo.load(f"Lab-Ti/8@{path}")
    assert "holds no head: it is zero" in found.source
    assert not found.model(pictures()).any()
    assert torch.equal(found.model.forward_features(pictures()), model.forward_features(pictures()))
    with pytest.raises(ValueError, match=r"has no head.*NAME@"):
        zoo.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"conv_root/kernel": np.zeros((3, 3, 3, D))}, "it is a hybrid's: timm has those by name"),
        ({"embedding/kernel": None}, "no embedding/kernel; found Transformer/encoder_norm/bias, .* more"),
        ({"Transformer/encoderblock_1/MlpBlock_3/Dense_1/bias": None}, "encoderblock_1/MlpBlock_3/Dense_1/bias is not"),
        ({"Transformer/encoder_norm/scale": np.zeros(D + 1)}, "size of tensor"),
    ],
)
def test_arrays_that_are_no_released_vit(tmp_path, change, message):
    arrays = {name: array for name, array in (as_released(vit()) | change).items() if array is not None}
    with pytest.raises(ValueError, match=rf"ViT.npz cannot be read as a ViT of the authors' release \(.*{message}"):
        zoo.load(saved(tmp_path / "ViT.npz", arrays))


def written(path: Path, model: nn.Module) -> Path:
    save_file(model.state_dict(), path)
    return path


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("test_vit", {"image_size": 64}),
        ("Lab-Ti/8", {}),
        ("Lab-Ti/16", {"image_size": 64}),
        ("resnet10t", {}),
        ("deit3_small_patch16_224", {"image_size": 64}),  # no position for the class token
        ("vit_small_patch14_reg4_dinov2", {"image_size": 56}),
        ("deit_tiny_distilled_patch16_224", {"image_size": 96}),
        ("beit_base_patch16_224", {"image_size": 64}),  # tables of relative positions
        ("crossvit_9_240", {"n_classes": 1000}),  # several heads, under names of their own
    ],
)
def test_a_named_file_of_any_image_size(tmp_path, name, size):
    model = randomise(zoo.create(name, **{"n_classes": 6} | size))
    path = written(tmp_path / "a@b.safetensors", model)
    found = zoo.load(f"{name}@{path}")
    assert (found.name, found.source) == (name, str(path))
    x = torch.randn(2, 3, *found.image_size, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found.model(x), model(x))
    control = zoo.load(f"{name}@{path}", untrained=True, seed=4)
    fresh = zoo.create(name, seed=4, **{"n_classes": 6} | size).state_dict()
    assert all(torch.equal(value, fresh[key]) for key, value in control.model.state_dict().items())


THEIRS = (  # timm's names → transformers' (its models/vit)
    "blocks→encoder.layer norm1→layernorm_before norm2→layernorm_after attn.proj→attention.output.dense "
    "mlp.fc1→intermediate.dense mlp.fc2→output.dense cls_token→embeddings.cls_token norm.→layernorm. "
    "pos_embed→embeddings.position_embeddings patch_embed.proj→embeddings.patch_embeddings.projection"
)


def of_transformers(state):
    found = {}
    for key, value in state.items():
        parts = ("query", "key", "value") if "qkv" in key else ("",)
        for part, each in zip(parts, value.chunk(len(parts)), strict=True):
            name = key.replace("attn.qkv", f"attention.attention.{part}")
            for ours, _, theirs in (pair.partition("→") for pair in THEIRS.split()):
                name = name.replace(ours, theirs)
            found[name.replace("head.", "classifier.") if "head" in name else f"vit.{name}"] = each
    return found


def open_clip(state):
    found = {f"visual.trunk.{key}": value for key, value in without_head(state).items()}
    return found | {"visual.head.proj.weight": state["head.weight"], "text.x": torch.ones(1)}


def without_head(state):
    return {key: value for key, value in state.items() if not key.startswith("head.")}


@pytest.mark.parametrize(
    ("dialect", "options"),
    [
        (lambda state: {f"module._orig_mod.{key}": value for key, value in state.items()}, {}),
        (lambda state: {f"backbone.{key}": value for key, value in state.items()}, {}),
        (open_clip, {}),
        (of_transformers, {}),
        (lambda state: without_head(state) | {"mask_token": torch.ones(1), "decoder_pred.bias": torch.ones(1)}, {}),
        (lambda state: without_head(state) | {"head.mlp.0.weight": torch.ones(1)}, {}),  # DINO
        (dict, {"init_values": 0.1}),  # LayerScale
        (dict, {"global_pool": "avg"}),
        (dict, {"global_pool": "avg", "class_token": False, "fc_norm": False}),
        (dict, {"reg_tokens": 3}),
    ],
)
def test_dialects_of_weight_files(tmp_path, dialect, options):
    model = randomise(timm.create_model("test_vit", img_size=64, num_classes=3, **options)).eval()
    save_file({key: value.clone() for key, value in dialect(model.state_dict()).items()}, tmp_path / "m.safetensors")
    found = zoo.load(f"test_vit@{tmp_path / 'm.safetensors'}").model
    assert torch.equal(found.forward_features(pictures(64)), model.forward_features(pictures(64)))
    assert not found.num_classes or dialect is open_clip or torch.equal(found(pictures(64)), model(pictures(64)))


def test_a_file_that_does_not_tell_its_architecture_or_does_not_fit_the_one_named(tmp_path):
    path = written(tmp_path / "vit.safetensors", vit())
    with pytest.raises(ValueError, match="does not tell its architecture.*NAME@.*vit.safetensors"):
        zoo.load(path)
    with pytest.raises(ValueError, match=r"vit.safetensors does not fit Lab-Ti/8: .*of another shape: cls_token"):
        zoo.load(f"Lab-Ti/8@{path}")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        zoo.load(f"Lab-Ti/8@{tmp_path}/none.safetensors")


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_pickles_are_never_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.zeros(2), "bomb": Bomb()}, "zip.pt")
    Path("raw.bin").write_bytes(pickle.dumps(Bomb()))
    Path("lies.safetensors").write_bytes(pickle.dumps(Bomb()))
    for name in ("zip.pt", "raw.bin", "lies.safetensors"):
        for given in (name, f"Lab-Ti/8@{name}"):
            with pytest.raises(ValueError, match=f"{name} cannot be read.*never opened here.*look for a .safetensors"):
                zoo.load(given)
    np.savez("objects.npz", **as_released(vit()), bomb=np.array([Bomb()], dtype=object))
    np.save("one.npy", np.array([Bomb()], dtype=object))
    Path("one.npy").rename("one.npz")
    torch.save({"w": torch.zeros(2)}, "torch.npz")
    for name in ("objects.npz", "one.npz", "torch.npz"):
        with pytest.raises(ValueError, match=f"{name} cannot be read.*pickles are never opened here"):
            zoo.load(name)
    assert not Path("exploded").exists()


def test_the_advice_for_a_pickled_checkpoint_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = randomise(timm.create_model("test_vit", num_classes=3)).eval()
    torch.save({"model": model.state_dict(), "args": argparse.Namespace(lr=0.1)}, "a.pth")
    with pytest.raises(ValueError, match="convert it once with") as caught:
        zoo.load("test_vit@a.pth")
    exec(str(caught.value).partition("convert it once with ")[2].replace("FILE", "'a.pth'"), {})
    assert torch.equal(zoo.load("test_vit@model.safetensors").model(pictures(160)), model(pictures(160)))


def test_a_name_in_a_file_cannot_be_markup(tmp_path):
    zoo.save(tmp_path / "m.safetensors", zoo.create("Lab-Mu/8"), r"<img src=x onerror=alert(1)>`$\foo$", {})
    assert zoo.load(tmp_path / "m.safetensors").name == "?img src?x onerror?alert?1?????foo?"


def test_numbers_that_are_none_are_refused_and_half_precision_is_said(tmp_path):
    state, path = zoo.create("Lab-Mu/8").state_dict(), tmp_path / "odd.safetensors"
    for change in (torch.Tensor.long, lambda each: each.to(torch.complex64), lambda each: each * torch.nan):
        save_file({key: change(value) for key, value in state.items()}, path)
        with pytest.raises(ValueError, match="does not fit Lab-Mu/8: no finite floating-point numbers: cls_token"):
            zoo.load(f"Lab-Mu/8@{path}")
    save_file(state | {"head.weight": torch.tensor(1.0)}, path)
    with pytest.raises(ValueError, match=r"of another shape: head.weight \(\)"):
        zoo.load(f"Lab-Mu/8@{path}")
    save_file({key: value.half() for key, value in state.items()}, path)
    found = zoo.load(f"Lab-Mu/8@{path}")
    assert found.source.endswith("converted from float16") and found.model.head.weight.dtype == torch.float32


def test_a_file_of_big_vision_is_read_for_its_architecture(tmp_path):
    model, arrays = randomise(timm.create_model("test_vit", num_classes=7)).eval(), {}
    names = {"Attention_1": "Attention_0", "MlpBlock_3": "MlpBlock_0", "LayerNorm_2": "LayerNorm_1"}
    for key, value in as_released(model).items():
        for theirs, new in (names | {"Transformer/posembed_input/pos_embedding": "pos_embedding"}).items():
            key = key.replace(theirs, new)
        arrays[f"params/{key}"] = value
    found = zoo.load(f"test_vit@{saved(tmp_path / 'big.npz', arrays)}")
    assert torch.equal(found.model(pictures(160)), model(pictures(160)))
    del arrays["params/Transformer/encoder_norm/scale"]
    with pytest.raises(ValueError, match="big.npz does not fit test_vit"):
        zoo.load(f"test_vit@{saved(tmp_path / 'big.npz', arrays)}")


def test_damaged_and_foreign_files(tmp_path):
    ours, archive = tmp_path / "model.safetensors", saved(tmp_path / "ViT.npz", as_released(vit()))
    zoo.save(ours, zoo.create("Lab-Ti/8"), "Lab-Ti/8", {})
    for path in (ours, archive):
        whole = path.read_bytes()
        for damaged in (whole[:-100], whole[: len(whole) // 2], b"", b"not weights", b"\xff" + whole[1:500]):
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=rf"{path.name} cannot be read.*copy or download it again"):
                zoo.load(f"Lab-Ti/8@{path}")
    ours.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ValueError, match="git lfs pull"):
        zoo.load(ours)
    for name in (tmp_path / "none.npz", "nowhere.safetensors"):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            zoo.load(name)


def trained(**changes) -> ViT:
    config = {"image_size": 48, "patch_size": 8, "dim": 128, "depth": 3, "n_heads": 2, "mlp_dim": 320, "n_classes": 7}
    return randomise(ViT(ViTConfig(**config | changes)))


@pytest.mark.parametrize("pool", ["class", "gap"])
def test_our_files_and_folders_are_timms_with_the_same_logits_to_the_bit(tmp_path, pool):
    model, x = trained(pool=pool), pictures(48)
    logits = model(x)
    assert torch.equal(weights.as_timm(model)(x), logits)
    zoo.save(tmp_path / "model.safetensors", model, "ViT-B/8", {})
    settings = {"checkpoint_path": str(tmp_path / "model.safetensors"), **weights.timm_arguments(model)}
    assert torch.equal(timm.create_model("vit_base_patch16_224", **settings).eval()(x), logits)
    folder, arguments = tmp_path / "folder", weights.timm_arguments(model)
    save_for_hf(weights.as_timm(model), folder, model_args=arguments, safe_serialization=True)
    assert torch.equal(timm.create_model(f"local-dir:{folder}", pretrained=True).eval()(x), logits)
    found = zoo.load(folder)
    assert torch.equal(found.model(x), logits)
    assert found.image_size == (48, 48) and {*found.mean, *found.std} == {0.5}


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("Lab-Mu/8", {"head": "tanh"}, "no hidden layer before its head.*after fine-tuning"),
        ("R+Lab-Mu/8", {}, "a Hybrid has no counterpart in timm"),
        ("Lab-Mu/8", {"positions": "2d"}, "a Variant has no counterpart in timm"),
    ],
)
def test_what_timm_has_no_class_for_is_refused(name, settings, words):
    with pytest.raises(ValueError, match=words):
        weights.as_timm(zoo.create(name, **settings))


@pytest.fixture
def folder(tmp_path) -> Path:
    """A model of timm's, its classes and normalisation changed, as timm saves it to share."""
    model = randomise(timm.create_model("test_vit", img_size=32, num_classes=7))
    save_for_hf(
        model, tmp_path / "mine", safe_serialization=True, data_config={"mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6)}
    )
    return tmp_path / "mine"


def test_a_folder_of_timms(folder):
    expected = load_file(folder / "model.safetensors")
    for name in (str(folder), f"local-dir:{folder}"):
        found = zoo.load(name)
        assert (found.name, found.source) == (name, str(folder / "model.safetensors"))
        assert (found.image_size, found.mean, found.std) == ((32, 32), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
        state = found.model.state_dict()
        assert not found.model.training and found.model.num_classes == 7
        assert all(torch.equal(state[key], expected[key]) for key in expected)
        control = zoo.load(name, untrained=True, seed=2)
        assert (control.image_size, control.mean, control.model.num_classes) == ((32, 32), (0.1, 0.2, 0.3), 7)
        assert not torch.equal(control.model.pos_embed, found.model.pos_embed)


def test_folders_that_are_not_timms(folder):
    for config in ("{", "[]", '{"architectures": ["ViTForImageClassification"]}', '{"architecture": "vit_of_mine"}'):
        (folder / "config.json").write_text(config)
        with pytest.raises(ValueError, match=r"config.json names no architecture of timm's.*NAME@.*model.safetensors"):
            zoo.load(folder)
    damaged = {"architecture": "test_vit", "model_args": {"global_pool": "tokem"}}
    (folder / "config.json").write_text(json.dumps(damaged))
    with pytest.raises(ValueError, match=r"mine does not take these settings"):
        zoo.load(folder)
    for name in ("model.safetensors", "config.json"):
        (folder / name).unlink()
        with pytest.raises(FileNotFoundError, match=rf"no .*mine/{name}.*safe_serialization=True.*pickles"):
            zoo.load(f"local-dir:{folder}")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty Hugging Face cache of the test's own, online."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def publish(cache: Path, repository: str, model: nn.Module) -> Path:
    """Put a model into the cache, as if it had been downloaded."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(snapshot.name)
    written(snapshot / "model.safetensors", model)
    config = {"architecture": "test_vit", "num_classes": model.num_classes, "pretrained_cfg": model.pretrained_cfg}
    (snapshot / "config.json").write_text(json.dumps(config))
    return snapshot


def test_the_papers_names_are_its_own_imagenet_21k_weights(cache, monkeypatch):
    for name, published in weights.PAPERS_OWN.items():
        with torch.device("meta"):
            ours, theirs = zoo.create(name), timm.create_model(published)
        shapes = {key: value.shape for key, value in ours.state_dict().items() if not key.startswith("head.")}
        assert shapes == {key: value.shape for key, value in theirs.state_dict().items()}
        assert ours.config.n_heads == theirs.blocks[0].attn.num_heads
    monkeypatch.setitem(zoo.VIT_SIZES, "ViT-B", zoo.VIT_SIZES["ViT-B"] | {"depth": 1, "dim": 48, "mlp_dim": 192})
    tag = weights.PAPERS_OWN["ViT-B/32"]
    model = timm.create_model(tag, depth=1, embed_dim=48)  # as timm publishes it: no head, no layer before it
    publish(cache, f"timm/{tag}", model)
    found = zoo.load("vit-b/32")
    x = pictures(224)[:1]
    torch.testing.assert_close(found.model.forward_features(x), model.eval().forward_features(x), atol=1e-4, rtol=1e-4)
    assert found.model.config == zoo.load("ViT-B/32", untrained=True).model.config and not found.model.head.weight.any()
    assert "the paper's own weights, pre-trained on ImageNet-21k" in found.source and "it is zero" in found.source


def test_an_unreachable_hub_is_said_within_three_seconds(cache, monkeypatch):
    def fail(name):
        start = time.monotonic()
        with pytest.raises(ConnectionError, match=r"HF_HUB_OFFLINE.*HF_HOME.*HF_ENDPOINT.*NAME@FILE.*local folder"):
            zoo.load(name)
        assert time.monotonic() - start < 3

    with socket.socket() as silent:  # takes the connection and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        for endpoint in ("no address", f"http://127.0.0.1:{silent.getsockname()[1]}"):
            monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
            fail("test_vit.r160_in1k")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for name in ("ViT-B/16", "test_vit.r160_in1k", "hf-hub:nobody/nothing"):
        fail(name)


def test_weights_in_the_cache_need_no_network(cache, tmp_path, monkeypatch):
    model = randomise(timm.create_model("test_vit"))
    snapshot = publish(cache, "timm/test_vit.r160_in1k", model)
    for name in ("test_vit.r160_in1k", "test_vit", "hf-hub:timm/test_vit.r160_in1k", f"local-dir:{snapshot}"):
        found = zoo.load(name)
        assert found.name == name and found.image_size == (160, 160) and not found.model.training
        assert torch.equal(found.model.head.weight, model.head.weight)
    control = zoo.load("test_vit.r160_in1k", untrained=True, seed=2)
    assert torch.equal(control.model.pos_embed, zoo.create("test_vit", seed=2).pos_embed)
    path = tmp_path / "mine.safetensors"
    zoo.save(path, model, "hf-hub:somebody/vit", {})
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match="config.json of somebody/vit is not in the local cache"):
        zoo.load(path)
    publish(cache, "somebody/vit", model)
    assert torch.equal(zoo.load(path).model.head.weight, model.head.weight)


def test_names_without_published_weights():
    with pytest.raises(ValueError, match="no published weights for Lab-Ti/8: use 'lab', a file .*ViT-B/16.*orig_in21k"):
        zoo.load("Lab-Ti/8")
    with pytest.raises(ValueError, match="for vit_base_patch16_224 it has .*vit_base_patch16_224.orig_in21k"):
        zoo.load("vit_base_patch16_224.nope")
