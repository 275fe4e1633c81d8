// The page: a text is translated sentence by sentence.

import { Protection } from "./protection.js";
import { Translator } from "./translator.js";

const element = (id) => document.getElementById(id);
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** Activates the service worker of a new export and reloads the page, if an earlier visit has cached the new files. */
async function useNewExport() {
  const registration = await navigator.serviceWorker?.getRegistration();
  if (!registration?.waiting) return;
  const changed = new Promise((resolve) => {
    navigator.serviceWorker.addEventListener("controllerchange", () => resolve(true), { once: true });
    setTimeout(resolve, 5000, false);
  });
  registration.waiting.postMessage("take over");
  if (await changed) {
    location.reload();
    await new Promise(() => {}); // The page ends here.
  }
}

/**
 * Registers the service worker, which caches all files for offline use. Most of them come from the HTTP cache, because
 * the translator has already loaded them.
 */
async function keepFiles() {
  if (!navigator.serviceWorker) return;
  const show = (text) => (element("offline").textContent = text);
  try {
    const registration = await navigator.serviceWorker.register("service-worker.js", { updateViaCache: "none" });
    await navigator.serviceWorker.ready;
    show("The page works offline.");
    const watch = (found) => {
      const tell = () => found.state === "installed" && show("A new version is ready: reload the page.");
      found.addEventListener("statechange", tell);
      tell();
    };
    for (const found of [registration.waiting, registration.installing]) if (found) watch(found);
    registration.addEventListener("updatefound", () => watch(registration.installing));
  } catch (error) {
    console.warn("The page does not work offline.", error);
  }
}

function showError(text) {
  element("error").textContent = text;
  element("error").hidden = !text;
}

function showProgress(loaded, total) {
  element("progress").value = total ? loaded / total : 0;
  element("loaded").textContent =
    loaded < total ? `${megabytes(loaded)} of ${megabytes(total)}` : `${megabytes(total)} loaded, starting …`;
}

/** The English name of a language; the code itself if the browser does not know it. */
function nameOfLanguage(code) {
  try {
    return code && new Intl.DisplayNames("en", { type: "language" }).of(code);
  } catch {
    return code;
  }
}

function showTranslator({ languages, threads, onnxruntime, n_best, files }) {
  const [source, target] = languages.map(nameOfLanguage);
  if (source && target) {
    document.title = `${source} to ${target}`;
    document.querySelector("h1").textContent = document.title;
    document.querySelector("label[for=source]").textContent = source;
    document.querySelector("label[for=target]").textContent = target;
    element("target").lang = languages[1];
  }
  for (let count = 1; count <= n_best; count++) element("n-best").add(new Option(count, count));
  const download = Object.values(files).reduce((sum, { bytes }) => sum + bytes, 0);
  element("runtime").textContent =
    `onnxruntime-web ${onnxruntime}, int8, ${plural(threads, "thread")}. Download: ${megabytes(download)}.`;
  element("loading").hidden = true;
  element("translate").disabled = false;
}

/** Splits a text into sentences, which are translated, and the text between them, which is kept. */
function split(text, { languages, protection }) {
  const rules = new Protection(protection);
  const segmenter =
    globalThis.Intl?.Segmenter && new Intl.Segmenter(languages[0] ?? "en", { granularity: "sentence" });
  const lines = text.split(/(\r\n|[\n\r\t\u2028\u2029]+)/);
  return lines.flatMap((line) =>
    rules.splitMarkers(line).flatMap((piece) => {
      if (!piece.isSentence) return [piece];
      return segments(piece.text, segmenter, rules).flatMap((part) => {
        const sentence = part.trim();
        if (!/[\p{L}\p{N}]/u.test(sentence)) return [{ text: part }];
        const begin = part.indexOf(sentence);
        return [
          { text: part.slice(0, begin) },
          { text: sentence, isSentence: true },
          { text: part.slice(begin + sentence.length) },
        ];
      });
    }),
  );
}

/** The sentences of a text. No sentence ends inside a part that is not translated, such as a web address. */
function segments(text, segmenter, rules) {
  if (!segmenter) return [text];
  let masked = text;
  for (const [begin, end] of rules.keptParts(text)) {
    masked = masked.slice(0, begin) + "x".repeat(end - begin) + masked.slice(end);
  }
  return Array.from(segmenter.segment(masked), ({ index, segment }) => text.slice(index, index + segment.length));
}

function addHypotheses(number, { text, score, alternatives }) {
  for (const hypothesis of [{ text, score }, ...alternatives]) {
    const row = element("others").querySelector("tbody").insertRow();
    for (const cell of [number, hypothesis.score.toFixed(3), hypothesis.text]) row.insertCell().textContent = cell;
  }
}

async function translate(translator, signal) {
  const pieces = split(element("source").value, translator.info);
  const sentences = pieces.filter((piece) => piece.isSentence);
  if (!sentences.length) {
    element("status").textContent = "Enter a text to translate.";
    return;
  }
  const nBest = Number(element("n-best").value);
  element("others").querySelector("tbody").replaceChildren();
  element("others").hidden = false;
  const started = performance.now();
  let truncated = 0;
  const onTranslation = (result, index) => {
    sentences[index].translation = result.text;
    truncated += result.truncated;
    addHypotheses(index + 1, result);
    const shown = pieces.map(({ text, isSentence, translation }) => (isSentence ? (translation ?? "") : text));
    element("target").value = shown.join("");
    element("status").textContent = `${index + 1} of ${plural(sentences.length, "sentence")} …`;
  };
  await translator.translate(
    sentences.map(({ text }) => text),
    { nBest, onTranslation, signal },
  );
  const seconds = ((performance.now() - started) / 1000).toFixed(2);
  const note = `${plural(truncated, "sentence")} longer than ${translator.info.max_source_length} subwords: only the start is translated.`;
  element("status").textContent = `${plural(sentences.length, "sentence")} in ${seconds} s.${truncated ? ` ${note}` : ""}`;
}

/** Translates when the form is submitted. A new submission aborts the previous translation. */
function listen(translator) {
  let controller = new AbortController();
  let last = Promise.resolve();
  const run = async (signal) => {
    showError("");
    element("stop").hidden = false;
    element("target").value = "";
    try {
      await translate(translator, signal);
    } catch (error) {
      if (error.name === "AbortError") element("status").textContent = "Stopped.";
      else showError(`The text was not translated. ${error.message}`);
    }
    element("stop").hidden = true;
  };
  element("form").addEventListener("submit", (event) => {
    event.preventDefault();
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    last = last.then(() => run(signal));
  });
  element("stop").addEventListener("click", () => controller.abort());
  element("source").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) element("form").requestSubmit();
  });
}

element("form").addEventListener("submit", (event) => event.preventDefault()); // Until the model is loaded.
try {
  await useNewExport();
  const threads = new URLSearchParams(location.search).get("threads");
  const options = { onProgress: showProgress, ...(threads && { threads: Number(threads) }) };
  const translator = await Translator.load(new URL(".", location.href), options);
  showTranslator(translator.info);
  listen(translator);
  await keepFiles();
} catch (error) {
  element("loading").hidden = true;
  showError(`The model could not be loaded. ${error.message}`);
}
