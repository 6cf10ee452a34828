/** The figures of the rotary lab. */

import { useMemo } from "preact/hooks";
import { fixed, whole } from "../../numbers";
import { LineFigure, numberColumn } from "../../parts/figures";
import type { Curve, LinesProps } from "../../parts/lines";
import type { Column } from "../../parts/table";
import type { PairRotations, RotaryConfiguration, RotaryLab } from "../../types";
import type { Tensor } from "../../wire";

const COLORS = [2, 1];
const DASHES = [undefined, [7, 4]];
const NEAR_ZERO = "Near 0, the scores are those of unrelated distances.";

interface PairRow {
  side: string;
  pair: number;
  of: PairRotations;
}

/** Return the configurations that can be built. */
function built(lab: RotaryLab): { name: string; n: number; of: PairRotations }[] {
  return lab.sides.flatMap(({ rotations }, n) => (rotations === null ? [] : [{ name: "AB"[n]!, n, of: rotations }]));
}

/** Return the pairs of both as rows of a table, and their first two columns. */
function pairTable(lab: RotaryLab, more: (of: (row: number) => PairRow) => Column<number>[]) {
  const rows = built(lab).flatMap(({ name, of }): PairRow[] =>
    Array.from({ length: of.pairs }, (_, pair) => ({ side: name, pair, of })),
  );
  const of = (row: number) => rows[row]!;
  const columns: Column<number>[] = [
    { title: "configuration", value: (row) => of(row).side },
    { title: "pair", numeric: true, value: (row) => of(row).pair },
    ...more(of),
  ];
  return { rows: rows.map((_, n) => n), columns };
}

/** Return finite numbers above 0: a logarithmic axis has no others. */
function drawable({ values }: Tensor, pairs: number): (number | null)[] {
  return Array.from({ length: pairs }, (_, pair) =>
    Number.isFinite(values[pair]) && values[pair]! > 0 ? values[pair]! : null,
  );
}

const HOW_LENGTHS = (
  <p>
    wavelength = 2π / w, the positions of one full rotation; rotations in a length L = L w / 2π. Pairs are counted from
    0, the fastest. A pair that made no full rotation in training reaches unseen angles beyond the trained length,
    unless a scaling slows it.
  </p>
);

/** Return the Python that builds both configurations, and `w` of each: its frequencies at this length. */
function code(lab: RotaryLab): string {
  const lines = built(lab).flatMap(({ name, of }) => {
    const side = name.toLowerCase();
    const length = of.follows_length ? `torch.tensor(${lab.claimed})` : "";
    return [`${side} = ${of.python}`, `w_${side} = ${side}.frequencies(${length}).numpy()`];
  });
  return lines.join("\n");
}

function spectra(lab: RotaryLab): string {
  const lines = built(lab).map(({ name, of }) => {
    const side = name.toLowerCase();
    const plain = `ww.Rotary(${side}.head_dim, ${side}.theta, rotary_dim=${side}.rotary_dim)`;
    const unscaled = `${plain}.inverse_frequencies.numpy()`;
    return `ww.analysis.rotary_spectrum(w_${side}, ${unscaled}, trained=${of.trained}, claimed=${lab.claimed})`;
  });
  return [code(lab), ...lines].join("\n");
}

/** Return the curve of a number of each pair, for both configurations. */
function pairCurves(lab: RotaryLab, name: "wavelengths" | "slowdown"): Pick<LinesProps, "x" | "curves"> {
  const sides = built(lab);
  const pairs = Math.max(0, ...sides.map(({ of }) => of.pairs));
  const curves = sides.map(({ name: side, n, of }): Curve => ({
    name: side,
    values: drawable(of.spectrum[name], pairs),
    color: COLORS[n]!,
    ...(DASHES[n] ? { dash: DASHES[n] } : {}),
  }));
  return { x: Array.from({ length: pairs }, (_, pair) => pair), curves };
}

const OF_PAIRS = [
  ["wavelength", "wavelengths"],
  ["unscaled", "unscaled"],
  ["slowdown", "slowdown"],
  ["rotations trained", "rotations_trained"],
  ["rotations in the text", "rotations_claimed"],
] as const;

export function Wavelengths({ lab }: { lab: RotaryLab }) {
  const lines: LinesProps = useMemo(() => {
    const trained = [...new Set(built(lab).map(({ of }) => of.trained))];
    return {
      title: "Wavelength of each pair",
      ...pairCurves(lab, "wavelengths"),
      xLabel: "pair",
      yLabel: "positions for a rotation",
      logY: true,
      levels: [
        ...trained.map((y) => ({ y, text: `trained ${whole(y)}` })),
        ...(trained.includes(lab.claimed) ? [] : [{ y: lab.claimed, text: `length ${whole(lab.claimed)}` }]),
      ],
      height: 300,
    };
  }, [lab]);
  return (
    <LineFigure
      lines={lines}
      note="A pair above a line makes no full rotation within that length. Pairs that never rotate have no point."
      file="rotary-wavelengths"
      table={pairTable(lab, (at) => [
        ...OF_PAIRS.map(([title, name]) =>
          numberColumn(title, (row: number) => at(row).of.spectrum[name].values[at(row).pair]),
        ),
        { title: "new angles", value: (row) => (at(row).of.spectrum.unseen.values[at(row).pair] ? "yes" : "no") },
      ])}
      code={spectra(lab)}
      how={HOW_LENGTHS}
    />
  );
}

export function Slowdown({ lab }: { lab: RotaryLab }) {
  const lines: LinesProps = useMemo(
    () => ({
      title: "Slowdown of each pair by the scaling",
      ...pairCurves(lab, "slowdown"),
      xLabel: "pair",
      yLabel: "slowdown",
      levels: [{ y: 1, text: "" }],
    }),
    [lab],
  );
  return (
    <LineFigure
      lines={lines}
      note="1 leaves a pair as it is."
      file="rotary-slowdown"
      table={pairTable(lab, (at) => [
        numberColumn("slowdown", (row: number) => at(row).of.spectrum.slowdown.values[at(row).pair]),
      ])}
      code={`${spectra(lab)}.slowdown`}
      how={<p>The frequency of each pair without the scaling, over that with it: w / w′.</p>}
    />
  );
}

function same(one: Tensor | null, other: Tensor | null): boolean {
  return one !== null && other !== null && one.values.every((value, n) => value === other.values[n]);
}

export function Agreement({ lab }: { lab: RotaryLab }) {
  const { between, a, b } = lab.cosines;
  // Beside an unscaled side, the curve of the other and itself unscaled is often the same.
  const scaled = (of: Tensor | null, side: RotaryConfiguration) =>
    side.scaling === "none" || same(of, between) ? null : of;
  const curves = [
    { name: "A and B", of: between, color: 3, dash: undefined },
    { name: "A and A unscaled", of: scaled(a, lab.sides[0]), color: COLORS[0]!, dash: [3, 3] },
    { name: "B and B unscaled", of: scaled(b, lab.sides[1]), color: COLORS[1]!, dash: [7, 4] },
  ].filter(({ of }) => of !== null);
  const lines: LinesProps = useMemo(
    () => ({
      title: "Agreement of the two rotaries by distance",
      x: lab.distances.values,
      curves: curves.map(({ name, of, color, dash }): Curve => ({
        name,
        values: Array.from(of!.values),
        color,
        ...(dash ? { dash } : {}),
      })),
      xLabel: "distance",
      yLabel: "cosine",
      logX: true,
      levels: [{ y: 0, text: "" }],
    }),
    [lab],
  );
  const agreement = `ww.analysis.rotary_agreement(w_a, w_b, [1, 10, 100, ${lab.claimed - 1}])`;
  const last = whole(lab.distances.values.at(-1)!);
  return (
    <LineFigure
      lines={lines}
      note={
        between === null
          ? "The two cannot be compared: their pairs differ in number, or one cannot be built."
          : `At distance ${last} the cosine of A and B is ${fixed(between.values.at(-1)!, 3)}. ${NEAR_ZERO}`
      }
      file="rotary-agreement"
      code={between ? `${code(lab)}\n${agreement}` : code(lab)}
      how={
        <p>
          cos(R<sub>d</sub> x, R′<sub>d</sub> x) = mean of cos(d (w − w′)) over the pairs: a vector of equal length in
          each pair, rotated by the one and by the other. Between the {lines.x.length} distances shown, fast pairs make
          full rotations.
        </p>
      }
    />
  );
}
