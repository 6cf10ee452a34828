/** What the trained schemes of a comparison assign to positions: fingerprints, and similarity by distance. */

import { fixed, upTo } from "../../numbers";
import { DrawnFigure, HeatFigure, LineFigure } from "../../parts/figure";
import { type Curve, DEEP_BIASES, look, readableBiases, strokeOf } from "../../parts/plot";
import { TextTable } from "../../parts/sections";
import type { CurvesView, Measurements, NumberLine } from "../../types";
import { digitLines } from "../replay/frame_svg";

export function Fingerprints({ results }: { results: Measurements }) {
  const shown = new Set(results.fingerprints.map(({ scheme }) => scheme));
  const without = results.schemes.filter((name) => !shown.has(name));
  return (
    <section class="apart" aria-labelledby="fingerprints">
      <h2 id="fingerprints">What each scheme makes of positions</h2>
      <p>{results.sentences.doors}</p>
      <p class="note reading">
        Each row of a figure is one position, or one distance, of the trained model of the first seed. Positions whose
        rows are similar are hard to distinguish.{without.length > 0 && ` Without a figure: ${without.join(", ")}.`}
      </p>
      <div class="pair">
        {results.fingerprints.map((view) => (
          <HeatFigure
            key={view.scheme}
            title={`Fingerprint of ${view.scheme}`}
            cells={view.values}
            xLabel={view.columns}
            yLabel={view.rows}
            cell={4}
            note={view.description}
            code={`ww.comparison.read_results(PATH).record.schemes[${JSON.stringify(view.scheme)}].fingerprint`}
            how="Computed from the trained scheme, and stored in results.json."
          />
        ))}
      </div>
    </section>
  );
}

export function ByDistance({ results }: { results: Measurements }) {
  if (!results.curves.length) return null;
  const labels = [...new Set(results.curves.map(({ label }) => label))];
  return (
    <section class="apart" aria-labelledby="by-distance">
      <h2 id="by-distance">Similarity by distance</h2>
      <p class="note reading">
        How similar are two positions at a given distance under each scheme? If a curve falls steadily, near and far
        positions differ. If it rises again, a far position resembles a near one.
      </p>
      <div class="pair">
        {labels.map((label) => (
          <Measure key={label} label={label} results={results} />
        ))}
      </div>
    </section>
  );
}

/** Return the curves of a scheme, which differ by their strokes. */
function curvesOf({ scheme, names, values }: CurvesView, { schemes, looks }: Measurements): Curve[] {
  const number = looks[schemes.indexOf(scheme)]!;
  const count = values.shape[1]!;
  return names.map((name, n) => ({
    ...look(number),
    ...(n ? strokeOf(number + n) : {}),
    name: names.length > 1 ? `${scheme}, ${name}` : scheme,
    values: values.values.subarray(n * count, (n + 1) * count),
  }));
}

function Measure({ label, results }: { label: string; results: Measurements }) {
  const views = results.curves.filter((view) => view.label === label);
  const x = views.map(({ distances }) => distances.values).reduce((a, b) => (b.length > a.length ? b : a));
  const curves = views.flatMap((view) => curvesOf(view, results));
  const yLabel = label.replace(/ (of|added to) .*/, "");
  const y = /bias/i.test(yLabel) ? readableBiases(curves) : {};
  const alone = [...new Set(views.filter(({ names }) => names.length === 1).map(({ names }) => names[0]))];
  return (
    <LineFigure
      title={capital(label)}
      x={x}
      curves={curves}
      xLabel="distance, tokens"
      yLabel={yLabel}
      {...y}
      note={[
        alone.length > 0 && `${views.map(({ scheme }) => scheme).join(", ")}: ${alone.join(", ")}. `,
        y.y && DEEP_BIASES,
      ]}
      code={`ww.comparison.read_results(PATH).record.schemes[${JSON.stringify(views[0]!.scheme)}].by_distance`}
      how="Computed from the trained scheme of the first seed, and stored in results.json."
    />
  );
}

export function Learned({ results }: { results: Measurements }) {
  const { token_table, number_lines, sentences } = results;
  return (
    <section class="apart" aria-labelledby="learned">
      <h2 id="learned">What training changed in the token table</h2>
      <p>{sentences.table}</p>
      <p class="note reading">
        The token table E holds one vector for each token: all that the model is given about the token’s identity. It is
        random at first, E0, and is trained with the rest of the model. The change E − E0 of each run can be seen{" "}
        <a href="#/replay">step by step</a>.
      </p>
      {token_table && (
        <div class="trained">
          <TextTable table={token_table} />
        </div>
      )}
      {number_lines.length > 0 && <Digits lines={number_lines} />}
    </section>
  );
}

function Digits({ lines }: { lines: NumberLine[] }) {
  const title = "The digits on a line, by scheme";
  const each = lines.map(({ scheme, coordinates, r }) => ({
    name: `${scheme}, |r| ${fixed(r, 2)}`,
    points: coordinates.values,
  }));
  return (
    <DrawnFigure
      title={title}
      note="No input tells the model that 3 is between 2 and 4. |r| is 1 if the digits are in order and evenly spaced."
      draw={(width) => digitLines(each, width)}
      words={`${title}: ${each.map(({ name }) => name).join("; ")}. The table has the coordinates.`}
      rows={lines}
      columns={[
        { title: "scheme", value: ({ scheme }) => scheme },
        ...upTo(10).map((digit) => ({
          title: String(digit),
          numeric: true,
          value: ({ coordinates }: NumberLine) => coordinates.values[digit],
        })),
        { title: "|r|", decimals: 2, value: ({ r }) => r },
      ]}
      code={"[run.token_table[-1].number_line for run in ww.comparison.read_results(PATH).first_runs]  # |r|"}
      how={
        "The change of the ten digits’ embeddings, E − E0, along its first principal axis, for the first seed of each " +
        "scheme."
      }
    />
  );
}

export function capital(text: string): string {
  return text.replace(/^./, (letter) => letter.toUpperCase());
}
