// What is no language leaves a sentence before translation, and comes back at its place.

const LETTER = /\p{L}/u;
const WORD = /[\p{L}\p{N}]/u;
const MARK = /[\p{M}\u200d\ufe00-\ufe0f\u20e3\u{1f3fb}-\u{1f3ff}\u{e0020}-\u{e007f}]/u;
/** Letters of scripts without spaces between words. */
const UNSPACED = /[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}]/u;
const UNITS = new RegExp(`${UNSPACED.source}|\\p{Nd}+|[\\p{L}\\p{N}_]+|[^\\s]`, "gu");
const PAIRS = ["()", "[]", "{}", "<>", '""', "''", "“”", "„“", "«»", "»«", "‘’", "‚‘", "**", "__", "``"];
const CLOSING = ".,;:!?)]}»”’…。，；：！？、";
const OPENING = "([{«„‚¿¡-–—" + String.fromCharCode(47);
/** Signs without a space after them in a translation. */
const BEFORE_WORDS = "([{«„‚“‘¿¡";
/** A symbol of imported models with several target languages. Its signs may be unknown elsewhere. */
const LANGUAGE_CODE = />>[^\s<>]+<</gu;
const INLINE_TAG = /^<\/?(?!(?:br|hr|p|div|li|t[dhr]|h[0-9])(?![\p{L}\p{N}_]))[A-Za-z][^<>]*(?<!\/)>$/u;
const END_OF_PREFIX = /[.,;:!?…]*(?:\s+|$)/uy;
const ENDING = /['’]?[a-z]{1,3}(?![\p{L}\p{N}_])/uy;

const first = (text) => (text ? String.fromCodePoint(text.codePointAt(0)) : "");
const last = (text) => (text ? [...text.slice(-2)].pop() : "");
const isSpace = (text) => text !== "" && !text.trim();
const matchAt = (pattern, text, index) => {
  pattern.lastIndex = index;
  return pattern.exec(text);
};

/** The rules of an export: `described` is its entry `protection`. */
export class Protection {
  /**
   * @param {object} described
   * @param {function(string): (string|null)} spelled - the text of the subwords of a text; null if some are bytes.
   */
  constructor(described, spelled) {
    this.parts = new RegExp(described.parts, "gu");
    this.markers = new RegExp(`^${described.markers}`, "u");
    this.bars = new RegExp(described.bars, "gu");
    this.sentenceEnd = new RegExp(described.sentence_end, "u");
    this.signs = described.signs === null ? null : new Set(described.signs);
    this.translatesAllLines = described.translates_all_lines;
    this.spelled = spelled;
    this.known = new Map();
  }

  /** Whether a line has letters outside the parts that are no language. */
  isTranslatable(line) {
    return LETTER.test(line) && LETTER.test(line.replace(this.parts, ""));
  }

  /** `[begin, end]` of each part that is no language. */
  keptParts(line) {
    return Array.from(line.matchAll(this.parts), (match) => [match.index, match.index + match[0].length]);
  }

  /** Splits a line at list markers and the bars of a table: `{text, isSentence}`. */
  splitMarkers(line) {
    const pieces = [];
    const add = (cell) => {
      const [marker] = cell.match(this.markers);
      if (marker) pieces.push({ text: marker, isSentence: false });
      if (marker.length < cell.length) pieces.push({ text: cell.slice(marker.length), isSentence: true });
    };
    let begin = 0;
    for (const match of line.matchAll(this.bars)) {
      const before = line.slice(Math.max(begin, match.index - 200), match.index);
      const isInside = !match[0].includes("|") && !this.sentenceEnd.test(before);
      if (isInside) continue; // A tag inside a sentence.
      add(line.slice(begin, match.index));
      pieces.push({ text: match[0], isSentence: false });
      begin = match.index + match[0].length;
    }
    add(line.slice(begin));
    return pieces;
  }

  /** The pieces of a line: texts that are kept, and `Sentence`s. Null if the model gets the line as it is. */
  split(line) {
    if (!line.trim()) return null;
    let pieces = this.splitMarkers(line);
    if (pieces.length === 2 && !pieces[0].text.trim()) pieces = [{ text: line, isSentence: true }];
    const isPlain = (text) => this.#isTranslated(text) && !this.#partsOf(text).length;
    if (pieces.length === 1 && pieces[0].isSentence && isPlain(line)) return null;
    return pieces.map(({ text, isSentence }) =>
      isSentence && this.#isTranslated(text) ? new Sentence(text, this.#partsOf(text), this) : text,
    );
  }

  #isTranslated(text) {
    return this.translatesAllLines || !text.trim() || this.isTranslatable(text);
  }

  #partsOf(sentence) {
    const parts = this.keptParts(sentence);
    if (![...new Set(sentence)].some((character) => this.#isUnknown(character))) return parts;
    const codes = Array.from(sentence.matchAll(LANGUAGE_CODE), ({ 0: code, index }) => [index, index + code.length]);
    for (const [begin, end] of clusters(sentence)) {
      if (codes.some(([left, right]) => left <= begin && begin < right)) continue;
      const cluster = sentence.slice(begin, end);
      if ([...cluster].some((character) => this.#isUnknown(character)) && this.#isUnknown(cluster)) {
        parts.push([begin, end]);
      }
    }
    return parts;
  }

  #isUnknown(text) {
    if (!this.known.has(text)) {
      const spelling = isSpace(text) ? "" : this.spelled(text);
      const isInText = (character) =>
        this.signs === null || WORD.test(character) || isSpace(character) || this.signs.has(character);
      this.known.set(text, spelling !== null && [...spelling].every(isInText));
    }
    return !this.known.get(text);
  }
}

/** A sentence without some of its parts. `text` is the rest, for the model; empty if it contains no language. */
class Sentence {
  constructor(sentence, parts, protection) {
    parts.sort((one, other) => one[0] - other[0]);
    let spans = merged(sentence, merged(sentence, parts).map((span) => extended(sentence, span)));
    let begin, end;
    [begin, spans] = skipFirst(sentence, spans);
    [end, spans] = skipLast(sentence, spans);
    this.sentence = sentence;
    this.prefix = sentence.slice(0, begin);
    this.suffix = sentence.slice(end);
    this.text = "";
    this.elements = [];
    for (const [left, right] of spans) {
      const [space, next] = spaceBetween(sentence, left, right);
      this.text = (this.text + sentence.slice(begin, left)).trimEnd() + space;
      const neighbours = [last(sentence.slice(0, left)), first(sentence.slice(right))];
      this.elements.push({ place: this.text.length, kept: sentence.slice(left, right), neighbours });
      begin = next;
    }
    this.text += sentence.slice(begin, end);
    if (!protection.isTranslatable(this.text)) this.text = "";
  }

  /** Puts the parts into the translation of `text`, at their relative places. */
  joined(translation) {
    if (!this.text) return this.sentence;
    let result = "";
    let place = 0;
    for (const { kept, neighbours, isJoint, at } of this.#placed(translation)) {
      result += translation.slice(place, at);
      const left = at > place || !result ? last(translation.slice(0, at)) : last(result);
      const before = !isSpace(left) && isApart(neighbours[0], left, BEFORE_WORDS) ? " " : "";
      const after = isApart(neighbours[1], first(translation.slice(at)), CLOSING) ? " " : "";
      result += before + kept + after;
      place = at;
      while (isJoint && isSpace(translation.slice(place, place + 1))) place++;
    }
    return this.prefix + result + translation.slice(place) + this.suffix;
  }

  #placed(translation) {
    const source = units(this.text);
    const target = units(translation);
    let least = 0;
    return this.elements.map((element) => {
      const follows = source.filter(([, end]) => end <= element.place).length;
      const touches = !isSpace(element.neighbours[0]) && follows > 0;
      const beside = touches || follows === source.length ? follows - 1 : follows;
      const relative = (beside + 0.5) / Math.max(source.length, 1);
      let unit = Math.min(Math.floor(relative * target.length), target.length - 1) + (beside < follows);
      unit = least = Math.max(unit, least, 0);
      const isAfter = unit > 0 && (touches || unit >= target.length);
      const at = isAfter ? target[unit - 1][1] : (target[unit]?.[0] ?? 0);
      const around = this.text.slice(Math.max(element.place - 1, 0), element.place + 1);
      return { ...element, at, isJoint: !element.neighbours.some(isSpace) && around.includes(" ") };
    });
  }
}

const units = (text) => Array.from(text.matchAll(UNITS), (match) => [match.index, match.index + match[0].length]);

/** Makes parts that overlap, or with only white space between them, one part. */
function merged(text, spans) {
  const result = [];
  for (const [begin, end] of spans) {
    const before = result.at(-1);
    if (before && !text.slice(before[1], begin).trim()) before[1] = Math.max(end, before[1]);
    else result.push([begin, end]);
  }
  return result;
}

/** Extends a part over an ending, and over brackets and quotation marks that contain nothing else. */
function extended(text, [begin, end]) {
  if ("{$%@#".includes(text[begin]) && !text.startsWith("{\\", begin)) {
    end += matchAt(ENDING, text, end)?.[0].length ?? 0;
  }
  while (begin > 0 && PAIRS.includes(text[begin - 1] + (text[end] ?? ""))) {
    begin--;
    end++;
  }
  return [begin, end];
}

const isTag = (text, begin) => text.startsWith("<", begin) || text.startsWith("{\\", begin);

function skipFirst(text, spans) {
  if (!spans.length || text.slice(0, spans[0][0]).trim()) return [0, spans];
  const after = matchAt(END_OF_PREFIX, text, spans[0][1]);
  if (after) return [after.index + after[0].length, spans.slice(1)];
  const closes = spans.slice(1, -1).some(([begin]) => text.startsWith("</", begin));
  return isTag(text, spans[0][0]) && !closes ? [spans[0][1], spans.slice(1)] : [0, spans];
}

function skipLast(text, spans) {
  if (!spans.length || text.slice(spans.at(-1)[1]).trim()) return [text.length, spans];
  const before = text.slice(0, spans.at(-1)[0]);
  const isApart = isSpace(last(before)) || CLOSING.includes(last(before)) || isTag(text, spans.at(-1)[0]);
  return isApart ? [before.trimEnd().length, spans.slice(0, -1)] : [text.length, spans];
}

/** The white space in the place of a part and of the white space around it, and the place where the text goes on. */
function spaceBetween(text, begin, end) {
  const before = text.slice(0, begin);
  const after = text.slice(end);
  const place = end + after.length - after.trimStart().length;
  const left = last(before.trimEnd());
  const right = first(after.trimStart());
  if (!left || !right) return ["", place];
  const hasAfter = place > end;
  if (before !== before.trimEnd()) return [(hasAfter ? ".,;:!?)" : CLOSING).includes(right) ? "" : " ", place];
  if (hasAfter) return [OPENING.includes(left) ? "" : " ", place];
  if (WORD.test(left) && WORD.test(right)) {
    const part = text.slice(begin, end);
    return [INLINE_TAG.test(part) || /^\p{C}*$/u.test(part) ? "" : " ", place];
  }
  return [WORD.test(right) && CLOSING.includes(left) ? " " : "", place];
}

/** Whether there is white space between a part and the character beside it in the translation. */
function isApart(neighbour, found, attached) {
  if (!found || isSpace(found) || !neighbour) return false;
  return isSpace(neighbour) ? !attached.includes(found) : WORD.test(found) && !WORD.test(neighbour);
}

/** The words of a sentence, and its signs, such as emoji, with all their characters. */
function* clusters(sentence) {
  const characters = [...sentence];
  for (let i = 0, begin = 0; i < characters.length; ) {
    let next = i + 1;
    while (next < characters.length && belongs(characters, i, next)) next++;
    const end = begin + characters.slice(i, next).join("").length;
    if (!isSpace(characters[i])) yield [begin, end];
    [i, begin] = [next, end];
  }
}

function belongs(characters, begin, i) {
  if (MARK.test(characters[i])) return true;
  if (!WORD.test(characters[begin])) return characters[i - 1] === "\u200d";
  if (UNSPACED.test(characters[begin]) || UNSPACED.test(characters[i])) return false;
  return WORD.test(characters[i]) || ("'’".includes(characters[i]) && WORD.test(characters[i + 1] ?? ""));
}
