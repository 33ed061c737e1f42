"""Lean training: the last block computes the class token alone, to the same logits and gradients."""

import contextlib
import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from vitlab.models.vit import Attention, ViT, ViTConfig
from vitlab.training.lean import lean

WHOLE, CLASS_TOKEN = (3, 17, 48), (3, 1, 48)


def small(**changes) -> ViT:
    """A small ViT in training mode whose every weight is random, so that nothing is hidden by a zero or a one."""
    shape = {"image_size": 32, "patch_size": 8, "dim": 48, "depth": 3, "n_heads": 4, "mlp_dim": 80, "n_classes": 7}
    model, generator = ViT(ViTConfig(**shape | changes)), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model


def images(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(2), dtype=dtype)


def shapes_of_last_block(model: ViT) -> tuple:
    """The shape of what the last block's MLP gives in one forward pass."""
    shapes = []
    handle = model.blocks[-1].mlp.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))
    model(images())
    handle.remove()
    return tuple(shapes[0])


def gradients(model: ViT, forward: nn.Module, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    logits = forward(images(dtype))
    return [logits, *torch.autograd.grad(logits.square().sum(), list(model.parameters()))]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("changes", [{}, {"depth": 1, "head": "tanh"}, {"pool": "gap"}])
def test_logits_and_gradients_are_those_of_the_whole_model(changes, fused):
    model = small(**changes).double()
    for block in model.blocks:
        block.attn.fused_attn = fused
    whole = gradients(model, model)
    with lean(model):
        torch.testing.assert_close(gradients(model, model), whole, atol=1e-11, rtol=1e-11)
    assert whole[0].std() > 0.1


def test_the_last_block_computes_the_class_token_alone_while_it_trains_in_the_body():
    model = small()
    with lean(model):
        assert shapes_of_last_block(model.eval()) == WHOLE
        assert shapes_of_last_block(model.train()) == CLASS_TOKEN
    assert shapes_of_last_block(model) == WHOLE


def test_hooks_see_the_attention_of_the_class_token():
    model, seen = small(), []
    model.blocks[-1].attn.fused_attn = False
    model.blocks[-1].attn.attn_drop.register_forward_hook(lambda module, inputs, output: seen.append(output))
    model(images())
    with lean(model):
        model(images())
    assert seen[1].shape == (3, 4, 1, 17)
    torch.testing.assert_close(seen[1], seen[0][:, :, :1])


def test_nothing_is_left_behind_by_a_body_that_nests_or_raises():
    model = small()
    state, attributes = list(model.state_dict()), [dict(vars(module)) for module in model.modules()]
    with pytest.raises(RuntimeError, match="in the inner body"), lean(model):
        with contextlib.suppress(ValueError), lean(model):
            raise ValueError
        assert shapes_of_last_block(model) == CLASS_TOKEN  # the outer body goes on
        assert list(model.state_dict()) == state
        raise RuntimeError("in the inner body")
    assert [dict(vars(module)) for module in model.modules()] == attributes
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert shapes_of_last_block(copied) == WHOLE


def test_a_copy_made_in_the_body_computes_with_its_own_weights():
    model = small()
    with lean(model):
        copied = copy.deepcopy(model)
        with torch.no_grad():
            model.blocks[-1].attn.proj.weight.zero_()
        assert not torch.allclose(copied(images()), model(images()))


class OwnForward(ViT):
    """Reads every token, as masked patch prediction does."""

    def forward(self, images):
        return self.forward_features(images).mean(dim=1)


class OwnAttention(Attention):
    def forward(self, x):
        return self.proj(self.qkv(x)[..., :48])


class Wrapped(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def replaced(place: str) -> ViT:
    model = small()
    last = model.blocks[-1]
    if place == "block":
        model.blocks[-1] = Wrapped(last)
    elif place == "attention":
        last.attn = nn.Identity()
    elif place == "attention of a subclass":
        last.attn.__class__ = OwnAttention
    elif place == "qkv":
        last.attn.qkv = Wrapped(last.attn.qkv)  # as adapters of low rank do
    elif place == "forward on the instance":
        last.attn.forward = lambda x: x
    elif place == "model of a subclass":
        model.__class__ = OwnForward
    return model


@pytest.mark.parametrize(
    "place",
    ["block", "attention", "attention of a subclass", "qkv", "forward on the instance", "model of a subclass"],
)
def test_what_does_not_compute_as_vit_py_does_is_left_as_it_is(place):
    model = replaced(place)
    attributes, logits = [dict(vars(module)) for module in model.modules()], model(images())
    with lean(model):
        assert torch.equal(model(images()), logits)
        assert [dict(vars(module)) for module in model.modules()] == attributes
    assert [dict(vars(module)) for module in model.modules()] == attributes


def test_models_of_other_classes_are_left_as_they_are():
    model = nn.Linear(2, 1)
    with lean(model):
        assert "forward" not in vars(model)


def test_a_subclass_that_changes_no_method_is_lean_as_fsdp_makes_one():
    model = small()
    for module in (model, model.blocks[-1]):
        module.__class__ = type("FSDP" + type(module).__name__, (type(module),), {})
    with lean(model):
        assert shapes_of_last_block(model) == CLASS_TOKEN


COMPILED = """
import torch
from torch.utils.flop_counter import FlopCounterMode
from test_lean import gradients, images, small
from vitlab.training.lean import lean


def flops(forward):
    with FlopCounterMode(display=False) as counter:
        forward(images())
    return counter.get_total_flops()


for before in (False, True):
    model = small()
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    whole = gradients(model, compiled if before else model, torch.float32)
    usual = flops(model)
    with lean(model):
        torch.testing.assert_close(gradients(model, compiled, torch.float32), whole, atol=1e-4, rtol=1e-4)
        assert flops(compiled) == flops(model) < 0.9 * usual
    assert flops(compiled) == usual
"""


@pytest.mark.slow
def test_a_compiled_model_is_lean_in_the_body_only():
    """In a process of its own: the checking of shapes in the tests and torch.compile do not go together."""
    done = subprocess.run([sys.executable, "-c", COMPILED], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
