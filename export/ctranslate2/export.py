"""Export to CTranslate2: weights, position tables and vocabularies in its model format."""

import dataclasses
from pathlib import Path

import keras
import numpy as np

from keras_transformer.checks import one_of, require
from keras_transformer.export.ctranslate2.translator import VMAP, CTranslate2Translator, library
from keras_transformer.export.format import Exported, Program
from keras_transformer.export.verify.search import check_search
from keras_transformer.storage.model_directory import ModelDirectory
from keras_transformer.text.lines import max_tokens

#: CTranslate2's names of Keras activations.
_ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "swish": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}


def write_ctranslate2(exported: Exported, path: Path) -> None:
    """Writes a CTranslate2 model directory with the tokenizers.

    A CTranslate2 model does not contain a search. The options of the strategy are recorded for the client.

    Raises:
        ValueError: if the export does not support the model. The message lists all problems.
    """
    specs = library().specs
    model, directory, tokenizers, strategy, shortlist, *_ = exported
    require_supported(model.config, tokenizers, exported.languages)
    longest = max_tokens(model.config.max_length) + 1
    spec = specs.TransformerSpec(_stack(model, "Encoder"), _stack(model, "Decoder"))
    _set_input(spec.encoder, spec.encoder.embeddings[0], model, "source", longest)
    longest = model.config.max_length or longest + strategy.extra_length
    _set_input(spec.decoder, spec.decoder.embeddings, model, "target", longest)
    if model.config.logits_scale is not None:
        spec.decoder.scale_outputs = model.config.logits_scale
    spec.decoder.projection.weight = _array(model.logits.embedding.embeddings)
    if model.config.logits_bias:
        spec.decoder.projection.bias = _array(model.logits.bias)
    spec.config.layer_norm_epsilon = model.config.layer_norm_epsilon
    spec.config.add_attribute("search", strategy.options)
    spec.config.add_attribute("max_length", model.config.max_length)
    spec.config.add_attribute("target_positions", longest)
    spec.config.add_attribute("tokenizers_sha256", [tokenizer.sha256 for tokenizer in tokenizers])
    spec.register_source_vocabulary(tokenizers[0].pieces)
    spec.register_target_vocabulary(tokenizers[1].pieces)
    spec.validate()
    spec.optimize()
    path.mkdir()
    spec.save(str(path))
    if shortlist:
        _write_vmap(shortlist, tokenizers, path / VMAP)
    ModelDirectory(path).write_tokenizers(directory.tokenizer_models())


def _write_vmap(shortlist, tokenizers, path):
    # On each line a source token and its candidates. Those of every sentence stand on a line without a source token.
    source, target = (tokenizer.pieces for tokenizer in tokenizers)
    always = set(shortlist.always.tolist())
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for token, ids in [("", shortlist.always), *zip(source, shortlist.table, strict=True)]:
            pieces = [target[i] for i in ids.tolist() if not token or i not in always]
            if pieces:
                file.write(f"{token}\t{' '.join(pieces)}\n")


def require_supported(config, tokenizers, languages) -> None:
    """Raises `ValueError` if the export does not support a model. All tokenizers and languages are supported."""
    d_k, d_v = config.head_dims
    require(
        [] if d_k == d_v else [f"`d_k` and `d_v` must be equal. Received: d_k={d_k}, d_v={d_v}"],
        one_of(sorted(_ACTIVATIONS), activation=config.activation),
        config.variant_problems(
            positions=["learned", "relative"],
            norm=["rms"],
            feed_forward=["gated"],
            embedding_norm=[True],
            logits_scale=[config.logits_scale],
        ),
        of="The export to CTranslate2 does not support this model",
    )


def _stack(model, kind):
    """The specification of the encoder or the decoder, with the weights of its layers."""
    specs, config, stack = library().specs, model.config, getattr(model, kind.lower())
    spec = getattr(specs, f"Transformer{kind}Spec")(
        len(stack.layers),
        config.num_heads,
        no_final_norm=stack.norm is None,
        activation=specs.Activation[_ACTIVATIONS[config.activation]],
        num_heads_kv=config.num_heads,
        head_dim=config.head_dims[0],
        relative_attention_bias=stack.shared_positions is not None,
        layernorm_embedding=config.embedding_norm,
        ffn_glu=config.feed_forward == "gated",
        rms_norm=config.norm == "rms",
        **({"alignment_heads": config.num_heads} if kind == "Decoder" else {}),  # `mean_attention` of the client.
    )
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _set_self_attention(layer_spec.self_attention, layer.self_attention)
        _set_positions(layer_spec.self_attention, stack.shared_positions)
        if kind == "Decoder":
            _set_cross_attention(layer_spec.attention, layer.cross_attention)
        _set_norm(layer_spec.ffn.layer_norm, layer.feed_forward.norm)
        _set_feed_forward(layer_spec.ffn, layer.feed_forward.sublayer)
    spec.pre_norm = config.norm_first  # Not in the constructor, which creates no final norm for post-norm stacks.
    if stack.norm is not None:
        _set_norm(spec.layer_norm, stack.norm)
    return spec


def _set_self_attention(spec, residual):
    attention = residual.sublayer
    _set_norm(spec.layer_norm, residual.norm)
    _set_linear(spec.linear[0], attention.query_projection, attention.key_projection, attention.value_projection)
    _set_linear(spec.linear[1], attention.output_projection)


def _set_positions(spec, positions):
    """Sets the relative position bias, which all layers share."""
    if positions is not None:
        spec.relative_attention_bias = _array(positions.embeddings)
        spec.relative_attention_max_distance = np.int32(positions.max_distance)


def _set_cross_attention(spec, residual):
    attention = residual.sublayer
    _set_norm(spec.layer_norm, residual.norm)
    _set_linear(spec.linear[0], attention.query_projection)
    _set_linear(spec.linear[1], attention.key_projection, attention.value_projection)
    _set_linear(spec.linear[2], attention.output_projection)


def _set_feed_forward(spec, layer):
    """CTranslate2 calls the product with the activation `linear_0`: with a gate, that of the gate."""
    if layer.gated:
        _set_linear(spec.linear_0, layer.gate)
        _set_linear(spec.linear_0_noact, layer.inner)
    else:
        _set_linear(spec.linear_0, layer.inner)
    _set_linear(spec.linear_1, layer.outer)


def _set_linear(spec, *projections):
    """Concatenates projections of the same input into one matrix product."""
    spec.weight = np.concatenate([_array(projection.kernel) for projection in projections], axis=1).T
    if projections[0].use_bias:
        spec.bias = np.concatenate([_array(projection.bias) for projection in projections])


def _set_norm(spec, norm):
    if isinstance(norm, keras.layers.RMSNormalization):
        spec.gamma = _array(norm.scale)
    else:
        spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _set_input(stack, spec, model, side, length):
    """Sets the embedding, its norm and the position table. CTranslate2 scales embeddings itself."""
    embedding, config = getattr(model, f"{side}_embedding"), model.config
    spec.weight = _array(embedding.embeddings)
    stack.scale_embeddings = config.scale_embedding
    if config.embedding_norm:
        _set_norm(stack.layernorm_embedding, getattr(model, f"{side}_norm"))
    if config.positions in ("sinusoidal", "learned"):
        nothing = np.zeros((1, length, config.d_model), "float32")
        stack.position_encodings.encodings = keras.ops.convert_to_numpy(getattr(model, f"{side}_positions")(nothing))[0]


def _array(variable):
    return keras.ops.convert_to_numpy(variable).astype("float32")


def programs(path: Path, exported: Exported) -> dict[str, Program]:
    """The programs of an export; see `ExportFormat`."""
    beam = dataclasses.replace(exported.strategy, n_best=1, length_penalty=0.0)
    searches = {"ctranslate2 greedy": dataclasses.replace(beam, beam_size=1), "ctranslate2 beam": beam}
    return {
        title: Program(CTranslate2Translator(path, search, protect="off"), search, check_search)
        for title, search in searches.items()
    }
