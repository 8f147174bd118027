"""The peer of bench/transformer.mjs: one gradient step of the same model in PyTorch, on one thread.

Reads a line from standard input, answers with the median of `steps` steps, the processor time of one (both in milliseconds) and the loss. A step
takes a batch from numpy and gives the gradients back as numpy arrays, as the engine does.
"""
import math
import statistics
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(1)
batch, length, vocabulary, steps = map(int, sys.argv[1:5])
WIDTH, HEADS, BLOCKS = 128, 4, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH, eps=1e-5) for _ in range(2))
        self.project = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, _ = x.shape
        seen = self.norms[0](x)
        q, k, v = (p(seen).view(n, t, HEADS, WIDTH // HEADS).transpose(1, 2) for p in self.project[:3])
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project[3](heads.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(length, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.out = nn.LayerNorm(WIDTH, eps=1e-5), nn.Linear(WIDTH, vocabulary)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif "bias" in name:
                nn.init.zeros_(parameter)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return self.out(self.norm(x))


model = Model()
ids = ((np.arange(batch * length) * 37) % vocabulary).reshape(batch, length)
following = (ids + 37) % vocabulary


def step():
    for parameter in model.parameters():
        parameter.grad = None
    logits = model(torch.from_numpy(ids))
    loss = F.cross_entropy(logits.reshape(-1, vocabulary), torch.from_numpy(following).reshape(-1))
    loss.backward()
    return [parameter.grad.numpy() for parameter in model.parameters()], loss.item()


for _ in range(min(5, steps)):
    step()
print("ready", flush=True)
for _ in sys.stdin:
    cpu, times = time.process_time(), []
    for _ in range(steps):
        start = time.perf_counter()
        _, loss = step()
        times.append((time.perf_counter() - start) * 1000)
    spent = (time.process_time() - cpu) * 1000 / steps
    print(statistics.median(times), spent, loss if math.isfinite(loss) else "nan", flush=True)
