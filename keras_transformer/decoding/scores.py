"""The score of what is not allowed. This module does not import Keras."""

#: Log probability and score of tokens and hypotheses that are not allowed. It is finite, so sums give no NaN.
NEG_INF = -1e9
