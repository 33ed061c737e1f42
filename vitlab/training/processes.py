"""Several processes that train one model, with DDP or FSDP: one process per GPU, started by torchrun (§4.1)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

Parallel = Literal["ddp", "fsdp"]  # every process holds the whole model (DDP), or a shard of its weights (FSDP2)
_FORMERLY = {"copies": "ddp", "shards": "fsdp"}


@dataclass(frozen=True)
class Group:
    """The processes that train together: how many they are, and the number of this one."""

    rank: int = 0
    size: int = 1

    @property
    def writes(self) -> bool:
        """Whether this is the one process that writes files."""
        return self.rank == 0


def group() -> Group:
    """The group that this process has joined; a group of one where it has joined none.

    >>> group()
    Group(rank=0, size=1)
    """
    if not (dist.is_available() and dist.is_initialized()):
        return Group()
    return Group(dist.get_rank(), dist.get_world_size())


@contextlib.contextmanager
def joined() -> Iterator[Group]:
    """In the body, this process and the others that torchrun started are one group; without torchrun it is alone.

    An exception in the body ends this process without waiting for the others; torchrun then ends those.

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


def check_parallel(parallel: str) -> None:
    """Raises ValueError unless `parallel` is "ddp" or "fsdp".

    >>> check_parallel("shards")
    Traceback (most recent call last):
    ValueError: parallel is 'shards'; it is one of 'ddp', 'fsdp' ('shards' is now called 'fsdp')
    """
    if parallel not in ("ddp", "fsdp"):
        now = f" ({parallel!r} is now called {_FORMERLY[parallel]!r})" if parallel in _FORMERLY else ""
        raise ValueError(f"parallel is {parallel!r}; it is one of 'ddp', 'fsdp'{now}")


def distributed(model: nn.Module, forward: nn.Module, parallel: Parallel) -> nn.Module:
    """What to call in place of `forward`, which is `model` or a compiled form of it, in a group of processes.

    "fsdp" changes `model` in place: from then on each process holds a shard of every parameter.
    """
    if group().size == 1:
        return forward
    if parallel == "ddp":
        return nn.parallel.DistributedDataParallel(forward)
    from torch.distributed.fsdp import fully_shard

    for block in getattr(model, "blocks", []):
        fully_shard(block)
    fully_shard(model)
    return forward


def without_exchange(forward: nn.Module) -> contextlib.AbstractContextManager:
    """Backward passes in the body do not add up gradients over the processes; with DDP only the last part has to."""
    if isinstance(forward, nn.parallel.DistributedDataParallel):
        return forward.no_sync()
    return contextlib.nullcontext()  # FSDP adds up every time: no process has the memory for a whole gradient


def total(value: Tensor) -> Tensor:
    """The sum of a tensor over the processes of the group."""
    if group().size > 1:
        dist.all_reduce(value)
    return value


def wait() -> None:
    """Wait until every process of the group has come to this line."""
    if group().size > 1:
        dist.barrier()


def gathered(model: nn.Module, optimizer: torch.optim.Optimizer, parallel: Parallel) -> tuple[dict, dict]:
    """The state dicts of a whole model and its optimiser.

    With FSDP every process has to call this; the first gets the state dicts, the others get empty dictionaries.
    """
    if parallel == "ddp" or group().size == 1:
        return model.state_dict(), optimizer.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    return get_state_dict(model, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))


def scatter_weights(model: nn.Module, weights: dict, parallel: Parallel) -> None:
    """Load the state dict of a whole model into it."""
    if parallel == "ddp" or group().size == 1:
        model.load_state_dict(weights)
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, weights, options=options)


def scatter(model: nn.Module, optimizer: torch.optim.Optimizer, states: tuple[dict, dict], parallel: Parallel) -> None:
    """Load what `gathered` returned into a model and its optimiser."""
    if parallel == "ddp" or group().size == 1:
        model.load_state_dict(states[0])
        optimizer.load_state_dict(states[1])
        return
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_state_dict(model, optimizer, model_state_dict=states[0], optim_state_dict=states[1], options=options)
