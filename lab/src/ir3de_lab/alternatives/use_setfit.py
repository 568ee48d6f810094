"""SetFit: a sentence encoder that is fine-tuned on pairs of prompts, with logistic regression."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import measuring

FEW_PROMPTS = 2_000
PAIRS_FOR_FEW, PAIRS_FOR_MANY = 20, 5  # pairs of each kind for a prompt: 20 as in SetFit's paper, where prompts are few


class SetFit(measuring.Refitted):
    def load(self, model: str) -> None:
        os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        import setfit
        from datasets import Dataset

        self._module: Any = setfit
        self._dataset: Any = Dataset
        self._folder = model

    def fit(self, texts: list[str], labels: list[str]) -> None:
        self.keep(texts, labels)
        self._names = sorted(set(labels))
        places = {name: place for place, name in enumerate(self._names)}
        rows = self._dataset.from_dict({"text": texts, "label": [places[label] for label in labels]})
        self._model = self._module.SetFitModel.from_pretrained(self._folder)
        with tempfile.TemporaryDirectory() as folder:
            arguments = self._module.TrainingArguments(
                output_dir=folder,
                batch_size=16 if len(texts) <= FEW_PROMPTS else 64,
                num_epochs=1,
                num_iterations=PAIRS_FOR_FEW if len(texts) <= FEW_PROMPTS else PAIRS_FOR_MANY,
                save_strategy="no",
                report_to="none",
                seed=0,
            )
            self._module.Trainer(model=self._model, args=arguments, train_dataset=rows).train()
        self._model.to("cpu")  # trained on an accelerator if there is one; routed without

    def route(self, text: str) -> tuple[str | None, float]:
        return self.route_many([text])[0]

    def route_many(self, texts: list[str]) -> list[tuple[str | None, float]]:
        shares = self._model.predict_proba(texts, as_numpy=True, show_progress_bar=False)
        return [(self._names[int(row.argmax())], float(row.max())) for row in shares]


if __name__ == "__main__":
    measuring.main(SetFit())
