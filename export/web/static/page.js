// The page: a text is translated sentence by sentence, by a translator that computes in the browser or asks a server.

import { languageTag } from "./sentences.js";
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
    return code && new Intl.DisplayNames("en", { type: "language" }).of(languageTag(code));
  } catch {
    return code;
  }
}

/** Fills a list with the names of languages, and selects one of them, if it is among them. */
function fill(list, codes, selected) {
  const options = codes.map((code) => new Option(nameOfLanguage(code) ?? "", code ?? ""));
  list.replaceChildren(...options.sort((one, other) => one.text.localeCompare(other.text)));
  if (codes.includes(selected)) list.value = selected ?? "";
}

/** Lists the languages. The targets depend on the source. */
function offerLanguages(translator) {
  const { sources, languages } = translator.info;
  const [from, to] = [element("source-language"), element("target-language")];
  const showTargets = (selected) => {
    fill(to, translator.targets(from.value || null), selected);
    showLanguages();
  };
  fill(from, sources, languages[0]);
  showTargets(languages[1]);
  from.addEventListener("change", () => showTargets(to.value));
  to.addEventListener("change", showLanguages);
  const areSeveral = sources.length > 1 || to.length > 1;
  from.parentElement.hidden = !areSeveral || !from.value;
  to.parentElement.hidden = !areSeveral;
}

/** Writes the chosen languages into the headings, if they are known. */
function showLanguages() {
  const { sourceLanguage, targetLanguage } = chosen();
  const [source, target] = [sourceLanguage, targetLanguage].map(nameOfLanguage);
  if (source) document.querySelector("label[for=source]").textContent = source;
  if (!target) return;
  document.querySelector("label[for=target]").textContent = target;
  element("target").lang = languageTag(targetLanguage);
  if (!source) return;
  document.title = `${source} to ${target}`;
  document.querySelector("h1").textContent = document.title;
}

function showTranslator(translator) {
  const { n_best, needs_key, note, runtime } = translator.info;
  offerLanguages(translator);
  element("keys").hidden = !needs_key;
  for (let count = 1; count <= n_best; count++) element("n-best").add(new Option(count, count));
  element("note").textContent = note;
  element("note").hidden = !note;
  element("runtime").textContent = runtime;
  element("loading").hidden = true;
  element("translate").disabled = false;
}

/** The options that the form gives: the languages, if they are known, and the key of a server. */
function chosen() {
  return {
    sourceLanguage: element("source-language").value || undefined,
    targetLanguage: element("target-language").value || undefined,
    key: element("key").value || undefined,
  };
}

function addHypotheses(number, { text, score, alternatives }) {
  for (const hypothesis of [{ text, score }, ...alternatives]) {
    const row = element("others").querySelector("tbody").insertRow();
    for (const cell of [number, hypothesis.score.toFixed(3), hypothesis.text]) row.insertCell().textContent = cell;
  }
}

async function translate(translator, signal) {
  const options = chosen();
  const parts = translator.split(element("source").value, options);
  const sentences = parts.filter((part) => part.isSentence);
  if (!sentences.length) {
    element("status").textContent = "Enter a text to translate.";
    return;
  }
  const nBest = Number(element("n-best").value);
  element("others").querySelector("tbody").replaceChildren();
  element("others").hidden = false;
  const started = performance.now();
  const warnings = new Set();
  const onTranslation = (result, index) => {
    sentences[index].translation = result.text;
    for (const warning of result.warnings) warnings.add(warning);
    addHypotheses(index + 1, result);
    const shown = parts.map(({ text, isSentence, translation }) => (isSentence ? (translation ?? "") : text));
    element("target").value = shown.join("");
    element("status").textContent = `${index + 1} of ${plural(sentences.length, "sentence")} …`;
  };
  await translator.translate(
    sentences.map(({ text }) => text),
    { ...options, nBest, onTranslation, signal },
  );
  const seconds = ((performance.now() - started) / 1000).toFixed(2);
  element("status").textContent = [`${plural(sentences.length, "sentence")} in ${seconds} s.`, ...warnings].join(" ");
  if (translator.attention) offerAttention(translator, sentences, options);
}

/** Lists the sentences whose attention can be shown. It is asked for when the section is open. */
function offerAttention(translator, sentences, options) {
  const list = element("sentence");
  list.replaceChildren(...sentences.map(({ text }, index) => new Option(`${index + 1}: ${text.slice(0, 40)}`)));
  element("attention").hidden = false;
  const show = async () => {
    if (!element("attention").open) return;
    try {
      showAttention(await translator.attention(sentences[list.selectedIndex].text, options));
    } catch (error) {
      element("weights").textContent = error.message;
    }
  };
  list.onchange = show;
  element("attention").ontoggle = show;
  return show();
}

/** Shows attention weights as a table of tinted cells. */
function showAttention({ source, target, weights }) {
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const subword of ["", ...source]) {
    const cell = document.createElement("th");
    cell.textContent = subword;
    head.append(cell);
  }
  const body = table.createTBody();
  weights.forEach((row, index) => {
    const line = body.insertRow();
    const title = document.createElement("th");
    title.textContent = target[index];
    line.append(title);
    for (const weight of row) {
      const cell = line.insertCell();
      cell.style.backgroundColor = `rgb(64 128 255 / ${weight})`;
      cell.title = weight.toFixed(3);
    }
  });
  element("weights").replaceChildren(table);
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
  showTranslator(translator);
  listen(translator);
  if (translator.info.files) await keepFiles();
} catch (error) {
  element("loading").hidden = true;
  showError(`The translator could not be loaded. ${error.message}`);
}
