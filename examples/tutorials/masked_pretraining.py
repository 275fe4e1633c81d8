# %% [markdown]
# # Pretrain an encoder on masked tokens
#
# Labels are expensive, plain text is not. This example trains an encoder on text without labels, by hiding words that
# it has to guess (BERT). Then it becomes a classifier that needs few labels. The same classifier without pretraining
# is the comparison.
#
# The text comes from a small grammar of English, so nothing is downloaded. The task is a question of grammar: does
# the verb agree with its subject?

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import keras_transformer as kt

keras.utils.set_random_seed(0)

# %% [markdown]
# ## Sentences
#
# A sentence has a subject and a verb that agree, and between them another noun, which may mislead: `the dog near the
# old cats sleeps`.

# %%
NOUNS = """actor artist baker boy cat dancer doctor dog driver duck farmer friend girl guard horse judge king lawyer
lion neighbor nurse painter pilot pirate queen rabbit sailor singer soldier spider teacher tiger tourist
waiter writer""".split()
VERBS = """bark climb cook crawl dance dream drink eat jump laugh listen read run sing sit sleep smile speak swim think
wait walk whisper work""".split()
ADJECTIVES = "big brave happy hungry kind old quiet small tall tired young".split()
PLACES = "above behind below beside near with".split()
ADVERBS = "again alone always here now often outside today".split()


def sentence(generator):
    """The words of a random sentence, and the place of its verb."""

    def noun_phrase(is_plural):
        adjectives = generator.choice(ADJECTIVES, generator.integers(3), replace=False)
        return ["the", *adjectives, generator.choice(NOUNS) + "s" * is_plural]

    is_plural, misleads = generator.integers(2, size=2)
    words = [*noun_phrase(is_plural), generator.choice(PLACES), *noun_phrase(misleads)]
    verb = generator.choice(VERBS) + "s" * (not is_plural)
    return [*words, verb, generator.choice(ADVERBS)], len(words)


def with_label(generator):
    """A sentence, and whether its verb agrees with the subject. In half of the sentences, the verb is wrong."""
    words, place = sentence(generator)
    label = int(generator.integers(2))
    if not label:
        verb = words[place]
        words[place] = verb.removesuffix("s") if verb.endswith("s") else verb + "s"
    return words, label


generator = np.random.default_rng(0)
for _ in range(4):
    words, label = with_label(generator)
    print("right:" if label else "wrong:", " ".join(words))

# %% [markdown]
# ## Ids
#
# Each word is a token. Singular and plural have different ids that have nothing in common: the model does not see the
# letter s. The ids 0, 1 and 3 are padding, a hidden word and the end.

# %%
words = ["the", *ADJECTIVES, *PLACES, *ADVERBS, *(word + s for word in dict.fromkeys(NOUNS + VERBS) for s in ("", "s"))]
vocabulary = ["<pad>", "<mask>", "<s>", "</s>", *words]
ids = {word: i for i, word in enumerate(vocabulary)}
MASK_ID = 1
config = kt.TransformerConfig(
    vocab_size=len(vocabulary), num_layers=2, d_model=64, num_heads=4, d_ff=128, norm_first=True, dropout=0.1
)


def encode(sentences):
    """The ids of sentences, with the end token and padding."""
    texts = [[*map(ids.get, words), config.eos_id] for words in sentences]
    return keras.utils.pad_sequences(texts, 12, padding="post")


text = encode(sentence(generator)[0] for _ in range(40_000))
labelled, labels = zip(*(with_label(generator) for _ in range(6000)), strict=True)
labelled, labels = encode(labelled), np.array(labels)
test, test_labels = labelled[-4000:], labels[-4000:]
print(f"{len(vocabulary)} words, {len(text)} sentences without labels, {len(test)} sentences for the test")

# %% [markdown]
# ## Pretraining
#
# `mask_tokens` chooses words of a batch at random. It returns the ids with most of these words hidden, the ids to
# predict, and weights that select the chosen words for the loss. Its seed is the number of the batch, so each epoch
# hides other words.

# %%
BATCH, EPOCHS, RATE = 128, 12, 0.3
batches = tf.data.Dataset.from_tensor_slices(text).batch(BATCH, drop_remainder=True).repeat(EPOCHS)
masked = batches.enumerate().map(lambda number, rows: kt.mask_tokens(rows, number, config, MASK_ID, RATE))

steps_per_epoch = len(text) // BATCH
steps = EPOCHS * steps_per_epoch
masked_model = kt.MaskedLanguageModel(config)
masked_model.compile(
    keras.optimizers.Adam(kt.schedules.WarmupCosine(peak=2e-3, warmup_steps=steps // 10, total_steps=steps)),
    kt.losses.LabelSmoothedCrossEntropy(0.0),
)
masked_model.fit(masked, epochs=EPOCHS, steps_per_epoch=steps_per_epoch, shuffle=False, verbose=2)

# %% [markdown]
# What does the model expect in place of a hidden verb? The subject is `dog`, then `dogs`, with the other noun in the
# other number.

# %%
VERB_FORMS = [ids[verb + s] for verb in VERBS for s in ("", "s")]
for subject in ("the old dog near the cats", "the old dogs near the cat"):
    row = encode([[*subject.split(), "now"]])
    place = len(subject.split())
    hidden = np.insert(row, place, MASK_ID, axis=1)
    scores = masked_model.predict(hidden, verbose=0)[0, place]
    best = np.argsort(-scores)[:5]
    print(f"{subject} ... now:", ", ".join(vocabulary[i] for i in best))

# %% [markdown]
# ## Fine-tuning
#
# `SentenceClassifier.from_encoder` makes a classifier that starts from the trained embedding and encoder. It and a
# new classifier are trained in the same way on the same labels, for three numbers of labels and two seeds.

# %%
SIZES, SEEDS, STEPS = (100, 300, 1000), (1, 2), 300


def accuracy_of(make_classifier, size, seed):
    """Accuracy on the test sentences, after training on `size` labels."""
    keras.utils.set_random_seed(seed)
    classifier = make_classifier()
    rows = np.random.default_rng(seed).choice(len(labelled) - len(test), size, replace=False)
    classifier.compile(
        keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    classifier.fit(labelled[rows], labels[rows], batch_size=50, epochs=STEPS * 50 // size, verbose=0)
    return classifier.evaluate(test, test_labels, batch_size=500, verbose=0)[1]


classifiers = {
    "pretrained": lambda: kt.SentenceClassifier.from_encoder(masked_model, num_classes=2),
    "not pretrained": lambda: kt.SentenceClassifier(config, num_classes=2),
}
accuracies = {}
for name, make_classifier in classifiers.items():
    accuracies[name] = np.array([[accuracy_of(make_classifier, size, seed) for seed in SEEDS] for size in SIZES])
    for size, found in zip(SIZES, accuracies[name], strict=True):
        print(f"{name}, {size} labels: accuracy", *(f"{accuracy:.3f}" for accuracy in found))

# %%
figure, axes = plt.subplots(figsize=(6, 3.5))
for name, found in accuracies.items():
    (line,) = axes.plot(SIZES, found.mean(axis=1), label=name)
    axes.scatter(np.repeat(SIZES, len(SEEDS)), found.ravel(), color=line.get_color())
axes.axhline(0.5, color="gray", linestyle=":", label="chance")
axes.set(xlabel="labelled sentences", ylabel="held-out accuracy", xscale="log", ylim=(0.45, 1.02))
axes.set_xticks(SIZES, SIZES)
axes.legend()
axes.grid(alpha=0.3)
plt.show()
