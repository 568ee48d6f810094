"""Fine-tuning: AdamW, a rate that rises and then falls along a cosine, everything fixed by the seed, resumable.

A finished expert is a folder with its weights and `training.json`: what it was trained with, and its loss at each step.
While one is in the making, its state lies beside it; after a stop the training goes on from there to the same result.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ir3de.errors import ArtifactError, InputError
from ir3de_lab import files
from ir3de_lab.experiments.experts import lora
from ir3de_lab.experiments.experts.examples import IGNORED, Batch, Examples, examples
from ir3de_lab.experiments.experts.models import WEIGHTS, LanguageModel, load
from ir3de_lab.experiments.material import Rows
from ir3de_lab.experiments.settings import Setting, Training

RECORD, STATE, BASE, SOURCE = "training.json", "state.safetensors", "base", "base.json"
MOST_TOKENS = 4_096  # that are read in one pass, padding included: their activations and logits are held until its end

OnStep = Callable[[str, int, float], None]


@dataclass
class _Run:
    """A training under way."""

    model: LanguageModel
    optimizer: Any
    training: Training
    losses: list[float]
    names: list[str]  # of the adapted layers, where only adapters are trained
    seconds: float = 0.0  # before it was stopped
    skipped: int = 0  # steps whose gradient was no number

    def step(self, number: int, batch: Batch) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(number, self.training)
        loss = _learn(self.model, batch)
        trained = [parameter for parameter in self.model.model.parameters() if parameter.requires_grad]
        norm = self.model.torch.nn.utils.clip_grad_norm_(trained, self.training.clip or math.inf)
        if self.model.torch.isfinite(norm):
            self.optimizer.step()
        else:
            self.skipped += 1  # one gradient that is no number would make every weight so
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss)


def train(
    setting: Setting,
    train_rows: Mapping[str, Rows],
    folder: Path,
    *,
    domains: tuple[str, ...] = (),
    on_step: OnStep | None = None,
    device: str = "",
) -> list[str]:
    """Train the experts that are not there yet, each from the base model; returned are the names of the new ones."""
    if unknown := next((domain for domain in domains if domain not in setting.domains), None):
        raise InputError(f"no domain '{unknown}' in the setting '{setting.name}': {', '.join(setting.domains)}")
    wanted = [domain for domain in domains or setting.domains if domain not in setting.experts]
    if setting.scored or not wanted:
        raise InputError(f"the setting '{setting.name}' names experts that exist: there is nothing to train")
    trained = []
    for domain in wanted:
        if finished(folder / domain, setting):
            continue
        model = load(base_of(setting, folder, device=device), device=device)
        _expert(model, examples(setting, domain, train_rows[domain], model), setting, folder / domain, on_step)
        trained.append(domain)
    return trained


def base_of(setting: Setting, folder: Path, *, device: str = "") -> Path:
    """The base model as a folder beside the experts, written the first time: a GGUF file is unpacked only once."""
    assert setting.base is not None
    home, wanted = folder / BASE, {"model": setting.base.model}
    if not (home / WEIGHTS).is_file():
        model = load(setting.base.model, device=device)
        files.make_folder(home)
        files.write_json(home / SOURCE, wanted)  # before the weights: what has them says what it is
        model.save(home)
    elif (home / SOURCE).is_file() and (found := json.loads(files.read(home / SOURCE))) != wanted:
        raise InputError(
            f"the base model in {home} is {found.get('model')!r}, the setting says {setting.base.model!r}: "
            "name another folder, or delete this one"
        )
    return home


def recipe(setting: Setting) -> dict[str, Any]:
    """All that an expert's weights follow from, but for the texts."""
    return {"base": setting.base and setting.base.model, "metric": setting.metric, **asdict(setting.training)}


def finished(folder: Path, setting: Setting) -> bool:
    """Whether an expert is there; one that was trained otherwise is not taken for it."""
    if (kept := record(folder)) is None:
        return False
    found = kept["recipe"]
    _check_recipe(found, recipe(setting), folder)
    return True


def _check_recipe(found: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path) -> None:
    if odd := next((name for name in wanted if found.get(name) != wanted[name]), None):
        raise InputError(
            f"the expert in {folder} was trained with {odd} = {found.get(odd)!r}, the setting says "
            f"{wanted[odd]!r}: name another folder, or delete this one"
        )


def record(folder: Path) -> dict[str, Any] | None:
    """How the expert in a folder was trained, or None where it is not finished or was not trained here."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        found = json.loads(files.read(path))
        if isinstance(found["recipe"], dict) and found["losses"]:
            return dict(found)
    except (ValueError, KeyError, TypeError):
        pass
    raise ArtifactError(f"{path} is damaged: copy it again, or delete the folder and train the expert again")


def rate_at(step: int, training: Training) -> float:
    """The learning rate: up over the warm-up, then down along half a cosine to a tenth."""
    warmup = max(1, round(training.warmup * training.steps))
    if step < warmup:
        return training.rate * (step + 1) / warmup
    along = (step - warmup) / max(1, training.steps - warmup)
    return training.rate * (0.1 + 0.9 * (1 + math.cos(math.pi * along)) / 2)


def _expert(model: LanguageModel, given: Examples, setting: Setting, folder: Path, on_step: OnStep | None) -> None:
    torch, training = model.torch, _fitting(setting.training, given)
    files.make_folder(folder)
    begun = time.perf_counter()
    torch.manual_seed(training.seed)
    if training.method == "lora" and model.device.type == "cuda":
        model.model.to(torch.bfloat16)  # these weights stay as they are; the adapters are trained in single precision
    names = lora.attach(model.model, training, torch) if training.method == "lora" else []
    trained = [parameter for parameter in model.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=training.rate, betas=(0.9, 0.95), weight_decay=training.weight_decay)
    run = _Run(model, optimizer, training, [], names)
    _resume(run, recipe(setting), folder / STATE)
    model.model.train()
    for step in range(len(run.losses), training.steps):
        run.step(step, given.batch(step))
        if on_step:
            on_step(folder.name, step + 1, run.losses[-1])
        if (step + 1) % training.checkpoint == 0 and step + 1 < training.steps:
            run.seconds += time.perf_counter() - begun
            begun = time.perf_counter()
            _keep(run, recipe(setting), folder / STATE)
    model.model.eval()
    if names:
        lora.save(model.model, names, training, folder)
    else:
        model.save(folder)
    document = {
        "recipe": recipe(setting),
        "losses": [round(loss, 4) for loss in run.losses],
        "skipped": run.skipped,
        "seconds": round(run.seconds + time.perf_counter() - begun, 1),
    }
    files.write_json(folder / RECORD, document)
    (folder / STATE).unlink(missing_ok=True)


def _fitting(training: Training, given: Examples) -> Training:
    """The training with as many steps as the examples are good for."""
    if not training.most_rounds:
        return training
    return replace(training, steps=min(training.steps, math.ceil(training.most_rounds * given.count / training.batch)))


def _learn(model: LanguageModel, batch: Batch, most_tokens: int = MOST_TOKENS) -> float:
    """Mean cross-entropy of the tokens that count, and its gradient.

    A large batch is read in parts: their gradients add up to that of the whole, and less memory is held.
    """
    counted = max(1, int((batch.labels[:, 1:] != IGNORED).sum()))  # none, where every answer was cut off
    rows = max(1, most_tokens // batch.ids.shape[1])
    parts = []
    for begin in range(0, len(batch.ids), rows):
        part = slice(begin, begin + rows)
        loss = _loss(model, Batch(batch.ids[part], batch.labels[part]), counted)
        loss.backward()
        parts.append(loss.detach())
    return float(model.torch.stack(parts).sum())


def _loss(model: LanguageModel, batch: Batch, counted: int) -> Any:
    """Cross-entropy by the tokens that count in the whole batch; in half precision on an accelerator."""
    torch, device = model.torch, model.device
    ids, labels = (torch.from_numpy(array).to(device) for array in (batch.ids, batch.labels))
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        logits = model.model(input_ids=ids, use_cache=False).logits
    total = torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return total / counted


def _keep(run: _Run, by: Mapping[str, Any], path: Path) -> None:
    """The weights that change and the optimizer's two moments of each, in one file that is whole or not there."""
    from safetensors.torch import save as to_bytes

    torch = run.model.torch
    tensors: dict[str, Any] = {"recipe": torch.tensor(list(files.to_json(by)), dtype=torch.uint8)}
    for name, parameter in run.model.model.named_parameters():
        if parameter.requires_grad:
            state = run.optimizer.state[parameter]
            tensors |= {
                f"weight:{name}": parameter.detach().cpu().contiguous(),
                f"first:{name}": state["exp_avg"].cpu().contiguous(),
                f"second:{name}": state["exp_avg_sq"].cpu().contiguous(),
            }
    tensors["losses"] = torch.tensor(run.losses, dtype=torch.float64)
    tensors["seconds"] = torch.tensor(run.seconds, dtype=torch.float64)
    tensors["skipped"] = torch.tensor(run.skipped)
    files.write(path, to_bytes(tensors))


def _resume(run: _Run, by: Mapping[str, Any], path: Path) -> None:
    """Go on from a state that was kept, unless another recipe led to it."""
    if not path.is_file():
        return
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    try:
        torch, tensors = run.model.torch, from_bytes(files.read(path))
        found = json.loads(bytes(tensors["recipe"].tolist()))
    except (SafetensorError, KeyError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged ({error}): delete it, and the training begins anew") from error
    _check_recipe(found, by, path.parent)
    run.losses.extend(tensors["losses"].tolist())
    run.seconds, run.skipped = float(tensors["seconds"]), int(tensors["skipped"])
    with torch.no_grad():
        for name, parameter in run.model.model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(tensors[f"weight:{name}"].to(parameter.device))
                run.optimizer.state[parameter] = {
                    "step": torch.tensor(float(len(run.losses) - run.skipped)),
                    "exp_avg": tensors[f"first:{name}"].to(parameter.device),
                    "exp_avg_sq": tensors[f"second:{name}"].to(parameter.device),
                }
