// SPDX-License-Identifier: Apache-2.0
// Sphinx finds the pages that have all words of a query, which few have of a pasted error text.
// Where it finds fewer than FEW, pages with most of the words follow; a rare word counts more.

const FEW = 3;
const MOST = 12;
// Fields of a result: document, title, anchor, description, score, file, kind.
const [DOCUMENT, TITLE, SCORE, FILE] = [0, 1, 4, 5];

function withMostWords(withAllWords, words, excluded) {
  const pages = new Map();
  for (const word of words) {
    const found = withAllWords(new Set([word]), excluded);
    for (const result of found) {
      const before = pages.get(result[FILE]) ?? { weight: 0, words: 0 };
      const weight = before.weight + 1 / found.length;
      pages.set(result[FILE], { result, weight, words: before.words + 1 });
    }
  }
  const most = [...pages.values()].filter((page) => page.words * 2 >= words.size);
  most.sort((one, other) => other.weight - one.weight);
  return most.slice(0, MOST).map(({ result, weight }) => {
    result[SCORE] = Math.min(weight, 1); // below those with all words
    return result;
  });
}

// Sphinx gives all pages that have a word the same score, and sorts them by title. Of these the
// guide comes first; a name of the API does only if the query is that name.
const KINDS = [
  [/^chapters\/(changes|contributing)/, 0],
  [/^(install|glossary|support)/, 4],
  [/^(chapters\/|questions|related|where|arm-gpu)/, 3],
  [/^checks\//, 2],
  [/^tutorials\//, 1],
];
const PARTIAL = -20;

function rank(results) {
  for (const result of results) {
    result[SCORE] += KINDS.find(([pages]) => pages.test(result[DOCUMENT]))?.[1] ?? 0;
  }
  return results;
}

function extend(search) {
  const withAllWords = search.performTermsSearch;
  const named = search.performObjectSearch;
  search.performTermsSearch = (words, excluded) => {
    const found = withAllWords(words, excluded);
    if (found.length >= FEW || words.size < 2) return rank(found);
    const known = new Set(found.map((result) => result[FILE]));
    const more = withMostWords(withAllWords, words, excluded);
    return [...rank(found), ...more.filter((result) => !known.has(result[FILE]))];
  };
  search.performObjectSearch = (name, words) => {
    const found = named(name, words);
    for (const result of found) {
      if (!`.${result[TITLE]}`.toLowerCase().endsWith(`.${name}`)) result[SCORE] += PARTIAL;
    }
    return found;
  };
}

// biome-ignore lint/correctness/noUndeclaredVariables: Sphinx's searchtools.js, on the search page
if (typeof Search !== "undefined") extend(Search);
