/** The steps inside the attention: the rotation of queries and keys, the bias, and the attention scores. */

import { useMemo } from "preact/hooks";
import { pageColor, seriesColor } from "../../colors";
import { formatNumber } from "../../numbers";
import { Choice } from "../../parts/choice";
import { Figure } from "../../parts/figure";
import { HeatFigure, numberColumn } from "../../parts/figures";
import { type HeatProps, spread } from "../../parts/heat";
import { drawing, label, line, n as short } from "../../parts/svg";
import type { Settings } from "../../source";
import type { Tensor } from "../../wire";
import { sumCode, Vectors } from "./steps";
import type { TextWalkthrough } from "../../types";
import { cell, doorName, faces } from "./walk";

interface Props {
  walk: TextWalkthrough;
  at: number;
  other: number;
  settings: Settings;
  change(some: Settings, replace?: boolean): void;
}

export function HeadChoice({ walk, change }: Pick<Props, "walk" | "change">) {
  const heads = Array.from({ length: walk.num_heads }, (_, n) => String(n));
  return (
    <Choice label="head" value={String(walk.head)} options={heads} change={(head) => change({ head: Number(head) })} />
  );
}

export function RotationStep({ walk, at, settings, change }: Props) {
  const scheme = doorName(walk, "query_key");
  const limit = useMemo(() => spread(walk.mapped_q.values), [walk]);
  const first = Math.floor((walk.head * walk.dim) / walk.num_heads);
  const from = `q and k are features ${first} and on of x: the norm and projections of a model are not applied`;
  if (scheme === null)
    return (
      <>
        <p class="lead">
          Queries and keys are not rotated here: position enters as a vector, or as a bias of the scores.
        </p>
        <Vectors
          walk={walk}
          tensor={walk.q}
          limit={limit}
          title="The query of each token"
          note={`${from}.`}
          file="queries"
          code={scoreCode(walk, "q")}
          how={`${from}.`}
        />
      </>
    );
  return (
    <>
      {walk.pairs && <Dials walk={walk} at={at} pair={Number(settings["pair"])} change={change} />}
      <Vectors
        walk={walk}
        tensor={walk.mapped_q}
        limit={limit}
        title={`The query of each token, as ${scheme} leaves it`}
        note={`Head ${walk.head}, ${walk.head_dim} features; keys are mapped by their own positions in the same way.`}
        file="queries"
        code={scoreCode(walk, "mapped_q")}
        how={`${from}. Then ${scheme} maps each by its position.`}
      />
    </>
  );
}

function scoreCode(walk: TextWalkthrough, part: string): string {
  const sizes = `num_heads=${walk.num_heads}, head_dim=${walk.head_dim}, causal=${walk.causal ? "True" : "False"}`;
  return `${sumCode(walk)}\nww.analysis.attention_scores(x, where, ${sizes}).${part}[${walk.head}]`;
}

interface Dial {
  n: number;
  name: string;
  angle: number | null;
  before: [number, number];
  after: [number, number];
}

const [ACROSS, TALL, RADIUS] = [104, 132, 40];

/** A pair of features of each query as an arrow, before and after the rotation. */
function Dials({
  walk,
  at,
  pair,
  change,
}: {
  walk: TextWalkthrough;
  at: number;
  pair: number;
  change: Props["change"];
}) {
  const pairs = walk.pairs!;
  const count = pairs.frequencies.values.length;
  const number = Math.min(Math.max(pair, 0), count - 1);
  const dials = useMemo(() => dialsOf(walk, number), [walk, number]);
  const speed = pairs.frequencies.values[number]!;
  const wavelength = speed ? formatNumber((2 * Math.PI) / speed) : "∞";
  const features = `${pairs.first.values[number]}, ${pairs.second.values[number]}`;
  const title = `The pair (${features}) of each query, rotated by its position`;
  const size = Math.max(...dials.flatMap(({ before, after }) => [Math.hypot(...before), Math.hypot(...after)])) || 1;
  const end = ([x, y]: [number, number]): [number, number] => [
    ACROSS / 2 + (RADIUS * x) / size,
    48 - (RADIUS * y) / size,
  ];
  return (
    <Figure
      title={title}
      note={`${formatNumber(speed)} rad for each position, one rotation in ${wavelength}. Thin: before; thick: after.`}
      file="rotations"
      svg={() => dialsSvg(dials, title, end)}
      rows={dials}
      columns={[
        { title: "position", numeric: true, value: ({ n }) => n },
        { title: "token", value: ({ name }) => name },
        numberColumn("angle in radians", ({ angle }: Dial) => angle),
        ...(["before", "after"] as const).flatMap((when) =>
          [0, 1].map((part) => numberColumn(`${part ? "second" : "first"} ${when}`, (dial: Dial) => dial[when][part])),
        ),
      ]}
      code={scoreCode(walk, "mapped_q")}
      how={
        <p>
          (a, b) becomes (a cos pω − b sin pω, a sin pω + b cos pω) at position p, with ω = {formatNumber(speed)} for
          this pair. The dot product of a rotated query and a rotated key then depends on the distance of their
          positions alone.
        </p>
      }
    >
      <label class="choice">
        pair {number} of {count}{" "}
        <input
          type="range"
          min={0}
          max={count - 1}
          value={number}
          aria-valuetext={`pair ${number}, ${formatNumber(speed)} radians a position`}
          onInput={(event) => change({ pair: Number(event.currentTarget.value) }, true)}
        />
      </label>
      <ol class="dials">
        {dials.map((dial, n) => {
          const [before, after] = [end(dial.before), end(dial.after)];
          return (
            <li key={n} class={n === at ? "here" : undefined}>
              <svg viewBox={`0 0 ${ACROSS} 96`} aria-hidden="true">
                <circle cx={ACROSS / 2} cy={48} r={RADIUS} class="ring" />
                <line x1={ACROSS / 2} y1={48} x2={before[0]} y2={before[1]} class="before" />
                <line x1={ACROSS / 2} y1={48} x2={after[0]} y2={after[1]} class="after" />
                <circle cx={after[0]} cy={after[1]} r={4} class="tip" />
              </svg>
              <bdi>{dial.name}</bdi>
              <small>{dial.angle === null ? "" : `${formatNumber(dial.angle)} rad`}</small>
            </li>
          );
        })}
      </ol>
    </Figure>
  );
}

function dialsOf(walk: TextWalkthrough, pair: number): Dial[] {
  const { first, second } = walk.pairs!;
  const [a, b] = [first.values[pair]!, second.values[pair]!];
  return faces(walk).map((name, n) => ({
    n,
    name,
    angle: walk.angles ? cell(walk.angles, n, pair) : null,
    before: [cell(walk.q, n, a), cell(walk.q, n, b)],
    after: [cell(walk.mapped_q, n, a), cell(walk.mapped_q, n, b)],
  }));
}

function dialsSvg(
  dials: Dial[],
  title: string,
  end: (at: [number, number]) => [number, number],
  width = Math.min(dials.length, 8) * ACROSS,
): string {
  const beside = Math.max(1, Math.floor(width / ACROSS));
  const parts = dials.map((dial, n) => {
    const [left, top] = [(n % beside) * ACROSS, Math.floor(n / beside) * TALL];
    const [before, after] = [end(dial.before), end(dial.after)];
    const middle = ACROSS / 2;
    return (
      `<g transform="translate(${left} ${top})">` +
      `<circle cx="${middle}" cy="48" r="${RADIUS}" fill="none" stroke="${pageColor("grid")}"/>` +
      line(middle, 48, before[0], before[1], pageColor("muted"), 1.5) +
      line(middle, 48, after[0], after[1], seriesColor(2), 3) +
      `<circle cx="${short(after[0])}" cy="${short(after[1])}" r="4" fill="${seriesColor(2)}"/>` +
      label(middle, 108, dial.name, "middle") +
      label(middle, 124, dial.angle === null ? "" : `${formatNumber(dial.angle)} rad`, "middle", pageColor("muted")) +
      "</g>"
    );
  });
  return drawing(width, Math.ceil(dials.length / beside) * TALL, title, parts);
}

const UNTRAINED =
  "No trained projection comes between x and q, k: the scores show what positions do, not what a layer has learned.";

export function BiasStep(props: Props) {
  const { walk, at, other } = props;
  const scheme = doorName(walk, "score");
  if (walk.bias === null) return <p class="lead">Nothing is added to the scores here.</p>;
  const bias = formatNumber(cell(walk.bias, at, other));
  return (
    <Matrix
      {...props}
      tensor={walk.bias}
      title={`What ${scheme} adds to the score of each pair`}
      file="bias"
      note={`Head ${walk.head}: ${bias} for query ${at} and key ${other}. Rows are queries, columns keys.`}
      how={`The formula of ${scheme} for every query and key${walk.causal ? "; later keys are masked" : ""}.`}
    />
  );
}

export function ScoreStep(props: Props) {
  const { walk } = props;
  return (
    <Matrix
      {...props}
      tensor={walk.scores}
      title="The score of each query and key"
      file="scores"
      note={`Head ${walk.head}, before the softmax${walk.causal ? "; later keys are masked (−∞)" : ""}.`}
      how={`⟨q, k⟩ × ${formatNumber(walk.scale)}${walk.bias ? ", plus the bias" : ""}. ${UNTRAINED}`}
    />
  );
}

interface MatrixProps extends Props {
  tensor: Tensor;
  title: string;
  file: string;
  note: string;
  how: string;
}

/** Every query against every key; the table has each part of the sum. */
function Matrix({ walk, tensor, title, file, note, how }: MatrixProps) {
  const count = tensor.shape[0] ?? 0;
  const names = useMemo(() => faces(walk), [walk]);
  const props: HeatProps = useMemo(
    () => ({
      title,
      values: walk.causal
        ? Float32Array.from(tensor.values, (value, n) =>
            n % count > Math.floor(n / count) ? Number.NEGATIVE_INFINITY : value,
          )
        : tensor.values,
      rows: count,
      columns: count,
      rowName: (n) => `query ${n}, ${names[n]}`,
      columnName: (n) => `key ${n}, ${names[n]}`,
      rowLabels: names,
      columnLabels: names,
      xLabel: "key",
      yLabel: "query",
      square: true,
      barLabel: title.toLowerCase().includes("bias") ? "bias" : "score",
      map: "signed",
      cell: 30,
    }),
    [tensor, title, names],
  );
  const cells = Array.from({ length: count * count }, (_, n) => n);
  const at = (n: number) => [Math.floor(n / count), n % count] as const;
  const number = (title: string, of: Tensor | null) =>
    of === null ? [] : [numberColumn(title, (n: number) => of.values[n])];
  return (
    <HeatFigure
      heat={props}
      note={note}
      file={file}
      width={720}
      table={{
        rows: walk.causal ? cells.filter((n) => at(n)[1] <= at(n)[0]) : cells,
        columns: [
          { title: "query", value: (n) => `${at(n)[0]} ${names[at(n)[0]]}` },
          { title: "key", value: (n) => `${at(n)[1]} ${names[at(n)[1]]}` },
          { title: "distance", numeric: true, value: (n) => at(n)[0] - at(n)[1] },
          ...number("product before", walk.products),
          ...number("product", walk.mapped_products),
          ...number("bias", walk.bias),
          ...number("score", walk.scores),
        ],
      }}
      code={scoreCode(walk, file === "bias" ? "bias" : "scores")}
      how={<p>{how}</p>}
    />
  );
}
