"""Makes plateau.json: learning rates of torch's ReduceLROnPlateau after each of a series of evaluations.

    python tests/engine/config/golden/make_plateau.py      (torch 2.11)

Each entry holds config keys of "training", the metrics of the evaluations (null: not a number), and the learning rate
after each.
"""
import json
import math
import pathlib

import torch

PEAK = 3e-4
FALLING = [2.0, 1.5, 1.2, 1.1, 1.05, 1.04, 1.04, 1.0399, 1.2, 1.04, 1.1, 0.9, 0.95, 0.9, 0.91, 0.92, 0.93]
LEVEL = [1.0] * 30
GAPS = [1.0, math.nan, math.inf, 0.9, math.nan, math.nan, 0.8, 1.0, 1.0]
RUNS = [  # arguments, metrics
    ({}, FALLING),
    ({}, LEVEL),
    ({"patience": 0}, FALLING),
    ({"patience": 1, "factor": 0.5}, FALLING),
    ({"patience": 1, "factor": 0.5, "cooldown": 2}, LEVEL),
    ({"patience": 2, "cooldown": 3, "threshold": 0.1}, FALLING),
    ({"patience": 1, "threshold": 0.3, "threshold_mode": "abs"}, FALLING),
    ({"patience": 1, "threshold": 0.0, "threshold_mode": "abs"}, FALLING),
    ({"patience": 0, "factor": 0.5, "min_lr": 5e-5}, LEVEL),
    ({"patience": 0, "factor": 0.1}, LEVEL[:8]),  # until eps stops it
    ({"patience": 0, "factor": 0.3, "eps": 1e-5}, LEVEL[:8]),
    ({"patience": 0, "factor": 0.0, "min_lr": 1e-5}, LEVEL[:4]),
    ({"patience": 1, "threshold": 1.5}, LEVEL[:8]),  # no metric is a gain
    ({"patience": 1}, GAPS),
    ({"mode": "max", "patience": 1}, [0.1, 0.2, 0.2, 0.20001, 0.3, 0.29, 0.3, 0.4, 0.4]),
    ({"mode": "max", "patience": 1}, [-3.0, -2.0, -1.9999, -2.0, -1.0]),
    ({"mode": "max", "patience": 0, "threshold": 0.05, "threshold_mode": "abs", "cooldown": 1},
     [0.1, 0.14, 0.2, 0.2, 0.24, 0.26, 0.3]),
]


def rates(kwargs, metrics):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **kwargs)
    rates = []
    for metric in metrics:
        scheduler.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def entry(kwargs, metrics):
    training = {"lr_scheduler_type": "reduce_lr_on_plateau", "lr_scheduler_kwargs": kwargs, "learning_rate": PEAK,
                "eval_strategy": "steps"}
    if kwargs.get("mode") == "max":
        training["greater_is_better"] = True
    return {"training": training, "metrics": [metric if math.isfinite(metric) else None for metric in metrics],
            "rates": rates(kwargs, metrics)}


def main():
    lines = ",\n".join(json.dumps(entry(*run)) for run in RUNS)
    pathlib.Path(__file__).with_name("plateau.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
