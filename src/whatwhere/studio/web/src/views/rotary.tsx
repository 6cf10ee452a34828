/** View 6, the rotary lab: how far the pairs of two configurations turn, and how far the two agree by distance. */

import { useMemo } from "preact/hooks";
import { useQuery } from "../hooks";
import { fixed, formatNumber, whole } from "../numbers";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg } from "../parts/lines";
import { type Parameter, Parameters, Slider, withTurned } from "../parts/slider";
import { Answered, Wrong } from "../parts/states";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { Tensor } from "../wire";

interface Examined {
  python: string;
  follows_length: boolean;
  magnitude: number;
  trained: number;
  pairs: number;
  wavelengths: Tensor;
  unscaled: Tensor;
  slowed: Tensor;
  turns_trained: Tensor;
  turns_claimed: Tensor;
  beyond: Tensor;
  unfinished: number;
  unfinished_claimed: number;
  beyond_count: number;
  still: number;
}

interface Side extends Partial<Examined> {
  from: string;
  said: string;
  lengths: string;
  scaling: string;
  parameters: Parameter[];
  own_lists: boolean;
  problem: string | null;
}

interface Lab {
  missing: string | null;
  starts: { name: string; said: string }[];
  scalings: { name: string; formula: string; paper: string; url: string; used_by: string[] }[];
  claimed: number;
  sides: [Side, Side];
  distances: Tensor;
  cosines: { between: Tensor | null; a: Tensor | null; b: Tensor | null };
}

const SIDES = ["a", "b"] as const;
const COLORS = [2, 1];
const DASHES = [undefined, [7, 4]];
const LONGEST = 1 << 24;

const DEFAULTS: Settings = { a: "", b: "", claimed: 0 };

register({
  id: "rotary",
  order: 6,
  title: "Rotary lab",
  question: "How far does each pair of features turn within the trained and the claimed length, and what does a scaling change?",
  defaults: () => DEFAULTS,
  shown: () => true,
  Page: Rotary,
});

function Rotary({ settings, change }: ViewProps) {
  const asked = useQuery<Lab>("rotary.lab", settings);
  return (
    <Answered query={asked} what="turning pairs">
      {(lab) => <LabOf lab={lab} settings={settings} change={change} />}
    </Answered>
  );
}

function LabOf({ lab, settings, change }: { lab: Lab } & Pick<ViewProps, "settings" | "change">) {
  return (
    <>
      <p class="note">
        {lab.missing === null
          ? "It begins with this model’s own settings; turn what you like."
          : `There is no rotary of the model’s own to begin with: ${lab.missing}. So it begins with a plain one.`}
      </p>
      <div class="pair">
        {SIDES.map((side, n) => (
          <Configuration key={side} side={side} of={lab.sides[n]!} lab={lab} text={String(settings[side])} change={change} />
        ))}
      </div>
      <div class="wide">
        <Slider
          label="length of the text"
          words="the length at which both are asked"
          value={lab.claimed}
          low={32}
          high={LONGEST}
          base={2}
          steps={2}
          whole
          change={(claimed, now) => change({ claimed: Math.round(claimed) }, now)}
        />
      </div>
      <Wavelengths lab={lab} />
      <div class="pair">
        <Slowed lab={lab} />
        <Agreement lab={lab} />
      </div>
    </>
  );
}

interface ConfigurationProps {
  side: (typeof SIDES)[number];
  of: Side;
  lab: Lab;
  text: string;
  change: ViewProps["change"];
}

function Configuration({ side, of, lab, text, change }: ConfigurationProps) {
  const row = lab.scalings.find(({ name }) => name === of.scaling);
  const name = side.toUpperCase();
  return (
    <section class="configuration" aria-label={`Configuration ${name}`}>
      <h2>
        {name} <small>{text ? `${of.said}, changed` : of.said}</small>
      </h2>
      <div class="ask">
        <label class="choice">
          begins as{" "}
          <select value={of.from} onChange={(event) => change({ [side]: `from=${event.currentTarget.value}` })}>
            {lab.starts.map((start) => (
              <option key={start.name} value={start.name}>
                {start.said}
              </option>
            ))}
          </select>
        </label>
        <label class="choice">
          scaling{" "}
          <select value={of.scaling} onChange={(event) => change({ [side]: withTurned(text, "scaling", event.currentTarget.value) })}>
            {lab.scalings.map((scaling) => (
              <option key={scaling.name}>{scaling.name}</option>
            ))}
          </select>
        </label>
        <button type="button" disabled={!text} onClick={() => change({ [side]: "" })}>
          Reset {name}
        </button>
      </div>
      <Parameters of={of.parameters} turn={(parameter, value, now) => change({ [side]: withTurned(text, parameter, value) }, now)} />
      {row && (
        <p class="note">
          {row.formula} (<a href={row.url}>{row.paper}</a>)
          {of.own_lists && "; the factors of each pair are this model’s own"}
          {of.scaling === "longrope" && !of.own_lists && "; in place of searched factors, these rise evenly from 1 to the factor"}
        </p>
      )}
      {of.problem !== null ? <Wrong message={of.problem} /> : <Facts of={of as Side & Examined} claimed={lab.claimed} />}
    </section>
  );
}

function Facts({ of, claimed }: { of: Side & Examined; claimed: number }) {
  return (
    <ul class="facts">
      <li>
        <b>
          {of.unfinished} of {of.pairs}
        </b>{" "}
        pairs make no full turn in the trained {whole(of.trained)}
      </li>
      <li>
        <b>{of.beyond_count}</b> of these turn farther at {whole(claimed)}: to angles that training never showed
      </li>
      <li>
        <b>{of.unfinished_claimed}</b> make no full turn in {whole(claimed)}
        {of.still > 0 && `; ${of.still} never turn`}
      </li>
      {of.magnitude !== 1 && (
        <li>
          queries and keys times <b>{formatNumber(of.magnitude)}</b>
        </li>
      )}
      {of.follows_length && <li>the frequencies follow the length; shown are those of a text of {whole(claimed)}</li>}
      {of.lengths && <li>{of.lengths}</li>}
    </ul>
  );
}

interface PairRow {
  side: string;
  pair: number;
  of: Side & Examined;
}

function examined(lab: Lab): { name: string; n: number; of: Side & Examined }[] {
  return lab.sides.map((of, n) => ({ name: "AB"[n]!, n, of: of as Side & Examined })).filter(({ of }) => of.problem === null);
}

function pairRows(lab: Lab): PairRow[] {
  return examined(lab).flatMap(({ name, of }) => Array.from({ length: of.pairs }, (_, pair) => ({ side: name, pair, of })));
}

/** A logarithmic axis has no place for what never ends, nor for 0. */
function drawable({ values }: Tensor, pairs: number): (number | null)[] {
  return Array.from({ length: pairs }, (_, pair) => (Number.isFinite(values[pair]) && values[pair]! > 0 ? values[pair]! : null));
}

function cellOf(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

const HOW_LENGTHS = (
  <p>
    wavelength = 2π / w, the positions that a pair needs for one full turn; turns in a length L = L w / 2π. Pairs are counted from 0, the
    fastest. A pair that made no full turn in training meets angles beyond the trained length that it never showed, unless a scaling slows it.
  </p>
);

/** Give the lines that make both configurations, and `w` of each: its frequencies at this length. */
function code(lab: Lab): string {
  const lines = examined(lab).flatMap(({ name, of }) => {
    const side = name.toLowerCase();
    const length = of.follows_length ? `torch.tensor(${lab.claimed})` : "";
    return [`${side} = ${of.python}`, `w_${side} = ${side}.frequencies(${length}).numpy()`];
  });
  return ["import torch", "from whatwhere import *", "from whatwhere.where.scaling import *", "from whatwhere.analysis import rotary_agreement, rotary_spectrum", ...lines].join("\n");
}

function spectra(lab: Lab): string {
  const lines = examined(lab).map(({ name, of }) => {
    const side = name.toLowerCase();
    const plain = `Rotary(${side}.head_dim, ${side}.theta, rotary_dim=${side}.rotary_dim).inverse_frequencies.numpy()`;
    return `rotary_spectrum(w_${side}, ${plain}, trained=${of.trained}, claimed=${lab.claimed})`;
  });
  return [code(lab), ...lines].join("\n");
}

function Wavelengths({ lab }: { lab: Lab }) {
  const sides = examined(lab);
  const props: LinesProps = useMemo(() => {
    const pairs = Math.max(0, ...sides.map(({ of }) => of.pairs));
    const trained = [...new Set(sides.map(({ of }) => of.trained))];
    return {
      title: "Wavelength of each pair",
      x: Array.from({ length: pairs }, (_, pair) => pair),
      curves: sides.map(({ name, n, of }): Curve => ({ name, values: drawable(of.wavelengths, pairs), color: COLORS[n]!, ...dash(n) })),
      xLabel: "pair",
      yLabel: "positions for a turn",
      logY: true,
      levels: [
        ...trained.map((y) => ({ y, text: `trained ${whole(y)}` })),
        ...(trained.includes(lab.claimed) ? [] : [{ y: lab.claimed, text: `length ${whole(lab.claimed)}` }]),
      ],
      height: 300,
    };
  }, [lab]);
  return (
    <Figure
      title={props.title}
      note="A pair above a line makes no full turn within that length. Pairs that never turn have no point."
      file="rotary-wavelengths"
      svg={() => linesSvg(props)}
      rows={pairRows(lab)}
      columns={[
        { title: "configuration", value: (row) => row.side },
        { title: "pair", numeric: true, value: (row) => row.pair },
        ...(
          [
            ["wavelength", "wavelengths"],
            ["unscaled", "unscaled"],
            ["slowed", "slowed"],
            ["turns trained", "turns_trained"],
            ["turns in the text", "turns_claimed"],
          ] as const
        ).map(([title, name]) => ({
          title,
          numeric: true,
          value: (row: PairRow) => cellOf(row.of[name].values[row.pair]!),
          cell: (row: PairRow) => formatNumber(row.of[name].values[row.pair]),
        })),
        { title: "new angles", value: (row) => (row.of.beyond.values[row.pair] ? "yes" : "no") },
      ]}
      how={<How code={spectra(lab)}>{HOW_LENGTHS}</How>}
    >
      <Lines {...props} />
    </Figure>
  );
}

function dash(n: number): { dash?: number[] } {
  const strokes = DASHES[n];
  return strokes ? { dash: strokes } : {};
}

function Slowed({ lab }: { lab: Lab }) {
  const sides = examined(lab);
  const props: LinesProps = useMemo(() => {
    const pairs = Math.max(0, ...sides.map(({ of }) => of.pairs));
    return {
      title: "How many times slower the scaling makes each pair",
      x: Array.from({ length: pairs }, (_, pair) => pair),
      curves: sides.map(({ name, n, of }): Curve => ({ name, values: drawable(of.slowed, pairs), color: COLORS[n]!, ...dash(n) })),
      xLabel: "pair",
      yLabel: "times slower",
      levels: [{ y: 1, text: "" }],
    };
  }, [lab]);
  return (
    <Figure
      title={props.title}
      note="1 leaves a pair as it is."
      file="rotary-slowed"
      svg={() => linesSvg(props)}
      rows={pairRows(lab)}
      columns={[
        { title: "configuration", value: (row) => row.side },
        { title: "pair", numeric: true, value: (row) => row.pair },
        {
          title: "times slower",
          numeric: true,
          value: (row) => cellOf(row.of.slowed.values[row.pair]!),
          cell: (row) => formatNumber(row.of.slowed.values[row.pair]),
        },
      ]}
      how={
        <How code={`${spectra(lab)}.slowed`}>
          <p>The frequency of each pair without the scaling, over that with it: w / w′.</p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}

function same(one: Tensor | null, other: Tensor | null): boolean {
  return one !== null && other !== null && one.values.every((value, n) => value === other.values[n]);
}

function Agreement({ lab }: { lab: Lab }) {
  const { between, a, b } = lab.cosines;
  // Beside a side that is not scaled, a curve of the other and itself unscaled often says the same again.
  const scaled = (of: Tensor | null, side: Side) => (side.scaling === "none" || same(of, between) ? null : of);
  const curves = [
    { name: "A and B", of: between, color: 3, dash: undefined },
    { name: "A and A unscaled", of: scaled(a, lab.sides[0]), color: COLORS[0]!, dash: [3, 3] },
    { name: "B and B unscaled", of: scaled(b, lab.sides[1]), color: COLORS[1]!, dash: [7, 4] },
  ].filter(({ of }) => of !== null);
  const props: LinesProps = useMemo(
    () => ({
      title: "How far two rotaries agree, by distance",
      x: lab.distances.values,
      curves: curves.map(({ name, of, color, dash }): Curve => ({ name, values: Array.from(of!.values), color, ...(dash ? { dash } : {}) })),
      xLabel: "distance",
      yLabel: "cosine",
      logX: true,
      levels: [{ y: 0, text: "" }],
    }),
    [lab],
  );
  const rows = Array.from({ length: lab.distances.values.length }, (_, n) => n);
  return (
    <Figure
      title={props.title}
      note={
        between === null
          ? "The two have not as many pairs, or one is refused, so that they cannot be laid over each other."
          : `At distance ${whole(lab.distances.values.at(-1)!)} the cosine of A and B is ${fixed(between.values.at(-1)!, 3)}. Near 0, a query meets its keys as if at distances that have nothing to do with theirs.`
      }
      file="rotary-agreement"
      svg={() => linesSvg(props)}
      rows={rows}
      columns={[
        { title: "distance", numeric: true, value: (n) => lab.distances.values[n]! },
        ...curves.map(({ name, of }) => ({
          title: name,
          numeric: true,
          value: (n: number) => of!.values[n]!,
          cell: (n: number) => fixed(of!.values[n]!, 4),
        })),
      ]}
      how={
        <How code={`${code(lab)}\nrotary_agreement(w_a, w_b, [1, 10, 100, ${lab.claimed - 1}])`}>
          <p>
            cos(R<sub>d</sub> x, R′<sub>d</sub> x) = mean of cos(d (w − w′)) over the pairs: a vector of equal length in each pair, turned by the
            one and by the other. Between the {rows.length} distances that are drawn the fast pairs go round more often than can be seen.
          </p>
        </How>
      }
    >
      {curves.length > 0 ? <Lines {...props} /> : <p class="note">Neither is scaled, and they cannot be compared.</p>}
    </Figure>
  );
}
