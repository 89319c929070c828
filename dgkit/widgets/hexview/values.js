// Bytes as text and numbers, and offsets as they are typed.

import { parseSize } from "../base/units.js";

export const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
export const ASCII = Array.from({ length: 256 }, (_, byte) =>
  byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·",
);

// The shortest decimal that rounds to the same float; `round` rounds to the float type.
function shortest(value, digits, round) {
  if (!Number.isFinite(value) || value === 0) return Object.is(value, -0) ? "-0" : String(value);
  let count = 1;
  while (count < digits && round(Number(value.toPrecision(count))) !== value) count++;
  return numberText(Number(value.toPrecision(count)));
}
export function numberText(value) {
  const plain = (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e9) || !value || !Number.isFinite(value);
  return plain ? String(value) : value.toExponential();
}

// IEEE 754 half precision: 1 sign, 5 exponent and 10 fraction bits.
function halfOf(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const power = (bits >> 10) & 31;
  const part = bits & 1023;
  if (power === 31) return part ? NaN : sign * Infinity;
  return power ? sign * 2 ** (power - 15) * (1 + part / 1024) : sign * 2 ** -14 * (part / 1024);
}

const floatBits = new DataView(new ArrayBuffer(4));
// bfloat16: the upper half of a float32.
function bfloat16Of(bits) {
  floatBits.setUint32(0, bits * 65536);
  return floatBits.getFloat32(0);
}

const integer = (size, signed) => {
  const name = `get${size === 8 ? "Big" : ""}${signed ? "Int" : "Uint"}${8 * size}`;
  return (view, at, little) => String(view[name](at, little));
};
const floating = (name, digits, round) => (view, at, little) => shortest(view[name](at, little), digits, round);

// Value types of a row: size in bytes, maximum width in characters, reader.
export const DTYPES = {
  u8: [1, 3, integer(1, false)],
  i8: [1, 4, integer(1, true)],
  u16: [2, 5, integer(2, false)],
  i16: [2, 6, integer(2, true)],
  u32: [4, 10, integer(4, false)],
  i32: [4, 11, integer(4, true)],
  u64: [8, 20, integer(8, false)],
  i64: [8, 20, integer(8, true)],
  f16: [2, 10, (view, at, little) => small(halfOf(view.getUint16(at, little)))],
  bf16: [2, 10, (view, at, little) => small(bfloat16Of(view.getUint16(at, little)))],
  f32: [4, 15, floating("getFloat32", 9, Math.fround)],
  f64: [8, 24, floating("getFloat64", 17, (value) => value)],
};
export const small = (value) => numberText(Number(value.toPrecision(4)));
export const DTYPE_NAMES = {
  hex: "bytes (hex)",
  u8: "u8, unsigned 8-bit",
  i8: "i8, signed 8-bit",
  u16: "u16",
  i16: "i16",
  u32: "u32",
  i32: "i32",
  u64: "u64",
  i64: "i64",
  f16: "f16, half float",
  bf16: "bf16, bfloat16",
  f32: "f32, float",
  f64: "f64, double",
};

// The value at offset `at` of a DataView, or "" if too few bytes are left.
export function valueAt(view, at, dtype, little) {
  const [size, , read] = DTYPES[dtype];
  return at + size <= view.byteLength ? read(view, at, little) : "";
}

export const hexOffset = (at) => `0x${at.toString(16)}`;

// "4096", "0x1000", "4K", "end", or relative to the cursor "+64", "-0x10"; NaN if invalid.
export function parseOffset(text, cursor, size) {
  const word = text.trim().toLowerCase();
  if (word === "end") return size - 1;
  const sign = word.startsWith("+") ? 1 : word.startsWith("-") ? -1 : 0;
  return sign ? cursor + sign * parseSize(word.slice(1)) : parseSize(word);
}
