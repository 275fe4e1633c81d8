# %% [markdown]
# # A vision transformer
#
# A vision transformer (ViT) cuts an image into patches and reads them as a sequence, like the words of a sentence
# ([Dosovitskiy et al. 2021](https://arxiv.org/abs/2010.11929)). This tutorial builds one from layers of this package,
# trains it with `model.fit` to recognize handwritten digits, and runs it with onnxruntime.
#
# scikit-learn and matplotlib are needed: `pip install --editable '.[tutorials]'`.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_transformer as kt

keras.utils.set_random_seed(0)

# %% [markdown]
# ## The data
#
# scikit-learn contains 1,797 images of digits, 8 x 8 pixels each. A fifth of them is held out: the model never trains
# on them. That leaves few for a transformer, so copies are added that are shifted by a pixel to the left and to the
# right.

# %%
digits = load_digits()
images = digits.images[..., None].astype("float32") / 16  # (1797, 8, 8, 1), from 0 to 1
train_images, test_images, train_labels, test_labels = train_test_split(
    images, digits.target, test_size=0.2, stratify=digits.target, random_state=0
)
train_images = np.concatenate([np.roll(train_images, shift, axis=2) for shift in (0, -1, 1)])
train_labels = np.tile(train_labels, 3)
print(f"{len(train_images)} images to train on, {len(test_images)} held out")

# %% [markdown]
# ## Patches
#
# With patches of 2 x 2 pixels, an image is a sequence of 16 patches. Here is a digit, and its patches in the order in
# which the model reads them.

# %%
patch_size, size = 2, 8
num_patches = (size // patch_size) ** 2

figure = plt.figure(figsize=(9, 1.5))
left, right = figure.subfigures(1, 2, width_ratios=[1, 5])
axes = left.subplots()
axes.imshow(train_images[0], cmap="gray_r", vmin=0, vmax=1)
axes.set(xticks=[], yticks=[], title=f"label: {train_labels[0]}")
for i, axes in enumerate(right.subplots(1, num_patches)):
    row, column = divmod(i, size // patch_size)
    patch = train_images[0][row * patch_size :, column * patch_size :][:patch_size, :patch_size]
    axes.imshow(patch, cmap="gray_r", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[], title=i + 1)
plt.show()

# %% [markdown]
# ## The model
#
# `PatchEmbedding` maps each patch to a vector. Attention does not know where a patch was, so a learned vector is added
# for each position. The mean of the encoder's output over the patches is classified.

# %%
d_model = 64

image = keras.Input((size, size, 1), name="image")
x = kt.layers.PatchEmbedding(patch_size, d_model)(image)
x = kt.layers.LearnedPositionalEmbedding(num_patches)(x)
x = kt.layers.Encoder(num_layers=3, d_model=d_model, num_heads=4, d_ff=128, dropout=0.1, norm_first=True)(x)
x = kt.layers.SequencePooling("mean")(x)
logits = keras.layers.Dense(10, name="logits")(x)
model = keras.Model(image, logits)
print(f"{model.count_params():,} weights")

# %% [markdown]
# ## Training

# %%
epochs, batch_size = 15, 64
steps = epochs * len(train_images) // batch_size
model.compile(
    keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(2e-3, steps), weight_decay=0.01),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(
    train_images,
    train_labels,
    batch_size=batch_size,
    epochs=epochs,
    validation_data=(test_images, test_labels),
    verbose=0,
)
print(f"held-out accuracy: {history.history['val_accuracy'][-1]:.3f}")

# %%
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(history.history["accuracy"], label="training")
axes.plot(history.history["val_accuracy"], label="held out")
axes.set(xlabel="epoch", ylabel="accuracy", ylim=(0.8, 1.005))
axes.legend()
axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Export to ONNX
#
# `export_model` converts the model to ONNX. It compares the outputs with those of the Keras model, and writes the file
# only if they agree. The file needs onnxruntime alone: neither Keras nor this package.

# %%
agreements = kt.export.export_model(model, "vision_transformer", formats=["onnx"])
print(agreements["onnx"])

session = onnxruntime.InferenceSession("vision_transformer/onnx/model.onnx")
(onnx_logits,) = session.run(["logits"], {"image": test_images})
predicted = onnx_logits.argmax(axis=-1)
print(f"held-out accuracy with onnxruntime: {np.mean(predicted == test_labels):.3f}")

# %% [markdown]
# ## Predictions
#
# The first row shows correct predictions. The second row shows mistakes, with the label in brackets.

# %%
right, wrong = (np.flatnonzero(mask)[:10] for mask in (predicted == test_labels, predicted != test_labels))
figure, rows = plt.subplots(2, 10, figsize=(9, 2.4))
for axes, i in zip(rows.ravel(), [*right, *wrong], strict=False):
    axes.imshow(test_images[i], cmap="gray_r", vmin=0, vmax=1)
    axes.set_title(predicted[i] if predicted[i] == test_labels[i] else f"{predicted[i]} ({test_labels[i]})")
for axes in rows.ravel():
    axes.set_axis_off()
plt.show()
