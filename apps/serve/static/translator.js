// Translation by the server that sends the page. The class has the methods of the translator that computes in the
// browser, which the page uses.

import { split } from "./sentences.js";

/** Requests at a time. The server makes batches of their sentences. */
const PARALLEL = 8;

/** Translates by requests to the server. */
export class Translator {
  /**
   * Asks the server for its languages and limits.
   *
   * @param {string|URL} url - the address of the page, which may be below a path of a proxy.
   */
  static async load(url = new URL(".", import.meta.url)) {
    const translator = new Translator(url);
    const [languages, settings] = await Promise.all([translator.#get("languages"), translator.#get("frontend/settings")]);
    for (const { code, targets } of languages) {
      const others = targets.filter((target) => target !== code);
      if (others.length) translator.#targets.set(code, others);
    }
    const [[source, [target]]] = translator.#targets;
    translator.info = {
      languages: [source, target],
      sources: [...translator.#targets.keys()],
      n_best: settings.maxAlternatives + 1,
      needs_key: settings.keyRequired,
      note: "",
      runtime: `At most ${settings.charLimit.toLocaleString("en")} characters per sentence.`,
    };
    return translator;
  }

  /**
   * `languages` (the two codes of the first pair), `sources` (the codes of all source languages), `n_best`,
   * `needs_key`, and two texts for the page: `note` and `runtime`.
   */
  info;

  #targets = new Map();
  #url;

  constructor(url) {
    this.#url = url;
  }

  /** The codes of the target languages of a source language, one of `info.sources`. */
  targets(sourceLanguage) {
    return this.#targets.get(sourceLanguage);
  }

  /** The parts of a text; see `sentences.js`. The server keeps what is no language. */
  split(text, { sourceLanguage }) {
    return split(text, sourceLanguage);
  }

  /**
   * Translates sentences.
   *
   * @param {string[]} lines
   * @param {object} options - as of the translator in the browser, with both languages, and `key` of the server.
   * @returns {Promise<object[]>} for each line `{text, score, alternatives, warnings}`.
   */
  async translate(lines, { sourceLanguage, targetLanguage, key, nBest = 1, onTranslation, signal } = {}) {
    signal?.throwIfAborted();
    const languages = { source: sourceLanguage, target: targetLanguage };
    const controller = new AbortController();
    signal?.addEventListener("abort", () => controller.abort(signal.reason));
    const ask = async (q) => {
      const body = { q, ...languages, alternatives: nBest - 1, scores: true, api_key: key };
      const found = await this.#post("translate", body, controller.signal);
      const [text, ...others] = [found.translatedText, ...(found.alternatives ?? [])];
      const [score, ...scores] = found.scores;
      const alternatives = others.map((text, index) => ({ text, score: scores[index] }));
      return { text, score, alternatives, warnings: found.warnings ?? [] };
    };
    const results = [];
    const running = [];
    try {
      for (let index = 0; index < lines.length; index++) {
        while (running.length < Math.min(index + PARALLEL, lines.length)) {
          running.push(ask(lines[running.length]));
          running.at(-1).catch(() => {}); // It is awaited below, unless an earlier one fails.
        }
        results.push(await running[index]);
        onTranslation?.(results[index], index);
      }
    } finally {
      controller.abort();
    }
    return results;
  }

  /**
   * The attention of the translation of a sentence.
   *
   * @returns {Promise<object>} `source` and `target`, the subwords, and `weights`, a row for each target subword.
   */
  async attention(line, { sourceLanguage: source, targetLanguage: target, key }) {
    return this.#post("attention", { q: line, source, target, api_key: key });
  }

  async #get(path) {
    return read(await fetch(new URL(path, this.#url)));
  }

  async #post(path, body, signal) {
    const headers = { "Content-Type": "application/json" };
    return read(await fetch(new URL(path, this.#url), { method: "POST", headers, body: JSON.stringify(body), signal }));
  }
}

async function read(response) {
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server answers with status ${response.status}.`);
  return answer;
}
