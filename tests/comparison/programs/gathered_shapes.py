"""Gathers tensors whose shapes differ between the ranks, by accelerate's own function."""

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
outputs = torch.randn(8 if accelerator.process_index == 0 else 6, 10)
gathered = accelerator.gather(outputs)
print(gathered.shape)
accelerator.end_training()
