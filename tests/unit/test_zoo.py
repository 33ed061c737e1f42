"""Models by name and by file: names, what is saved comes back, foreign files, bad files, no network."""

import io
import json
import pickle
import resource
import socket
import time
from pathlib import Path

import huggingface_hub.constants
import pytest
import timm
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vitlab import paths
from vitlab.models import weights, zoo
from vitlab.models.zoo import Pretrained


def randomised(model: nn.Module) -> nn.Module:
    """The model with noise on every weight, so that no two models or files are the same by chance."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def foreign_vit(**changes) -> VisionTransformer:
    settings = {
        "img_size": 32,
        "patch_size": 8,
        "num_classes": 7,
        "embed_dim": 128,
        "depth": 2,
        "num_heads": 2,
    }
    return randomised(VisionTransformer(**{**settings, **changes}))


def written(path: Path, model: nn.Module) -> Path:
    save_file(model.state_dict(), path)
    return path


def photographs(height: int, width: int, count: int = 2) -> torch.Tensor:
    """Random pictures with detail down to a few pixels, uint8 [B 3 H W]."""
    generator = torch.Generator().manual_seed(2)
    coarse = torch.rand(count, 3, height // 3, width // 3, generator=generator) * 255
    return nn.functional.interpolate(coarse, (height, width), mode="bilinear").to(torch.uint8)


# names


def test_every_name_can_be_built_in_any_case():
    for name in zoo.names():
        with torch.device("meta"):
            models = [zoo.create(spelling) for spelling in (name, name.upper(), name.lower())]
        assert len({str(model) for model in models}) == 1
        large = name.startswith("ViT")
        assert models[0].config.image_size == (224 if large else 32)
        assert models[0].config.n_classes == (1000 if large else 10)


def test_lab_sizes():
    config = zoo.create("Lab-S/8").config
    assert (config.dim, config.depth, config.n_heads, config.mlp_dim, config.patch_size) == (96, 6, 4, 384, 8)
    with torch.device("meta"):
        assert zoo.create("ViT-L/32").patch_embed.grid_size == (7, 7)


def test_settings_reach_the_model():
    config = zoo.create("Lab-Ti/4", n_classes=3, image_size=16, head="tanh", dropout=0.1).config
    assert (config.n_classes, config.image_size, config.head, config.dropout) == (3, 16, "tanh", 0.1)
    assert zoo.create("BiT-Lab-Ti", n_classes=3, image_size=16, head="linear", dropout=0.0).config.n_classes == 3
    model = zoo.create("test_vit", n_classes=3, image_size=32, dropout=0.1)
    assert model.num_classes == 3 and model.patch_embed.img_size == (32, 32) and model.pos_drop.p == 0.1


@pytest.mark.parametrize("name", ["Lab-Ti/8", "BiT-Lab-Ti/8", "test_vit"])
def test_the_seed_alone_determines_the_weights(name):
    before = torch.get_rng_state()
    first = zoo.create(name, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        second, other = zoo.create(name, seed=3).state_dict(), zoo.create(name, seed=4).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Lab-Ty/8", "Lab-Ti/8"),
        ("Lab-Ti", "Lab-Ti/8"),
        ("vit_tinny_patch16_224", "vit_tiny_patch16_224"),
        ("ViT-B", "ViT-B/"),
    ],
)
def test_an_unknown_name_is_told_its_neighbours(name, nearest):
    for function in (zoo.create, zoo.load):
        with pytest.raises(ValueError, match=nearest):
            function(name)


def test_a_name_like_no_other_is_told_what_there_is():
    with pytest.raises(ValueError, match="model '§' is unknown; known: ViT-B/16"):
        zoo.create("§")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("Lab-Ti/8", {"image_size": 30}, "image_size 30 is not divisible by patch_size 8"),
        ("BiT-Lab-Ti/5", {}, "no stem to match a ViT's patch of 5"),
        ("BiT-Lab-Ti/8", {"image_size": 8}, "too small for a total stride of 16"),
        ("BiT-Lab-Ti/8", {"dropout": 0.1}, "no dropout"),
        ("BiT-Lab-Ti/8", {"head": "tanh"}, "linear head"),
        ("test_vit", {"head": "tanh"}, "head 'tanh' is not for timm's models"),
        ("resnet10t", {"dropout": 0.1}, "timm's resnet10t does not take these settings .dropout."),
    ],
)
def test_settings_a_model_does_not_have(name, settings, message):
    with pytest.raises(ValueError, match=message):
        zoo.create(name, **settings)


@pytest.mark.parametrize("name", ["Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8", "test_vit"])
@pytest.mark.parametrize("size", [4104, 99999999999999999999])
def test_images_too_large_for_any_model(name, size):
    with pytest.raises(ValueError, match=f"image_size {size} is too large; models here take up to 4096 pixels a side"):
        zoo.create(name, image_size=size)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Lab-Ti/" + "9" * 5000, "model 'Lab-Ti/999.* is unknown"),
        ("x" * 5000, "model 'xxx.* is unknown"),
        ("hf-hub:", "model 'hf-hub:' names no repository: expected hf-hub:OWNER/MODEL"),
        ("hf-hub:a/b/c", "model 'hf-hub:a/b/c' names no repository: expected hf-hub:OWNER/MODEL"),
        ("local-dir:/etc", "there is no config.json, as timm's save_for_hf writes it, in /etc|no model.safetensors"),
        ("local-dir:" + "x" * 5000, "there is no folder xxx"),
        ("a\0b", "model .* is unknown"),
    ],
)
def test_names_that_are_none(name, message):
    for function in (zoo.create, zoo.load):
        with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
            function(name)
        assert len(str(error.value)) < 1200


# our own files


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Lab-Ti/8", {"n_classes": 5, "image_size": 64, "head": "tanh", "dropout": 0.1}),
        ("BiT-Lab-Ti/4", {"n_classes": 5}),
        ("test_vit", {"n_classes": 5, "image_size": 32}),
    ],
)
def test_what_is_saved_comes_back(tmp_path, name, settings):
    path, model = tmp_path / "model.safetensors", randomised(zoo.create(name, **settings))
    zoo.save(path, model, name, {"steps": 12, "data": "digits"})
    found = zoo.load(path)
    assert (found.name, found.about, found.source) == (name, {"steps": 12, "data": "digits"}, str(path))
    assert found.image_size == (settings.get("image_size", 32),) * 2
    assert not found.model.training
    size = found.image_size[0]
    assert torch.equal(found.model(torch.ones(1, 3, size, size)), model(torch.ones(1, 3, size, size)))
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_file_of_version_0_1_with_stochastic_depth_is_read(tmp_path):
    path, model = tmp_path / "new.safetensors", randomised(zoo.create("Lab-Ti/8"))
    zoo.save(path, model, "Lab-Ti/8", {})
    with safe_open(path, "pt") as file:
        record = json.loads(file.metadata()["vitlab"])
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dictionary)
    record["config"]["drop_path"] = 0.1
    save_file(state, tmp_path / "old.safetensors", {"vitlab": json.dumps(record)})
    old = zoo.load(tmp_path / "old.safetensors").model
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(old(images), model(images))


def test_the_untrained_control_is_fresh_everywhere(tmp_path):
    path = tmp_path / "model.safetensors"
    zoo.save(path, randomised(zoo.create("Lab-Ti/8", n_classes=5)), "Lab-Ti/8", {"steps": 12})
    control = zoo.load(path, untrained=True, seed=3)
    fresh = zoo.create("Lab-Ti/8", n_classes=5, seed=3).state_dict()
    assert all(torch.equal(value, fresh[key]) for key, value in control.model.state_dict().items())
    assert control.about == {} and control.source.startswith("fresh weights, seed 3")


def test_bundled_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "bundled_dir", lambda: tmp_path)
    with pytest.raises(FileNotFoundError, match="'lab' should be at .*safetensors"):
        zoo.load("lab")
    zoo.save(tmp_path / zoo.BUNDLED["lab"], zoo.create("Lab-S/8", image_size=64), "Lab-S/8", {})
    assert zoo.load("Lab").image_size == (64, 64)


@pytest.mark.parametrize("record", ["{", "[]", "{}", '{"model": "x", "class": "ViT", "config": {"a": 1}, "about": {}}'])
def test_a_description_that_cannot_be_used(tmp_path, record):
    path = tmp_path / "model.safetensors"
    save_file(zoo.create("Lab-Ti/8").state_dict(), path, {"vitlab": record})
    with pytest.raises(ValueError, match=r"model.safetensors says it is vitlab's, but its description cannot be used"):
        zoo.load(path)


GIANT = {"dim": 64, "depth": 4, "n_heads": 4, "mlp_dim": 256, "image_size": 32, "patch_size": 8, "n_classes": 10}
RESNET = {"width": 8, "layers": (1, 1), "stem_stride": 2, "image_size": 32, "n_classes": 10}


@pytest.mark.parametrize(
    ("kind", "name", "config"),
    [
        ("ViT", "Lab-Ti/8", GIANT | {"depth": 1_000_000}),
        ("ViT", "Lab-Ti/8", GIANT | {"depth": 1, "dim": 2**22}),
        ("ViT", "Lab-Ti/8", GIANT | {"depth": 1, "mlp_dim": 10**11}),
        ("ViT", "Lab-Ti/8", GIANT | {"depth": 1, "mlp_dim": 10**30}),
        ("ViT", "Lab-Ti/8", GIANT | {"depth": 1, "n_classes": 10**12}),
        ("ViT", "Lab-Ti/8", GIANT | {"depth": 1, "image_size": 8 * 10**6}),
        ("ViT", "Lab-Ti/8", GIANT | {"depth": "many"}),
        ("BiT", "BiT-Lab-Ti/8", RESNET | {"layers": (10**6,)}),
        ("BiT", "BiT-Lab-Ti/8", RESNET | {"layers": (1,), "width": 2**20}),
        ("Hybrid", "R+Lab-Ti/8", GIANT | RESNET | {"layers": (1, 1, 10**6)}),
        ("timm", "vit_gigantic_patch14_clip_224", {"n_classes": 10}),
        ("timm", "test_vit", {"n_classes": 10**13}),
        ("timm", "test_vit", {"n_classes": 10, "image_size": (160_000, 160_000)}),
    ],
)
def test_a_small_file_that_describes_a_giant_is_refused_before_it_is_built(tmp_path, kind, name, config):
    path, record = tmp_path / "model.safetensors", {"model": name, "class": kind, "config": config, "about": {}}
    save_file({"pos_embed": torch.zeros(1)}, path, {"vitlab": json.dumps(record)})
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(ValueError, match=r"model\.safetensors (says it is vitlab's, but|does not fit the model)"):
        zoo.load(path)
    assert time.process_time() - start < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_shapes_without_numbers_bear_nothing_out(tmp_path):
    state = zoo.create("test_vit").state_dict()
    state["head.weight"], state["head.bias"] = torch.zeros(10**9, 0), torch.zeros(10**9, 0)
    save_file(state, tmp_path / "m.safetensors")
    for given in (tmp_path / "m.safetensors", f"test_vit@{tmp_path}/m.safetensors"):
        with pytest.raises(ValueError, match=r"holds tensors without a number in them, head.bias \[1000000000, 0\]"):
            zoo.load(given)


def test_a_file_of_ours_with_other_weights_in_it(tmp_path):
    path, record = tmp_path / "model.safetensors", {"model": "Lab-Ti/8", "class": "ViT", "about": {}}
    config = {"image_size": 32, "patch_size": 8, "dim": 64, "depth": 1, "n_heads": 4, "mlp_dim": 256}
    state = {"pos_embed": torch.zeros(1, 5, 64), "stranger": torch.zeros(1)}
    save_file(state, path, {"vitlab": json.dumps(record | {"config": config})})
    with pytest.raises(
        ValueError,
        match=r"missing: cls_token.*and 1\d more; not expected: stranger; of another shape: pos_embed",
    ):
        zoo.load(path)


# foreign files


def test_a_foreign_vit_is_told_from_its_shapes(tmp_path):
    theirs = foreign_vit()
    found = zoo.load(written(tmp_path / "vit.safetensors", theirs))
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.model(x), theirs(x), atol=1e-5, rtol=0)
    assert (found.image_size, found.mean, found.std) == ((32, 32), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert "2 heads of 64 (assumed)" in found.source
    control = zoo.load(tmp_path / "vit.safetensors", untrained=True)
    assert not torch.equal(control.model.pos_embed, found.model.pos_embed)
    assert control.model.config == found.model.config


def test_a_foreign_vit_without_class_token(tmp_path):
    theirs = foreign_vit(class_token=False, global_pool="avg", fc_norm=False)
    found = zoo.load(written(tmp_path / "vit.safetensors", theirs))
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.model(x), theirs(x), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embed_dim": 96}, "dim 96, which is not a multiple of 64.*NAME@"),
        ({"reg_tokens": 4}, "21 position embeddings, which is no square grid.*NAME@"),
        ({"init_values": 1e-5}, r"not expected: blocks.0.ls1.gamma.*NAME@"),
        ({"qkv_bias": False}, r"missing: blocks.0.attn.qkv.bias.*NAME@"),
        ({"img_size": (32, 64)}, "33 position embeddings, which is no square grid.*NAME@"),
        ({"num_classes": 0}, "holds no ViT under timm's names: no head.weight.*NAME@"),
    ],
)
def test_a_foreign_vit_that_is_not_the_papers(tmp_path, changes, message):
    path = written(tmp_path / "vit.safetensors", foreign_vit(**changes))
    with pytest.raises(ValueError, match=message):
        zoo.load(path)


def test_a_file_with_something_else_in_it(tmp_path):
    path = written(tmp_path / "net.safetensors", nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"no patch_embed.proj.weight.*and 1 more; found bias, weight; name its arch"):
        zoo.load(path)


@pytest.mark.parametrize("name", ["test_vit", "Lab-Ti/8", "BiT-Lab-Ti/8", "resnet10t"])
def test_a_named_file(tmp_path, name):
    model = randomised(zoo.create(name, n_classes=6))
    path = written(tmp_path / "a@b.safetensors", model)
    found = zoo.load(f"{name}@{path}")
    assert (found.name, found.source) == (name, str(path))
    x = torch.randn(2, 3, *found.image_size, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found.model(x), model(x))
    control = zoo.load(f"{name}@{path}", untrained=True, seed=4)
    fresh = zoo.create(name, n_classes=6, seed=4).state_dict()
    assert all(torch.equal(value, fresh[key]) for key, value in control.model.state_dict().items())


@pytest.mark.parametrize("name", ["test_vit", "Lab-Ti/16"])
def test_a_named_file_of_another_image_size(tmp_path, name):
    model = randomised(zoo.create(name, image_size=64))
    found = zoo.load(f"{name}@{written(tmp_path / 'm.safetensors', model)}")
    assert found.image_size == (64, 64)
    assert torch.equal(found.model.pos_embed, model.pos_embed)


def test_timms_normalisation_comes_with_timms_names(tmp_path):
    found = zoo.load(f"resnet10t@{written(tmp_path / 'm.safetensors', timm.create_model('resnet10t'))}")
    assert found.mean == (0.485, 0.456, 0.406)
    assert found.image_size == (176, 176)


def test_keys_of_another_project_are_translated_where_timm_can(tmp_path):
    model = randomised(timm.create_model("test_vit"))
    for prefix, known in (("visual.trunk.", True), ("somebody.", False)):
        path = tmp_path / "m.safetensors"
        save_file({prefix + key: value for key, value in model.state_dict().items()}, path)
        if known:
            assert torch.equal(zoo.load(f"test_vit@{path}").model.pos_embed, model.pos_embed)
        else:
            with pytest.raises(ValueError, match=r"does not fit test_vit: missing: .*; not expected: somebody"):
                zoo.load(f"test_vit@{path}")


def test_a_named_file_that_does_not_fit(tmp_path):
    path = written(tmp_path / "vit.safetensors", foreign_vit())
    with pytest.raises(ValueError, match=r"vit.safetensors does not fit Lab-Ti/8: .*of another shape: cls_token"):
        zoo.load(f"Lab-Ti/8@{path}")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        zoo.load(f"Lab-Ti/8@{tmp_path}/none.safetensors")


# bad files


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
    assert not Path("exploded").exists()


def test_corrupt_and_truncated_files(tmp_path):
    path = tmp_path / "model.safetensors"
    zoo.save(path, zoo.create("Lab-Ti/8"), "Lab-Ti/8", {})
    whole = path.read_bytes()
    for damaged in (whole[:-100], whole[:50], b"", b"not weights at all", b"\xff" + whole[1:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"model.safetensors cannot be read.*corrupt, cut short.*again"):
            zoo.load(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(ValueError, match="git lfs pull"):
        zoo.load(path)


def test_no_file():
    with pytest.raises(FileNotFoundError, match=r"there is no file nowhere.safetensors"):
        zoo.load("nowhere.safetensors")


# the hub


OFFLINE = r"test_vit.*HF_HUB_OFFLINE.*HF_HOME.*HF_ENDPOINT.*@FILE"


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty Hugging Face cache of the test's own."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.parametrize("name", ["test_vit.r160_in1k", "test_vit", "hf-hub:timm/test_vit.r160_in1k"])
def test_offline_by_choice(cache, monkeypatch, name):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ConnectionError, match=OFFLINE):
        zoo.load(name)


def test_offline_by_accident_is_said_within_three_seconds(cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with socket.socket() as silent:  # takes the connection and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        refused = f"http://127.0.0.1:{_unused_port()}"
        for endpoint in (f"http://127.0.0.1:{silent.getsockname()[1]}", refused, "no address"):
            monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", endpoint)
            start = time.monotonic()
            with pytest.raises(ConnectionError, match=OFFLINE):
                zoo.load("test_vit.r160_in1k")
            assert time.monotonic() - start < 3


def test_a_name_server_that_does_not_answer_is_not_waited_for(cache, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(weights.urllib.request, "urlopen", lambda *args, **kwargs: time.sleep(4) or io.BytesIO())
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=OFFLINE):
        zoo.load("test_vit.r160_in1k")
    assert time.monotonic() - start < 3


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_weights_in_the_cache_need_no_network(cache):
    snapshot = cache / "models--timm--test_vit.r160_in1k" / "snapshots" / "0123456789abcdef"
    snapshot.mkdir(parents=True)
    (cache / "models--timm--test_vit.r160_in1k" / "refs").mkdir()
    (cache / "models--timm--test_vit.r160_in1k" / "refs" / "main").write_text(snapshot.name)
    model = randomised(timm.create_model("test_vit"))
    written(snapshot / "model.safetensors", model)
    config = {"architecture": "test_vit", "num_classes": 1000, "pretrained_cfg": model.pretrained_cfg}
    (snapshot / "config.json").write_text(json.dumps(config))
    for name in ("test_vit.r160_in1k", "test_vit", "hf-hub:timm/test_vit.r160_in1k", f"local-dir:{snapshot}"):
        found = zoo.load(name)
        assert found.name == name and found.image_size == (160, 160) and not found.model.training
        assert torch.equal(found.model.head.weight, model.head.weight)


def test_a_file_that_names_a_model_of_the_hub_asks_no_network(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    path, model = tmp_path / "mine.safetensors", randomised(timm.create_model("test_vit", num_classes=3))
    zoo.save(path, model, "hf-hub:somebody/vit", {})
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(ValueError, match="mine.safetensors .*it is hf-hub:somebody/vit, which is not in the local"):
            zoo.load(path)
        snapshot = cache / "models--somebody--vit" / "snapshots" / "0123456789abcdef"
        snapshot.mkdir(parents=True)
        (cache / "models--somebody--vit" / "refs").mkdir()
        (cache / "models--somebody--vit" / "refs" / "main").write_text(snapshot.name)
        config = {"architecture": "test_vit", "num_classes": 1000, "pretrained_cfg": model.pretrained_cfg}
        (snapshot / "config.json").write_text(json.dumps(config))
        found = zoo.load(path)
        assert found.name == "hf-hub:somebody/vit" and torch.equal(found.model.head.weight, model.head.weight)
        with pytest.raises(BlockingIOError):
            server.accept()  # nobody has called


def test_the_control_of_a_timm_name_needs_no_network():
    control = zoo.load("test_vit.r160_in1k", untrained=True, seed=2)
    assert torch.equal(control.model.pos_embed, zoo.create("test_vit", seed=2).pos_embed)
    assert control.image_size == (160, 160)


def test_names_without_published_weights():
    for name in ("Lab-Ti/8", "ViT-B/14", "BiT-Lab-Ti/4"):
        message = f"no published weights for {name}: use 'lab', a file .*ViT-B/16.*orig_in21k"
        with pytest.raises(ValueError, match=message):
            zoo.load(name)
    with pytest.raises(ValueError, match="timm has no weights test_vit.nope; for test_vit it has test_vit.r160_in1k"):
        zoo.load("test_vit.nope")
    with pytest.raises(
        ValueError, match=r"for vit_base_patch16_224 it has vit_base_patch16_224.orig_in21k, \S*orig_in21k"
    ):
        zoo.load("vit_base_patch16_224.nope")
    assert zoo.load("ViT-B/32", untrained=True).image_size == (224, 224)


# preparing images


def prepared(images: torch.Tensor, size: tuple[int, int], **changes) -> torch.Tensor:
    return Pretrained(nn.Identity(), "none", "nowhere", size, **changes).prepare(images)


def test_images_of_the_right_size_are_only_scaled():
    images = photographs(20, 30)
    assert torch.equal(prepared(images, (20, 30)), (images.float() / 255 - 0.5) / 0.5)
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    expected = (images[0, 2, 3, 4].item() / 255 - 0.3) / 0.6
    assert prepared(images, (20, 30), mean=mean, std=std)[0, 2, 3, 4].item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("shape", [(300, 400), (512, 300), (1000, 260)])
def test_large_images_are_resized_and_cropped_as_timm_does(shape):
    images = photographs(*shape, count=1)
    picture = Image.fromarray(images[0].permute(1, 2, 0).numpy())
    half = (0.5, 0.5, 0.5)
    transform = timm.data.create_transform(
        (3, 224, 224), interpolation="bicubic", crop_pct=224 / 256, mean=half, std=half
    )
    torch.testing.assert_close(prepared(images, (224, 224))[0], transform(picture), atol=2.5 / 127.5, rtol=0)


@pytest.mark.parametrize("shape", [(10, 10), (10, 17), (33, 32), (32, 90), (36, 36), (37, 37), (500, 31), (64, 64)])
def test_any_size_becomes_the_models(shape):
    assert prepared(photographs(*shape), (32, 32)).shape == (2, 3, 32, 32)
    assert prepared(photographs(*shape), (24, 48)).shape == (2, 3, 24, 48)


def test_what_is_cropped():
    def ramp(width: int) -> torch.Tensor:  # grey value = column, 0 at the left edge and 250 at the right
        columns = torch.linspace(0, 250, width).round().to(torch.uint8)
        return columns.expand(1, 3, width, width).contiguous()

    def span(width: int) -> float:  # share of the picture's width that is left
        values = (prepared(ramp(width), (32, 32)) * 0.5 + 0.5) * 255 / 250
        return (values.max() - values.min()).item()

    assert span(36) == pytest.approx(1, abs=0.05)  # a little larger: all of it
    assert span(64) == pytest.approx(224 / 256, abs=0.05)  # much larger: its middle
    middle = prepared(ramp(64), (32, 32)).mean().item()
    assert middle == pytest.approx(125 / 127.5 - 1, abs=0.01)


def test_no_overshoot_at_edges():
    images = torch.zeros(1, 3, 10, 10, dtype=torch.uint8)
    images[..., 5:] = 255
    result = prepared(images, (32, 32))
    assert result.min() >= -1 and result.max() <= 1


@pytest.mark.parametrize(
    "images",
    [
        torch.zeros(2, 3, 8, 8),
        torch.zeros(2, 1, 8, 8, dtype=torch.uint8),
        torch.zeros(3, 8, 8, dtype=torch.uint8),
    ],
)
def test_only_uint8_colour_images_are_taken(images):
    with pytest.raises(ValueError, match=r"but uint8 \[batch, 3, height, width\] with values 0 to 255 is expected"):
        prepared(images, (8, 8))
