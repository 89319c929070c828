// Sizes, counts and times as text, as dgkit/units.py reads and writes them.

// "4096", "0x1000", "4K", "1.5 MiB" as a number of bytes, or NaN. Accepts what units.parse_size does.
export function parseSize(text) {
  const trimmed = text.trim();
  if (/^0x[0-9a-f]+$/i.test(trimmed)) return boundedBytes(BigInt(trimmed));
  const match = /^(\d+)(?:\.(\d+))?[ \t\n\r\f\v]*(?:([kmgt])(?:i?b)?|b)?$/i.exec(trimmed);
  if (!match) return NaN;
  const [, integer, fraction = "", unit = " "] = match;
  const scaled = BigInt(integer + fraction) << BigInt(10 * " kmgt".indexOf(unit.toLowerCase()));
  const divisor = 10n ** BigInt(fraction.length);
  return scaled % divisor ? NaN : boundedBytes(scaled / divisor);
}

const boundedBytes = (bytes) => (bytes < 1n << 63n ? Number(bytes) : NaN);

// A size in the largest binary unit that does not exceed it, as units.size_text writes it.
export function shortSize(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let value = size;
  for (; value >= 1024 && unit < units.length - 1; unit++) value /= 1024;
  return `${Number.isInteger(value) ? value : value.toFixed(2)} ${units[unit]}`;
}

export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString("en-US")} ${count === 1 ? one : many}`;

// Microseconds; three decimals are the resolution of the clock, 1 ns.
export const micros = (ns, decimals = 3) =>
  (ns / 1000).toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });

export const sizeText = (size) => (size < 1024 ? plural(size, "byte") : `${shortSize(size)} (${plural(size, "byte")})`);

// "1024, 1024", "(64, 64)", "1M" as lengths, or null.
export function parseShape(text) {
  const inner = text
    .trim()
    .replace(/^\(/, "")
    .replace(/\)$/, "")
    .replace(/^[\s,]+|[\s,]+$/g, "");
  const lengths = inner.split(",").map(parseSize);
  return lengths.every((length) => length > 0) ? lengths : null;
}
