// Splits a text into sentences, which are translated, and the text between them, which is kept.

/**
 * @param {string} text
 * @param {string} language - code of the language of the text.
 * @param {object} rules - what is not translated: `splitMarkers(line)` and `keptParts(line)` of `Protection`. Default:
 *   nothing.
 * @returns {object[]} the parts, `{text, isSentence}`, which together are the text.
 */
export function split(text, language, rules = NO_RULES) {
  const segmenter = globalThis.Intl?.Segmenter && segmenterOf(language);
  const lines = text.split(/(\r\n|[\n\r\t\u2028\u2029]+)/);
  return lines.flatMap((line) =>
    rules.splitMarkers(line).flatMap((part) => {
      if (!part.isSentence) return [part];
      return segments(part.text, segmenter, rules).flatMap((segment) => {
        const sentence = segment.trim();
        if (!/[\p{L}\p{N}]/u.test(sentence)) return [{ text: segment }];
        const begin = segment.indexOf(sentence);
        return [
          { text: segment.slice(0, begin) },
          { text: sentence, isSentence: true },
          { text: segment.slice(begin + sentence.length) },
        ];
      });
    }),
  );
}

/** The code of a language as browsers write it. Models also have codes such as `pt_BR`. */
export function languageTag(code) {
  return code.replaceAll("_", "-");
}

/** The rules of a language; those of English if it is unknown. */
function segmenterOf(language) {
  const options = { granularity: "sentence" };
  try {
    return new Intl.Segmenter(languageTag(language ?? "en"), options);
  } catch {
    return new Intl.Segmenter("en", options);
  }
}

const NO_RULES = {
  splitMarkers: (line) => [{ text: line, isSentence: true }],
  keptParts: () => [],
};

/** The sentences of a text. No sentence ends inside a part that is not translated, such as a web address. */
function segments(text, segmenter, rules) {
  if (!segmenter) return [text];
  let masked = text;
  for (const [begin, end] of rules.keptParts(text)) {
    masked = masked.slice(0, begin) + "x".repeat(end - begin) + masked.slice(end);
  }
  return Array.from(segmenter.segment(masked), ({ index, segment }) => text.slice(index, index + segment.length));
}
