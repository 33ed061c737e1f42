"""Several processes that train one model: one a GPU, on one machine or many, started by torchrun (§4.1, batch 4096)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

Spread = Literal["copies", "shards"]  # a whole model in every process (DDP), or a share of it (FSDP2)


@dataclass(frozen=True)
class Group:
    """The processes that train together, and which of them this is."""

    rank: int = 0
    size: int = 1

    @property
    def writes(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.rank == 0


def group() -> Group:
    """The group this process has joined, or one of its own.

    >>> group()
    Group(rank=0, size=1)
    """
    if not (dist.is_available() and dist.is_initialized()):
        return Group()
    return Group(dist.get_rank(), dist.get_world_size())


@contextlib.contextmanager
def joined() -> Iterator[Group]:
    """Join the processes that torchrun started, and leave them at the end; alone, nothing happens.

    An exception in the body ends this process without waiting for the others, and torchrun then ends those.

    >>> with joined() as alone:
    ...     alone.size
    1
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield group()
        return
    device = default_device()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield group()
    dist.destroy_process_group()


def default_device() -> torch.device:
    """This process's own GPU where there is one and VITLAB_DEVICE is not cpu, else the CPU."""
    if os.environ.get("VITLAB_DEVICE") == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def spread(model: nn.Module, forward: nn.Module, how: Spread) -> nn.Module:
    """What to call in place of `forward`, which is `model` or a compiled form of it, in a group of processes.

    "shards" changes `model` in place: its parameters are spread over the processes from then on.
    """
    if group().size == 1:
        return forward
    if how == "copies":
        return nn.parallel.DistributedDataParallel(forward)
    from torch.distributed.fsdp import fully_shard

    for block in getattr(model, "blocks", []):
        fully_shard(block)
    fully_shard(model)
    return forward


def without_exchange(forward: nn.Module) -> contextlib.AbstractContextManager:
    """Backward passes in the body keep their gradients to this process: all but the last part of a batch."""
    if isinstance(forward, nn.parallel.DistributedDataParallel):
        return forward.no_sync()
    return contextlib.nullcontext()  # shards exchange every time: they have no room for the whole gradient


def total(value: Tensor) -> Tensor:
    """The sum of a tensor over the processes of the group."""
    if group().size > 1:
        dist.all_reduce(value)
    return value


def wait() -> None:
    """Let every process of the group come to this line."""
    if group().size > 1:
        dist.barrier()


def gathered(model: nn.Module, optimizer: torch.optim.Optimizer, how: Spread) -> tuple[dict, dict]:
    """The whole state of a model and its optimiser; with shards every process must ask, and the first gets it.

    The other ones then get empty dictionaries.
    """
    if how == "copies" or group().size == 1:
        return model.state_dict(), optimizer.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    return get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def scatter_weights(model: nn.Module, weights: dict, how: Spread) -> None:
    """Put a whole state dict into a model."""
    if how == "copies" or group().size == 1:
        model.load_state_dict(weights)
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=options)


def scatter(model: nn.Module, optimizer: torch.optim.Optimizer, states: tuple[dict, dict], how: Spread) -> None:
    """Put what `gathered` gave back into a model and its optimiser."""
    if how == "copies" or group().size == 1:
        model.load_state_dict(states[0])
        optimizer.load_state_dict(states[1])
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_state_dict(model, optimizer, model_state_dict=states[0], optim_state_dict=states[1], options=options)
