# %% [markdown]
# # Pretrain an encoder on masked tokens
#
# Labels are expensive, plain text is not. This tutorial trains an encoder on text without labels: words are hidden,
# and the encoder predicts them ([Devlin et al. 2019](https://arxiv.org/abs/1810.04805), BERT). Then it becomes a
# classifier, which is trained with few labels. It is compared with the same classifier without pretraining.
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
# A sentence has a subject and a verb that agree in number. Between them is another noun, which may mislead: `the dog
# near those cats sleeps`. Half of the nouns have a determiner that shows their number, such as `those`.

# %%
NOUNS = """actor artist baker boy cat dancer doctor dog driver farmer friend girl horse king lion painter pirate queen
rabbit singer soldier teacher tiger writer""".split()
VERBS = "climb crawl dance dream eat jump laugh listen read run sing sleep smile speak swim think wait walk".split()
DETERMINERS = [["one", "every", "this", "that"], ["two", "many", "these", "those"]]  # singular, plural
ADJECTIVES = "big brave happy hungry kind old quiet small tall tired young".split()
PLACES = "above behind below beside near with".split()
ADVERBS = "again alone always here now often outside today".split()


def noun_phrase(generator, is_plural):
    """`the old dogs`."""
    determiner = generator.choice([*DETERMINERS[is_plural], *["the"] * 4])
    adjectives = generator.choice(ADJECTIVES, generator.integers(3), replace=False)
    return [determiner, *adjectives, generator.choice(NOUNS) + "s" * is_plural]


def sentence(generator):
    """The words of a random sentence, and the place of its verb."""
    is_plural, is_other_plural = generator.integers(2, size=2)
    subject, other = noun_phrase(generator, is_plural), noun_phrase(generator, is_other_plural)
    words = [*subject, generator.choice(PLACES), *other]
    return [*words, generator.choice(VERBS) + "s" * (1 - is_plural), generator.choice(ADVERBS)], len(words)


def other_form(verb):
    """`sleeps` -> `sleep`, and back."""
    return verb.removesuffix("s") if verb.endswith("s") else verb + "s"


def labelled_sentence(generator):
    """The words of a sentence, and its label: 1, or 0 if the verb has the wrong form."""
    words, place = sentence(generator)
    label = int(generator.integers(2))
    if not label:
        words[place] = other_form(words[place])
    return words, label


generator = np.random.default_rng(0)
for words, label in (labelled_sentence(generator) for _ in range(6)):
    print(f"{label}: {' '.join(words)}")

# %% [markdown]
# ## Ids
#
# Each word is a token. Singular and plural are different tokens, and nothing tells the model that `dog` and `dogs`
# belong together. The ids 0, 1 and 3 are padding, a hidden word and the end.

# %%
MASK_ID, END_ID = 1, 3
forms = [word + s for word in NOUNS + VERBS for s in ("", "s")]
words = [*forms, "the", *sum(DETERMINERS, []), *ADJECTIVES, *PLACES, *ADVERBS]
vocabulary = ["<pad>", "<mask>", "<s>", "</s>", *words]
ids = {word: i for i, word in enumerate(vocabulary)}


def encode(sentences):
    """The ids of sentences, with the end token and padding."""
    return keras.utils.pad_sequences([[*map(ids.get, words), END_ID] for words in sentences], 12, padding="post")


text = encode(sentence(generator)[0] for _ in range(40_000))
sentences, labels = zip(*(labelled_sentence(generator) for _ in range(5000)), strict=True)
labelled, labels = encode(sentences), np.array(labels)
test, test_labels = labelled[1000:], labels[1000:]
print(f"{len(vocabulary)} words, {len(text)} sentences without labels, {len(test)} with labels to test on")

# %% [markdown]
# ## Pretraining
#
# `mask_tokens` chooses words of a batch at random. It returns the ids with most of these words hidden, the ids to
# predict, and weights that select the chosen words for the loss. Its seed is the number of the batch, so each epoch
# hides other words.

# %%
config = kt.TransformerConfig(
    vocab_size=len(vocabulary), num_layers=2, d_model=64, num_heads=4, d_ff=128, norm_first=True
)
epochs, batch_size = 12, 128
batches = tf.data.Dataset.from_tensor_slices(text).batch(batch_size, drop_remainder=True).repeat(epochs)
masked = batches.enumerate().map(lambda number, rows: kt.mask_tokens(rows, number, config, MASK_ID, rate=0.3))

masked_model = kt.MaskedLanguageModel(config)
steps_per_epoch = len(text) // batch_size
steps = epochs * steps_per_epoch
masked_model.compile(
    keras.optimizers.Adam(kt.schedules.WarmupCosine(peak=3e-3, warmup_steps=steps // 10, total_steps=steps)),
    kt.losses.LabelSmoothedCrossEntropy(label_smoothing=0.0),
    steps_per_execution=8,
)
masked_model.fit(masked, epochs=epochs, steps_per_epoch=steps_per_epoch, shuffle=False, verbose=0)

# %% [markdown]
# ## What the encoder has learned
#
# Which words does the model expect in place of a hidden verb? Two subjects, and a noun of the other number behind
# each:

# %%
for beginning in ("the old dog near the cats", "the old dogs near the cat"):
    words = [*beginning.split(), "<mask>", "now"]
    logits = masked_model.predict(encode([words]), verbose=0)[0, words.index("<mask>")]
    print(beginning, "...", ", ".join(vocabulary[i] for i in np.argsort(-logits)[:5]))

# %% [markdown]
# In how many unseen sentences is the right form of the hidden verb more likely than the other form?

# %%
unseen = [sentence(generator) for _ in range(1000)]
tokens = encode(words for words, _ in unseen)
rows, places = np.arange(len(unseen)), np.array([place for _, place in unseen])
right = tokens[rows, places]
wrong = np.array([ids[other_form(vocabulary[i])] for i in right])
tokens[rows, places] = MASK_ID
logits = masked_model.predict(tokens, verbose=0)[rows, places]
print(f"right form of the verb: {np.mean(logits[rows, right] > logits[rows, wrong]):.3f}")

# %% [markdown]
# ## Fine-tuning
#
# `SentenceClassifier.from_encoder` makes a classifier that starts from the trained embedding and encoder. It and a
# new classifier are trained on the same labels for 300 batches each, with three numbers of labels and two seeds.

# %%
SIZES, SEEDS = (30, 100, 1000), (1, 2)


def accuracy_of(make_classifier, size, seed):
    """Accuracy on the test sentences, after training on `size` labels."""
    keras.utils.set_random_seed(seed)
    classifier = make_classifier()
    classifier.compile(
        keras.optimizers.Adam(1e-3), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    rows = np.random.default_rng(seed).permutation(1000)[:size]
    rows = np.resize(rows, 300 * 50)  # 300 batches, with each row several times
    classifier.fit(labelled[rows], labels[rows], batch_size=50, verbose=0)
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
