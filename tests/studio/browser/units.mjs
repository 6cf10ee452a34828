// Modules of the page that need no browser, each against a plain way of doing the same.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { bundle, given, report } from "./driving.mjs";

const page = await import(await bundle(join(import.meta.dirname, "units.ts"), "esm"));

// Answers: Python packs, the page reads.
const message = readFileSync(given.message);
const answer = page.unpack(message.buffer.slice(message.byteOffset, message.byteOffset + message.length));

// Links: settings come back as they were, and what does not fit is left as it was.
const defaults = { token: "a", k: 10, centered: false };
const settings = { token: "a&b=c #?/%é", k: -2.5, centered: true };
const link = page.readLink(page.writeLink("tokens", settings, defaults));
assert.equal(link.view, "tokens");
assert.deepEqual(page.fitted(link.given, defaults), settings);
assert.equal(page.writeLink("tokens", defaults, defaults), "#/tokens");
assert.deepEqual(page.fitted(new URLSearchParams("k=x&token=&other=1&k2="), defaults), { ...defaults, token: "" });
assert.deepEqual([page.readLink("").view, page.readLink("#/map?x=1?2").given.get("x")], ["", "1?2"]);

// Ticks are at round numbers: two of them are 1, 2 or 5 times a power of ten apart, or are such numbers themselves.
const round = (value) => /^[125]0*$/.test(value.toExponential(6).replace(/\.|e.*/g, "").replace(/0+$/, ""));
for (const [low, high] of [[0, 63], [0, 127], [2, 32], [-2047.5, 0], [-0.03, 0.0041], [0, 511], [1e-7, 3e-7]]) {
  for (const count of [2, 5, 9, 20]) {
    const ticks = page.axis(low, high, 0, 100).ticks(count);
    assert(ticks.length > 1 && ticks.slice(1).every((tick, n) => round(tick - ticks[n])), `${low} to ${high}: ${ticks}`);
  }
}
for (const [low, high] of [[1, 4096], [2, 32], [6.2832, 54_410], [1e-8, 1]]) {
  const ticks = page.axis(low, high, 0, 100, true).ticks(8);
  assert(ticks.length > 1 && ticks.every((tick) => tick >= low && tick <= high && round(tick)), `${low} to ${high}: ${ticks}`);
}
assert(page.axis(10, 20, 0, 100, true).ticks(8).length > 2);
assert.deepEqual([1e-6, 2e-7, -1e-9, 2.5e15, 0.001, 1000].map(page.tickText), ["10⁻⁶", "2 · 10⁻⁷", "−10⁻⁹", "2.5 · 10¹⁵", "0.001", "1,000"]);
assert.deepEqual(page.counting(page.axis(-0.5, 3.5, 0, 100)).ticks(20), [0, 1, 2, 3]);

const open = { kind: "checkpoint", path: "/a b/\"c" };
const lines = 'import torch\nrows = ww.read(PATH).array("tokens.weight", rows=[1, 2])\nnp.sum(rows)';
const imports = "import numpy as np\nimport whatwhere as ww\nimport torch\n";
assert.equal(page.runnable(lines, open), `${imports}rows = ww.read("/a b/\\"c").array("tokens.weight", rows=[1, 2])\nnp.sum(rows)`);
assert.match(page.runnable(lines, { kind: "fresh", path: "" }), /^rows = np\.random.*\.astype\(np\.float32\)\[\[?1, 2\]\]?$/m);
assert.equal(page.runnable("ww.load_where(PATH)", { kind: "fresh", path: "" }), null);
assert.match(page.runnable(lines, { kind: "checkpoint", path: "" }), /read\(PATH\)/);
assert.deepEqual(page.characters("ab c"), [{ text: "ab", replaced: false }, { text: "␣", replaced: true }, { text: "c", replaced: false }]);
assert.deepEqual([page.face("##ing", "ing"), page.face("Ġthe", " the"), page.face("Ã", null)], ["##ing", " the", "<0xC3>"]);

// Numbers and files.
assert.deepEqual([page.formatNumber(0.000123456), page.formatNumber(1234567), page.formatNumber(-0), page.formatNumber(null), page.formatNumber(0.5)], ["0.000123", "1,234,567", "0", "–", "0.5"]);
assert.deepEqual([page.fixed(-0.0001, 2), page.fixed(-1.5, 1)], ["0.00", "−1.5"]);
assert.equal(page.csv(["a", "b"], [['x"y', 1], [null, "=1+1"]]), 'a,b\r\n"x""y",1\r\n,\'=1+1\r\n');

// Pixels: three points in the middle of an image, each where it should be, in its own color; the rest is ground.
const image = { width: 101, height: 61, data: new Uint8ClampedArray(101 * 61 * 4) };
const three = { x: new Float32Array([0, 20, 0]), y: new Float32Array([0, 0, 10]), group: new Uint8Array([0, 1, 2]) };
const colors = Uint32Array.from(["#ff0000", "#00ff00", "#0000ff"], page.pixel);
page.drawPoints(image, three, { x: 0, y: 0, scale: 2 }, colors, page.pixel("#ffffff"), { ratio: 1, zoom: 1 });
const at = (x, y) => [...image.data.subarray(4 * (y * 101 + x), 4 * (y * 101 + x) + 4)];
const strongest = ([red, green, blue]) => ["red", "green", "blue"][[red, green, blue].indexOf(Math.max(red, green, blue))];
assert.deepEqual([at(50, 30), at(90, 30), at(50, 10)].map(strongest), ["red", "green", "blue"]);
assert.deepEqual([at(70, 30), at(0, 0), at(50, 50)], Array(3).fill([255, 255, 255, 255]));

// Few points are large, also where most are behind others; a point at the border is drawn as far as it is inside.
page.drawPoints(image, { ...three, x: new Float32Array([-25.2, 20, 0]) }, { x: 0, y: 0, scale: 2 }, colors, page.pixel("#ffffff"), { ratio: 1, zoom: 1 });
assert.equal(strongest(at(0, 30)), "red");
assert.ok(page.radius(30000) < page.radius(30000, 9) && page.radius(30000, 9) < page.radius(50));
assert.equal(page.before({ ...three, group: new Uint8Array([255, 1, 255]) }), 1);

// Patterns: a part of the text, its ends, and anything between.
const words = ["King", "kingdom", " viking", "ranking", "kin"];
const found = (pattern) => words.filter(page.matcher(pattern)).map((word) => word.trim());
assert.deepEqual(found("king"), ["King", "kingdom", "viking", "ranking"]);
assert.deepEqual(found("^king"), ["King", "kingdom"]);
assert.deepEqual(found("king$"), ["King", "viking", "ranking"]);
assert.deepEqual([found("^king$"), found("^k*m$"), found("^v*k*g$"), found("i*i*g")], [["King"], ["kingdom"], ["viking"], ["viking"]]);
assert.deepEqual([found("n*n$"), found("^kin*in$"), found(""), found("(")], [[], [], words.map((word) => word.trim()), []]);

// Labels: the first have the room; of few points every one has a label.
const spots = [[50, 50], [52, 51], [20, 20]];
const options = { order: [0, 1, 2], position: (n) => spots[n], text: String, measure: () => 10, width: 100, height: 100, radius: 3, line: 12, most: 9 };
assert.deepEqual(page.placeLabels(options).map(({ point }) => point), [0, 2]);
assert.deepEqual(page.placeLabels({ ...options, all: true }).map(({ point }) => point), [0, 1, 2]);
assert.ok(page.placeLabels({ ...options, all: true })[0].x + 10 < 47); // on the right is the second point

// In a crowd labels go away from their points, with a line to each, and cover no other label and no point.
const crowd = Array.from({ length: 14 }, (_, n) => [100 + 3 * n, 100 + (n % 2)]);
const wide = { ...options, order: crowd.keys(), position: (n) => crowd[n], measure: () => 30, width: 300, height: 200, most: 99, all: true };
const far = page.placeLabels(wide);
const inside = (px, py, { x, y }) => px > x && px < x + 30 && py > y - 6 && py < y + 6;
assert.equal(far.length, crowd.length);
assert.ok(far.some(({ leader }) => leader));
for (const one of far) {
  assert.ok(crowd.every(([px, py]) => !inside(px, py, one)));
  assert.ok(far.every((other) => other === one || Math.abs(one.x - other.x) >= 30 || Math.abs(one.y - other.y) >= 12));
}
assert.deepEqual(page.placeLabels({ ...options, order: [2, 0], most: 1 }).map(({ point }) => point), [2]);

// Sliders: every step has a number within the ends, powers of the base are exact, and the number stands at its step.
const scales = [
  { low: 32, high: 1 << 20, base: 2, steps: 2, whole: true },
  { low: 100, high: 1e8, base: 10, steps: 10, whole: false },
  { low: 1 / 16, high: 32, base: 2, steps: 2, whole: false },
  { low: 2, high: 128, base: null, steps: 0.5, whole: true },
];
for (const scale of scales) {
  const [first, last] = [page.stepOf(scale.low, scale), page.stepOf(scale.high, scale)];
  const values = Array.from({ length: Math.round(last - first) + 1 }, (_, step) => page.valueAt(Math.round(first) + step, scale));
  assert.ok(values.every((value, n) => (n === 0 || value > values[n - 1]) && value >= scale.low && value <= scale.high));
  values.forEach((value, n) => assert.equal(Math.round(page.stepOf(value, scale)), Math.round(first) + n));
}
const lengths = Array.from({ length: 31 }, (_, step) => page.valueAt(10 + step, scales[0]));
assert.ok([32, 4096, 8192, 131072, 1 << 20].every((power) => lengths.includes(power)));
assert.equal(page.withParameter("from=plain factor=4", "factor", 8), "from=plain factor=8");
assert.equal(page.withParameter("", "truncate", false), "truncate=false");
assert.deepEqual([...page.parameterMap(" a=1  b=x=y c ")], [["a", "1"], ["b", "x=y"]]);

// Curves: no bias lies outside of the axis as a whole, names keep clear of curves, and what cannot be seen is named.
const bias = (name, values) => ({ name, values });
const biases = [bias("high", [15, 9, 2]), bias("low", [0, -50, -500])];
const [lowest, highest] = page.readableBiases(biases).y;
assert.ok(biases.every(({ values }) => Math.max(...values) <= highest && Math.max(...values) - lowest >= 10));
assert.deepEqual(page.readableBiases([bias("flat", [0, -3, -6])]), {});
const x = Array.from({ length: 50 }, (_, n) => n);
for (const rising of [true, false]) {
  const values = x.map((n) => (rising ? n : 49 - n));
  const curves = { title: "", x, curves: [bias("a", values)], xLabel: "", yLabel: "", levels: [{ y: 20, text: "a level with a name" }] };
  const plot = page.plotOf(curves, 300, 240);
  const [, left, base] = /<text[^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>a level with a name/.exec(page.plotSvg(curves, plot)).map(Number);
  const under = values.filter((_, n) => plot.across(x[n]) > left && plot.across(x[n]) < left + 19 * 6);
  assert.ok(under.every((value) => plot.up(value) < base - 10 || plot.up(value) > base), "the name is over the curve");
}
const marked = { x: [1, 2, 4], dots: true, logY: true };
const legend = (values) => page.legendName({ name: "a", values }, marked);
assert.deepEqual([[1, 2, 3], [1, 2, null], [null, null, null]].map(legend), ["a", "a (ends at 2)", "a (all 0)"]);
assert.equal(page.legendName({ name: "a", values: [1, null, null] }, { x: [1, 2, 4] }), "a");

report({ answer: plain(answer) });

function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  if (ArrayBuffer.isView(value.values)) return { kind: value.values.constructor.name, shape: value.shape, values: [...value.values] };
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, plain(inner)]));
}
