/** Two checkpoints side by side: rows that moved, neighbors that changed, tokens of one alone, configurations. */

import { useEffect, useMemo } from "preact/hooks";
import { pageColor, seriesColor } from "../../colors";
import { visibleToken } from "../../escape";
import { fixed, formatNumber, whole } from "../../numbers";
import { Figure } from "../../parts/figure";
import { How } from "../../parts/how";
import { Lines, type LinesProps, linesSvg } from "../../parts/lines";
import { JobProgress } from "../../parts/progress";
import { SizeChoice } from "../../parts/scheme";
import { Wrong } from "../../parts/states";
import { box, drawing, label } from "../../parts/svg";
import { type Column, Table } from "../../parts/table";
import { TokenLabel } from "../../parts/token";
import type { ViewProps } from "../../register";
import type {
  ConfigurationDifference,
  Difference,
  KeptNeighbors,
  LayerDifference,
  MovedRow,
  NeighborsDifference,
  PositionsDifference,
  RotaryDifference,
  RowsDifference,
  TokensDifference,
} from "../../types";
import { useJob } from "../../jobs";

const MAX_LISTED = 12;

export function Differences({ about, settings, change, other }: ViewProps & { other: string }) {
  const [table, k] = [settings["table"] === "output" ? "output" : "input", Number(settings["k"])];
  const job = useJob("compare.difference", { table, k });
  const starts = job.state === "idle";
  useEffect(() => {
    if (starts) job.start();
  }, [starts, table, k]);
  const second = /^[\w./-]+$/.test(other) ? other : "OTHER";
  const code = `whatwhere diff PATH ${second} --table ${table} -k ${k} --json`;
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
      <div class="controls">
        <label class="choice">
          rows of{" "}
          <select value={table} onChange={(event) => change({ table: event.currentTarget.value })}>
            <option value="input">the token tables</option>
            <option value="output">the output projections</option>
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
      {job.answer && <Parts difference={job.answer} code={code} />}
    </>
  );
}

function Parts({ difference, code }: { difference: Difference; code: string }) {
  const { tokens, positions, configuration } = difference;
  return (
    <>
      <h2>Tokens</h2>
      {"missing" in tokens ? <Reason of={tokens} /> : <OfTokens tokens={tokens} code={code} />}
      <h2>Positions</h2>
      {"missing" in positions ? <Reason of={positions} /> : <OfPositions positions={positions} code={code} />}
      <h2>Configuration</h2>
      {"missing" in configuration ? <Reason of={configuration} /> : <OfConfiguration difference={configuration} />}
    </>
  );
}

function Reason({ of }: { of: { missing: string } }) {
  return <p class="note">{of.missing}.</p>;
}

function OfTokens({ tokens, code }: { tokens: TokensDifference; code: string }) {
  const { neighbors, rows, rotated } = tokens;
  return (
    <>
      <dl class="difference">
        <dt>tables</dt>
        <dd>
          {tokens.tables.map((side, n) => (
            <div key={n}>
              {"AB"[n]}: <code>{side.name}</code>, {whole(side.rows)} × {whole(side.dim)}, {side.dtype}
              {side.not_finite.length > 0 && `; ${rowCount(side.not_finite.length)} with NaN or infinity ignored`}
            </div>
          ))}
        </dd>
        <dt>shared</dt>
        <dd>
          {whole(tokens.shared)}, matched by {tokens.matched_by}
        </dd>
        <dt>in A alone</dt>
        <dd>
          <Listed count={tokens.removed_count} tokens={tokens.removed} />
        </dd>
        <dt>in B alone</dt>
        <dd>
          <Listed count={tokens.new_count} tokens={tokens.new} />
        </dd>
        <dt>rows</dt>
        <dd>{"missing" in rows ? `${rows.missing}.` : rowsText(rows)}</dd>
        <dt>neighbors</dt>
        <dd>{"missing" in neighbors ? `${neighbors.missing}.` : neighborsText(neighbors)}</dd>
        {!("missing" in rotated) && (
          <>
            <dt>rotated</dt>
            <dd>
              The embedding spaces differ. Once A is rotated onto B, as fitted to {rowCount(rotated.fitted)}, the other
              rows have a median cosine of {formatNumber(rotated.held_out_cosine)}.
            </dd>
          </>
        )}
      </dl>
      <div class="pair">
        {!("missing" in rows) && (
          <MostMoved rows={rows} code={code} title="Tokens whose rows moved most" file="moved" />
        )}
        {!("missing" in neighbors) && neighbors.least_kept.length > 0 && (
          <LeastKept neighbors={neighbors} code={code} />
        )}
        {!("missing" in rotated) && (
          <MostMoved rows={rotated} code={code} title="Moved most once A is rotated onto B" file="rotated" />
        )}
      </div>
    </>
  );
}

function Listed({ count, tokens }: { count: number; tokens: string[] }) {
  if (!count) return <>none</>;
  const shown = tokens.slice(0, MAX_LISTED);
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

function rowsText({ cosine, relative_error, equal }: RowsDifference): string {
  const { median, mean, min } = cosine;
  const cosines = `median ${formatNumber(median)}, mean ${formatNumber(mean)}, least ${formatNumber(min)}`;
  const error = formatNumber(relative_error, 3);
  return `Cosine of matched rows: ${cosines}; relative error ${error}; ${rowCount(equal)} equal.`;
}

function rowCount(rows: number): string {
  return `${whole(rows)} ${rows === 1 ? "row" : "rows"}`;
}

function neighborsText({ k, queries, kept, chance }: NeighborsDifference): string {
  return `${fixed(100 * kept, 1)} % of the ${k} nearest neighbors are the same, of ${whole(queries)} tokens sampled; \
random neighbors would keep ${formatNumber(100 * chance, 2)} %.`;
}

interface Bar {
  token: string;
  value: number;
  text: string;
}

interface BarsProps {
  bars: Bar[];
  most: number;
  color: number;
  /** Whether the bars are those of tokens, whose characters are made visible. */
  tokens?: boolean;
}

function Bars({ bars, most, color, tokens = true }: BarsProps) {
  return (
    <ol class="bars">
      {bars.map((bar, n) => (
        <li key={n}>
          <span class="name">{tokens ? <TokenLabel word={bar.token} text={null} /> : bar.token}</span>
          <span class="track" aria-hidden="true">
            <i style={{ width: `${(100 * bar.value) / (most || 1)}%`, background: `var(--c${color})` }} />
          </span>
          <span class="value">{bar.text}</span>
          <span />
        </li>
      ))}
    </ol>
  );
}

function barsSvg(title: string, { bars, most, color }: BarsProps): string {
  const parts = bars.flatMap(({ token, value, text }, n) => [
    label(150, 18 + 22 * n, visibleToken(token), "end"),
    box(158, 7 + 22 * n, (260 * value) / (most || 1), 13, seriesColor(color)),
    label(430, 18 + 22 * n, text, "start", pageColor("ink")),
  ]);
  return drawing(520, 16 + 22 * bars.length, title, parts);
}

interface MovedProps {
  rows: RowsDifference;
  code: string;
  title: string;
  file: string;
  tokens?: boolean;
}

function MostMoved({ rows, code, title, file, tokens = true }: MovedProps) {
  const values = rows.moved_most.map(({ token, distance }) => {
    return { token, value: distance, text: formatNumber(distance, 3) };
  });
  const bars = { bars: values, most: Math.max(...values.map((bar) => bar.value), 0), color: 1, tokens };
  if (!values.length) return <p class="note">All rows are equal.</p>;
  const median = formatNumber(rows.distance.median);
  return (
    <Figure
      title={title}
      note={`Distance of the two rows, in units of the median norm of A; the median of all distances is ${median}.`}
      file={file}
      svg={() => barsSvg(title, bars)}
      rows={rows.moved_most}
      columns={[
        tokens ? tokenColumn<MovedRow>() : { title: "position", value: (row) => row.token },
        { title: tokens ? "id in A" : "row in A", numeric: true, value: (row) => row.ids[0] },
        { title: tokens ? "id in B" : "row in B", numeric: true, value: (row) => row.ids[1] },
        { title: "distance", numeric: true, value: (row) => row.distance, cell: (row) => formatNumber(row.distance) },
        { title: "cosine", numeric: true, value: (row) => row.cosine, cell: (row) => formatNumber(row.cosine) },
        {
          title: "norm B / A",
          numeric: true,
          value: (row) => row.norm_ratio,
          cell: (row) => formatNumber(row.norm_ratio),
        },
      ]}
      how={
        <How code={code}>
          <p>
            |y − x| / median |x| for the row x of A and the row y of B of the same token, in float64. Tokens are matched
            by their text; where one file has no tokens, by id.
          </p>
        </How>
      }
    >
      <Bars {...bars} />
    </Figure>
  );
}

function tokenColumn<R extends { token: string }>(): Column<R> {
  return {
    title: "token",
    value: (row) => visibleToken(row.token),
    cell: (row) => <TokenLabel word={row.token} text={null} />,
  };
}

function LeastKept({ neighbors, code }: { neighbors: NeighborsDifference; code: string }) {
  const { k, queries, kept, chance, least_kept } = neighbors;
  const title = "Tokens whose nearest neighbors changed most";
  const share = (row: { kept: number }) => `${fixed(100 * row.kept, 0)} %`;
  const values = least_kept.map((row) => ({ token: row.token, value: row.kept, text: share(row) }));
  const bars = { bars: values, most: 1, color: 6 };
  return (
    <Figure
      title={title}
      note={`Share of the ${k} nearest neighbors that are the same in both; ${fixed(100 * kept, 1)} % on average.`}
      file="neighborhoods"
      svg={() => barsSvg(title, bars)}
      rows={least_kept}
      columns={[tokenColumn<KeptNeighbors>(), { title: "kept", numeric: true, value: (row) => row.kept, cell: share }]}
      how={
        <How code={code}>
          <p>
            The {k} nearest rows by cosine among the shared tokens, exact, in A and in B, for {whole(queries)} tokens
            sampled uniformly. Random neighbors would keep {formatNumber(100 * chance, 2)} %.
          </p>
        </How>
      }
    >
      <Bars {...bars} />
    </Figure>
  );
}

function OfPositions({ positions, code }: { positions: PositionsDifference; code: string }) {
  const { rows, shared, removed, offsets } = positions;
  const title = "Positions whose rows moved most";
  return (
    <>
      <p>
        {offsets.map((row, n) => (row ? `In ${"AB"[n]} position 0 reads row ${row}. ` : ""))}
        {whole(shared)} {shared === 1 ? "position" : "positions"} in both; {whole(removed)} in A alone,{" "}
        {whole(positions.new)} in B alone. {"missing" in rows ? `${rows.missing}.` : rowsText(rows)}
      </p>
      {!("missing" in rows) && rows.moved_most.length > 0 && (
        <MostMoved rows={rows} code={code} title={title} file="positions" tokens={false} />
      )}
    </>
  );
}

function OfConfiguration({ difference }: { difference: ConfigurationDifference }) {
  const { facts, keys, query_key, score, not_understood } = difference;
  const settings = [...facts, ...keys];
  const none = !settings.length && !query_key.length && !score.length;
  return (
    <>
      {not_understood !== null && <p class="note">Compared by keys alone: {not_understood}.</p>}
      {none && <p>No difference that affects tokens and positions.</p>}
      {settings.length > 0 && (
        <Table
          caption="Settings that differ"
          rows={settings}
          columns={[
            { title: "setting", value: (row) => row.name },
            { title: "A", value: (row) => valueText(row.first) },
            { title: "B", value: (row) => valueText(row.second) },
          ]}
        />
      )}
      {query_key.map((layers, n) => (
        <OfLayers key={`query_key-${n}`} layers={layers} of="queries and keys" />
      ))}
      {score.map((layers, n) => (
        <OfLayers key={`score-${n}`} layers={layers} of="attention scores" />
      ))}
    </>
  );
}

function valueText(value: string | number | boolean | null): string {
  return value === null ? "none" : String(value);
}

function OfLayers({ layers, of }: { layers: LayerDifference; of: string }) {
  const { first, second, rotary } = layers;
  const count = layers.layers.length;
  return (
    <section>
      <h3>
        {of}, {count} {count === 1 ? "layer" : "layers"} from layer {layers.layers[0]}
      </h3>
      <dl>
        <dt>A</dt>
        <dd>
          <code>{first ?? "none"}</code>
        </dd>
        <dt>B</dt>
        <dd>
          <code>{second ?? "none"}</code>
        </dd>
      </dl>
      {rotary && <OfRotary rotary={rotary} />}
    </section>
  );
}

function OfRotary({ rotary }: { rotary: RotaryDifference }) {
  const { interleaved, magnitudes } = rotary;
  return (
    <>
      {interleaved[0] !== interleaved[1] && (
        <p class="note">They pair features differently: the weights of queries and keys must be stored accordingly.</p>
      )}
      {magnitudes[0] !== magnitudes[1] && (
        <p class="note">
          Queries and keys are multiplied by {formatNumber(magnitudes[0], 6)} and {formatNumber(magnitudes[1], 6)}.
        </p>
      )}
      {rotary.differing > 0 && <Rotations rotary={rotary} />}
    </>
  );
}

function Rotations({ rotary }: { rotary: RotaryDifference }) {
  const { distances, cosine, differing, pairs, length } = rotary;
  const props: LinesProps = useMemo(
    () => ({
      title: "Cosine of a vector rotated by A and by B",
      x: distances,
      curves: [{ name: "cosine", values: cosine, color: 2 }],
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
      note={`${differing} of ${pairs} frequencies differ, at a length of ${whole(length)}.`}
      file="rotations"
      svg={() => linesSvg(props)}
      rows={distances.map((distance, n) => ({ distance, cosine: cosine[n]! }))}
      columns={[
        { title: "distance", numeric: true, value: (row) => row.distance, cell: (row) => whole(row.distance) },
        { title: "cosine", numeric: true, value: (row) => row.cosine, cell: (row) => formatNumber(row.cosine) },
      ]}
      how={
        <How>
          <p>The cosine of a vector rotated by the frequencies of A and of B, over all pairs: 1 where they agree.</p>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}
