/** The rotary lab: the rotations of the pairs of two configurations, and their agreement by distance. */

import { useQuery, useView } from "../hooks";
import { fixed, formatNumber, upTo, whole } from "../numbers";
import { Choice, Folded, Parameters, Slider, withParameter } from "../parts/controls";
import { LineFigure } from "../parts/figure";
import type { Curve } from "../parts/plot";
import { Answered, Wrong } from "../parts/states";
import type { Column } from "../parts/table";
import type { PairRotations, RotaryConfiguration, RotaryLab } from "../types";
import type { Tensor } from "../wire";

const SIDES = ["a", "b"] as const;

export function Rotary() {
  const query = useQuery("rotary.lab", useView().settings);
  return (
    <Answered query={query} what="rotating pairs">
      {(lab) => (
        <>
          <Unseen lab={lab} />
          {lab.missing !== null && <p class="note">The lab begins with a plain rotary: {lab.missing}.</p>}
          <Slider
            label="length of the text"
            help="the length at which both are compared"
            name="claimed"
            value={lab.claimed}
            low={32}
            high={1 << 24}
            base={2}
            steps={2}
            set={(claimed) => ({ claimed: Math.round(claimed) })}
          />
          <div class="split">
            <Wavelengths lab={lab} />
            <div class="side">
              <Configuration side={0} lab={lab} />
              <Configuration side={1} lab={lab} />
            </div>
            <div class="pair">
              <Agreement lab={lab} />
              <Slowdown lab={lab} />
            </div>
          </div>
        </>
      )}
    </Answered>
  );
}

function Unseen({ lab }: Props) {
  const sides = built(lab);
  const trained = [...new Set(sides.map(({ of }) => whole(of.trained)))].join(" and ");
  const of = sides.map(({ name, of: { spectrum } }) => {
    return `${count(spectrum.unseen)} of ${spectrum.unseen.values.length} pairs of ${name}`;
  });
  if (!of.length) return null;
  return (
    <p class="answer">
      Trained with {trained} positions: at {whole(lab.claimed)} positions, {of.join(" and ")} reach angles that training
      never did.
    </p>
  );
}

function count({ values }: Tensor, right: (value: number) => boolean = Boolean): number {
  return Array.from(values).filter(right).length;
}

function Configuration({ side, lab }: { side: 0 | 1; lab: RotaryLab }) {
  const { settings, change } = useView<Record<"a" | "b", string>>();
  const of = lab.sides[side];
  const setting = SIDES[side];
  const text = settings[setting];
  const row = lab.scalings[of.scaling];
  const name = setting.toUpperCase();
  const repeated = side === 1 && of.preset.lengths === lab.sides[0].preset.lengths;
  return (
    <section class="configuration" aria-label={`Configuration ${name}`}>
      <h2>
        {name} <small>{text ? `${of.preset.title}, changed` : of.preset.title}</small>
      </h2>
      <div class="controls">
        <Choice
          label="preset"
          name={setting}
          value={of.preset.name}
          options={lab.presets.map((preset) => [preset.name, preset.title] as const)}
          set={(preset) => ({ [setting]: `from=${preset}` })}
        />
        <Choice
          label="scaling"
          name={setting}
          value={of.scaling}
          options={Object.keys(lab.scalings)}
          set={(scaling) => ({ [setting]: withParameter(text, "scaling", scaling) })}
        />
        {text && (
          <button type="button" onClick={() => change({ [setting]: "" })}>
            Reset {name}
          </button>
        )}
      </div>
      <Folded title={`parameters of ${name}`}>
        <Parameters of={of.parameters} name={setting} />
      </Folded>
      {row && (
        <details class="folded">
          <summary>formula</summary>
          {row.formula} (<a href={row.url}>{row.paper}</a>)
          {of.scaling === "longrope" &&
            (of.preset.lists
              ? "; the factors of each pair are this model’s own"
              : "; instead of searched factors, these rise evenly from 1 to the factor")}
        </details>
      )}
      {of.problem !== null && <Wrong message={of.problem} />}
      {of.rotations && (
        <Facts of={of.rotations} lengths={repeated ? "" : of.preset.lengths} claimed={whole(lab.claimed)} />
      )}
    </section>
  );
}

function Facts({ of, lengths, claimed }: { of: PairRotations; lengths: string; claimed: string }) {
  const { partial, constant, rotations_claimed } = of.spectrum;
  return (
    <ul class="facts">
      <li>
        <b>
          {count(partial)} of {partial.values.length}
        </b>{" "}
        pairs make no full rotation in the trained {whole(of.trained)}
      </li>
      <li>
        <b>{count(rotations_claimed, (turns) => turns < 1)}</b> make no full rotation in {claimed}
        {count(constant) > 0 && `; ${count(constant)} never rotate`}
      </li>
      {of.magnitude !== 1 && (
        <li>
          queries and keys times <b>{formatNumber(of.magnitude, 4)}</b>
        </li>
      )}
      {of.follows_length && <li>the frequencies follow the length; shown are those of a text of {claimed}</li>}
      {lengths && <li>{lengths}</li>}
    </ul>
  );
}

interface Props {
  lab: RotaryLab;
}

const LOOKS = [{ color: 2 }, { color: 1, dash: "7 4" }];

/** Return the configurations that can be built, as they are named in figures and in Python. */
function built(lab: RotaryLab) {
  return lab.sides.flatMap(({ rotations: of }, n) =>
    of ? [{ name: "AB"[n]!, side: "ab"[n]!, look: LOOKS[n]!, of }] : [],
  );
}

interface PairRow {
  name: string;
  pair: number;
  of: PairRotations;
}

function pairRows(lab: RotaryLab): PairRow[] {
  return built(lab).flatMap(({ name, of }) => upTo(of.frequencies.values.length).map((pair) => ({ name, pair, of })));
}

const OF_PAIR: Column<PairRow>[] = [
  { title: "configuration", value: ({ name }) => name },
  { title: "pair", numeric: true, value: ({ pair }) => pair },
];

type Measure = "wavelengths" | "unscaled" | "slowdown" | "rotations_trained" | "rotations_claimed";

function spectrumColumn(title: string, measure: Measure): Column<PairRow> {
  return { title, numeric: true, value: ({ of, pair }) => of.spectrum[measure].values[pair] };
}

/** Return the curves of a number of each pair, for both configurations. */
function pairCurves(lab: RotaryLab, measure: Measure): { x: number[]; curves: Curve[] } {
  const curves = built(lab).map(({ name, look, of }) => ({ name, values: of.spectrum[measure].values, ...look }));
  return { x: upTo(Math.max(0, ...curves.map(({ values }) => values.length))), curves };
}

/** Return the Python that builds both configurations, and `w` of each: its frequencies at this length. */
function code(lab: RotaryLab): string {
  const lines = built(lab).flatMap(({ side, of }) => {
    const length = of.follows_length ? `torch.tensor(${lab.claimed})` : "";
    return [`${side} = ${of.python}`, `w_${side} = ${side}.frequencies(${length}).numpy()`];
  });
  return lines.join("\n");
}

function spectra(lab: RotaryLab): string {
  const lines = built(lab).map(({ side, of }) => {
    const plain = `ww.Rotary(${side}.head_dim, ${side}.theta, rotary_dim=${side}.rotary_dim)`;
    const unscaled = `${plain}.inverse_frequencies.numpy()`;
    return `ww.analysis.rotary_spectrum(w_${side}, ${unscaled}, trained=${of.trained}, claimed=${lab.claimed})`;
  });
  return [code(lab), ...lines].join("\n");
}

export function Wavelengths({ lab }: Props) {
  const trained = [...new Set(built(lab).map(({ of }) => of.trained))];
  const levels = trained.map((y) => ({ y, text: `trained ${whole(y)}` }));
  if (!trained.includes(lab.claimed)) levels.push({ y: lab.claimed, text: `length ${whole(lab.claimed)}` });
  return (
    <LineFigure
      title="Wavelength of each pair"
      {...pairCurves(lab, "wavelengths")}
      xLabel="pair"
      yLabel="positions for a rotation"
      logY
      levels={levels}
      height={300}
      note="A pair above a line makes no full rotation within that length. Pairs that never rotate have no point."
      rows={pairRows(lab)}
      columns={[
        ...OF_PAIR,
        spectrumColumn("wavelength", "wavelengths"),
        spectrumColumn("unscaled", "unscaled"),
        spectrumColumn("slowdown", "slowdown"),
        spectrumColumn("rotations trained", "rotations_trained"),
        spectrumColumn("rotations in the text", "rotations_claimed"),
        { title: "new angles", value: ({ of, pair }) => (of.spectrum.unseen.values[pair] ? "yes" : "no") },
      ]}
      code={spectra(lab)}
      how={
        "wavelength = 2π / w, the positions of one full rotation; rotations in a length L = L w / 2π. Pairs are counted " +
        "from 0, the fastest. A pair that made no full rotation in training reaches unseen angles beyond the trained " +
        "length, unless a scaling slows it."
      }
    />
  );
}

function Slowdown({ lab }: Props) {
  return (
    <LineFigure
      title="Slowdown of each pair by the scaling"
      {...pairCurves(lab, "slowdown")}
      xLabel="pair"
      yLabel="slowdown"
      levels={[{ y: 1, text: "" }]}
      note="1 leaves a pair as it is."
      rows={pairRows(lab)}
      columns={[...OF_PAIR, spectrumColumn("slowdown", "slowdown")]}
      code={`${spectra(lab)}.slowdown`}
      how="The frequency of each pair without the scaling, over that with it: w / w′."
    />
  );
}

function same(one: Tensor, other: Tensor | null): boolean {
  return other !== null && one.values.every((value, n) => value === other.values[n]);
}

export function Agreement({ lab }: Props) {
  const between = lab.agreement;
  // Beside an unscaled side, the curve of the other and itself unscaled is often the same.
  const scaled = ({ scaling, rotations }: RotaryConfiguration) =>
    scaling === "none" || !rotations || same(rotations.agreement, between) ? null : rotations.agreement;
  const curves = [
    { name: "A and B", of: between, color: 3 },
    { name: "A and A unscaled", of: scaled(lab.sides[0]), color: 2, dash: "3 3" },
    { name: "B and B unscaled", of: scaled(lab.sides[1]), color: 1, dash: "7 4" },
  ].flatMap(({ of, ...curve }) => (of ? [{ ...curve, values: of.values }] : []));
  const distances = lab.distances.values;
  const agreement = `ww.analysis.rotary_agreement(w_a, w_b, [1, 10, 100, ${lab.claimed - 1}])`;
  return (
    <LineFigure
      title="Agreement of the two rotaries by distance"
      x={distances}
      curves={curves}
      xLabel="distance"
      yLabel="cosine"
      logX
      levels={[{ y: 0, text: "" }]}
      note={
        between === null
          ? "The two cannot be compared: their pairs differ in number, or one cannot be built."
          : `At distance ${whole(distances.at(-1)!)} the cosine of A and B is ${fixed(between.values.at(-1)!, 3)}. ` +
            "Near 0, the scores are those of unrelated distances."
      }
      code={between ? `${code(lab)}\n${agreement}` : code(lab)}
      how={
        <>
          cos(R<sub>d</sub> x, R′<sub>d</sub> x) = mean of cos(d (w − w′)) over the pairs: a vector of equal length in
          each pair, rotated by the one and by the other. Between the {distances.length} distances shown, fast pairs
          make full rotations.
        </>
      }
    />
  );
}
