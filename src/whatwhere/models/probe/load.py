"""The model that a probe asks: tiny and random of a type or of a configuration's file, or loaded with its weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import CheckpointError, MissingExtra, SettingError
from whatwhere.models.checkpoint.files import File
from whatwhere.models.checkpoint.hub import locate, ranges_folder, why_not_found
from whatwhere.models.probe.tiny import quiet, tiny_config, tiny_like, tiny_model

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def model_to_probe(
    name_or_path: str, *, weights: bool = False, trust_remote_code: bool = False
) -> tuple["PreTrainedModel", "PreTrainedConfig"]:
    """Return the model of a model type, or of a file, and the configuration that it was made of.

    Args:
        name_or_path: a model type of the installed transformers; a config.json, or a folder with one; or the name of a
            model at huggingface.co. Of a file the heads keep their features, so that frequencies are those of the
            file; of a type the heads are tiny too.
        weights: load the weights of the folder, from safetensors alone, instead of random ones.
        trust_remote_code: run Python code that lies in the folder. It can do whatever you can.

    Raises:
        MissingExtra: If transformers is not installed.
        SettingError: If the type is not known, or weights are requested of a type.
        CheckpointError: If the file cannot be read or the model not be built; or weights are requested that are at
            huggingface.co.

    Examples:
        >>> model_to_probe("qwen3")[1].model_type
        'qwen3'
    """
    require_transformers()
    path = _path_of(name_or_path)
    if path is not None:
        return _of_file(path, weights, trust_remote_code)
    if weights:
        raise SettingError(f"--weights needs a folder, but {name_or_path!r} is none: pass a folder with a config.json.")
    config = tiny_config(name_or_path)
    return tiny_model(config), config


def _path_of(name_or_path: str) -> Path | None:
    """Return the path of a file, a folder, or a model's name; None of a model type, known or not."""
    from transformers import CONFIG_MAPPING

    path = Path(name_or_path)
    if path.exists():
        return path
    if name_or_path in CONFIG_MAPPING:
        return None
    path = locate(name_or_path)
    if path.exists():
        return path
    if "/" in name_or_path:
        way = why_not_found(name_or_path) or "Pass a model type, a config.json, or a folder with one."
        raise CheckpointError(f"{name_or_path} does not exist.\n{way}")
    return None


def require_transformers() -> None:
    """Raise an error with the way out if transformers is not installed.

    Raises:
        MissingExtra: If it is not.
    """
    try:
        import transformers  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra(
            "a probe runs models of transformers, which is not installed: pip install transformers."
        ) from None


def _of_file(path: Path, weights: bool, trust: bool) -> tuple["PreTrainedModel", "PreTrainedConfig"]:
    from transformers import AutoConfig, AutoModel

    with quiet():
        config = _read(AutoConfig, path, trust)
        text = config.get_text_config()
        if not weights:
            return tiny_model(tiny_like(text), trust_remote_code=trust), text
        for file in path.glob("*.safetensors"):
            File(file).require_local()
        model: PreTrainedModel = _read(AutoModel, path, trust, use_safetensors=True)
        return model, text


def _read(made_by: Any, path: Path, trust: bool, **options: Any) -> Any:
    """Return what a class of transformers reads from a path, of local files alone."""
    try:
        return made_by.from_pretrained(str(path), trust_remote_code=trust, local_files_only=True, **options)
    except Exception as problem:
        text = " ".join(str(problem).split())
        if "trust_remote_code" not in text and not trust:
            way = "Pass a folder with a config.json whose model_type the installed transformers knows."
        elif path.is_relative_to(ranges_folder()):
            way = "Its own code is not downloaded: run hf download, and pass the folder that is printed."
        elif trust:
            way = "Its own code failed, or is not in the folder: download the whole model by hf download."
        else:
            way = "The folder has code of its own: read it, and if you trust it pass --trust-remote-code."
        raise CheckpointError(f"transformers cannot read {path}: {text[:300]}\n{way}") from problem
