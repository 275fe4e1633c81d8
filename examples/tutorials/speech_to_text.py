# %% [markdown]
# # Speech to text
#
# A `kt.Transformer` reads any sequence of vectors, not only token ids. Here it listens: a program speaks the numbers
# from 0 to 999, two convolutions turn each recording into a sequence of vectors, and the model writes the words that
# it hears.
#
# The voices are those of [eSpeak NG](https://github.com/espeak-ng/espeak-ng), a small speech synthesizer. On Debian
# and Ubuntu, install it with `apt-get install espeak-ng`. Without it, the script uses synthetic tones, in which each
# word is a fixed melody. matplotlib is needed too: `pip install --editable '.[tutorials]'`.

# %%
import shutil
import subprocess
from multiprocessing.pool import ThreadPool

import keras
import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from num2words import num2words

import keras_transformer as kt

keras.utils.set_random_seed(0)

# %% [markdown]
# ## The words
#
# The targets are sequences of word ids. The ids 0, 2 and 3 are padding, start and end.


# %%
def words_of(number):
    """342 -> ["three", "hundred", "and", "forty", "two"]."""
    return num2words(number).replace("-", " ").split()


numbers = np.random.default_rng(0).permutation(1000)
train_numbers, test_numbers = numbers[:800], numbers[800:]
vocabulary = ["<pad>", "<unk>", "<s>", "</s>", *sorted({word for number in numbers for word in words_of(number)})]
ids = {word: i for i, word in enumerate(vocabulary)}
print(f"{len(train_numbers)} numbers for training, {len(test_numbers)} held out, {len(vocabulary)} words")

# %% [markdown]
# ## The speech
#
# Three voices, two of men and one of a woman, speak all numbers. A fourth voice, with a Caribbean accent, is for the
# test only.

# %%
RATE = 22050  # samples per second
VOICES = ["en-us", "en-gb+f3", "en-gb-scotland"]
NEW_VOICE = "en-029"
HAS_ESPEAK = shutil.which("espeak-ng") is not None


def speak(text, voice):
    """The samples of a spoken text, in [-1, 1]."""
    wav = subprocess.run(["espeak-ng", "-v", voice, "--stdout", text], capture_output=True, check=True).stdout
    return np.frombuffer(wav[44:], "<i2") / 32768  # after a header of 44 bytes


def play(text, voice):
    """Synthetic speech: each word is a melody of three tones. Each voice has its own pitch and speed."""
    place = [*VOICES, NEW_VOICE].index(voice)
    pitch, seconds = 1 + 0.1 * place, 0.09 + 0.01 * place
    moments = np.arange(int(RATE * seconds)) / RATE
    tones = [tone for word in text.split() for tone in np.random.default_rng(ids[word]).uniform(300, 3000, 3)]
    return np.concatenate([np.sin(2 * np.pi * pitch * tone * moments) * np.hanning(len(moments)) for tone in tones])


def recordings(numbers, voice):
    """The samples of each number. Two threads wait for the synthesizer."""
    record = speak if HAS_ESPEAK else play
    with ThreadPool(2) as pool:
        return pool.starmap(record, [(" ".join(words_of(number)), voice) for number in numbers])


print("voices:", "espeak-ng" if HAS_ESPEAK else "synthetic tones")
train_speech = [clip for voice in VOICES for clip in recordings(train_numbers, voice)]
test_speech = [clip for voice in VOICES for clip in recordings(test_numbers, voice)]
new_voice_speech = recordings(test_numbers, NEW_VOICE)
print(f"{len(train_speech)} recordings, {sum(map(len, train_speech)) / RATE / 60:.0f} minutes of speech")

# %% [markdown]
# ## Log-mel frames
#
# The model does not see samples but frames: the energy in 40 bands of the mel scale, on a logarithmic scale, 86 times
# per second. `keras.ops.stft` computes the spectrum of each frame. Silence fills all recordings to one length.

# %%
BANDS, WINDOW, STRIDE = 40, 512, 256


def mel_filters():
    """Triangular bands, evenly spaced on the mel scale up to 8 kHz: a matrix `(frequencies, bands)`."""
    mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), BANDS + 2)
    low, center, high = (700 * (10 ** (mels[i : BANDS + i] / 2595) - 1) for i in range(3))
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None]
    return np.maximum(0, np.minimum((frequencies - low) / (center - low), (high - frequencies) / (high - center)))


def log_mel(clips):
    """Frames `(clips, frames, bands)`."""
    filters = mel_filters()
    samples = keras.utils.pad_sequences(clips, MAX_SAMPLES, dtype="float32", padding="post")
    frames = []
    for clip in samples:
        real, imaginary = keras.ops.stft(clip, WINDOW, STRIDE, fft_length=WINDOW)
        frames.append(np.log(keras.ops.convert_to_numpy(real**2 + imaginary**2) @ filters + 1e-3))
    return np.stack(frames).astype("float32")


MAX_SAMPLES = max(map(len, [*train_speech, *test_speech, *new_voice_speech]))
train_frames, test_frames, new_voice_frames = map(log_mel, (train_speech, test_speech, new_voice_speech))
mean, deviation = train_frames.mean(), train_frames.std()
train_frames, test_frames, new_voice_frames = (
    (x - mean) / deviation for x in (train_frames, test_frames, new_voice_frames)
)
print("frames:", train_frames.shape)


# %%
def draw(axes, frames):
    """Draws a log-mel spectrogram."""
    extent = (0, MAX_SAMPLES / RATE, 0, BANDS)
    axes.imshow(frames.T, origin="lower", aspect="auto", extent=extent, interpolation="nearest")
    axes.set_ylabel("mel band")


text = " ".join(words_of(test_numbers[0]))
figure, (upper, lower) = plt.subplots(2, 1, figsize=(6, 3.2), sharex=True, layout="constrained")
draw(upper, test_frames[0])
upper.set_title(f"{text}, voice {VOICES[0]}")
draw(lower, new_voice_frames[0])
lower.set(title=f"{text}, voice {NEW_VOICE}", xlabel="seconds")
plt.show()

# %% [markdown]
# ## The model
#
# Two convolutions with stride 2 make one vector of four frames. `source=front_end` puts them in the place of the
# source embedding. The rest is an encoder-decoder Transformer as for text.

# %%
config = kt.TransformerConfig(
    vocab_size=len(vocabulary), num_layers=2, d_model=96, num_heads=4, d_ff=256, norm_first=True, dropout=0.1
)
front_end = keras.Sequential(
    [
        keras.Input((None, BANDS)),
        keras.layers.Conv1D(config.d_model, 5, strides=2, padding="same", activation="gelu"),
        keras.layers.Conv1D(config.d_model, 5, strides=2, padding="same", activation="gelu"),
    ],
    name="front_end",
)
model = kt.Transformer(config, source=front_end)
print(f"{model.count_params():,} weights")

# %% [markdown]
# ## Training
#
# The decoder gets the words shifted right, and predicts each word from those before it. The loss leaves padding out.


# %%
def labels_of(numbers):
    """The word ids of each number, with the end token and padding."""
    texts = [[*(ids[word] for word in words_of(number)), config.eos_id] for number in numbers]
    return keras.utils.pad_sequences(texts, 6, padding="post")


def inputs_of(frames, labels):
    """The inputs of the model: the frames, and the labels shifted right."""
    return {"source": frames, "target": np.pad(labels, ((0, 0), (1, 0)), constant_values=config.bos_id)[:, :-1]}


train_labels = labels_of(np.tile(train_numbers, len(VOICES)))
test_labels = labels_of(np.tile(test_numbers, len(VOICES)))
new_voice_labels = labels_of(test_numbers)

epochs, batch_size = 10, 32
steps = epochs * len(train_labels) // batch_size
model.compile(
    keras.optimizers.Adam(kt.schedules.WarmupCosine(peak=2e-3, warmup_steps=steps // 10, total_steps=steps)),
    kt.losses.LabelSmoothedCrossEntropy(0.1, pad_id=config.pad_id),
    metrics=[kt.metrics.TokenAccuracy(pad_id=config.pad_id)],
)
history = model.fit(
    inputs_of(train_frames, train_labels),
    train_labels,
    batch_size=batch_size,
    epochs=epochs,
    validation_data=(inputs_of(test_frames, test_labels), test_labels),
    verbose=0,
)

# %%
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(range(1, epochs + 1), 1 - np.array(history.history["token_accuracy"]), label="training")
axes.plot(range(1, epochs + 1), 1 - np.array(history.history["val_token_accuracy"]), label="held-out numbers")
axes.set(xlabel="epoch", ylabel="share of wrong words", ylim=0)
axes.legend()
axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Word error rate
#
# Beam search writes what it hears. The word error rate is the number of words that must be inserted, deleted or
# replaced, divided by the number of words that were spoken.

# %%
search = kt.decoding.BeamSearch(beam_size=4, extra_length=10)


def text_of(tokens):
    """The words of ids, up to the end token."""
    return [vocabulary[i] for i in tokens if i not in (config.pad_id, config.eos_id)]


def edits(heard, spoken):
    """The smallest number of insertions, deletions and replacements between two texts (Levenshtein)."""
    row = list(range(len(spoken) + 1))
    for i, word in enumerate(heard, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(spoken, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def word_error_rate(tokens, labels):
    """The word error rate of ids, given the ids of what was spoken."""
    heard, spoken = map(text_of, tokens), list(map(text_of, labels))
    return sum(map(edits, heard, spoken)) / sum(map(len, spoken))


tokens = model.generate(test_frames, search).tokens[:, 0]
new_voice_tokens = model.generate(new_voice_frames, search).tokens[:, 0]
for voice, part, labels in zip(VOICES, np.split(tokens, 3), np.split(test_labels, 3), strict=True):
    print(f"word error rate of {voice}: {word_error_rate(part, labels):.4f}")
print(f"word error rate on held-out numbers: {word_error_rate(tokens, test_labels):.4f}")
print(f"word error rate on a new voice: {word_error_rate(new_voice_tokens, new_voice_labels):.4f}")

# %% [markdown]
# Some of the errors on the new voice:

# %%
pairs = [(text_of(x), text_of(y)) for x, y in zip(new_voice_tokens, new_voice_labels, strict=True)]
for heard, spoken in [pair for pair in pairs if pair[0] != pair[1]][:5]:
    print("spoken:", " ".join(spoken), "| written:", " ".join(heard))

# %% [markdown]
# ## What the model listens to
#
# `attention_scores` has the weights of cross-attention: for each word, the part of the recording that the decoder
# attends to. The picture shows their mean over the heads of the last layer, for one recording.

# %%
clip = next(i for i, text in enumerate(map(text_of, test_labels)) if len(text) == 5)
words = [*text_of(tokens[clip]), "</s>"]
weights = model.attention_scores(test_frames[clip : clip + 1], tokens[clip : clip + 1])[-1][0].mean(axis=0)

figure, (upper, lower) = plt.subplots(2, 1, figsize=(7, 4), sharex=True, layout="constrained")
draw(upper, test_frames[clip])
extent = (0, MAX_SAMPLES / RATE, len(words) - 0.5, -0.5)
lower.imshow(weights[: len(words)], cmap="Blues", aspect="auto", extent=extent)
lower.set_yticks(range(len(words)), words)
lower.set_xlabel("seconds")
plt.show()

# %% [markdown]
# The decoder needs to listen for words that it cannot foresee, such as the digits. Most others follow from the words
# before them: after a digit at the beginning, `hundred` is almost certain.

# %% [markdown]
# ## Export
#
# `export_model` writes an ONNX file that contains the front end, the Transformer and the beam search. It compares the
# file with the Keras model first. Its input is the frames. To run it, onnxruntime is enough: neither Keras nor this
# package is needed.

# %%
kt.export.export_model(model, "speech_to_text", search, formats=["onnx"], sample_inputs=test_frames[:50])
session = onnxruntime.InferenceSession("speech_to_text/onnx/model.onnx")
(onnx_tokens,) = session.run(["tokens"], {"source": test_frames})
print(f"word error rate with onnxruntime: {word_error_rate(onnx_tokens[:, 0], test_labels):.4f}")
