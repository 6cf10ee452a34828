"""The model that a probe asks: tiny and random of a type or of a configuration's file, or loaded with its weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from whatwhere.errors import CheckpointError, MissingExtra, SettingError
from whatwhere.models.probe.tiny import quiet, tiny_config, tiny_like, tiny_model

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def model_to_probe(
    name_or_path: str, *, weights: bool = False, trust_remote_code: bool = False
) -> tuple["PreTrainedModel", "PreTrainedConfig"]:
    """Return the model of a model type, or of a file, and the configuration that it was made of.

    Args:
        name_or_path: a model type of the installed transformers; or a config.json, or a folder with one. Of a file the
            heads keep their features, so that frequencies are those of the file; of a type the heads are tiny too.
        weights: load the weights of the folder, from safetensors alone, instead of random ones.
        trust_remote_code: run Python code that lies in the folder. It can do whatever you can.

    Raises:
        MissingExtra: If transformers is not installed.
        SettingError: If the type is not known, or weights are requested of a type.
        CheckpointError: If the file cannot be read or the model not be built.

    Examples:
        >>> model_to_probe("qwen3")[1].model_type
        'qwen3'
    """
    require_transformers()
    path = Path(name_or_path)
    if path.exists():
        return _of_file(path, weights, trust_remote_code)
    if weights:
        raise SettingError(f"--weights needs a folder, but {name_or_path!r} is none: pass a folder with a config.json.")
    config = tiny_config(name_or_path)
    return tiny_model(config), config


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
        model: PreTrainedModel = _read(AutoModel, path, trust, use_safetensors=True)
        return model, text


def _read(made_by: Any, path: Path, trust: bool, **options: Any) -> Any:
    """Return what a class of transformers reads from a path, of local files alone."""
    try:
        return made_by.from_pretrained(str(path), trust_remote_code=trust, local_files_only=True, **options)
    except Exception as problem:
        text = " ".join(str(problem).split())
        way = (
            "\nThe folder has code of its own: read it, and if you trust it pass --trust-remote-code."
            if "trust_remote_code" in text
            else "\nPass a folder with a config.json whose model_type the installed transformers knows."
        )
        raise CheckpointError(f"transformers cannot read {path}: {text[:300]}{way}") from problem
