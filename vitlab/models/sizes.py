"""How large the lab models are: width, depth, heads, parameters and FLOPs, as Table 1 has them of the paper's."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vitlab.models import zoo

IMAGE_SIZE = 32  # pixels: the input of the lab models
PATCH_SIZE = 8  # pixels; of a hybrid, the total stride of its ResNet


@dataclass(frozen=True)
class Size:
    """A model's size. A ViT has no ResNet, a ResNet has no encoder blocks, a hybrid has both."""

    model: str  # name in the zoo
    resnet_widths: tuple[int, ...]  # channels of each stage
    resnet_depth: int  # residual blocks
    dim: int  # width of the tokens
    depth: int  # encoder blocks
    n_heads: int
    parameters: int
    flops: int  # of a forward pass for one image; a multiply-add is two


def size_of(name: str, image_size: int = IMAGE_SIZE) -> Size:
    """The size of a lab model with ten classes, from its configuration and from counting on PyTorch's meta device.

    Raises:
        ValueError: an unknown name, or a model of timm's, which has no configuration of ours.

    >>> size = size_of("Lab-Ti/8")
    >>> size.dim, size.depth, size.n_heads, size.parameters
    (64, 4, 4, 214218)
    """
    with torch.device("meta"):
        model = zoo.create(name, image_size=image_size)
    config = getattr(model, "config", None)
    if config is None:
        raise ValueError(f"{name!r} is a model of timm's: expected a name of ours, such as Lab-Ti/8")
    layers = getattr(config, "layers", ())
    return Size(
        model=name,
        resnet_widths=tuple(config.width * 2**stage for stage in range(len(layers))),
        resnet_depth=sum(layers),
        dim=getattr(config, "dim", 0),
        depth=getattr(config, "depth", 0),
        n_heads=getattr(config, "n_heads", 0),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        flops=forward_flops(model, torch.empty(1, 3, image_size, image_size, device="meta")),
    )


def lab_sizes() -> list[Size]:
    """The sizes of all lab models at patch size 8 and 32 px: ViTs, ResNets and hybrids, each from small to large.

    >>> [size.model for size in lab_sizes()][:2]
    ['Lab-Mu/8', 'Lab-Ti/8']
    """
    vits = [name for name in zoo.VIT_SIZES if name.startswith("Lab-")]
    return [size_of(f"{name}/{PATCH_SIZE}") for name in (*vits, *zoo.BIT_SIZES, *zoo.HYBRID_WIDTHS)]


@torch.no_grad()
def forward_flops(model: nn.Module, images: Tensor) -> int:
    """FLOPs of a forward pass, counted by torch while it runs; a multiply-add is two, norms and GELUs are none.

    >>> forward_flops(nn.Linear(3, 5), torch.zeros(1, 3))
    30
    """
    training = model.training
    model.eval()
    with FlopCounterMode(display=False) as counter:
        model(images)
    model.train(training)
    return counter.get_total_flops()
