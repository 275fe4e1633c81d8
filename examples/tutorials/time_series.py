# %% [markdown]
# # Forecasting a time series
#
# The past of a time series is a sequence, too. This tutorial puts an encoder of this package into a functional Keras
# model that forecasts the next day from the last week. It is compared with a usual baseline, the seasonal-naive
# forecast: the values of a week ago.
#
# matplotlib is needed: `pip install --editable '.[tutorials]'`.

# %%
import keras
import matplotlib.pyplot as plt
import numpy as np

import keras_transformer as kt

keras.utils.set_random_seed(0)

# %% [markdown]
# ## The data
#
# The series has one value per hour, for three years: a daily pattern that is weaker at weekends and whose strength
# changes, a level that drifts, and noise that no model can forecast. The picture shows three weeks.

# %%
day, week = 24, 7 * 24
hours = np.arange(3 * 52 * week)
generator = np.random.default_rng(0)

weekday = hours // day % 7 < 5
pattern = np.sin(2 * np.pi * (hours - 8) / day) + 0.5 * np.sin(4 * np.pi * (hours - 5) / day)
strength = 1 + 0.3 * np.sin(2 * np.pi * hours / (30 * day))  # changes within a month
level = 0.03 * np.cumsum(generator.normal(size=len(hours)))
noise = 0.2 * generator.normal(size=len(hours))
series = np.where(weekday, 1.0, 0.4) * strength * pattern + level + noise

figure, axes = plt.subplots(figsize=(9, 2.5))
axes.plot(np.arange(3 * week) / day, series[: 3 * week], linewidth=1)
axes.set(xlabel="day", ylabel="value")
axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Windows
#
# An example is a week and the day after it. The last half year is held out. The level differs from window to window, so
# the mean of the week is subtracted.

# %%
windows = np.lib.stride_tricks.sliding_window_view(series, week + day).astype("float32")
windows = windows - windows[:, :week].mean(axis=1, keepdims=True)
past, future = windows[:, :week], windows[:, week:]
held_out = len(windows) - 26 * week
train, test = slice(0, held_out - week - day), slice(held_out, None)  # no hour is in both
print(f"{len(past[train]):,} windows to train on, {len(past[test]):,} held out")

# %% [markdown]
# ## The model
#
# Six hours are one token, as a patch of an image is one token of a vision transformer. So the encoder reads 28 tokens
# instead of 168. A dense layer makes the 24 values of the forecast.

# %%
d_model, hours_per_token = 64, 6

inputs = keras.Input((week,), name="past")
x = keras.layers.Reshape((week // hours_per_token, hours_per_token))(inputs)
x = keras.layers.Dense(d_model)(x)
x = kt.layers.LearnedPositionalEmbedding(week // hours_per_token)(x)
x = kt.layers.Encoder(num_layers=2, d_model=d_model, num_heads=4, d_ff=128, dropout=0.1, norm_first=True)(x)
x = keras.layers.Flatten()(x)
model = keras.Model(inputs, keras.layers.Dense(day, name="forecast")(x))
print(f"{model.count_params():,} weights")

# %% [markdown]
# ## Training
#
# The loss is the mean absolute error.

# %%
epochs, batch_size = 6, 64
steps = epochs * len(past[train]) // batch_size
model.compile(keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(1e-3, steps)), loss="mean_absolute_error")
history = model.fit(
    past[train],
    future[train],
    batch_size=batch_size,
    epochs=epochs,
    validation_data=(past[test], future[test]),
    verbose=0,
)

# %% [markdown]
# The noise alone has an error, too. No forecast can be better.

# %%
forecast, naive = model.predict(past[test], verbose=0), past[test][:, :day]
errors = {
    "seasonal-naive": np.abs(naive - future[test]).mean(),
    "model": np.abs(forecast - future[test]).mean(),
    "noise": np.abs(noise).mean(),
}
print("mean absolute error")
for name, error in errors.items():
    print(f"{name:14} {error:.3f}")

# %%
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(range(1, epochs + 1), history.history["loss"], label="training")
axes.plot(range(1, epochs + 1), history.history["val_loss"], label="held out")
axes.axhline(errors["seasonal-naive"], color="gray", linestyle="--", label="seasonal-naive")
axes.set(xlabel="epoch", ylabel="mean absolute error")
axes.legend()
axes.grid(alpha=0.3)
plt.show()

# %% [markdown]
# ## Forecasts
#
# Three held-out windows: the last day before the forecast, and the day to forecast.

# %%
figure, row = plt.subplots(1, 3, figsize=(9, 2.8), sharey=True, layout="constrained")
for axes, i in zip(row, generator.choice(len(forecast), 3, replace=False), strict=True):
    axes.plot(np.arange(-day, 0), past[test][i, -day:], color="gray", label="past")
    axes.plot(future[test][i], color="black", label="future")
    axes.plot(naive[i], color="C1", linestyle="--", label="seasonal-naive")
    axes.plot(forecast[i], color="C0", linewidth=2, label="model")
    axes.grid(alpha=0.3)
figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
figure.supxlabel("hour")
plt.show()
