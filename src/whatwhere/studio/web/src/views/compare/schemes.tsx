/** What the trained schemes of a comparison assign to positions: fingerprints, and similarity by distance. */

import { useMemo } from "preact/hooks";
import { HeatFigure, LineFigure } from "../../parts/figures";
import type { HeatProps } from "../../parts/heat";
import type { Curve, LinesProps } from "../../parts/lines";
import { DEEP_BIASES, look, readableBiases, strokeOf } from "../../parts/plot";
import type { CurvesView, FingerprintView, Measurements } from "../../types";
import type { Tensor } from "../../wire";
import { capital, known } from "./shared";

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
          <Fingerprint key={view.scheme} view={view} />
        ))}
      </div>
    </section>
  );
}

function Fingerprint({ view }: { view: FingerprintView }) {
  const [rows = 0, columns = 0] = view.values.shape;
  const title = `Fingerprint of ${view.scheme}`;
  const props: HeatProps = useMemo(
    () => ({
      title,
      values: view.values.values,
      rows,
      columns,
      rowName: (row) => `${view.rows} ${row}`,
      columnName: (column) => `${view.columns} ${column}`,
      xLabel: view.columns,
      yLabel: view.rows,
      map: "signed",
      cell: 4,
    }),
    [view],
  );
  return (
    <HeatFigure
      heat={props}
      note={view.description}
      file={`fingerprint-${view.scheme}`}
      code={`ww.comparison.read_results(PATH).record.schemes[${JSON.stringify(view.scheme)}].fingerprint`}
      how={<p>Computed from the trained scheme, and stored in results.json.</p>}
    />
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
          <Measure
            key={label}
            label={label}
            views={results.curves.filter((view) => view.label === label)}
            results={results}
          />
        ))}
      </div>
    </section>
  );
}

function lookOf({ schemes, looks }: Measurements, scheme: string, curve: number) {
  const number = looks[schemes.indexOf(scheme)]!;
  return curve ? { ...look(number), ...strokeOf(number + curve) } : look(number);
}

/** All curves of one measure in one figure; those of one scheme differ by their strokes. */
function Measure({ label, views, results }: { label: string; views: CurvesView[]; results: Measurements }) {
  const all = views.map(({ distances }) => distances.values);
  const distances = all.reduce((one, other) => (other.length > one.length ? other : one));
  const title = capital(label);
  const props: LinesProps = useMemo(() => {
    const curves: Curve[] = views.flatMap(({ scheme, names, values }) =>
      names.map((name, n) => ({
        ...lookOf(results, scheme, n),
        name: names.length > 1 ? `${scheme}, ${name}` : scheme,
        values: padded(values, n, distances.length),
      })),
    );
    const yLabel = label.replace(/ (of|added to) .*/, "");
    const y = /bias/i.test(yLabel) ? readableBiases(curves) : {};
    return { title, x: distances, curves, xLabel: "distance, tokens", yLabel, ...y };
  }, [views]);
  const alone = [...new Set(views.filter(({ names }) => names.length === 1).map(({ names }) => names[0]))];
  return (
    <LineFigure
      lines={props}
      note={[
        alone.length ? `${views.map(({ scheme }) => scheme).join(", ")}: ${alone.join(", ")}.` : "",
        props.y ? DEEP_BIASES : "",
      ].join(" ")}
      file={`distance-${label}`}
      code={`ww.comparison.read_results(PATH).record.schemes[${JSON.stringify(views[0]!.scheme)}].by_distance`}
      how={<p>Computed from the trained scheme of the first seed, and stored in results.json.</p>}
    />
  );
}

/** Return a row of a table, filled up to a length with null. */
function padded({ values, shape }: Tensor, row: number, length: number): (number | null)[] {
  const count = shape[1]!;
  return Array.from({ length }, (_, n) => (n < count ? known(values[row * count + n]!) : null));
}
