// The languages of a model, and the tokens that tell a model with several languages which ones it gets and writes: the
// rules of `keras_transformer.storage.languages`. Codes are those of the model.

export class Languages {
  /** @param {object} described - the entries `languages` and `language_tokens` of an export. */
  constructor({ languages: [source, target], language_tokens: tokens }) {
    const map = (ids) => new Map(Object.entries(ids ?? {}));
    this.areSeveral = tokens !== undefined;
    this.forcesTarget = tokens?.forces_target ?? false;
    this.sourceStart = tokens?.source_start ?? [];
    const side = (name, code, ids) => ({ name, code, tokens: map(ids), isAny: this.areSeveral && !map(ids).size });
    this.source = side("sourceLanguage", source, tokens?.source_tokens);
    this.target = side("targetLanguage", target, tokens?.target_tokens);
  }

  /** The codes of the source languages that have a target; `[null]` if the only one is unknown. */
  get sources() {
    return codes(this.source).filter((code) => this.targets(code).length);
  }

  /** The codes of the target languages of a source language, or of all sources with `null`. */
  targets(source) {
    const known = source === null ? null : this.sourceOf(source);
    return this.areSeveral ? codes(this.target).filter((code) => code !== known) : codes(this.target);
  }

  /** The code of the source language. Default: that of the model. */
  sourceOf(source) {
    return found(this.source, source);
  }

  /**
   * The ids of the tokens at the start of a source and of a target: `{sourcePrefix, targetPrefix}`.
   *
   * @param {string} source - code of the source language. Default: that of the model.
   * @param {string} target - code of the target language.
   */
  prefixes(source, target) {
    const ofSource = [...this.sourceStart, ...prefix(this.source, this.sourceOf(source))];
    const ofTarget = prefix(this.target, found(this.target, target));
    if (this.forcesTarget) return { sourcePrefix: ofSource, targetPrefix: ofTarget };
    return { sourcePrefix: [...ofSource, ...ofTarget], targetPrefix: [] };
  }
}

function codes({ code, tokens }) {
  return tokens.size ? [...tokens.keys()] : [code];
}

/** The language of a side of the model that a code names. */
function found({ name, code: ofModel, tokens, isAny }, code) {
  const known = tokens.size || isAny ? [...tokens.keys()] : [ofModel].filter(Boolean);
  if (code === undefined || code === null) {
    if (!ofModel && tokens.size > 1 && ![...tokens.values()].includes(null)) {
      throw new Error(`\`${name}\` must be given, one of the languages of the model: ${known.join(", ")}`);
    }
    return ofModel ?? (tokens.size === 1 ? known[0] : null);
  }
  if (known.length && !known.includes(code)) {
    const received = `${name}=${JSON.stringify(code)}`;
    throw new Error(`\`${name}\` must be a language of the model: ${known.join(", ")}. Received: ${received}`);
  }
  return code;
}

function prefix({ tokens }, code) {
  const token = tokens.get(code);
  return token === undefined || token === null ? [] : [token];
}
