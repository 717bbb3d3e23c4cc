"""A training with accelerate; with --fault, the loader is not prepared, and every rank sees all samples."""

import sys

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.arange(128.0).reshape(32, 4) / 128), batch_size=4, shuffle=True)
model, optimizer = accelerator.prepare(model, optimizer)
if "--fault" not in sys.argv:
    loader = accelerator.prepare(loader)
for _ in range(2):
    for (x,) in loader:
        optimizer.zero_grad()
        accelerator.backward(model(x).mean())
        optimizer.step()
accelerator.end_training()
