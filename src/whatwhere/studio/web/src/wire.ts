/** Read an answer of the server: a header in JSON, then arrays as they are in memory. Written by studio/export.py. */

export type Numbers = Float32Array | Float64Array | Int32Array | Uint32Array | Uint16Array | Uint8Array;

/** An array of the server, its values in row-major order. */
export interface Tensor {
  values: Numbers;
  shape: number[];
}

interface ArrayHeader {
  dtype: "f4" | "f8" | "i4" | "u4" | "u2" | "u1";
  shape: number[];
  at: number;
}

const ARRAYS = {
  f4: Float32Array,
  f8: Float64Array,
  i4: Int32Array,
  u4: Uint32Array,
  u2: Uint16Array,
  u1: Uint8Array,
};

export function unpack<T>(message: ArrayBuffer): T {
  const size = new DataView(message).getUint32(0, true);
  const text = new TextDecoder().decode(new Uint8Array(message, 4, size));
  const header = JSON.parse(text) as { answer: unknown; arrays: ArrayHeader[] };
  const tensors = header.arrays.map(({ dtype, shape, at }): Tensor => {
    const count = shape.reduce((product, each) => product * each, 1);
    return { values: new ARRAYS[dtype](message, 4 + size + at, count), shape };
  });
  return withArrays(header.answer, tensors) as T;
}

function withArrays(value: unknown, tensors: Tensor[]): unknown {
  if (Array.isArray(value)) return value.map((each) => withArrays(each, tensors));
  if (value === null || typeof value !== "object") return value;
  const entries = Object.entries(value);
  const first = entries[0];
  if (entries.length === 1 && first?.[0] === "$array") return tensors[first[1] as number];
  return Object.fromEntries(entries.map(([key, inner]) => [key, withArrays(inner, tensors)]));
}
