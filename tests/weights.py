"""Weights for tests: random ones, their attention in the open, a copy of them or not, how far two models' are apart."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vitlab.analysis.attention import widen
from vitlab.analysis.rollout import rollout_reducer


def randomise(model: nn.Module, scale: float = 0.1) -> nn.Module:
    """The model in eval mode with noise on every weight, so that nothing is hidden by a zero, a one or by chance."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return model.eval()


def open_attention(model: nn.Module, images: Tensor) -> list[Tensor]:
    """Every block's attention as the model computes it in the open, where a hook on `attn_drop` sees it."""
    maps, handles = [], []
    fused = [block.attn.fused_attn for block in model.blocks]
    for block in model.blocks:
        block.attn.fused_attn = False
        handles.append(block.attn.attn_drop.register_forward_hook(lambda module, inputs, attn: maps.append(attn)))
    with torch.no_grad():
        model(images)
    for block, handle, was in zip(model.blocks, handles, fused, strict=True):
        handle.remove()
        block.attn.fused_attn = was
    return maps


def check_a_copy(read: Callable[[nn.Module], Tensor], model: nn.Module) -> None:
    """Fail where editing what `read` takes out of a model changes the model."""
    before = {key: value.clone() for key, value in model.state_dict().items()}
    read(model).zero_()
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())


def apart(first: dict, second: dict) -> float:
    """The largest difference of two state dicts, the biases of the keys left out.

    Softmax does not see a key's bias, so its gradient is rounding noise about zero, which Adam blows up to the size of
    any other step: after 20 steps such a bias differs by 1e-5 in float32, and no output with it.
    """
    assert first.keys() == second.keys()
    found = []
    for name, tensor in first.items():
        difference = (tensor.double() - second[name].double()).abs()
        if name.endswith("qkv.bias"):
            query, _, value = difference.chunk(3)
            difference = torch.cat([query, value])
        found.append(difference.max().item())
    return max(found)


def rollout_from_maps(
    maps: Sequence[Tensor], grid: tuple[int, int], n_prefix: int = 1, class_token: bool | None = None, **options
) -> Tensor:
    """Rollout of attention at hand, first block first: from token 0, or from all patches alike."""
    start = torch.zeros_like(widen(maps[0][:, 0, 0]))
    start[:, slice(1) if (n_prefix > 0 if class_token is None else class_token) else slice(n_prefix, None)] = 1
    update, finish = rollout_reducer(grid, n_prefix, start / start.sum(1, keepdim=True), **options)
    for block, attn in enumerate(maps):
        update(block, widen(attn))
    return finish()
