/** The figures of positions: what a scheme has for each, how similar they are, and the path that they take. */

import { useMemo } from "preact/hooks";
import { fixed, formatNumber, whole } from "../../numbers";
import { Choice, Flag } from "../../parts/choice";
import { Figure } from "../../parts/figure";
import { HeatFigure, LineFigure, numberColumn } from "../../parts/figures";
import { type HeatProps, spread } from "../../parts/heat";
import { type Curve, type LinesProps, strokeOf } from "../../parts/lines";
import { DEEP_BIASES, readableBiases } from "../../parts/plot";
import { Slider } from "../../parts/slider";
import { Path, type PathProps, pathSvg } from "../../parts/trajectory";
import type { ViewProps } from "../../register";
import type { PositionFindings, PositionVectors } from "../../types";
import type { Tensor } from "../../wire";

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

function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, n) => n);
}

export function Fingerprint({ shown }: { shown: PositionFindings }) {
  const { label, values: tensor } = shown.fingerprint!;
  const [rows = 0, columns = 0] = tensor.shape;
  const heads = shown.door === "score";
  const of = heads ? "distance" : "position";
  const heat: HeatProps = useMemo(
    () => ({
      title: heads ? "The bias of each distance" : "The fingerprint of each position",
      values: tensor.values,
      rows,
      columns,
      rowName: (row) => `${of} ${row}`,
      columnName: (column) => `${heads ? "head" : "column"} ${column}`,
      xLabel: heads ? "head" : shown.door === "input" ? "feature" : label,
      yLabel: of,
      map: "signed",
      ...(shown.door === "input" ? { limit: spread(tensor.values) } : {}),
    }),
    [shown],
  );
  return (
    <HeatFigure
      heat={heat}
      note={`Rows are ${of}s 0 to ${rows - 1}, columns ${shown.door === "input" ? "the features" : label}.`}
      file="fingerprint"
      code={inPython(shown, `ww.analysis.fingerprint(where, ${rows}).values`)}
      how={
        <p>
          What the scheme itself gives.{" "}
          {shown.door === "input" &&
            "The colors end at three standard deviations, so that an outlier does not fade the rest."}
        </p>
      }
    />
  );
}

/** Curves of so many columns that are side by side. */
const SIDE_BY_SIDE = 4;

interface ColumnsProps {
  shown: PositionFindings;
  first: number;
  change: ViewProps["change"];
}

/** A few columns of the picture as curves. */
export function Columns({ shown, first, change }: ColumnsProps) {
  const { label, values: tensor } = shown.fingerprint!;
  const [rows = 0, columns = 0] = tensor.shape;
  const count = Math.min(SIDE_BY_SIDE, columns);
  const begin = Math.min(Math.max(first, 0), columns - count);
  const lines: LinesProps = useMemo(
    () => ({
      title: "Single features by position",
      x: upTo(rows),
      curves: upTo(count).map((k) => ({
        name: `feature ${begin + k}`,
        values: upTo(rows).map((row) => tensor.values[row * columns + begin + k]!),
        color: k + 1,
        ...strokeOf(k),
      })),
      xLabel: "position",
      yLabel: shown.door === "input" ? "value" : label,
      height: 400,
    }),
    [shown, begin],
  );
  return (
    <LineFigure
      lines={lines}
      note={`Features ${begin} to ${begin + count - 1} of ${columns}: columns of the picture, as curves.`}
      file="columns"
      code={inPython(shown, `ww.analysis.fingerprint(where, ${shown.rows}).values[:, ${begin}:${begin + count}]`)}
      how={<p>The same numbers as in the picture, a column as a curve.</p>}
    >
      {columns > count && (
        <Slider
          label="first feature"
          value={begin}
          low={0}
          high={columns - count}
          base={null}
          steps={1}
          whole
          change={(column, now) => change({ column }, now)}
        />
      )}
    </LineFigure>
  );
}

interface OfVectors {
  shown: PositionFindings;
  vectors: PositionVectors;
}

const COSINES = "units = rows / np.linalg.norm(rows, axis=1, keepdims=True)\nunits @ units.T";
/** Positions whose pairs are in the table. */
const LISTED = 64;

export function Similarity({ shown, vectors }: OfVectors) {
  const at = vectors.compared.values;
  const count = at.length;
  const every = count < shown.rows ? `One position in ${at[1]! - at[0]!}. ` : "";
  const heat: HeatProps = useMemo(
    () => ({
      title: "Cosine of each pair of positions",
      values: vectors.cosines.values,
      rows: count,
      columns: count,
      rowName: (row) => `position ${at[row]}`,
      columnName: (column) => `position ${at[column]}`,
      x: at,
      y: at,
      xLabel: "position",
      yLabel: "position",
      square: true,
      barLabel: "cosine",
      map: "signed",
      limit: 1,
    }),
    [vectors],
  );
  const listed = Math.min(count, LISTED);
  const pair = (n: number) => [Math.floor(n / listed), n % listed] as const;
  return (
    <HeatFigure
      heat={heat}
      note={`${every}A band along the diagonal: near positions are similar. Further bands: so are some far ones.`}
      file="similarity"
      width={640}
      table={{
        rows: upTo(listed ** 2),
        columns: [
          { title: "position", numeric: true, value: (n) => at[pair(n)[0]]! },
          { title: "other", numeric: true, value: (n) => at[pair(n)[1]]! },
          numberColumn("cosine", (n: number) => vectors.cosines.values[pair(n)[0] * count + pair(n)[1]], fourPlaces),
        ],
      }}
      code={inPython(shown, `${rowsCode(shown)}\n${COSINES}`)}
      how={
        <p>
          cos(u, v) = ⟨u, v⟩ / (|u| |v|) of{" "}
          {shown.door === "query_key" ? "a query of ones, mapped at each position" : "the vectors that are added"}, in
          float64.
          {count > LISTED && ` The table holds the first ${LISTED} of those shown; the picture all.`}
        </p>
      }
    />
  );
}

function fourPlaces(value: number | null): string {
  return value === null ? "–" : fixed(value, 4);
}

const AXES = ["1,2", "1,3", "2,3"];

export function PathOf({ shown, vectors, axes, change }: OfVectors & { axes: string; change: ViewProps["change"] }) {
  const chosen = AXES.includes(axes) ? axes : AXES[0]!;
  const [a, b] = chosen.split(",").map((each) => Number(each) - 1) as [number, number];
  const [rows = 0, columns = 3] = vectors.path.shape;
  const coordinate = (row: number, axis: number) => vectors.path.values[row * columns + axis]!;
  const share = (axis: number) => `${fixed(100 * vectors.variance_explained.values[axis]!, 1)} %`;
  const ninety = vectors.axes_for_90 === null ? "" : `; ${vectors.axes_for_90} axes explain 90 % of the variance`;
  const props: PathProps = useMemo(
    () => ({
      title: "The path of the positions",
      x: upTo(rows).map((row) => coordinate(row, a)),
      y: upTo(rows).map((row) => coordinate(row, b)),
      name: (row) => `position ${row}`,
      xLabel: `component ${a + 1}, ${share(a)} of the variance`,
      yLabel: `component ${b + 1}, ${share(b)}`,
    }),
    [vectors, chosen],
  );
  return (
    <Figure
      title={props.title}
      note={`The principal axes. The participation ratio is ${formatNumber(vectors.participation)}${ninety}.`}
      file="path"
      svg={() => pathSvg(props)}
      rows={upTo(rows)}
      columns={[
        { title: "position", numeric: true, value: (row) => row },
        ...[0, 1, 2].map((axis) =>
          numberColumn(`component ${axis + 1}`, (row: number) => coordinate(row, axis), fourPlaces),
        ),
      ]}
      code={inPython(shown, `${rowsCode(shown)}\nww.analysis.principal_components(rows, 3).coordinates`)}
      how={
        <p>
          The centered rows on their principal axes, by singular value decomposition in float64. Both axes have one
          scale, so that a circle is round.
        </p>
      }
    >
      <Choice label="components" value={chosen} options={AXES} change={(axes) => change({ axes })} />
      <Path {...props} />
    </Figure>
  );
}

interface ByDistanceProps {
  shown: PositionFindings;
  log: boolean;
  change: ViewProps["change"];
}

export function ByDistance({ shown, log, change }: ByDistanceProps) {
  const { label, names, values } = shown.by_distance!;
  const own = shown.door === "input" ? (vectorsOf(shown)?.mean_by_distance ?? null) : null;
  const count = values.shape[1] ?? 0;
  const lines: LinesProps = useMemo(() => {
    const first = log ? 1 : 0; // a logarithmic axis has no distance 0
    const part = (tensor: Tensor, from: number) => tensor.values.subarray(from + first, from + count);
    const mean = own ? [{ name: "mean of all pairs", values: part(own, 0), color: 2 }] : [];
    const some = names.slice(0, 8).map((name, n) => {
      const look = own ? 1 : n;
      return { name, values: part(values, n * count), ...strokeOf(look), color: look };
    });
    const curves: Curve[] = [...mean, ...some];
    return {
      title: "By distance",
      x: upTo(count).slice(first),
      curves,
      xLabel: "distance",
      logX: log,
      ...(shown.door === "score" ? { yLabel: "bias", ...readableBiases(curves) } : { yLabel: "similarity" }),
    };
  }, [shown, log]);
  return (
    <LineFigure
      lines={lines}
      note={`${label}${names.length > 8 ? `; the first 8 of ${names.length} heads` : ""}. ${lines.y ? DEEP_BIASES : ""}`}
      file="by-distance"
      code={inPython(shown, `ww.analysis.by_distance(where, ${shown.rows}).curves`)}
      how={
        <p>
          {label}.{own && " The mean is that of the cosines of all pairs of rows at a distance."}
        </p>
      }
    >
      <Flag label="logarithmic distance" value={log} change={(log) => change({ log })} />
    </LineFigure>
  );
}

export function Norms({ shown, vectors }: OfVectors) {
  const values = vectors.norms.values;
  const out = Array.from(vectors.outliers.values);
  const lines: LinesProps = useMemo(
    () => ({
      title: "The norm of each position's vector",
      x: upTo(values.length),
      // Without the rounding of float32, a scheme of constant norm is a straight line.
      curves: [{ name: "norm", values: Array.from(values, (value) => Number(value.toPrecision(5))), color: 2 }],
      xLabel: "position",
      yLabel: "norm |P|",
      marks: vectors.trained < values.length ? [{ x: vectors.trained, text: "training seems to end here" }] : [],
    }),
    [vectors],
  );
  const facts = [
    out.length
      ? `${out.length === 1 ? "outlier" : "outliers"}: ${out.slice(0, 6).join(", ")}${out.length > 6 ? ", …" : ""}`
      : "no position is an outlier",
    vectors.shift !== null &&
      `a linear map from row to next row explains ${fixed(100 * vectors.shift, 1)} % of the variance of held-out rows`,
    vectors.trained < values.length
      ? `rows from ${vectors.trained} on are like no neighbor, and those before are: training seems to end there`
      : null,
  ].filter(Boolean);
  return (
    <LineFigure
      lines={lines}
      note={`${facts.join("; ")}.`}
      file="position-norms"
      table={{
        rows: upTo(values.length),
        columns: [
          { title: "position", numeric: true, value: (n) => n },
          numberColumn("norm", (n: number) => values[n]),
        ],
      }}
      code={inPython(shown, `${rowsCode(shown)}\nww.analysis.trained_positions(rows).norms`)}
      how={
        <p>
          |P[p]|; a position is an outlier if its norm is off the median by more than half of it, and by 6 robust
          standard deviations. The linear map is fitted on three quarters of the rows and tested on the others.
        </p>
      }
    />
  );
}

const WAVELENGTHS = `sinusoid = where.input
pairs = sinusoid.dim // 2
2 * np.pi * sinusoid.theta ** (np.arange(pairs) / (pairs - (sinusoid.layout == "tensor2tensor")))`;

export function Wavelengths({ shown, wavelengths: { values } }: { shown: PositionFindings; wavelengths: Tensor }) {
  const lines: LinesProps = useMemo(
    () => ({
      title: "Wavelength of each pair of features",
      x: upTo(values.length),
      curves: [{ name: "wavelength", values: Array.from(values), color: 2 }],
      xLabel: "pair",
      yLabel: "positions for an oscillation",
      logY: true,
      dots: values.length <= 64,
      levels: [{ y: shown.rows, text: `${whole(shown.rows)} positions shown` }],
    }),
    [shown],
  );
  return (
    <LineFigure
      lines={lines}
      note="A sine and a cosine share each; a pair above the line makes no full oscillation within the positions shown."
      file="wavelengths"
      code={inPython(shown, WAVELENGTHS)}
      how={<p>wavelength = 2π / w, with the frequency w of the pair.</p>}
    />
  );
}
