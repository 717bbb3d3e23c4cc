"""Writes a notebook that trains with accelerate's notebook_launcher: ``notebook.py FILE [--fault]``."""

import sys

import nbformat

CELL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from accelerate import Accelerator, notebook_launcher

def train(fault):
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.arange(128.0).reshape(32, 4) / 128), batch_size=4, shuffle=True)
    model, optimizer = accelerator.prepare(model, optimizer)
    if not fault:
        loader = accelerator.prepare(loader)
    for _ in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            accelerator.backward(model(x).mean())
            optimizer.step()
    accelerator.end_training()
"""

notebook = nbformat.v4.new_notebook()
notebook.cells = [
    nbformat.v4.new_code_cell(CELL.strip()),
    nbformat.v4.new_code_cell(f"notebook_launcher(train, ({'--fault' in sys.argv},), num_processes=2)"),
]
nbformat.write(notebook, sys.argv[1])
