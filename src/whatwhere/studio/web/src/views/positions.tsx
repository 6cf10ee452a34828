/** Positions: the vector or bias that a scheme, or the loaded table, has for each, and how they compare. */

import { useMemo } from "preact/hooks";
import { useQuery, useView } from "../hooks";
import { writeLink } from "../link";
import { fixed, formatNumber, upTo, whole } from "../numbers";
import { Choice, Flag, Slider } from "../parts/controls";
import { Figure, HeatFigure, LineFigure } from "../parts/figure";
import { spread } from "../parts/heat";
import { type Curve, DEEP_BIASES, readableBiases, strokeOf } from "../parts/plot";
import { SchemeChoice, SchemeFacts, useCatalogue } from "../parts/scheme";
import { Answered } from "../parts/states";
import { Path, type PathProps, pathSvg } from "../parts/trajectory";
import type { PositionFindings, PositionVectors } from "../types";

const DOORS = { input: "added to the vectors", query_key: "queries and keys", score: "scores" };

export function Positions() {
  const { about, settings } = useView<
    Record<"scheme" | "door", string> & Record<"rows" | "dim" | "heads" | "seed", number>
  >();
  const { scheme, door, rows, dim, heads, seed } = settings;
  const shown = useQuery("positions.shown", { scheme, door, rows, dim, heads, seed });
  const doors = shown.answer?.doors ?? [];
  return (
    <>
      <div class="controls">
        <SchemeChoice also={{ door: "" }} />
        <Choice label="positions" name="rows" options={[16, 32, 64, 128, 256, 512, 1024, 2048]} />
        {useCatalogue() && (
          <>
            <Choice
              label="features"
              name="dim"
              options={[[0, about.tables.input ? "as open" : "16"], 16, 32, 64, 128, 256, 512]}
            />
            <Choice label="heads" name="heads" options={[[0, "as open"], 1, 2, 4, 8, 16]} />
          </>
        )}
        {doors.length > 1 && (
          <Choice
            label="door"
            name="door"
            value={shown.answer?.door ?? ""}
            options={doors.map(({ door }) => [door, DOORS[door]] as const)}
          />
        )}
      </div>
      <Answered query={shown} what="building the positions">
        {(answer) => (
          <>
            <Near shown={answer} />
            <SchemeFacts of={answer} />
            {answer.rows < rows && (
              <p class="note">
                This table ends after {whole(answer.rows)} {answer.rows === 1 ? "position" : "positions"}.
              </p>
            )}
            {answer.door === null && (
              <p class="lead">There is no positional encoding: every position is treated alike.</p>
            )}
            {answer.door !== null && !answer.fingerprint && (
              <p class="lead">
                This scheme depends on queries and keys. The <a href={writeLink("pipeline", {}, {})}>pipeline</a> shows
                it for a text.
              </p>
            )}
            <div class="halves">
              {answer.fingerprint && <Fingerprint shown={answer} />}
              {answer.fingerprint && answer.door !== "score" && <Columns shown={answer} />}
            </div>
            <Compared shown={answer} />
          </>
        )}
      </Answered>
    </>
  );
}

/** How similar near and far positions are. */
function Near({ shown }: Props) {
  const by = vectorsOf(shown)?.by_distance.values;
  if (!by) return null;
  const at = [1, 8, by.length - 1].filter((distance, n, all) => distance < by.length && all.indexOf(distance) === n);
  const said = at.map((distance) => `${fixed(by[distance]!, 2)} at distance ${whole(distance)}`);
  return <p class="answer">The mean cosine of two positions is {said.join(", ")}.</p>;
}

function Compared({ shown }: { shown: PositionFindings }) {
  const vectors = vectorsOf(shown);
  return (
    <>
      <div class="two even">
        {vectors && <Similarity shown={shown} vectors={vectors} />}
        {vectors && <PathOf shown={shown} vectors={vectors} />}
        {shown.by_distance && <ByDistance shown={shown} />}
        {vectors && shown.door === "input" && <Norms shown={shown} vectors={vectors} />}
        {shown.wavelengths && <Wavelengths shown={shown} />}
      </div>
      {shown.vectors && "missing" in shown.vectors && <p class="lead">{shown.vectors.missing}.</p>}
    </>
  );
}

/** Return where training ended, as a mark of the axis of positions or distances. */
function marksOf(shown: PositionFindings): { x: number; text: string }[] {
  const { trained, rows } = shown;
  if (trained !== null) return trained < rows ? [{ x: trained - 1, text: `last trained: ${trained - 1}` }] : [];
  const seems = vectorsOf(shown)?.trained ?? rows;
  return seems < rows ? [{ x: seems, text: "training seems to end here" }] : [];
}

export function vectorsOf({ vectors }: PositionFindings): PositionVectors | null {
  return vectors === null || "missing" in vectors ? null : vectors;
}

/** Return the Python that builds the shown door alone, and then what a line computes of it. */
function inPython({ python, door }: PositionFindings, line: string): string {
  return `${python}\nwhere = ww.Where(${door}=where.${door})\n${line}`;
}

function rowsCode({ rows }: PositionFindings): string {
  return `rows = ww.analysis.vectors(where, ${rows}).double().numpy()`;
}

interface Props {
  shown: PositionFindings;
}

interface OfVectors extends Props {
  vectors: PositionVectors;
}

export function Fingerprint({ shown }: Props) {
  const { label, values } = shown.fingerprint!;
  const [rows = 0] = values.shape;
  const [heads, input] = [shown.door === "score", shown.door === "input"];
  const of = heads ? "distance" : "position";
  return (
    <HeatFigure
      title={heads ? "The bias of each distance" : "The fingerprint of each position"}
      cells={values}
      xLabel={heads ? "head" : input ? "feature" : label}
      yLabel={of}
      {...(input && { limit: spread(values.values) })}
      rules={marksOf(shown)}
      note={`Rows are ${of}s 0 to ${rows - 1}, columns ${input ? "the features" : label}.`}
      code={inPython(shown, `ww.analysis.fingerprint(where, ${rows}).values`)}
      how={
        "What the scheme itself gives." +
        (input ? " The colors end at three standard deviations, so that an outlier does not fade the rest." : "")
      }
    />
  );
}

/** Curves of so many columns that are side by side. */
const SIDE_BY_SIDE = 4;

export function Columns({ shown }: Props) {
  const { column } = useView<{ column: number }>().settings;
  const { label, values } = shown.fingerprint!;
  const [rows = 0, columns = 0] = values.shape;
  const count = Math.min(SIDE_BY_SIDE, columns);
  const begin = Math.min(Math.max(column, 0), columns - count);
  return (
    <LineFigure
      title="Single features by position"
      x={upTo(rows)}
      curves={upTo(count).map((k) => ({
        name: `feature ${begin + k}`,
        values: upTo(rows).map((row) => values.values[row * columns + begin + k]!),
        color: k + 1,
        ...strokeOf(k),
      }))}
      xLabel="position"
      yLabel={shown.door === "input" ? "value" : label}
      height={400}
      marks={marksOf(shown)}
      note={`Features ${begin} to ${begin + count - 1} of ${columns}: columns of the picture, as curves.`}
      code={inPython(shown, `ww.analysis.fingerprint(where, ${shown.rows}).values[:, ${begin}:${begin + count}]`)}
      how="The same numbers as in the picture, a column as a curve."
    >
      {columns > count && <Slider label="first feature" name="column" value={begin} high={columns - count} />}
    </LineFigure>
  );
}

const COSINES = "units = rows / np.linalg.norm(rows, axis=1, keepdims=True)\nunits @ units.T";

export function Similarity({ shown, vectors }: OfVectors) {
  const at = vectors.compared.values;
  const every = at.length < shown.rows ? `One position in ${at[1]! - at[0]!}. ` : "";
  const of = shown.door === "query_key" ? "a query of ones, mapped at each position" : "the vectors that are added";
  return (
    <HeatFigure
      title="Cosine of each pair of positions"
      cells={vectors.cosines}
      numbers={at}
      xLabel="other position"
      yLabel="position"
      square
      barLabel="cosine"
      limit={1}
      rules={marksOf(shown)}
      note={`${every}A band along the diagonal: near positions are similar. Further bands: so are some far ones.`}
      code={inPython(shown, `${rowsCode(shown)}\n${COSINES}`)}
      how={`cos(u, v) = ⟨u, v⟩ / (|u| |v|) of ${of}, in float64.`}
    />
  );
}

function firstOf(positions: number[]): string {
  return positions.slice(0, 6).join(", ") + (positions.length > 6 ? ", …" : "");
}

const AXES = ["1,2", "1,3", "2,3"];

export function PathOf({ shown, vectors }: OfVectors) {
  const { axes } = useView<{ axes: string }>().settings;
  const chosen = AXES.includes(axes) ? axes : AXES[0]!;
  const [rows = 0, columns = 3] = vectors.path.shape;
  const coordinate = (row: number, axis: number) => vectors.path.values[row * columns + axis]!;
  const { axes_for_90, participation_ratio } = vectors.spectrum;
  const ninety = axes_for_90 === null ? "" : `; ${axes_for_90} axes explain 90 % of the variance`;
  const unlike = Array.from(vectors.outliers.values);
  const left = unlike.length ? ` Not drawn are positions unlike the others: ${firstOf(unlike)}.` : "";
  const props: PathProps = useMemo(() => {
    const drawn = upTo(rows).filter((row) => !unlike.includes(row));
    const [a, b] = chosen.split(",").map((each) => Number(each) - 1) as [number, number];
    const share = (axis: number) => `${fixed(100 * vectors.variance_explained.values[axis]!, 1)} %`;
    return {
      title: "The path of the positions",
      x: drawn.map((row) => coordinate(row, a)),
      y: drawn.map((row) => coordinate(row, b)),
      name: (point) => `position ${drawn[point]}`,
      xLabel: `component ${a + 1}, ${share(a)} of the variance`,
      yLabel: `component ${b + 1}, ${share(b)}`,
    };
  }, [vectors, chosen]);
  return (
    <Figure
      title={props.title}
      note={`The principal axes. The participation ratio is ${formatNumber(participation_ratio)}${ninety}.${left}`}
      svg={() => pathSvg(props)}
      rows={upTo(rows)}
      columns={[
        { title: "position", numeric: true, value: (row) => row },
        ...[0, 1, 2].map((axis) => ({
          title: `component ${axis + 1}`,
          decimals: 4,
          value: (row: number) => coordinate(row, axis),
        })),
      ]}
      code={inPython(shown, `${rowsCode(shown)}\nww.analysis.principal_components(rows, 3).coordinates`)}
      how={
        "The centered rows on their principal axes, by singular value decomposition in float64. Both axes have one " +
        "scale, so that a circle is round."
      }
    >
      <Choice label="components" name="axes" value={chosen} options={AXES} />
      <Path {...props} />
    </Figure>
  );
}

export function ByDistance({ shown }: Props) {
  const { log } = useView<{ log: boolean }>().settings;
  const { label, curves: named } = shown.by_distance!;
  const names = Object.keys(named);
  const own = shown.door === "input" ? vectorsOf(shown)?.by_distance : null;
  const count = shown.rows;
  const first = log ? 1 : 0; // a logarithmic axis has no distance 0
  const curves = names.slice(0, 8).map((name, n): Curve => ({
    name,
    values: named[name]!.values.subarray(first),
    ...strokeOf(own ? 1 : n),
    color: own ? 1 : n,
  }));
  if (own) curves.unshift({ name: "mean of all pairs", values: own.values.subarray(first, count), color: 2 });
  const score = shown.door === "score";
  const ends = score ? readableBiases(curves) : {};
  return (
    <LineFigure
      title="By distance"
      x={upTo(count).slice(first)}
      curves={curves}
      xLabel="distance"
      logX={log}
      yLabel={score ? "bias" : "similarity"}
      marks={marksOf(shown).filter(({ x }) => x >= first)}
      {...ends}
      note={`${label.charAt(0).toUpperCase()}${label.slice(1)}${names.length > 8 ? `; the first 8 of ${names.length} heads` : ""}. ${ends.y ? DEEP_BIASES : ""}`}
      code={inPython(shown, `ww.analysis.by_distance(where, ${shown.rows}).curves`)}
      how={`${label}.${own ? " The mean is that of the cosines of all pairs of rows at a distance." : ""}`}
    >
      <Flag label="logarithmic distance" name="log" />
    </LineFigure>
  );
}

export function Norms({ shown, vectors }: OfVectors) {
  const { values } = vectors.norms;
  const out = Array.from(vectors.outliers.values);
  const ends = shown.trained === null && vectors.trained < values.length;
  const facts = [
    out.length ? `${out.length === 1 ? "Outlier" : "Outliers"}: ${firstOf(out)}` : "No position is an outlier",
    vectors.shift !== null &&
      `a linear map from row to next row explains ${fixed(100 * vectors.shift, 1)} % of the variance of held-out rows`,
    ends && `rows from ${vectors.trained} on are like no neighbor, and those before are: training seems to end there`,
  ].filter(Boolean);
  return (
    <LineFigure
      title="The norm of each position's vector"
      x={upTo(values.length)}
      // Without the rounding of float32, a scheme of constant norm is a straight line.
      curves={[{ name: "norm", values: Array.from(values, (value) => Number(value.toPrecision(5))), color: 2 }]}
      xLabel="position"
      yLabel="norm |P|"
      marks={marksOf(shown)}
      note={`${facts.join("; ")}.`}
      columns={[
        { title: "position", numeric: true, value: (n) => n },
        { title: "norm", numeric: true, value: (n) => values[n] },
      ]}
      code={inPython(shown, `${rowsCode(shown)}\nww.analysis.trained_positions(rows).norms`)}
      how={
        "|P[p]|; a position is an outlier if its norm is off the median by more than half of it, and by 6 robust " +
        "standard deviations. The linear map is fitted on three quarters of the rows and tested on the others."
      }
    />
  );
}

const WAVELENGTHS = `sinusoid = where.input
pairs = sinusoid.dim // 2
2 * np.pi * sinusoid.theta ** (np.arange(pairs) / (pairs - (sinusoid.layout == "tensor2tensor")))`;

export function Wavelengths({ shown }: Props) {
  const { values } = shown.wavelengths!;
  return (
    <LineFigure
      title="Wavelength of each pair of features"
      x={upTo(values.length)}
      curves={[{ name: "wavelength", values, color: 2 }]}
      xLabel="pair"
      yLabel="positions for an oscillation"
      logY
      dots={values.length <= 64}
      levels={[
        { y: shown.rows, text: `${whole(shown.rows)} positions shown` },
        ...(shown.trained !== null && shown.trained < shown.rows
          ? [{ y: shown.trained, text: `trained up to ${whole(shown.trained)}` }]
          : []),
      ]}
      note="A sine and a cosine share each; a pair above a line makes no full oscillation within that many positions."
      code={inPython(shown, WAVELENGTHS)}
      how="wavelength = 2π / w, with the frequency w of the pair."
    />
  );
}
