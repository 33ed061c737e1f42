"""Calls of the public functions, one argument after the other as it should not be: an answer, or words that help."""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from attacks import outcomes, table
from attacks.outcomes import LONG, REFUSED, RIGHT

pytestmark = pytest.mark.slow
SECONDS = 10.0  # for one call
_STARRED = ("conditions",)
# MemoryError: what numpy and torch say of more than there is; OverflowError: what Python says of a whole number.
IN_WORDS = (ValueError, TypeError, OSError, RuntimeError, NotImplementedError, OverflowError, MemoryError)
Variant = tuple[str, Any, bool]  # in words, the value, and whether it is of another type altogether


def variants(value: Any) -> list[Variant]:
    """What is passed in the place of a value: others of its type, and some of another type altogether."""
    import numpy as np
    import torch

    strange: dict[str, Any] = {"None": None, "'foo'": "foo", "7": 7, "nan": math.nan, "()": (), "{}": {}}
    if isinstance(value, torch.Tensor):
        alike = _of_tensor(value)
        strange["an array"] = value.numpy()
    elif isinstance(value, np.ndarray):
        tensors = {f"array: {name}": each for name, each in _of_tensor(torch.from_numpy(value)).items()}
        alike = {n: x.numpy() for n, x in tensors.items() if x.device.type == "cpu" and x.dtype != torch.bfloat16}
    elif isinstance(value, torch.nn.Module):
        alike = _of_model(value)
    elif dataclasses.is_dataclass(value):
        alike = _of_dataclass(value)
    elif isinstance(value, Mapping):
        alike = {"{}": {}} | {f"without {key!r}": {k: v for k, v in value.items() if k != key} for key in value}
        strange |= {f"{key!r}: None": {**value, key: None} for key in value}
    elif isinstance(value, tuple | list):
        lengths = {"empty": type(value)(), "cut": value[:-1], "twice": value + value}
        pair = len(value) == 2 and all(isinstance(each, int) for each in value)  # another length is another type
        alike = {} if pair else lengths
        strange |= lengths if pair else {}
        firsts = variants(value[0]) if value else []
        built = {f"first: {name}": (type(value)([each, *value[1:]]), foreign) for name, each, foreign in firsts}
        alike |= {name: each for name, (each, foreign) in built.items() if not foreign}
        strange |= {name: each for name, (each, foreign) in built.items() if foreign}
    elif value is None or callable(value):
        alike = {}
        strange |= {"a function of nothing": lambda: None, "a function of anything": lambda *a, **k: None}
        strange |= {str(each): each for each in (-1, 0, 1, 10**12, 0.5)}
    else:
        alike = _of_scalar(value)
    same = [(name, each, False) for name, each in alike.items() if each is not value]
    return same + [(name, each, True) for name, each in strange.items() if name not in alike and each is not value]


def _of_tensor(x: Any) -> dict[str, Any]:
    import torch

    bad = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "1e30": 1e30} if x.is_floating_point() else {}
    if not x.is_floating_point() and x.dtype != torch.bool:
        bad = {"-1": -1, "the largest": torch.iinfo(x.dtype).max, "the smallest": torch.iinfo(x.dtype).min}
    spoilt = {name: x.clone() for name in bad}
    for name, each in spoilt.items():
        each.view(-1)[-1:] = bad[name]
    kinds = (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool, torch.complex64)
    return {f"with {name}": each for name, each in spoilt.items()} | {
        "one dimension more": x[None], "one less": x[0], "a scalar": x.flatten()[0], "empty": x[:0],
        "no columns": x[..., :0], "a column less": x[..., :-1], "one column": x[..., :1], "one row": x[:1],
        "twice as long": torch.cat([x, x]), "turned": x.transpose(0, -1), "zeros": torch.zeros_like(x),
        "negative": -x if x.dtype not in (torch.bool, torch.uint8) else ~x, "of meta": x.to("meta"),
    } | {str(kind): x.to(kind) for kind in kinds if kind != x.dtype}  # fmt: skip


def _of_model(model: Any) -> dict[str, Any]:
    import copy

    import torch
    from torch import nn

    def changed(change: Callable[[Any], Any]) -> Any:
        other = copy.deepcopy(model)
        with torch.no_grad():
            change(other)
        return other

    return {
        "a linear layer": nn.Linear(2, 2), "an empty model": nn.Sequential(), "half": changed(lambda m: m.half()),
        "double": changed(lambda m: m.double()), "of meta": changed(lambda m: m.to("meta")),
        "with nan": changed(lambda m: next(m.parameters()).fill_(math.nan)),
        "without blocks": changed(lambda m: setattr(m, "blocks", nn.Sequential())),
        "without a head": changed(lambda m: setattr(m, "head", nn.Identity())),
        "wrapped": nn.DataParallel(model),
    }  # fmt: skip


def _of_dataclass(value: Any) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(value):
        for name, each, foreign in variants(getattr(value, field.name)):
            try:
                if not foreign:
                    found[f"{field.name}: {name}"] = dataclasses.replace(value, **{field.name: each})
            except IN_WORDS:
                continue  # refused when it is made: attacked as a call of its own
    return found


def _of_scalar(value: Any) -> dict[str, Any]:
    from PIL import Image

    if isinstance(value, enum.Enum):
        return {each.name: each for each in type(value)}
    if isinstance(value, bool):
        return {"the other": not value}
    if isinstance(value, int):
        found = {str(each): each for each in (-1, 0, 1, 10**9, 10**12, 10**20, -(10**20))}
        return found | {"nan": math.nan, "0.5": 0.5, "True": True}
    if isinstance(value, float):
        return {str(each): each for each in (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e30, 1e-300, 0, 10**400)}
    if isinstance(value, str):
        found = {repr(each): each for each in ("", " ", "foo", "\0", "../..", "\udcff", "a\nb", "%s", "-1")}
        return found | {"5,000 letters": "x" * 5000, "5,000 digits": "9" * 5000}
    if isinstance(value, Path):
        places = ("missing", "plain", "plain/below", "empty", "null", "pipe.png", "torn", "\0", "x" * 300, "")
        return {repr(each): Path(each) for each in places}
    if isinstance(value, Image.Image):
        return {mode: value.convert("L").convert(mode) for mode in ("1", "F", "I", "CMYK")} | {"L": value.convert("L")}
    return {}


def judged(name: str, function: Callable[..., Any], arguments: inspect.BoundArguments, foreign: bool) -> str:
    """Call a function; `foreign`: an argument is of another type altogether, of which Python's own words will do."""
    given = _has(arguments.arguments, _is_not_finite)
    try:
        result = function(*arguments.args, **arguments.kwargs)
    except IN_WORDS as error:
        return REFUSED if str(error).strip() else f"{type(error).__name__} without a word"
    except Exception as error:  # noqa: BLE001
        known = type(error).__module__.startswith("vitlab.") or isinstance(error, KeyError) and " " in str(error)
        plain = foreign and isinstance(error, AttributeError | KeyError | IndexError) and str(error)
        return REFUSED if known or plain else f"{type(error).__name__}: {error!s:.200}"
    finite = given or name.startswith(table.NOT_FINITE) or not _has(result, _is_not_finite)
    return RIGHT if finite else "returned what is not finite"


def _has(value: Any, what: Callable[[Any], bool]) -> bool:
    if isinstance(value, Mapping):
        return any(_has(each, what) for each in value.values())
    if isinstance(value, tuple | list):
        return any(_has(each, what) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(_has(getattr(value, field.name), what) for field in dataclasses.fields(value))
    return what(value)


def _is_not_finite(value: Any) -> bool:
    import numpy as np
    import pandas as pd
    import torch

    if isinstance(value, torch.nn.Module):
        return any(map(_is_not_finite, value.parameters()))
    if isinstance(value, torch.Tensor):
        return value.device.type != "meta" and not bool(torch.isfinite(value).all())
    if isinstance(value, pd.DataFrame):
        value = value.select_dtypes("number").to_numpy()
    if isinstance(value, float | np.ndarray | np.generic):
        return np.asarray(value).dtype.kind in "fc" and not bool(np.isfinite(value).all())
    return False


def lots() -> Iterator[outcomes.Lot]:
    """A lot for each function, one argument at a time; then, in the long run, several arguments at once, at random."""
    calls, functions = table.calls(), table.public()
    for module, _, name in (full.rpartition(".") for full in calls if full not in functions):
        functions[f"{module}.{name}"] = getattr(importlib.import_module(f"vitlab.{module}"), name)
    for number, (name, arguments) in enumerate(calls.items()):
        yield number, list(_tries(name, functions[name], arguments))
    for number in itertools.count(len(calls)) if LONG else ():
        pick = outcomes.draw(number)
        name = pick.choice(list(calls))
        yield number, [_several(pick, name, functions[name], calls[name]) for _ in range(40)]


def _tries(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Iterator[outcomes.Try]:
    bound = _bound(function, arguments)
    yield f"{name}(…)", functools.partial(judged, name, function, bound, False)
    kinds = inspect.signature(function).parameters
    for parameter, value in bound.arguments.items():
        several = kinds[parameter].kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for words, each, foreign in variants(value):
            if several and not isinstance(each, type(value)):
                continue
            changed = _bound(function, arguments, {parameter: each})
            what = f"{name}({parameter}={words})"
            if not what.startswith(tuple(table.ACCEPTED)):
                yield what, functools.partial(judged, name, function, changed, foreign)


def _several(pick: random.Random, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> outcomes.Try:
    bound = _bound(function, arguments)
    chosen = pick.sample(list(bound.arguments), min(len(bound.arguments), pick.choice((2, 2, 3))))
    choices = {parameter: variants(bound.arguments[parameter]) for parameter in chosen}
    drawn = {}
    for parameter, given in choices.items():
        starred = parameter in _STARRED
        usual = [each for each in given if not f"{name}({parameter}={each[0]}".startswith(tuple(table.ACCEPTED))]
        if usual := [each for each in usual if isinstance(each[1], tuple) or not starred]:
            drawn[parameter] = pick.choice(usual)
    changed = _bound(function, arguments, {parameter: each for parameter, (_, each, _) in drawn.items()})
    words = ", ".join(f"{parameter}={each}" for parameter, (each, _, _) in drawn.items())
    foreign = any(other for _, _, other in drawn.values())
    return f"{name}({words})", functools.partial(judged, name, function, changed, foreign)


def _bound(
    function: Callable[..., Any], arguments: tuple[Any, ...], changes: Mapping[str, Any] | None = None
) -> inspect.BoundArguments:
    """The call with some arguments changed; in the table they stand in the order of the parameters."""
    signature = inspect.signature(function)
    starred = any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values())
    named = {} if starred else dict(zip(signature.parameters, arguments, strict=False))
    bound = signature.bind(*arguments) if starred else signature.bind(**named)
    bound.apply_defaults()
    bound.arguments |= changes or {}
    return bound


def test_every_public_function_has_a_call():
    found, calls = table.public(), table.calls()
    missing = [name for name in found if name not in calls]
    assert not missing, f"no valid call of {', '.join(missing)}: add one to `calls` in tests/attacks/table.py"
    gone = [name for name in calls if name not in found and name.rpartition(".")[2].islower()]
    assert not gone, f"tests/attacks/table.py calls {', '.join(gone)}, which there is no longer"


def test_calls_are_answered_or_refused_in_words(attack):
    attack("calls")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    outcomes.count("calls", lots(), SECONDS)
