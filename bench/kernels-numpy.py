"""The peer of bench/kernels.mjs: what its kernels do in numpy, and in PyTorch where that is installed, on one thread.

Says first which kernels it has. Then it reads a line with the name of a kernel from standard input, and answers with the processor time
of a call in milliseconds, of numpy and of PyTorch, as often as it is asked. The clock runs over at least eight million elements, as that of the kernels.
"""
import os
import sys
import time

for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR"):
    os.environ[f"{name}_NUM_THREADS"] = "1"
import numpy as np

try:
    import torch
except ImportError:
    torch = None

ELEMENTS = int(sys.argv[1])
CALLS = -(-(8 << 20) // ELEMENTS)
RATE = 1e-6
BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-7


def values():
    return ((np.arange(ELEMENTS) % 1000 + 1) / 1000).astype(np.float32)


def with_numpy():
    w, out, s, t, g, scratch, other = values(), values(), values(), values(), values(), values(), values()
    isfinite = np.empty(ELEMENTS, bool)

    def all_finite():
        return np.isfinite(w, out=isfinite).all()

    def add_finite():
        np.add(s, g, out=s)
        return np.isfinite(s, out=isfinite).all()

    def sgd():
        np.multiply(g, np.float32(RATE), out=scratch)
        np.subtract(w, scratch, out=out)

    def momentum():
        np.multiply(s, np.float32(0.9), out=s)
        np.multiply(g, np.float32(RATE), out=scratch)
        np.subtract(s, scratch, out=s)
        np.add(w, s, out=out)

    def adam():
        np.multiply(s, np.float32(BETA1), out=s)
        np.multiply(g, np.float32(1 - BETA1), out=scratch)
        np.add(s, scratch, out=s)
        np.multiply(t, np.float32(BETA2), out=t)
        np.multiply(g, g, out=scratch)
        np.multiply(scratch, np.float32(1 - BETA2), out=scratch)
        np.add(t, scratch, out=t)
        np.sqrt(t, out=scratch)
        np.add(scratch, np.float32(EPSILON), out=scratch)
        np.divide(s, scratch, out=other)
        np.multiply(other, np.float32(RATE), out=other)
        np.subtract(w, other, out=out)

    return {
        "add": lambda: np.add(s, g, out=s),
        "scaleInto": lambda: np.multiply(w, np.float32(0.5), out=out),
        "copy": lambda: np.copyto(out, w),
        "allFinite": all_finite,
        "addFinite": add_finite,
        "sumOfSquares": lambda: np.linalg.norm(w),
        "sgd": sgd,
        "momentum": momentum,
        "adam": adam,
    }


def with_torch():
    if torch is None:
        return {}
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    w, out, s, g = (torch.from_numpy(values()) for _ in range(4))

    def optimizer(make, **options):
        parameter = torch.nn.Parameter(torch.from_numpy(values()))
        parameter.grad = g.clone()
        try:
            return make([parameter], lr=RATE, fused=True, **options).step
        except (TypeError, RuntimeError):  # a PyTorch without fused optimizers for processors
            return make([parameter], lr=RATE, **options).step

    def add_finite():
        s.add_(g)
        return bool(torch.isfinite(s).all())

    return {
        "add": lambda: s.add_(g),
        "scaleInto": lambda: torch.mul(w, 0.5, out=out),
        "copy": lambda: out.copy_(w),
        "allFinite": lambda: bool(torch.isfinite(w).all()),
        "addFinite": add_finite,
        "sumOfSquares": lambda: float(torch.linalg.vector_norm(w)),
        "sgd": optimizer(torch.optim.SGD),
        "momentum": optimizer(torch.optim.SGD, momentum=0.9),
        "adam": optimizer(torch.optim.Adam, betas=(BETA1, BETA2), eps=EPSILON),
    }


def cpu_ms(run):
    before = time.process_time()
    for _ in range(CALLS):
        run()
    return max(time.process_time() - before, 1e-6) * 1000 / CALLS


libraries = [with_numpy(), with_torch()]
for library in libraries:
    for run in library.values():
        run()  # touches its memory
print(*libraries[0], flush=True)
for line in sys.stdin:
    print(*(f"{cpu_ms(library[line.strip()]):.9f}" for library in libraries if library), flush=True)
