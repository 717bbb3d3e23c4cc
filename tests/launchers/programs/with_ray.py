"""A training with Ray Train; with --fault, the loader is not prepared, and every worker sees all samples."""

import sys
import tempfile

import ray.train
import torch
from ray.train.torch import TorchConfig, TorchTrainer, prepare_data_loader, prepare_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(config):
    torch.manual_seed(0)
    model = prepare_model(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.arange(128.0).reshape(32, 4) / 128), batch_size=4, shuffle=True)
    if not config["fault"]:
        loader = prepare_data_loader(loader)
    for epoch in range(2):
        if not config["fault"]:
            loader.sampler.set_epoch(epoch)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            train,
            train_loop_config={"fault": "--fault" in sys.argv},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ray.train.ScalingConfig(num_workers=2),
            run_config=ray.train.RunConfig(storage_path=folder),
        )
        trainer.fit()
