/** View 5, positions: what a scheme or the loaded table makes of each, how alike they are, and the path they take. */

import { useMemo } from "preact/hooks";
import { useQuery } from "../hooks";
import { writeLink } from "../link";
import { fixed, formatNumber, whole } from "../numbers";
import { Figure } from "../parts/figure";
import { Heat, heatColumns, type HeatProps, heatSvg, spread } from "../parts/heat";
import { How } from "../parts/how";
import { Lines, type LinesProps, linesSvg } from "../parts/lines";
import { Path, type PathProps, pathSvg } from "../parts/path";
import { SchemeChoice, SchemeFacts, SizeChoice } from "../parts/scheme";
import { Answered } from "../parts/states";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { About } from "../types";
import type { Tensor } from "../wire";

interface Vectors {
  missing: string | null;
  compared: Tensor;
  cosines: Tensor;
  norms: Tensor;
  outliers: Tensor;
  mean_by_distance: Tensor;
  shift: number | null;
  trained: number;
  participation: number;
  for_ninety: number | null;
  path: Tensor;
  share: Tensor;
}

interface Shown {
  title: string;
  notes: string[];
  doors: { door: string; name: string; said: string }[];
  door: string | null;
  rows: number;
  longest: number | null;
  /** What builds the scheme. */
  python: string;
  num_heads: number;
  fingerprint: { label: string; values: Tensor } | null;
  by_distance: { label: string; names: string[]; values: Tensor } | null;
  vectors: (Vectors & { missing: null }) | { missing: string } | null;
}

const DOORS: Record<string, string> = { input: "added to the vectors", query_key: "queries and keys", score: "scores" };
const AXES = ["1,2", "1,3", "2,3"];

register({
  id: "positions",
  order: 5,
  title: "Positions",
  question: "What is each position told by, which positions look alike, and what path do they take?",
  defaults,
  shown: () => true,
  Page: Positions,
});

function defaults(about: About): Settings {
  return { ...about.begin["positions"], axes: "1,2" };
}

function Positions({ about, settings, change }: ViewProps) {
  const { scheme, door, rows, dim, heads, seed } = settings as Record<string, string | number>;
  const shown = useQuery<Shown>("positions.shown", { scheme, door, rows, dim, heads, seed } as Settings);
  const link = (to: string) => writeLink(to, {}, {});
  return (
    <>
      <div class="ask">
        <SchemeChoice about={about} settings={settings} change={(some) => change({ ...some, door: "" })} />
        <SizeChoice label="positions" name="rows" sizes={[16, 32, 64, 128, 256, 512, 1024, 2048]} settings={settings} change={change} />
        {scheme !== "model" && !about.runs.includes(String(scheme)) && (
          <>
            <SizeChoice label="features" name="dim" sizes={[16, 32, 64, 128, 256, 512]} settings={settings} change={change} usual={about.tables.input ? "as open" : "16"} />
            <SizeChoice label="heads" name="heads" sizes={[1, 2, 4, 8, 16]} settings={settings} change={change} usual="as open" />
          </>
        )}
        {(shown.answer?.doors.length ?? 0) > 1 && (
          <label class="choice">
            door{" "}
            <select value={shown.answer!.door ?? ""} onChange={(event) => change({ door: event.currentTarget.value })}>
              {shown.answer!.doors.map((each) => (
                <option key={each.door} value={each.door}>
                  {DOORS[each.door]}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <Answered query={shown} what="building the positions">
        {(answer) => (
          <>
            <SchemeFacts title={answer.title} doors={answer.doors} notes={answer.notes} />
            {answer.rows < Number(rows) && (
              <p class="note">
                This table ends after {whole(answer.rows)} {answer.rows === 1 ? "position" : "positions"}.
              </p>
            )}
            {answer.door === null && <p class="lead">Nothing tells where a token stands: all positions are alike.</p>}
            {answer.door !== null && !answer.fingerprint && (
              <p class="lead">
                This scheme looks at queries and keys themselves: without them a position has no picture. The <a href={link("pipeline")}>pipeline</a> shows it on a text.
              </p>
            )}
            {answer.fingerprint && <Fingerprint shown={answer} />}
            <div class="two even">
              {answer.vectors?.missing === null && <Likeness shown={answer} vectors={answer.vectors} />}
              {answer.vectors?.missing === null && <PathOf shown={answer} vectors={answer.vectors} axes={String(settings["axes"])} change={change} />}
              {answer.by_distance && <ByDistance shown={answer} />}
              {answer.vectors?.missing === null && answer.door === "input" && <Norms shown={answer} vectors={answer.vectors} />}
            </div>
            {answer.vectors && answer.vectors.missing !== null && <p class="lead">{answer.vectors.missing}</p>}
          </>
        )}
      </Answered>
    </>
  );
}

function inPython({ python, door, rows }: Shown, what: string): string {
  return `${python}\nwhere = whatwhere.Where(${door}=where.${door})\nfrom whatwhere.analysis import ${what.replace(/\W.*/, "")}\n${what.replace("ROWS", String(rows))}`;
}

function Fingerprint({ shown }: { shown: Shown }) {
  const { label, values: tensor } = shown.fingerprint!;
  const [rows = 0, columns = 0] = tensor.shape;
  const heads = shown.door === "score";
  const of = heads ? "distance" : "position";
  const props: HeatProps = useMemo(
    () => ({
      title: heads ? "The bias of each distance" : "The fingerprint of each position",
      values: tensor.values,
      rows,
      columns,
      rowName: (row) => `${of} ${row}`,
      columnName: (column) => `${heads ? "head" : "column"} ${column}`,
      rowLabels: Array.from({ length: rows }, (_, row) => (rows <= 40 || row % Math.ceil(rows / 20) === 0 ? String(row) : "")),
      xLabel: `${label}; ${whole(columns)} columns, left to right`,
      map: "signed",
      ...(shown.door === "input" ? { limit: spread(tensor.values) } : {}),
    }),
    [shown],
  );
  return (
    <Figure
      title={props.title}
      note={`Top to bottom ${of}s 0 to ${rows - 1}, left to right ${shown.door === "input" ? `the ${whole(columns)} numbers of each` : label}.`}
      file="fingerprint"
      svg={() => heatSvg(props, 1000)}
      rows={Array.from({ length: rows }, (_, row) => row)}
      columns={[
        { title: of, numeric: true, value: (row) => row },
        ...heatColumns(props),
      ]}
      how={
        <How code={inPython(shown, "fingerprint(where, ROWS).values")}>
          <p>
            What the scheme itself gives. {shown.door === "input" && "The colors end at three standard deviations, so that an outlier does not pale the rest."}
          </p>
        </How>
      }
    >
      <Heat {...props} />
    </Figure>
  );
}

interface OfVectors {
  shown: Shown;
  vectors: Vectors;
}

function Likeness({ shown, vectors }: OfVectors) {
  const at = vectors.compared.values;
  const count = at.length;
  const props: HeatProps = useMemo(
    () => ({
      title: "Which positions look alike",
      values: vectors.cosines.values,
      rows: count,
      columns: count,
      rowName: (row) => `position ${at[row]}`,
      columnName: (column) => `position ${at[column]}`,
      xLabel: `position 0 to ${at[count - 1]}, left to right and top to bottom`,
      map: "signed",
      limit: 1,
    }),
    [vectors],
  );
  const pairs = useMemo(() => Array.from({ length: Math.min(count, 64) ** 2 }, (_, k) => [Math.floor(k / Math.min(count, 64)), k % Math.min(count, 64)] as const), [count]);
  return (
    <Figure
      title={props.title}
      note={`The cosine of each pair${count < shown.rows ? `, of one position in ${at[1]! - at[0]!}` : ""}. A band along the diagonal: near positions are alike.`}
      file="likeness"
      svg={() => heatSvg(props, 640)}
      rows={[...pairs]}
      columns={[
        { title: "position", numeric: true, value: ([i]) => at[i]! },
        { title: "other", numeric: true, value: ([, j]) => at[j]! },
        { title: "cosine", numeric: true, value: ([i, j]) => vectors.cosines.values[i * count + j]!, cell: ([i, j]) => fixed(vectors.cosines.values[i * count + j]!, 4) },
      ]}
      how={
        <How code={inPython(shown, "vectors(where, ROWS)")}>
          <p>
            cos(u, v) = ⟨u, v⟩ / (|u| |v|) of {shown.door === "query_key" ? "a query of ones, mapped at each position" : "the vectors that are added"}, in float64.
            {count > 64 && " The table holds the first 64 of those shown; the picture all."}
          </p>
        </How>
      }
    >
      <Heat {...props} />
    </Figure>
  );
}

function PathOf({ shown, vectors, axes, change }: OfVectors & { axes: string; change: ViewProps["change"] }) {
  const chosen = AXES.includes(axes) ? axes : AXES[0]!;
  const [a, b] = chosen.split(",").map((each) => Number(each) - 1) as [number, number];
  const columns = vectors.path.shape[1] ?? 3;
  const rows = vectors.path.shape[0] ?? 0;
  const coordinate = (row: number, axis: number) => vectors.path.values[row * columns + axis]!;
  const share = (axis: number) => `${fixed(100 * vectors.share.values[axis]!, 1)} %`;
  const props: PathProps = useMemo(
    () => ({
      title: "The path of the positions",
      x: Array.from({ length: rows }, (_, row) => coordinate(row, a)),
      y: Array.from({ length: rows }, (_, row) => coordinate(row, b)),
      name: (row) => `position ${row}`,
      xLabel: `component ${a + 1}, ${share(a)} of the variance`,
      yLabel: `component ${b + 1}, ${share(b)}`,
    }),
    [vectors, chosen],
  );
  return (
    <Figure
      title={props.title}
      note={`Seen along the directions in which they differ most. In effect ${formatNumber(vectors.participation, 3)} directions carry the variance${vectors.for_ninety === null ? "" : `; ${vectors.for_ninety} hold 90 % of it`}.`}
      file="path"
      svg={() => pathSvg(props)}
      rows={Array.from({ length: rows }, (_, row) => row)}
      columns={[
        { title: "position", numeric: true, value: (row) => row },
        ...[0, 1, 2].map((axis) => ({
          title: `component ${axis + 1}`,
          numeric: true,
          value: (row: number) => coordinate(row, axis),
          cell: (row: number) => fixed(coordinate(row, axis), 4),
        })),
      ]}
      how={
        <How code={`${inPython(shown, "vectors(where, ROWS)").replace(/(vectors.*)$/, "rows = $1.double().numpy()")}\nfrom whatwhere.analysis.pca import principal_components\nprincipal_components(rows, 3).coordinates`}>
          <p>The centered rows on their principal axes, by singular value decomposition in float64. Both axes have one scale, so that a circle is round.</p>
        </How>
      }
    >
      <label class="choice">
        components{" "}
        <select value={chosen} onChange={(event) => change({ axes: event.currentTarget.value })}>
          {AXES.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
      <Path {...props} />
    </Figure>
  );
}

function ByDistance({ shown }: { shown: Shown }) {
  const { label, names, values } = shown.by_distance!;
  const own = shown.vectors?.missing === null && shown.door === "input" ? shown.vectors.mean_by_distance : null;
  const count = values.shape[1] ?? 0;
  const props: LinesProps = useMemo(() => {
    const some = names.slice(0, 8).map((name, n) => ({ name, values: values.values.subarray(n * count, (n + 1) * count) as ArrayLike<number> }));
    const mean = own ? [{ name: "mean of all pairs", values: own.values.subarray(0, count) as ArrayLike<number>, color: 2 }] : [];
    return {
      title: "By distance",
      x: Array.from({ length: count }, (_, n) => n),
      curves: [...mean, ...some.map((curve, n) => ({ ...curve, color: own ? 1 : n }))],
      xLabel: "distance",
      yLabel: shown.door === "score" ? "bias" : "likeness",
    };
  }, [shown]);
  return (
    <Figure
      title={props.title}
      note={`${label}${names.length > 8 ? `; the first 8 of ${names.length} heads` : ""}.`}
      file="by-distance"
      svg={() => linesSvg(props)}
      rows={Array.from({ length: count }, (_, n) => n)}
      columns={[
        { title: "distance", numeric: true, value: (n) => n },
        ...props.curves.map(({ name, values: curve }) => ({ title: name, numeric: true, value: (n: number) => curve[n] ?? null, cell: (n: number) => formatNumber(curve[n]) })),
      ]}
      how={
        <How code={inPython(shown, "by_distance(where, ROWS).curves")}>
          <p>{label}.{own && " The mean is that of the cosines of all pairs of rows at a distance."}</p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}

function Norms({ shown, vectors }: OfVectors) {
  const values = vectors.norms.values;
  const out = Array.from(vectors.outliers.values);
  const props: LinesProps = useMemo(
    () => ({
      title: "The length of each position's vector",
      x: Array.from({ length: values.length }, (_, n) => n),
      // What float32 rounds is no news: a scheme of constant length draws a straight line.
      curves: [{ name: "length", values: Array.from(values, (value) => Number(value.toPrecision(5))), color: 2 }],
      xLabel: "position",
      yLabel: "length |P|",
      marks: vectors.trained < values.length ? [{ x: vectors.trained, text: "training seems to end here" }] : [],
    }),
    [vectors],
  );
  const facts = [
    out.length ? `${out.slice(0, 6).join(", ")}${out.length > 6 ? ", …" : ""} ${out.length === 1 ? "stands" : "stand"} out` : "no position stands out",
    vectors.shift !== null && `one linear map takes each row to the next, and explains ${fixed(100 * vectors.shift, 1)} % of the variance of rows it has not seen`,
    vectors.trained < values.length ? `rows from ${vectors.trained} on are like no neighbor, and those before are: training seems to end there` : null,
  ].filter(Boolean);
  return (
    <Figure
      title={props.title}
      note={`${facts.join("; ")}.`}
      file="position-norms"
      svg={() => linesSvg(props)}
      rows={Array.from({ length: values.length }, (_, n) => n)}
      columns={[
        { title: "position", numeric: true, value: (n) => n },
        { title: "length", numeric: true, value: (n) => values[n]!, cell: (n) => formatNumber(values[n]) },
      ]}
      how={
        <How code={`${inPython(shown, "vectors(where, ROWS)").replace(/(vectors.*)$/, "rows = $1.double().numpy()")}\nfrom whatwhere.analysis.position_table import trained_positions\ntrained_positions(rows).norms`}>
          <p>
            |P[p]|; a position stands out if its length is off the median by more than half of it, and by 6 robust standard deviations. The linear map
            is fitted on three quarters of the rows and tested on the others.
          </p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}
