# %% [markdown]
# # From an image to words
#
# The source of a Transformer can be any sequence, not only text. Here it is an image of a handwritten number, and the
# target is the number in words. A convolutional network takes the place of the source embedding of `kt.Transformer`.
# The model is trained with `model.fit` and exported to ONNX, with beam search inside the graph.
#
# scikit-learn and matplotlib are needed: `pip install --editable '.[tutorials]'`.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from num2words import num2words
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import keras_transformer as kt

keras.utils.set_random_seed(0)

# %% [markdown]
# ## Images of numbers
#
# An image shows a number of two to four digits, side by side, at a random place. The digits are scikit-learn's, 8 x 8
# pixels each. A fifth of them is held out: the test images are made of digits that are in no training image.

# %%
height, width = 8, 40
digits = load_digits()
train_digits, test_digits = train_test_split(
    np.arange(len(digits.target)), test_size=0.2, stratify=digits.target, random_state=0
)


def draw(number, examples, generator):
    """Draws a number: a random example of each digit, side by side."""
    pictures = [digits.images[generator.choice(examples[int(digit)])] / 16 for digit in str(number)]
    row = np.concatenate(pictures, axis=1)
    start = generator.integers(width - row.shape[1] + 1)
    return np.pad(row, ((0, 0), (start, width - row.shape[1] - start)))


def make_images(count, indices, generator):
    """Draws numbers of two, three and four digits, each length equally often."""
    examples = [indices[digits.target[indices] == digit] for digit in range(10)]
    powers = 10 ** generator.integers(1, 4, size=count)
    numbers = generator.integers(powers, 10 * powers)
    return numbers, np.stack([draw(number, examples, generator) for number in numbers])[..., None].astype("float32")


generator = np.random.default_rng(0)
train_numbers, train_images = make_images(16_000, train_digits, generator)
test_numbers, test_images = make_images(1_000, test_digits, generator)

# %% [markdown]
# ## Words
#
# num2words spells the numbers, and each word is a token. The first four ids are special: 0 is padding, 1 an unknown
# word, 2 the start and 3 the end of a target.


# %%
def spell(number):
    """Spells a number: 407 -> four hundred and seven."""
    return num2words(number).replace("-", " ").replace(",", "")


dictionary = sorted({word for number in range(10_000) for word in spell(number).split()})
vocabulary = ["<pad>", "<unk>", "<s>", "</s>", *dictionary]
ids = {word: i for i, word in enumerate(vocabulary)}


def encode(numbers):
    """Spells numbers as padded ids, each with the end token."""
    sentences = [f"{spell(number)} </s>".split() for number in numbers]
    return keras.utils.pad_sequences([[ids[word] for word in words] for words in sentences], padding="post")


def decode(tokens):
    """The words of ids, without special tokens."""
    return " ".join(vocabulary[i] for i in tokens if i > 3)


figure, grid = plt.subplots(2, 3, figsize=(9, 2))
for axes, image, number in zip(grid.ravel(), train_images, train_numbers, strict=False):
    axes.imshow(image, cmap="gray_r")
    axes.set(xticks=[], yticks=[])
    axes.set_title(spell(number), fontsize=9)
plt.show()

# %% [markdown]
# ## The model
#
# The convolutional network makes one vector for every two columns of pixels, from left to right. `kt.Transformer` adds
# positions, the encoder and the decoder.

# %%
config = kt.TransformerConfig(
    vocab_size=len(vocabulary), num_layers=2, d_model=64, num_heads=4, d_ff=128, norm_first=True
)
source = keras.Sequential(
    [
        keras.Input((height, width, 1)),
        keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
        keras.layers.MaxPooling2D(2),
        keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
        keras.layers.Permute((2, 1, 3)),  # (columns, rows, channels)
        keras.layers.Reshape((width // 2, height // 2 * 64)),
        keras.layers.Dense(config.d_model),
    ]
)
model = kt.Transformer(config, source=source)
print(f"{model.count_params():,} weights")

# %% [markdown]
# ## Training
#
# The decoder reads the target shifted right, and learns to predict the next word at each position. The loss ignores
# padding. Label smoothing keeps it above zero.


# %%
def make_pairs(images, numbers):
    """The inputs of the model, and its labels."""
    labels = encode(numbers)
    shifted = np.pad(labels, ((0, 0), (1, 0)), constant_values=ids["<s>"])[:, :-1]
    return {"source": images, "target": shifted}, labels


epochs, batch_size = 10, 64
model.compile(
    keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(2e-3, epochs * len(train_images) // batch_size)),
    kt.losses.LabelSmoothedCrossEntropy(label_smoothing=0.1, pad_id=0),
)
history = model.fit(
    *make_pairs(train_images, train_numbers),
    batch_size=batch_size,
    epochs=epochs,
    validation_data=make_pairs(test_images, test_numbers),
    verbose=0,
)

# %%
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(range(1, epochs + 1), history.history["loss"], label="training")
axes.plot(range(1, epochs + 1), history.history["val_loss"], label="held out")
axes.set(xlabel="epoch", ylabel="loss")
axes.legend()
axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Beam search in ONNX
#
# The exported graph contains the model and the search: an image in, the four best spellings out. `export_model`
# compares the graph's results with those of `model.generate`, and writes the file only if they agree.

# %%
strategy = kt.decoding.BeamSearch(beam_size=4, n_best=4, extra_length=12)
agreements = kt.export.export_model(model, "digits_to_words", strategy, formats=["onnx"])
print(agreements["onnx"])

session = onnxruntime.InferenceSession("digits_to_words/onnx/model.onnx")
tokens, scores = session.run(["tokens", "scores"], {"source": test_images})
spelled = [decode(best) for best in tokens[:, 0]]
right = np.array([text == spell(number) for text, number in zip(spelled, test_numbers, strict=True)])
print(f"exact match on {len(right)} held-out images: {right.mean():.3f}")

# %% [markdown]
# Here is the image of which the model is least certain, with the four hypotheses and their scores.

# %%
i = scores[:, 0].argmin()
print(f"number: {spell(test_numbers[i])}")
for hypothesis, score in zip(tokens[i], scores[i], strict=True):
    print(f"{score:6.2f}  {decode(hypothesis)}")

figure, axes = plt.subplots(figsize=(4, 1))
axes.imshow(test_images[i], cmap="gray_r")
axes.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## Where the decoder looks
#
# `mean_attention` returns the weights of the cross-attention for each word: which parts of the image the decoder read
# when it wrote the word. Darker cells have larger weights.

# %%
i = np.flatnonzero(right & (test_numbers > 1000))[0]
target = encode(test_numbers[i : i + 1])
weights = model.mean_attention(test_images[i : i + 1], target)[0]

figure, (top, bottom) = plt.subplots(2, 1, figsize=(6, 4.5), layout="constrained", height_ratios=[1, 2])
top.imshow(test_images[i], cmap="gray_r", extent=(0, width, height, 0), aspect="auto")
top.set(xticks=[], yticks=[])
bottom.imshow(weights, cmap="Blues", extent=(0, width, len(weights), 0), aspect="auto")
bottom.set_yticks(np.arange(len(weights)) + 0.5, [vocabulary[token] for token in target[0]])
bottom.set_xlabel("column of the image")
plt.show()
