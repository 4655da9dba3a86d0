"""Makes the files that a platform puts below /opt/ml before it starts a training container."""
import json
import shutil

from harness import ROOT

TINY_JOB = {
    "model_type": '"gpt2"',
    "config_overrides": '"n_embd=16,n_layer=2,n_head=2,n_positions=32,vocab_size=256,resid_pdrop=0.0"',
    "tokenizer_name": '"bytes"',
    "block_size": "16",
    "per_device_train_batch_size": "4",
    "max_steps": "3",
    "learning_rate": "0.01",
    "no_cuda": "true",
    "sagemaker_program": '"run_clm.py"',
    "sagemaker_region": '"eu-west-1"',
}


def make_tree(folder, hosts=("algo-1",), current=None, mode="File", **hyperparameters):
    """Values are the texts in hyperparameters.json. None leaves out a key."""
    config = folder / "input/config"
    config.mkdir(parents=True, exist_ok=True)
    values = {key: value for key, value in {**TINY_JOB, **hyperparameters}.items() if value is not None}
    files = {
        "hyperparameters": values,
        "resourceconfig": {"current_host": current or hosts[0], "hosts": list(hosts), "network_interface_name": "eth0",
                           "current_instance_type": "ml.m5.large", "current_group_name": "homogeneousCluster"},
        "inputdataconfig": {"train": {"TrainingInputMode": mode, "S3DistributionType": "FullyReplicated",
                                      "RecordWrapperType": "None"}},
    }
    for name, value in files.items():
        (config / f"{name}.json").write_text(json.dumps(value))
    for name in ("input/data/train", "model", "output/data"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "input/data/train/text.txt").write_bytes((ROOT / "configs/data/quickstart.txt").read_bytes()[:4000])


def replace_machine(folder):
    """Leaves only the checkpoints, as on a new machine after an interruption."""
    for name in ("model", "output"):
        shutil.rmtree(folder / name)
        (folder / name).mkdir()


__all__ = ["TINY_JOB", "make_tree", "replace_machine"]
