"""Models of timm's and of the Hugging Face hub: building them by name, and finding their weights."""

import difflib
import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

HUB_PREFIXES = ("hf-hub:", "hf_hub:")
FOLDER_PREFIX = "local-dir:"
PREFIXES = (*HUB_PREFIXES, FOLDER_PREFIX)
_PROBE_SECONDS = 2.0
# The paper's own weights (§4.1), pre-trained on ImageNet-21k: name → timm's name for them
PAPERS_OWN = {
    "ViT-B/16": "vit_base_patch16_224.orig_in21k",
    "ViT-B/32": "vit_base_patch32_224.orig_in21k",
    "ViT-L/16": "vit_large_patch16_224.orig_in21k",
    "ViT-L/32": "vit_large_patch32_224.orig_in21k",
    "ViT-H/14": "vit_huge_patch14_224.orig_in21k",
}


def spelled(name: str, other_names: Sequence[str] = ()) -> str:
    """A timm name in timm's spelling; a name that begins with "hf-hub:" or "local-dir:" as it is.

    Raises:
        ValueError: for any other, with the nearest of timm's names and `other_names`.
    """
    import timm

    for spelling in (name, name.lower()):
        if spelling.startswith(PREFIXES) or timm.is_model(spelling):
            return spelling
    known = {candidate.lower(): candidate for candidate in (*timm.list_models(), *other_names)}
    near = difflib.get_close_matches(name.lower(), known, n=4, cutoff=0.5)
    hint = f"nearest: {', '.join(known[match] for match in near)}" if near else f"known: {', '.join(other_names)}"
    raise ValueError(f"model {name!r:.80} is unknown; {hint}; any name of timm.list_models() will do as well")


def build(name: str, settings: dict[str, Any], seed: int, **arguments: Any) -> nn.Module:
    """timm's model with fresh weights of its own initialisation, drawn from `seed` alone.

    `settings` are those of `zoo.create`; `arguments` go to timm as they are.

    Raises:
        ConnectionError: as `hub_file`, for a name of the hub whose config.json is not in the cache.
        FileNotFoundError: for a folder that is not there, or has no config.json.
        ValueError: for settings that timm's model does not take, and for a folder or a name of the hub that is none.
    """
    import timm

    if name.startswith(HUB_PREFIXES):
        repo_id, revision = _repository(name)
        name = f"{FOLDER_PREFIX}{hub_file(repo_id, 'config.json', name, revision).parent}"
    if name.startswith(FOLDER_PREFIX):
        folder_architecture(_folder(name))
    if settings.get("head", "linear") != "linear":
        raise ValueError(f"head {settings['head']!r} is not for timm's models ({name}); leave it out")
    if "pool" in settings:
        raise ValueError(f"pool {settings['pool']!r} is not for timm's models ({name}); leave it out")
    renamed = {"n_classes": "num_classes", "image_size": "img_size"}
    arguments |= {renamed[key]: settings[key] for key in renamed if key in settings}
    if "dropout" in settings:
        arguments |= dict.fromkeys(("proj_drop_rate", "pos_drop_rate"), settings["dropout"])
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            return timm.create_model(name, **arguments)
        except (AssertionError, TypeError, ZeroDivisionError) as error:  # as of a damaged config.json
            if "'img_size'" in str(error):  # a ResNet, say, that takes images of any size
                settings = {key: value for key, value in settings.items() if key != "image_size"}
                del arguments["img_size"]
                return build(name, settings, seed, **arguments)
            given = ", ".join(settings)
            raise ValueError(f"timm's {name} does not take these settings ({given}): {error}") from error


def settings_of(model: nn.Module) -> dict[str, Any]:
    """What `build` needs beside the name to make a model of the same shapes."""
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return {"n_classes": model.num_classes} | ({"image_size": tuple(size)} if size else {})


def patch_stride(model: nn.Module) -> int:
    """Input pixels from one patch to the next; a hybrid of timm's has smaller patches, of a feature map.

    >>> import timm
    >>> patch_stride(timm.create_model("test_vit"))
    16
    """
    embed = model.patch_embed
    return embed.feat_ratio() if hasattr(embed, "feat_ratio") else embed.patch_size[0]


def converted(name: str, state: dict[str, Tensor], settings: dict[str, Any]) -> dict[str, Tensor] | None:
    """A state dict with another project's keys (say OpenCLIP's) under timm's; None where timm cannot."""
    overlay: dict[str, Any] = {"state_dict": state}
    if "n_classes" in settings:  # else timm drops a head whose width is not the published one
        overlay["num_classes"] = settings["n_classes"]
    try:
        return build(name, settings, 0, pretrained=True, pretrained_cfg_overlay=overlay).state_dict()
    except (KeyError, RuntimeError):
        return None


def published(name: str, asked: str = "") -> tuple[str, Path, str]:
    """The weights timm publishes under a name, or those of "hf-hub:OWNER/MODEL" or "local-dir:FOLDER".

    Returns the name to build the model by, the safetensors file, and where it came from in words. `asked` is what
    errors call the model, when it was asked for by another name.

    Raises:
        FileNotFoundError: when a folder, or a file in it, is not there.
        ConnectionError: within three seconds when the file would have to be downloaded and cannot be.
        ValueError: for a name without published weights, or a folder that is not timm's.
    """
    from timm.models import get_pretrained_cfg, list_pretrained

    if name.startswith(FOLDER_PREFIX):
        folder = _folder(name)
        path = folder_weights(folder)
        return f"{FOLDER_PREFIX}{folder}", path, str(path)
    if name.startswith(HUB_PREFIXES):  # its folder in the cache then holds what timm needs to build it
        repo_id, revision = _repository(name)
        paths = [hub_file(repo_id, file, name, revision) for file in ("config.json", "model.safetensors")]
        folder_weights(paths[0].parent)
        return f"{FOLDER_PREFIX}{paths[0].parent}", paths[1], f"{repo_id} on the Hugging Face hub"
    try:
        known = get_pretrained_cfg(name)
    except RuntimeError as error:  # an unknown tag
        architecture = name.partition(".")[0]
        tags = sorted(list_pretrained(architecture + ".*"), key=lambda tag: ".orig_in21k" not in tag)  # the paper's
        known_tags = ", ".join(tags) or "none"
        raise ValueError(f"timm has no weights {name}; for {architecture} it has {known_tags}") from error
    if known is None or not known.hf_hub_id:
        raise ValueError(f"timm has no weights for {name}; give a local file, {name}@FILE, or use untrained=True")
    path = hub_file(known.hf_hub_id, known.hf_hub_filename or "model.safetensors", asked or name)
    return name, path, f"{known.hf_hub_id} on the Hugging Face hub"


def _folder(name: str) -> Path:
    """The folder of a name that begins with "local-dir:"."""
    return Path(os.path.expanduser(name.removeprefix(FOLDER_PREFIX)))


def _repository(name: str) -> tuple[str, str | None]:
    """Repository and revision of a name of the hub."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    repo_id, _, revision = name.partition(":")[2].partition("@")
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"model {name!r:.80} names no repository: expected hf-hub:OWNER/MODEL ({error})") from error
    return repo_id, revision or None


def cached(name: str) -> str:
    """A name of the hub as "local-dir:FOLDER" of the local cache, so that no network is asked; any other as it is.

    Raises:
        ValueError: the model's config.json is not in the cache.
    """
    if not name.startswith(HUB_PREFIXES):
        return name
    from huggingface_hub import try_to_load_from_cache

    repo_id, revision = _repository(name)
    config = try_to_load_from_cache(repo_id, "config.json", revision=revision)
    if not isinstance(config, str):
        raise ValueError(f"it is {name}, which is not in the local cache; load it once by that name to have it there")
    return f"{FOLDER_PREFIX}{Path(config).parent}"


def folder_settings(name: str) -> dict[str, Any]:
    """What the config.json of "local-dir:FOLDER" says of the architecture; nothing for any other name."""
    if not name.startswith(FOLDER_PREFIX):
        return {}
    config = _folder(name) / "config.json"
    return json.loads(config.read_text(encoding="utf-8")).get("model_args") or {}


def folder_architecture(folder: Path) -> str:
    """timm's name of the architecture that the config.json in a folder tells.

    Raises:
        FileNotFoundError: when the folder or the file is not there.
        ValueError: when it names no architecture of timm's.
    """
    import timm

    config, weights = folder / "config.json", folder / "model.safetensors"
    if not os.path.isdir(folder):  # unlike pathlib's, False for a name that is too long
        raise FileNotFoundError(
            f"there is no folder {str(folder):.300}; give one with config.json and model.safetensors"
        )
    instead = f"give {weights} by its own path, or with its architecture's name, NAME@{weights}"
    if not config.is_file():
        raise FileNotFoundError(f"there is no config.json, as timm's save_for_hf writes it, in {folder}; {instead}")
    try:
        found = json.loads(config.read_text(encoding="utf-8"))["architecture"]
        known = timm.is_model(found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{config} is no description of a model that timm wrote; {instead}") from error
    if not known:
        raise ValueError(f"{config} names the architecture {found!r}, which timm has not; {instead}")
    return found


def folder_weights(folder: Path) -> Path:
    """The safetensors file in a folder as timm's `save_for_hf` writes it, beside the model's config.json.

    Raises:
        FileNotFoundError: when the folder or one of the two files is not there.
        ValueError: when its config.json names no architecture of timm's.
    """
    weights = folder / "model.safetensors"
    if os.path.isdir(folder) and not weights.is_file():
        raise FileNotFoundError(
            f"there is no model.safetensors in {folder}; pickles (.bin) are never opened: save the model again with "
            "timm.models.save_for_hf(model, FOLDER, safe_serialization=True)"
        )
    folder_architecture(folder)
    return weights


def hub_file(repo_id: str, filename: str, name: str, revision: str | None = None) -> Path:
    """A file of a Hugging Face repository: from the local cache if there, else downloaded.

    Raises:
        ConnectionError: within three seconds when the hub cannot be reached.
        ValueError: when the repository has no such file.
    """
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError

    cached = try_to_load_from_cache(repo_id, filename, revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    instead = f"or give a local file: {name}@FILE"
    if name.startswith(HUB_PREFIXES):
        instead = "or give a local folder with its config.json and model.safetensors, or NAME@FILE with timm's NAME"
    if constants.HF_HUB_OFFLINE or not _reachable(constants.ENDPOINT):
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{constants.ENDPOINT} cannot be reached"
        raise ConnectionError(
            f"the weights of {name} ({repo_id}) are not in the local cache {constants.HF_HUB_CACHE}, "
            f"and {why}; go online without HF_HUB_OFFLINE, point HF_HOME at a cache that has them or "
            f"HF_ENDPOINT at a mirror, {instead}"
        )
    try:
        return Path(hf_hub_download(repo_id, filename, revision=revision))
    except (EntryNotFoundError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise ValueError(f"{repo_id} at {constants.ENDPOINT} has no {filename} for {name}; {instead}") from error


def _reachable(address: str) -> bool:
    """Whether a server answers at all. In a thread, as the look-up of a name takes no time-out."""
    answers = []

    def ask() -> None:
        try:
            request = urllib.request.Request(address, method="HEAD")
            urllib.request.urlopen(request, timeout=_PROBE_SECONDS).close()
            answers.append(True)
        except urllib.error.HTTPError:
            answers.append(True)  # it refused, so it is there
        except (OSError, ValueError, HTTPException):  # no answer, no address, no HTTP
            answers.append(False)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PROBE_SECONDS)
    return bool(answers and answers[0])
