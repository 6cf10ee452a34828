/** What the schemes of a comparison give a position, as their trained models have it: in numbers, and by distance. */

import { useMemo } from "preact/hooks";
import { formatNumber } from "../../numbers";
import { Figure } from "../../parts/figure";
import { Heat, heatColumns, type HeatProps, heatSvg } from "../../parts/heat";
import { How } from "../../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg } from "../../parts/lines";
import type { Tensor } from "../../wire";
import { type Curves, type Fingerprint, look, type Results } from "./results";

export function Fingerprints({ results }: { results: Results }) {
  const without = results.schemes.filter((name) => !results.fingerprints.some(({ scheme }) => scheme === name));
  return (
    <section class="apart" aria-labelledby="fingerprints">
      <h2 id="fingerprints">What each scheme makes of positions</h2>
      <p>{results.sentences.doors}</p>
      <p class="note reading">
        One line of a picture is one position, or one distance, read from the trained model of the first seed. Positions that look alike are hard to tell
        apart.{without.length > 0 && ` Without a picture: ${without.join(", ")}.`}
      </p>
      <div class="pair">
        {results.fingerprints.map((found) => (
          <Print key={found.scheme} found={found} />
        ))}
      </div>
    </section>
  );
}

function Print({ found }: { found: Fingerprint }) {
  const [rows = 0, columns = 0] = found.values.shape;
  const title = `Fingerprint of ${found.scheme}`;
  const props: HeatProps = useMemo(
    () => ({
      title,
      values: found.values.values,
      rows,
      columns,
      rowName: (row) => `${found.rows} ${row}`,
      columnName: (column) => `${found.columns} ${column}`,
      xLabel: `${rows} rows (${found.rows}), ${columns} columns (${found.columns})`,
      map: "signed",
      cell: 4,
    }),
    [found],
  );
  return (
    <Figure
      title={title}
      note={found.description}
      file={`fingerprint-${found.scheme}`}
      svg={() => heatSvg(props)}
      rows={Array.from({ length: rows }, (_, row) => row)}
      columns={[{ title: found.rows, numeric: true, value: (row) => row }, ...heatColumns(props)]}
      how={
        <How code={`read_results(Path(PATH)).record.schemes[${JSON.stringify(found.scheme)}].fingerprint`}>
          <p>Read from the scheme after training, and kept in results.json.</p>
        </How>
      }
    >
      <Heat {...props} />
    </Figure>
  );
}

export function ByDistance({ results }: { results: Results }) {
  if (!results.curves.length) return null;
  const labels = [...new Set(results.curves.map(({ label }) => label))];
  return (
    <section class="apart" aria-labelledby="by-distance">
      <h2 id="by-distance">Similarity by distance</h2>
      <p>{results.sentences.distance}</p>
      <p class="note reading">
        How alike does a scheme make two positions that lie a given number of tokens apart? A curve that falls steadily tells near from far. One that rises
        again makes a far position look like a near one.
      </p>
      <div class="pair">
        {labels.map((label) => (
          <Measure key={label} label={label} found={results.curves.filter((each) => each.label === label)} schemes={results.schemes} />
        ))}
      </div>
    </section>
  );
}

/** All curves of one measure in one figure. */
function Measure({ label, found, schemes }: { label: string; found: Curves[]; schemes: string[] }) {
  const longest = found.reduce((one, other) => (other.distances.values.length > one.distances.values.length ? other : one)).distances.values;
  const title = label.replace(/^./, (letter) => letter.toUpperCase());
  const props: LinesProps = useMemo(() => {
    const curves: Curve[] = found.flatMap(({ scheme, names, values }) =>
      names.map((name, n) => ({ ...look(schemes.indexOf(scheme) + n), name: names.length > 1 ? `${scheme}, ${name}` : scheme, values: part(values, n, longest.length) })),
    );
    return { title, x: longest, curves, xLabel: "distance, tokens", yLabel: label.replace(/ of .*/, "") };
  }, [found]);
  const alone = [...new Set(found.filter(({ names }) => names.length === 1).map(({ names }) => names[0]))];
  return (
    <Figure
      title={title}
      note={alone.length ? `${found.map(({ scheme }) => scheme).join(", ")}: ${alone.join(", ")}.` : undefined}
      file={`distance-${label}`}
      svg={() => linesSvg(props)}
      rows={Array.from(longest, (_, place) => place)}
      columns={[
        { title: "distance", numeric: true, value: (place) => longest[place]! },
        ...props.curves.map(({ name, values }) => ({
          title: name,
          numeric: true,
          value: (place: number) => values[place] ?? null,
          cell: (place: number) => formatNumber(values[place] ?? null),
        })),
      ]}
      how={
        <How code={`read_results(Path(PATH)).record.schemes[${JSON.stringify(found[0]!.scheme)}].by_distance`}>
          <p>Measured on the scheme after training, first seed, and kept in results.json.</p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}

function part({ values, shape }: Tensor, row: number, length: number): (number | null)[] {
  const count = shape[1]!;
  return Array.from({ length }, (_, n) => (n < count && Number.isFinite(values[row * count + n]) ? values[row * count + n]! : null));
}
