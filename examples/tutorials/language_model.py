# %% [markdown]
# # A small modern language model
#
# A language model predicts the next word of a text. This one has the parts of current large models: rotary positions,
# RMS normalization, gated feed-forward layers and grouped queries, all from one preset. It learns to count in English
# words.
#
# Such texts come from `num2words`, so nothing is downloaded. And a program can check what the model writes: either it
# counts right, or it does not.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from num2words import num2words

import keras_transformer as kt

keras.utils.set_random_seed(0)

# %% [markdown]
# ## The texts
#
# A text has four consecutive numbers below 10,000. Some tens are held out, such as 730 to 739: no text for training
# has a number of them.

# %%
LARGEST, NUMBERS = 10_000, 4
HELD_OUT = set(np.random.default_rng(0).choice(LARGEST // 10, 80, replace=False).tolist())


def text_from(first):
    """The words of four numbers: `forty two then forty three then forty four then forty five`."""
    spelled = " then ".join(num2words(first + i) for i in range(NUMBERS))
    return spelled.replace("-", " ").replace(",", "")


texts = {"train": [], "held out": []}
for first in range(LARGEST - NUMBERS):
    tens = {first // 10, (first + NUMBERS - 1) // 10}
    if tens <= HELD_OUT:
        texts["held out"].append(text_from(first))
    elif not tens & HELD_OUT:
        texts["train"].append(text_from(first))
print({name: len(part) for name, part in texts.items()})
print(texts["held out"][42])

# %% [markdown]
# ## The ids
#
# Each word is a token. The ids 0, 2 and 3 are padding, start and end. The input of the model is the text shifted
# right, after the start token. For real text, [a tokenizer](../corpus.md) makes subwords.

# %%
words = sorted({word for text in texts["train"] for word in text.split()})
vocabulary = ["<pad>", "<unk>", "<s>", "</s>", *words]
ids = {word: i for i, word in enumerate(vocabulary)}
config = kt.TransformerConfig.preset(
    "modern", vocab_size=len(vocabulary), num_layers=2, d_model=96, num_heads=4, num_kv_heads=2, d_ff=256
)


def encode(texts, end=(config.eos_id,)):
    """The ids of texts, with the end token and padding."""
    return keras.utils.pad_sequences([[*map(ids.get, text.split()), *end] for text in texts], padding="post")


def decode(tokens):
    """The text of ids."""
    return " ".join(vocabulary[i] for i in tokens if i not in (config.pad_id, config.eos_id))


def inputs_of(labels):
    """The labels shifted right."""
    return np.pad(labels, ((0, 0), (1, 0)), constant_values=config.bos_id)[:, :-1]


train, held_out = encode(texts["train"]), encode(texts["held out"])
print(len(vocabulary), "words,", train.shape, "ids")

# %% [markdown]
# ## Training
#
# The model is a functional Keras model, so `compile` and `fit` work as for any other.

# %%
epochs, batch_size = 8, 64
steps = epochs * len(train) // batch_size
model = kt.LanguageModel(config)
model.compile(
    keras.optimizers.Adam(kt.schedules.WarmupCosine(peak=3e-3, warmup_steps=steps // 20, total_steps=steps)),
    kt.losses.LabelSmoothedCrossEntropy(label_smoothing=0.0, pad_id=config.pad_id),
)
history = model.fit(
    inputs_of(train),
    train,
    batch_size=batch_size,
    epochs=epochs,
    validation_data=(inputs_of(held_out), held_out),
    verbose=0,
)
print(f"{model.count_params():,} weights")

# %%
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(range(1, epochs + 1), np.exp(history.history["loss"]), label="training")
axes.plot(range(1, epochs + 1), np.exp(history.history["val_loss"]), label="held out")
axes.set(xlabel="epoch", ylabel="perplexity", ylim=1)
axes.legend()
axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Perplexity
#
# Perplexity is the number of words between which the model hesitates, on average. `token_log_probs` has the log
# probability of each word. For comparison: a model that knows only how frequent each word is, and the best possible
# model. It counts without a mistake, but it cannot know the first number of a text, because all of them are equally
# likely.

# %%
is_word = held_out != config.pad_id
perplexity = np.exp(-model.token_log_probs(held_out)[is_word].mean())
frequencies = np.bincount(train[train != config.pad_id]) / (train != config.pad_id).sum()
of_frequencies = np.exp(-np.log(frequencies[held_out[is_word]]).mean())
best = np.exp(np.log(LARGEST - NUMBERS) * len(held_out) / is_word.sum())
print(f"perplexity of held-out texts: {perplexity:.3f}")
print(f"with word frequencies: {of_frequencies:.3f}, best possible: {best:.3f}")

# %% [markdown]
# ## Continue a text
#
# `generate` continues prompts, here by greedy search: the most likely word at each step. The prompts are the first
# numbers of the held-out texts.

# %%
prompts = encode([text.split(" then ")[0] + " then" for text in texts["held out"]], end=())
search = kt.decoding.GreedySearch(extra_length=40)
continued = [decode(tokens[0]) for tokens in model.generate(prompts, search).tokens]
print("prompt:   ", decode(prompts[42]))
print("continued:", continued[42])
print(f"correct continuations: {np.mean(np.equal(continued, texts['held out'])):.4f}")

# %% [markdown]
# ## Samples
#
# `Sampling` draws each word from the predicted distribution. A temperature below 1 makes likely words more likely,
# one above 1 makes them less likely. These texts start from nothing: the prompt is empty.

# %%
empty = np.zeros((1, 0), "int32")
for temperature in (0.5, 1.0, 1.5):
    strategy = kt.decoding.Sampling(temperature=temperature, n_samples=2, seed=1, extra_length=40)
    for tokens in model.generate(empty, strategy).tokens[0]:
        print(f"temperature {temperature}: {decode(tokens)}")

# %% [markdown]
# A text is right if it counts: some first number, and the three that follow it. How many samples are right?

# %%
counting = {text_from(first) for first in range(LARGEST - NUMBERS)}
temperatures = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0]
right = []
for temperature in temperatures:
    strategy = kt.decoding.Sampling(temperature=temperature, n_samples=300, seed=2, extra_length=40)
    samples = [decode(tokens) for tokens in model.generate(empty, strategy).tokens[0]]
    right.append(np.mean([sample in counting for sample in samples]))

figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(temperatures, right, marker="o")
axes.set(xlabel="temperature", ylabel="right texts of 300", ylim=(0, 1.05))
axes.grid(alpha=0.3)
plt.show()
mistake = next(sample for sample in samples if sample not in counting)
print(f"right texts at temperature 1: {right[3]:.3f}")
print(f"a mistake at temperature {temperature}: {mistake}")

# %% [markdown]
# ## Export
#
# The ONNX file contains the search and the cache of keys and values. To run it, onnxruntime is enough: neither Keras
# nor this package is needed.

# %%
kt.export.export_model(model, "language_model", search, formats=["onnx"], sample_inputs=prompts[:50])
session = onnxruntime.InferenceSession("language_model/onnx/model.onnx")
(tokens,) = session.run(["tokens"], {"prompt": prompts.astype("int32")})
print(f"equal to Keras: {np.mean(np.equal([decode(row[0]) for row in tokens], continued)):.4f}")
