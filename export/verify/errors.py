"""The error of verifications. This module does not import Keras."""


class VerificationError(Exception):
    """An exported program or an imported model does not agree with the model that it was made from."""
