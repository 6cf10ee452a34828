/** What the trained schemes of a comparison assign to positions: fingerprints, and similarity by distance. */

import { HeatFigure, LineFigure } from "../../parts/figure";
import { type Curve, DEEP_BIASES, look, readableBiases, strokeOf } from "../../parts/plot";
import type { CurvesView, Measurements } from "../../types";
import { capital } from "./shared";

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
            file={`fingerprint-${view.scheme}`}
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
      <p>{results.sentences.distance}</p>
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

/** All curves of one measure in one figure. */
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
      file={`distance-${label}`}
      code={`ww.comparison.read_results(PATH).record.schemes[${JSON.stringify(views[0]!.scheme)}].by_distance`}
      how="Computed from the trained scheme of the first seed, and stored in results.json."
    />
  );
}
