"""The native peer of bench/engines.mjs: one gradient step of the same models in TensorFlow, on one thread.

Reads a line with the name of a model from standard input, answers with the median of `steps` steps and
the processor time of one in milliseconds, as often as it is asked. A step takes a batch from numpy and gives the gradients back as numpy arrays, as the engines do.
"""
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
import numpy as np
import tensorflow as tf

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)
L = tf.keras.layers


def mlp():
    return tf.keras.Sequential([L.Input((784,)), L.Dense(256, "relu"), L.Dense(128, "relu"), L.Dense(10)])


def cnn():
    return tf.keras.Sequential([
        L.Input((28, 28, 1)), L.Conv2D(32, 3, activation="relu"), L.MaxPooling2D(2), L.Conv2D(64, 3, activation="relu"),
        L.MaxPooling2D(2), L.Flatten(), L.Dense(128, "relu"), L.Dense(10)])


def lstm():
    return tf.keras.Sequential([L.Input((28, 28)), L.LSTM(128), L.Dense(10)])


def gru():
    return tf.keras.Sequential([L.Input((28, 28)), L.GRU(128), L.Dense(10)])


MODELS = {"mlp": (mlp, 128, (784,)), "cnn": (cnn, 32, (28, 28, 1)), "lstm": (lstm, 64, (28, 28)), "gru": (gru, 64, (28, 28))}


def stepper(name):
    build, batch, shape = MODELS[name]
    model = build()
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    x = ((np.arange(batch * 784) * 37 % 101) / 101).astype("f4").reshape((batch, *shape))
    y = (np.arange(batch) % 10).astype("i4")

    @tf.function
    def gradients(x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        return value, tape.gradient(value, model.trainable_variables)

    def step():
        value, grads = gradients(tf.constant(x), tf.constant(y))
        return value.numpy(), [g.numpy() for g in grads]

    return step


steps = int(sys.argv[1])
steppers = {}
print("ready", tf.__version__, flush=True)
for line in sys.stdin:
    name = line.strip()
    if name not in steppers:
        steppers[name] = stepper(name)
        for _ in range(10):
            steppers[name]()
    times = []
    cpu = time.process_time()
    for _ in range(steps):
        start = time.perf_counter()
        steppers[name]()
        times.append((time.perf_counter() - start) * 1000)
    print(statistics.median(times), (time.process_time() - cpu) * 1000 / steps, flush=True)
