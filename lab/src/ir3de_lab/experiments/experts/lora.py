"""LoRA: the weights stay, and each linear layer gains a product of two thin matrices, W x + (α / r) B A x.

Adapters are written under the names that the `peft` library gives them, so that other programs read them too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ir3de.errors import ArtifactError
from ir3de_lab import files
from ir3de_lab.experiments.settings import Training

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX = "base_model.model."


def attach(model: Any, training: Training, torch: Any) -> list[str]:
    """Freeze the model and give every linear layer but the last an adapter; the layers' names are returned."""
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    names = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and not name.endswith("lm_head")
    ]
    for name in names:
        layer = model.get_submodule(name)
        device = layer.weight.device
        layer.lora_A = torch.nn.Parameter(torch.empty(training.lora_rank, layer.in_features, device=device))
        layer.lora_B = torch.nn.Parameter(torch.zeros(layer.out_features, training.lora_rank, device=device))
        torch.nn.init.kaiming_uniform_(layer.lora_A, a=5**0.5)
        layer.register_forward_hook(_added(training.lora_alpha / training.lora_rank))
    return names


def _added(scale: float) -> Any:
    def add(layer: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        return output + scale * (inputs[0] @ layer.lora_A.T @ layer.lora_B.T)

    return add


def save(model: Any, names: list[str], training: Training, folder: Path) -> None:
    """Write the adapter, in half precision, and how it is to be read."""
    from safetensors.torch import save as to_bytes

    tensors = {}
    for name in names:
        for letter in "AB":
            weight = getattr(model.get_submodule(name), f"lora_{letter}").detach()
            tensors[f"{_PREFIX}{name}.lora_{letter}.weight"] = weight.bfloat16().cpu()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": training.lora_rank,
        "lora_alpha": training.lora_alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.rpartition(".")[2] for name in names}),
    }
    files.make_folder(folder)
    files.write_json(folder / CONFIG, config)
    files.write(folder / WEIGHTS, to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()}))


def merge(model: Any, folder: Path) -> None:
    """Add an adapter to the weights it was trained beside."""
    import json

    from safetensors.torch import load as from_bytes

    tensors = from_bytes(files.read(folder / WEIGHTS))
    config = json.loads(files.read(folder / CONFIG))
    scale = config["lora_alpha"] / config["r"]
    for key in [name for name in tensors if name.endswith(".lora_A.weight")]:
        name = key.removeprefix(_PREFIX).removesuffix(".lora_A.weight")
        try:
            weight = model.get_submodule(name).weight
        except AttributeError as error:
            raise ArtifactError(f"{folder / WEIGHTS} adapts '{name}', a layer that the base model has not") from error
        down, up = (tensors[key.replace("lora_A", f"lora_{letter}")].to(weight.device).float() for letter in "AB")
        weight.data += (scale * (up @ down)).to(weight.dtype)
