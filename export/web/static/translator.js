// Translation in the browser. Everything is computed in a worker, so that the page stays responsive.

import { Languages } from "./languages.js";
import { Protection } from "./protection.js";
import { split } from "./sentences.js";

/** The translator of an exported model. */
export class Translator {
  /**
   * Loads a translator.
   *
   * @param {string|URL} url - the folder of the export, on the origin of the page. Default: the folder of this script.
   * @param {object} options
   * @param {number} options.threads - number of threads. More than one needs a page that is cross-origin isolated.
   *   Default: 2 on such a page if the machine has them, otherwise 1.
   * @param {function(number, number)} options.onProgress - called with the bytes that are loaded, and their total.
   * @returns {Promise<Translator>}
   */
  static async load(url = new URL(".", import.meta.url), { threads, onProgress } = {}) {
    const folder = new URL(url, globalThis.document?.baseURI ?? import.meta.url);
    if (!folder.pathname.endsWith("/")) folder.pathname += "/";
    if (threads !== undefined && !(Number.isInteger(threads) && threads > 0)) {
      throw new Error(`\`threads\` must be a positive integer. Received: threads=${threads}`);
    }
    if (threads > 1 && !globalThis.crossOriginIsolated) {
      throw new Error(`\`threads\` must be 1 on a page that is not cross-origin isolated. Received: threads=${threads}`);
    }
    const translator = new Translator(new Worker(new URL("worker.js", folder), { type: "module" }));
    try {
      const info = await translator.#ask({ load: folder.href, threads: threads ?? defaultThreads() }, onProgress);
      translator.#languages = new Languages(info);
      const { sources } = translator.#languages;
      translator.info = { ...info, ...described(info), sources };
    } catch (error) {
      translator.close();
      throw error;
    }
    return translator;
  }

  /**
   * What was loaded: `languages` (two codes or null: those of the model, or the default ones of a model with several
   * languages), `sources` (the codes of all source languages), `n_best` (the most hypotheses), `max_source_length`
   * (subwords), `onnxruntime` (its version), `threads`, `protection` (what is not translated), and `files` with the
   * `bytes` of each. For the page: the texts `note` and `runtime`.
   */
  info;

  #languages;
  #worker;
  #pending = new Map();
  #count = 0;

  /** Use `Translator.load` instead of the constructor. */
  constructor(worker) {
    this.#worker = worker;
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => {
      event.preventDefault?.();
      this.#fail(new Error(event.message || "A script of the translator could not be loaded."));
    };
  }

  /** The codes of the target languages of a source language, which is one of `info.sources`. */
  targets(sourceLanguage) {
    return this.#languages.targets(sourceLanguage);
  }

  /** The parts of a text; see `sentences.js`. */
  split(text, { sourceLanguage } = {}) {
    return split(text, this.#languages.sourceOf(sourceLanguage), new Protection(this.info.protection));
  }

  /**
   * Translates lines, each a sentence, one after the other. What is no language stays: lines without letters, URLs,
   * placeholders, tags, list markers, and characters that the model has never seen.
   *
   * @param {string[]} lines
   * @param {object} options
   * @param {string} options.sourceLanguage - code of the source language, for models with several languages. Default:
   *   the language of the model, or its default language.
   * @param {string} options.targetLanguage - code of the target language.
   * @param {number} options.nBest - number of hypotheses of each line, at most `info.n_best`.
   * @param {function(object, number)} options.onTranslation - called with each result as soon as there is one, and the
   *   index of its line.
   * @param {AbortSignal} options.signal - stops the work before the next line.
   * @returns {Promise<object[]>} for each line its best hypothesis,
   *   `{text, score, tokens, alternatives, truncated, warnings}`. `alternatives` are the others, `{text, score, tokens}`.
   *   `truncated` tells whether the line was too long; then `warnings` has a sentence about it.
   */
  async translate(lines, { sourceLanguage, targetLanguage, nBest = 1, onTranslation, signal } = {}) {
    checkLines(lines);
    const prefixes = this.#languages.prefixes(sourceLanguage, targetLanguage);
    if (!(Number.isInteger(nBest) && nBest >= 1 && nBest <= this.info.n_best)) {
      throw new Error(`\`nBest\` must be in [1, ${this.info.n_best}]. Received: nBest=${nBest}`);
    }
    const results = [];
    for (const [index, line] of lines.entries()) {
      signal?.throwIfAborted();
      const result = await this.#ask({ translate: line, nBest, ...prefixes });
      const warning = `Only the first ${this.info.max_source_length} subwords of a sentence are translated.`;
      results.push({ ...result, warnings: result.truncated ? [warning] : [] });
      onTranslation?.(results[index], index);
    }
    return results;
  }

  /**
   * Encodes lines as subword ids, with the end token, without the tokens of languages. Long lines are not truncated.
   *
   * @param {string[]} lines
   * @returns {Promise<number[][]>}
   */
  async encode(lines) {
    checkLines(lines);
    return this.#ask({ encode: lines });
  }

  /**
   * The texts of rows of subwords, each up to its first end token.
   *
   * @param {number[][]} rows
   * @returns {Promise<string[]>}
   */
  async decode(rows) {
    return this.#ask({ decode: rows });
  }

  /** Ends the worker and frees the memory. */
  close() {
    this.#worker.terminate();
    this.#fail(new Error("The translator is closed."));
  }

  #ask(request, onProgress) {
    if (this.#failure) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      const id = this.#count++;
      this.#pending.set(id, { resolve, reject, onProgress });
      this.#worker.postMessage({ id, ...request });
    });
  }

  #failure;

  #receive({ id, loaded, total, error, result }) {
    const pending = this.#pending.get(id);
    if (!pending) return;
    if (loaded !== undefined) {
      pending.onProgress?.(loaded, total);
      return;
    }
    this.#pending.delete(id);
    if (error === undefined) pending.resolve(result);
    else pending.reject(new Error(error));
  }

  #fail(error) {
    this.#failure = error;
    for (const { reject } of this.#pending.values()) reject(error);
    this.#pending.clear();
  }
}

function defaultThreads() {
  return globalThis.crossOriginIsolated ? Math.min(2, navigator.hardwareConcurrency || 1) : 1;
}

/** What the page shows about the translator. */
function described({ onnxruntime, threads, files }) {
  const bytes = Object.values(files).reduce((sum, file) => sum + file.bytes, 0);
  const size = `${(bytes / 1e6).toFixed(1)} MB`;
  return {
    note: "Everything is computed in this browser. The text does not leave this device.",
    runtime: `onnxruntime-web ${onnxruntime}, int8, ${threads} thread${threads === 1 ? "" : "s"}. Download: ${size}.`,
  };
}

function checkLines(lines) {
  if (!Array.isArray(lines) || lines.some((line) => typeof line !== "string")) {
    throw new Error(`\`lines\` must be an array of strings. Received: ${JSON.stringify(lines)?.slice(0, 80)}`);
  }
}
