"""Writes keras-3.fixture.json: what layer.get_config() of Keras 3 gives for each layer that a run may have, with its defaults.

    python3 -m venv /tmp/keras && /tmp/keras/bin/pip install keras==3.15.1 keras-hub numpy jax
    KERAS_BACKEND=jax /tmp/keras/bin/python libs/engine/src/topology/settings/keras-3-configs.py

Needs a network, and is run by hand when a release of Keras is to be taken in; the tests read the file.
"""
import json
import pathlib

import keras
from keras import layers as of
from keras_hub import layers as hub

ARGUMENTS = {
    "InputLayer": {"shape": (4,)},
    "Rescaling": {"scale": 1.0},
    "Resizing": {"height": 1, "width": 1},
    "Normalization": {"mean": [0.0], "variance": [1.0]},
    "CenterCrop": {"height": 1, "width": 1},
    "CategoryEncoding": {"num_tokens": 2},
    "Activation": {"activation": "relu"},
    "Reshape": {"target_shape": (1,)},
    "Permute": {"dims": (1,)},
    "RepeatVector": {"n": 1},
    "DepthwiseConv2D": {"kernel_size": 1},
    "Dot": {"axes": 1},
    "GaussianNoise": {"stddev": 0.5},
    "Embedding": {"input_dim": 1, "output_dim": 1},
    "RNN": {"cell": of.LSTMCell(1)},
    "StackedRNNCells": {"cells": [of.LSTMCell(1)]},
    "Bidirectional": {"layer": of.LSTM(1, return_sequences=True)},
    "TimeDistributed": {"layer": of.Dense(1)},
    "MultiHeadAttention": {"num_heads": 1, "key_dim": 1},
    "TokenAndPositionEmbedding": {"vocabulary_size": 1, "sequence_length": 1, "embedding_dim": 1},
}
for names, arguments in (
    ("Dense SimpleRNN LSTM GRU SimpleRNNCell LSTMCell GRUCell", {"units": 1}),
    ("Dropout GaussianDropout AlphaDropout SpatialDropout1D SpatialDropout2D", {"rate": 0.5}),
    ("Conv1D Conv2D Conv3D SeparableConv2D Conv1DTranspose Conv2DTranspose Conv3DTranspose ConvLSTM2D", {"filters": 1, "kernel_size": 1}),
    ("AveragePooling1D AveragePooling2D AveragePooling3D MaxPooling1D MaxPooling2D MaxPooling3D", {"pool_size": 2}),
    (
        "Flatten Masking ELU LeakyReLU PReLU ReLU Softmax Cropping2D UpSampling2D ZeroPadding2D GlobalAveragePooling1D "
        "GlobalAveragePooling2D GlobalMaxPooling1D GlobalMaxPooling2D Add Average Concatenate Maximum Minimum Multiply Subtract "
        "BatchNormalization LayerNormalization",
        {},
    ),
):
    for name in names.split():
        ARGUMENTS[name] = arguments

configs = {name: getattr(of, name, None) or getattr(hub, name) for name in sorted(ARGUMENTS)}
configs = {name: make(**ARGUMENTS[name]).get_config() for name, make in configs.items()}
configs = json.loads(json.dumps(configs))
file = pathlib.Path(__file__).with_name("keras-3.fixture.json")
file.write_text(json.dumps({"keras": keras.__version__, "configs": configs}, indent=2) + "\n")
