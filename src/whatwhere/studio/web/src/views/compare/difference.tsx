/** Two checkpoints side by side: rows that moved, neighborhoods that changed, tokens that came and went, configurations. */

import { useEffect, useMemo } from "preact/hooks";
import { pageColor, seriesColor } from "../../colors";
import { fixed, formatNumber, whole } from "../../numbers";
import { Figure } from "../../parts/figure";
import { How } from "../../parts/how";
import { Lines, type LinesProps, linesSvg } from "../../parts/lines";
import { JobProgress } from "../../parts/progress";
import { SizeChoice } from "../../parts/scheme";
import { Wrong } from "../../parts/states";
import { box, drawing, label } from "../../parts/svg";
import { Table } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import type { ViewProps } from "../../register";
import { visibleToken } from "../../escape";
import { useJob } from "../../jobs";

interface Missing {
  missing: string;
}

interface Summary {
  min: number | null;
  median: number | null;
  mean: number | null;
  max: number | null;
}

interface Moved {
  token: string;
  ids: [number, number];
  distance: number;
  cosine: number;
  norm_ratio: number | null;
}

interface Rows {
  equal: number;
  relative_error: number | null;
  cosine: Summary;
  distance: Summary;
  norm_ratio: Summary;
  moved_most: Moved[];
}

interface TableSide {
  name: string;
  dtype: string;
  rows: number;
  dim: number;
  not_finite: string[];
}

interface Tokens {
  matched_by: string;
  tables: [TableSide, TableSide];
  shared: number;
  removed: string[];
  removed_count: number;
  new: string[];
  new_count: number;
  rows: Rows | Missing;
  rotated: (Rows & { fitted: number; held_out_cosine: number }) | Missing;
  neighbors: { k: number; queries: number; kept: number; chance: number; least_kept: { token: string; kept: number }[] } | Missing;
}

interface Positions {
  tables: [TableSide, TableSide];
  shared: number;
  removed: number;
  new: number;
  rows: Rows | Missing;
}

interface Rotary {
  pairs: number;
  differing: number;
  length: number;
  distances: number[];
  cosine: number[];
}

interface Part {
  layers: number[];
  first: Said;
  second: Said;
  rotary?: Rotary | null;
}

type Said = string | number | null;

interface Configuration {
  facts: { name: string; first: Said; second: Said }[];
  keys: { name: string; first: Said; second: Said }[];
  query_key: Part[];
  score: Part[];
}

interface Found {
  first: { path: string; format: string };
  second: { path: string; format: string };
  tokens: Tokens | Missing;
  positions: Positions | Missing;
  configuration: Configuration | Missing;
}

export function Difference({ about, settings, change, other }: ViewProps & { other: string }) {
  const [table, k] = [settings["table"] === "readout" ? "readout" : "input", Number(settings["k"])];
  const job = useJob<Found>("compare.difference", { table, k });
  const starts = job.state === "idle";
  useEffect(() => {
    if (starts) job.start();
  }, [starts, table, k]);
  return (
    <>
      <dl>
        <dt>A</dt>
        <dd>
          <code>{about.path}</code>
        </dd>
        <dt>B</dt>
        <dd>
          <code>{other}</code>
        </dd>
      </dl>
      <div class="ask">
        <label class="choice">
          rows of{" "}
          <select value={table} onChange={(event) => change({ table: event.currentTarget.value })}>
            <option value="input">the input tables</option>
            <option value="readout">the output heads</option>
          </select>
        </label>
        <SizeChoice label="neighbors" name="k" sizes={[1, 5, 10, 20, 50]} settings={settings} change={change} />
      </div>
      <JobProgress job={job} what="Comparing" stop={job.stop} />
      {job.state === "stopped" && (
        <button type="button" onClick={job.start}>
          Compare
        </button>
      )}
      {job.problem !== null && <Wrong message={job.problem} />}
      {job.answer && <Told found={job.answer} table={table} k={k} />}
    </>
  );
}

function Told({ found, table, k }: { found: Found; table: string; k: number }) {
  const code = `from whatwhere.inspection.difference import difference\ndifference(A, B, table="${table}", k=${k})`;
  return (
    <>
      <h2>Tokens</h2>
      {"missing" in found.tokens ? <p class="note">{found.tokens.missing}.</p> : <OfTokens tokens={found.tokens} code={code} />}
      <h2>Positions</h2>
      {"missing" in found.positions ? <p class="note">{found.positions.missing}.</p> : <OfPositions positions={found.positions} code={code} />}
      <h2>Configuration</h2>
      {"missing" in found.configuration ? <p class="note">{found.configuration.missing}.</p> : <OfConfiguration found={found.configuration} />}
    </>
  );
}

function OfTokens({ tokens, code }: { tokens: Tokens; code: string }) {
  const { neighbors, rows, rotated } = tokens;
  return (
    <>
      <dl class="difference">
        <dt>tables</dt>
        <dd>
          {tokens.tables.map((side, n) => (
            <div key={n}>
              {"AB"[n]}: <code>{side.name}</code>, {whole(side.rows)} × {whole(side.dim)}, {side.dtype}
              {side.not_finite.length > 0 && `; ${whole(side.not_finite.length)} rows with NaN or infinity ignored`}
            </div>
          ))}
        </dd>
        <dt>shared</dt>
        <dd>
          {whole(tokens.shared)}, matched by {tokens.matched_by}
        </dd>
        <dt>in A alone</dt>
        <dd>
          <Some count={tokens.removed_count} tokens={tokens.removed} />
        </dd>
        <dt>in B alone</dt>
        <dd>
          <Some count={tokens.new_count} tokens={tokens.new} />
        </dd>
        <dt>rows</dt>
        <dd>{"missing" in rows ? `${rows.missing}.` : rowsTold(rows)}</dd>
        <dt>neighbors</dt>
        <dd>
          {"missing" in neighbors
            ? `${neighbors.missing}.`
            : `${fixed(100 * neighbors.kept, 1)} % of the ${neighbors.k} nearest are the same, of ${whole(neighbors.queries)} tokens; chance would keep ${formatNumber(100 * neighbors.chance, 2)} %.`}
        </dd>
        {!("missing" in rotated) && (
          <>
            <dt>rotated</dt>
            <dd>
              The best rotation, found from {whole(rotated.fitted)} rows, leaves the others at a median cosine of {formatNumber(rotated.held_out_cosine)}.
            </dd>
          </>
        )}
      </dl>
      <div class="pair">
        {!("missing" in rows) && <MostMoved rows={rows} code={code} title="Tokens whose rows moved most" file="moved" />}
        {!("missing" in neighbors) && neighbors.least_kept.length > 0 && <LeastKept neighbors={neighbors} code={code} />}
        {!("missing" in rotated) && <MostMoved rows={rotated} code={code} title="Moved most, once A is rotated onto B" file="rotated" />}
      </div>
    </>
  );
}

function Some({ count, tokens }: { count: number; tokens: string[] }) {
  if (!count) return <>none</>;
  const shown = tokens.slice(0, 12);
  return (
    <>
      {whole(count)}:{" "}
      {shown.map((token, n) => (
        <span key={n}>
          {n > 0 && ", "}
          <TokenLabel word={token} text={null} />
        </span>
      ))}
      {count > shown.length && ", …"}
    </>
  );
}

function rowsTold(rows: Rows): string {
  const { median, mean, min } = rows.cosine;
  return `Cosine of the two rows of each: median ${formatNumber(median)}, mean ${formatNumber(mean)}, least ${formatNumber(min)}; relative error ${formatNumber(rows.relative_error, 3)}; ${whole(rows.equal)} rows are equal.`;
}

interface Bar {
  token: string;
  value: number;
  said: string;
}

function Bars({ bars, most, color, tokens = true }: { bars: Bar[]; most: number; color: number; tokens?: boolean }) {
  return (
    <ol class="bars">
      {bars.map((bar, n) => (
        <li key={n}>
          <span class="name">
            {tokens ? <TokenLabel word={bar.token} text={null} /> : bar.token}
          </span>
          <span class="track" aria-hidden="true">
            <i style={{ width: `${(100 * bar.value) / (most || 1)}%`, background: `var(--c${color})` }} />
          </span>
          <span class="value">{bar.said}</span>
          <span />
        </li>
      ))}
    </ol>
  );
}

function barsSvg(title: string, bars: Bar[], most: number, color: number): string {
  const parts = bars.flatMap(({ token, value, said }, n) => [
    label(150, 18 + 22 * n, visibleToken(token), "end"),
    box(158, 7 + 22 * n, (260 * value) / (most || 1), 13, seriesColor(color)),
    label(430, 18 + 22 * n, said, "start", pageColor("ink")),
  ]);
  return drawing(520, 16 + 22 * bars.length, title, parts);
}

interface MovedProps {
  rows: Rows;
  code: string;
  title: string;
  file: string;
  tokens?: boolean;
}

function MostMoved({ rows, code, title, file, tokens = true }: MovedProps) {
  const bars = rows.moved_most.map((row) => ({ token: row.token, value: row.distance, said: formatNumber(row.distance, 3) }));
  const most = Math.max(...bars.map((bar) => bar.value), 0);
  if (!bars.length) return <p class="note">No row has moved: all are equal.</p>;
  return (
    <Figure
      title={title}
      note={`Distance between the two rows, in units of the median norm of A's rows; the median over all is ${formatNumber(rows.distance.median)}.`}
      file={file}
      svg={() => barsSvg(title, bars, most, 1)}
      rows={rows.moved_most}
      columns={[
        tokens
          ? { title: "token", value: (row) => visibleToken(row.token), cell: (row) => <TokenLabel word={row.token} text={null} /> }
          : { title: "position", value: (row) => row.token },
        { title: tokens ? "id in A" : "row in A", numeric: true, value: (row) => row.ids[0] },
        { title: tokens ? "id in B" : "row in B", numeric: true, value: (row) => row.ids[1] },
        { title: "distance", numeric: true, value: (row) => row.distance, cell: (row) => formatNumber(row.distance) },
        { title: "cosine", numeric: true, value: (row) => row.cosine, cell: (row) => formatNumber(row.cosine) },
        { title: "norm B / A", numeric: true, value: (row) => row.norm_ratio, cell: (row) => formatNumber(row.norm_ratio) },
      ]}
      how={
        <How code={code}>
          <p>
            |y − x| / median |x| for the row x of A and the row y of B of the same token, in float64. Tokens are matched by their text; where
            one file has no tokens, by id.
          </p>
        </How>
      }
    >
      <Bars bars={bars} most={most} color={1} tokens={tokens} />
    </Figure>
  );
}

function LeastKept({ neighbors, code }: { neighbors: Exclude<Tokens["neighbors"], Missing>; code: string }) {
  const title = "Tokens whose neighborhoods changed most";
  const bars = neighbors.least_kept.map((row) => ({ token: row.token, value: row.kept, said: `${fixed(100 * row.kept, 0)} %` }));
  return (
    <Figure
      title={title}
      note={`Share of the ${neighbors.k} nearest that are the same in both; ${fixed(100 * neighbors.kept, 1)} % on average.`}
      file="neighborhoods"
      svg={() => barsSvg(title, bars, 1, 6)}
      rows={neighbors.least_kept}
      columns={[
        { title: "token", value: (row) => visibleToken(row.token), cell: (row) => <TokenLabel word={row.token} text={null} /> },
        { title: "kept", numeric: true, value: (row) => row.kept, cell: (row) => `${fixed(100 * row.kept, 0)} %` },
      ]}
      how={
        <How code={code}>
          <p>
            The {neighbors.k} nearest rows by cosine among the shared tokens, exact, in A and in B, for {whole(neighbors.queries)} tokens sampled uniformly.
            Chance would keep {formatNumber(100 * neighbors.chance, 2)} %.
          </p>
        </How>
      }
    >
      <Bars bars={bars} most={1} color={6} />
    </Figure>
  );
}

function OfPositions({ positions, code }: { positions: Positions; code: string }) {
  const { rows } = positions;
  return (
    <>
      <p>
        {whole(positions.shared)} positions are in both; in A alone {whole(positions.removed)}, in B alone {whole(positions.new)}.{" "}
        {"missing" in rows ? `${rows.missing}.` : rowsTold(rows)}
      </p>
      {!("missing" in rows) && rows.moved_most.length > 0 && <MostMoved rows={rows} code={code} title="Positions whose rows moved most" file="positions" tokens={false} />}
    </>
  );
}

function OfConfiguration({ found }: { found: Configuration }) {
  const listed = [...found.facts, ...found.keys];
  const parts = [...found.query_key.map((part) => ({ ...part, door: "queries and keys" })), ...found.score.map((part) => ({ ...part, door: "scores" }))];
  if (!listed.length && !parts.length) return <p>No difference that affects tokens and positions.</p>;
  return (
    <>
      {listed.length > 0 && (
        <Table
          caption="Settings that differ"
          rows={listed}
          columns={[
            { title: "what", value: (row) => row.name },
            { title: "A", value: (row) => row.first },
            { title: "B", value: (row) => row.second },
          ]}
        />
      )}
      {parts.map((part, n) => (
        <section key={n}>
          <h3>
            {part.door}, {part.layers.length} {part.layers.length === 1 ? "layer" : "layers"} from layer {part.layers[0]}
          </h3>
          <dl>
            <dt>A</dt>
            <dd>
              <code>{part.first ?? "nothing"}</code>
            </dd>
            <dt>B</dt>
            <dd>
              <code>{part.second ?? "nothing"}</code>
            </dd>
          </dl>
          {part.rotary && part.rotary.differing > 0 && <Turns rotary={part.rotary} />}
        </section>
      ))}
    </>
  );
}

function Turns({ rotary }: { rotary: Rotary }) {
  const props: LinesProps = useMemo(
    () => ({
      title: "The two rotations against each other",
      x: rotary.distances,
      curves: [{ name: "cosine", values: rotary.cosine, color: 2 }],
      xLabel: "distance",
      yLabel: "cosine",
      logX: true,
      dots: true,
    }),
    [rotary],
  );
  return (
    <Figure
      title={props.title}
      note={`${rotary.differing} of ${rotary.pairs} frequencies differ, at a length of ${whole(rotary.length)}.`}
      file="rotations"
      svg={() => linesSvg(props)}
      rows={rotary.distances.map((distance, n) => ({ distance, cosine: rotary.cosine[n]! }))}
      columns={[
        { title: "distance", numeric: true, value: (row) => row.distance, cell: (row) => whole(row.distance) },
        { title: "cosine", numeric: true, value: (row) => row.cosine, cell: (row) => formatNumber(row.cosine) },
      ]}
      how={
        <How>
          <p>The cosine of a vector rotated by A&apos;s frequencies and by B&apos;s, over all its pairs: 1 where they agree.</p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}
