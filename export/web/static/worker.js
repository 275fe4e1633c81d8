// The worker of translator.js: it holds the model, and answers one request after the other.

const PAD_ID = 0, EOS_ID = 3;

let model; // Of the request `load`.
let queue = Promise.resolve();

self.onmessage = ({ data }) => {
  queue = queue.then(async () => {
    try {
      self.postMessage({ id: data.id, result: await answer(data) });
    } catch (error) {
      self.postMessage({ id: data.id, error: inWords(error) });
    }
  });
};

async function answer({ id, load, threads, translate, encode, decode, ...options }) {
  if (load !== undefined) {
    model = await Model.load(load, threads, (loaded, total) => self.postMessage({ id, loaded, total }));
    return model.info;
  }
  if (translate !== undefined) return model.translate(translate, options);
  if (encode !== undefined) return encode.map((line) => model.encode(line));
  return decode.map((ids) => model.decode(ids));
}

class Model {
  static async load(folder, threads, onProgress) {
    const described = await fetchFile(new URL("translator.json", folder)).then((response) => response.json());
    const files = new Files(folder, described.files, onProgress);
    const names = [...new Set(described.tokenizers)];
    const [graph, wasm, ...models] = await files.read([
      "model.onnx",
      "ort-wasm-simd-threaded.wasm.gz",
      ...names,
    ]);
    const ort = await files.import("ort.wasm.min.mjs");
    ort.env.wasm.numThreads = threads;
    ort.env.wasm.wasmPaths = { mjs: files.url("ort-wasm-simd-threaded.mjs").href };
    ort.env.wasm.wasmBinary = await decompressed(wasm);
    const { SentencePieceProcessor } = await files.import("sentencepiece.js");
    const processors = {};
    for (const [index, name] of names.entries()) {
      processors[name] = new SentencePieceProcessor();
      await processors[name].load(models[index]);
    }
    const { Protection } = await files.import("protection.js");
    // Weights of the encoder that the loop also has are external data: bytes of this file.
    const externalData = [{ path: "model.onnx", data: graph }];
    const session = await ort.InferenceSession.create(graph, { executionProviders: ["wasm"], externalData });
    return new Model(described, threads, ort, session, described.tokenizers.map((name) => processors[name]), Protection);
  }

  constructor(described, threads, ort, session, processors, Protection) {
    this.unknown = new Set(described.protection.unknown_ids);
    this.protection = new Protection(described.protection, (text) => this.#spelled(text));
    this.info = { ...described, threads };
    this.ort = ort;
    this.session = session;
    [this.source, this.target] = processors;
  }

  /** The subwords of a line and the end token. Lone surrogates become question marks and NUL is removed, as in Python. */
  encode(line) {
    const valid = line
      .replace(/[\uD800-\uDBFF][\uDC00-\uDFFF]|([\uD800-\uDFFF])/g, (found, lone) => (lone ? "?" : found))
      .replaceAll("\0", "");
    return [...this.source.encodeIds(valid), EOS_ID];
  }

  /** The text of subwords before the first end token or padding. */
  decode(ids) {
    const end = ids.findIndex((id) => id === EOS_ID || id === PAD_ID);
    return this.target.decodeIds(end < 0 ? ids : ids.slice(0, end));
  }

  /** The text of the subwords of a text; null if some are bytes or the unknown subword. */
  #spelled(text) {
    const ids = [...this.source.encodeIds(text)];
    return ids.some((id) => this.unknown.has(id)) ? null : this.source.decodeIds(ids);
  }

  /**
   * Translates a line. What is no language stays.
   *
   * @param {string} line
   * @param {object} options - `nBest`, and the ids of the tokens of languages: `sourcePrefix`, `targetPrefix`.
   */
  async translate(line, options) {
    const pieces = this.protection.split(line);
    if (!pieces) return this.#translateSentence(line, options);
    const found = new Map();
    for (const piece of pieces) if (piece.text) found.set(piece, await this.#translateSentence(piece.text, options));
    const results = [...found.values()];
    const ranks = Math.max(1, ...results.map(({ alternatives }) => 1 + alternatives.length));
    // A sentence with fewer hypotheses than the others repeats its last one.
    const all = (piece) => (found.has(piece) ? [found.get(piece), ...found.get(piece).alternatives] : [{}]);
    const hypothesis = (piece, rank) => all(piece).slice(0, rank + 1).at(-1);
    const hypotheses = Array.from({ length: ranks }, (_, rank) => {
      const joined = (piece) => (piece.joined ? piece.joined(hypothesis(piece, rank).text ?? "") : piece);
      const score = pieces.reduce((sum, piece) => sum + (hypothesis(piece, rank).score ?? 0), 0);
      const tokens = results.length === 1 ? hypothesis([...found.keys()][0], rank).tokens : [];
      return { text: pieces.map(joined).join(""), score, tokens };
    });
    const [best, ...alternatives] = distinct(hypotheses);
    return { ...best, alternatives, truncated: results.some(({ truncated }) => truncated) };
  }

  async #translateSentence(line, { nBest, sourcePrefix, targetPrefix }) {
    const ids = this.encode(line);
    if (ids.length === 1) {
      const nothing = { text: "", score: 0, tokens: [] };
      return { ...nothing, alternatives: [], truncated: false };
    }
    const longest = this.info.max_source_length;
    const kept = [...ids.slice(0, -1).slice(0, longest), EOS_ID];
    const inputs = { source: this.#row([...sourcePrefix, ...kept]) };
    if (targetPrefix.length) inputs.prefix = this.#row(targetPrefix);
    const { tokens, scores } = await this.session.run(inputs, ["tokens", "scores"]);
    const [best, ...alternatives] = distinct(this.#hypotheses(tokens, scores)).slice(0, nBest);
    for (const tensor of [...Object.values(inputs), tokens, scores]) tensor.dispose();
    return { ...best, alternatives, truncated: kept.length < ids.length };
  }

  /** A batch of one row of ids. */
  #row(ids) {
    return new this.ort.Tensor("int32", Int32Array.from(ids), [1, ids.length]);
  }

  #hypotheses(tokens, scores) {
    const length = tokens.dims[2];
    return Array.from(scores.data, (score, index) => {
      const row = [...tokens.data.subarray(index * length, (index + 1) * length)];
      return { text: this.decode(row), score, tokens: row.filter((id) => id !== PAD_ID) };
    });
  }
}

/**
 * The hypotheses of a line, best first, without places that no hypothesis fills, those with the words of a better one,
 * and empty ones, unless there is no other.
 */
function distinct(hypotheses) {
  const byWords = new Map();
  for (const hypothesis of hypotheses) {
    const words = hypothesis.text.trim().split(/\s+/).join(" ");
    if (hypothesis.score > -5e8 && !byWords.has(words)) byWords.set(words, hypothesis);
  }
  const real = [...byWords].filter(([words]) => words).map(([, hypothesis]) => hypothesis);
  return real.length ? real : [...byWords.values(), ...hypotheses].slice(0, 1);
}

/** The files of an export, whose addresses contain their hashes, so that no cache returns an old one. */
class Files {
  constructor(folder, described, onProgress) {
    this.folder = folder;
    this.described = described;
    this.onProgress = onProgress;
  }

  url(name) {
    return new URL(`${name}?${this.described[name].hash}`, this.folder);
  }

  import(name) {
    return import(this.url(name).href);
  }

  /** Reads files at the same time, and reports the progress of all. */
  read(names) {
    const total = names.reduce((sum, name) => sum + this.described[name].bytes, 0);
    const loaded = names.map(() => 0);
    const report = () => this.onProgress(loaded.reduce((sum, bytes) => sum + bytes, 0), total);
    report();
    return Promise.all(
      names.map(async (name, index) => {
        const size = this.described[name].bytes;
        const data = await readBody(await fetchFile(this.url(name)), size, (bytes) => {
          loaded[index] = Math.min(bytes, size);
          report();
        });
        // A server may have decompressed an archive.
        if (data.length !== size && !name.endsWith(".gz")) {
          throw new Error(`${name} has ${data.length} bytes instead of ${size}. Reload the page.`);
        }
        return data;
      }),
    );
  }
}

async function fetchFile(url) {
  const name = url.pathname.split("/").pop();
  let response;
  try {
    response = await fetch(url);
  } catch {
    throw new Error(`${name} could not be loaded: no connection.`);
  }
  if (!response.ok) throw new Error(`${name} could not be loaded: the server answers ${response.status}.`);
  return response;
}

/** The bytes of a response of about the expected size. They are in memory only once. */
async function readBody(response, expected, onBytes) {
  const reader = response.body.getReader();
  let data = new Uint8Array(expected);
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return data.subarray(0, size);
    if (size + value.length > data.length) {
      const larger = new Uint8Array(2 * (size + value.length));
      larger.set(data.subarray(0, size));
      data = larger;
    }
    data.set(value, size);
    onBytes((size += value.length));
  }
}

/** Decompresses gzip. Some servers do that themselves, so other data is returned unchanged. */
async function decompressed(data) {
  if (data[0] !== 0x1f || data[1] !== 0x8b) return data;
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function inWords(error) {
  if (error instanceof RangeError || /out of memory|bad_alloc/i.test(String(error?.message ?? error))) {
    return `The browser does not have enough memory for the model (${error.message ?? error}).`;
  }
  return String(error?.message ?? error);
}
