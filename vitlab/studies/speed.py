"""Images per second and largest batch of inference against input size, one model at a time (App. D.5, Fig. 12)."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pandas as pd
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vitlab import settings
from vitlab.models import zoo

SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"models": ("Lab-Mu/8", "BiT-Lab-Mu/8"), "sides": (16, 32), "batches": (4,), "n_rounds": 2},
    "quick": {"models": ("Lab-Ti/8", "BiT-Lab-Ti/8", "R+Lab-Ti/8"), "sides": (32, 64, 128)},
}
SIZES |= {"smoke": SIZES["smoke"] | {"seconds": 0.001}, "full": SIZES["quick"]}
MEMORY = 2**34  # bytes: those of the paper's TPU core


def measure(
    models: tuple[str, ...],
    sides: tuple[int, ...],
    batches: tuple[int, ...] = (8, 64),
    n_rounds: int = 5,
    seconds: float = 0.05,
    seed: int = 0,
) -> pd.DataFrame:
    """Time inference on one thread and find the largest batch of every model at every image side (pixels).

    In every round all models take a turn, and of the `batches` the fastest counts, as in the paper. The largest batch
    is that whose activations fill `MEMORY`. Nothing else should run on the machine meanwhile.
    Rows of kind "speed" (model, image_size, round, images_per_second) and "batch" (model, image_size, largest_batch).
    """
    rows: list[dict[str, Any]] = []
    device = settings.default_device()
    with settings.one_thread():
        for side in sides:
            made = {name: zoo.create(name, image_size=side, seed=seed).to(device).eval() for name in models}
            images = torch.zeros(max(batches), 3, side, side, device=device)
            for model, batch in itertools.product(made.values(), batches):
                images_per_second(model, images[:batch], seconds=0.0)  # the first pass chooses and loads kernels
            for number, (name, model) in itertools.product(range(n_rounds), made.items()):
                fastest = max(images_per_second(model, images[:batch], seconds) for batch in batches)
                about = {"kind": "speed", "model": name, "image_size": side, "round": number}
                rows.append(about | {"images_per_second": fastest})
            for name, model in made.items():
                largest = int(MEMORY * max(batches) / activation_bytes(model, images))
                rows.append({"kind": "batch", "model": name, "image_size": side, "largest_batch": largest})
    return pd.DataFrame(rows)


@torch.inference_mode()
def images_per_second(model: nn.Module, images: torch.Tensor, seconds: float) -> float:
    """Time the forward pass for at least `seconds` and at least one pass; on a GPU in bfloat16."""
    kind = images.device.type
    passes, taken, started = 0, 0.0, time.perf_counter()
    while passes == 0 or taken < seconds:
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):
            model(images)
        if kind == "cuda":
            torch.cuda.synchronize()
        passes, taken = passes + 1, time.perf_counter() - started
    return passes * len(images) / taken


@torch.inference_mode()
def activation_bytes(model: nn.Module, images: torch.Tensor) -> int:
    """Measure the most bytes of operators' results that one forward pass holds at a time; fp32 on every device.

    An operator's own scratch memory is not seen, nor are parameters.
    """
    held: dict[StorageWeakRef, int] = {}
    most = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal most
            result = func(*args, **(kwargs or {}))
            for each in tree_leaves(result):
                if isinstance(each, torch.Tensor):
                    storage = each.untyped_storage()
                    held[StorageWeakRef(storage)] = storage.nbytes()
            for dead in [reference for reference in held if reference.expired()]:
                del held[dead]
            most = max(most, sum(held.values()))
            return result

    with Watch():
        model(images)
    return most
