/** The steps inside the attention: the rotation of queries and keys, the bias, and the attention scores. */

import { cssColor, cssSeries } from "../../colors";
import { shownTokens } from "../../escape";
import { useView } from "../../hooks";
import { formatNumber } from "../../numbers";
import { Slider } from "../../parts/controls";
import { DrawnFigure, HeatFigure, type Sketch } from "../../parts/figure";
import { spread } from "../../parts/heat";
import { box, circle, label, line } from "../../parts/svg";
import type { RotaryPairs, TextWalkthrough } from "../../types";
import type { Tensor } from "../../wire";
import { cell, doorName, type StepProps, sumCode, Vectors } from "./steps";

const SIDES = { mapped_q: "query", mapped_k: "key" };

export function RotationStep({ walk, at }: StepProps) {
  const scheme = doorName(walk, "query_key");
  const first = Math.floor((walk.head * walk.dim) / walk.num_heads);
  const from = walk.layer
    ? `q = W_Q norm(x) and k = W_K norm(x), head ${walk.head} of layer 0 of this run.`
    : `q = k = x, ${walk.head_dim} features from ${first} on: no norm, W_Q or W_K of a model is applied.`;
  return (
    <>
      {scheme === null && (
        <p class="lead">
          Queries and keys are not rotated here: position enters as a vector, or as a bias of the scores.
        </p>
      )}
      {walk.pairs && <Dials walk={walk} at={at} pairs={walk.pairs} />}
      {(walk.layer ? (["mapped_q", "mapped_k"] as const) : (["mapped_q"] as const)).map((side) => (
        <Vectors
          key={side}
          walk={walk}
          limit={spread(walk.mapped_q.values, walk.mapped_k.values)}
          cells={walk[side]}
          title={`The ${SIDES[side]} of each token${scheme ? `, as ${scheme} leaves it` : ""}`}
          note={from}
          code={scoreCode(walk, side)}
          how={`${from}${scheme ? ` Then ${scheme} maps each by its position.` : ""}`}
        />
      ))}
    </>
  );
}

function scoreCode(walk: TextWalkthrough, part: string): string {
  const sizes = `num_heads=${walk.num_heads}, head_dim=${walk.head_dim}, causal=${walk.causal ? "True" : "False"}`;
  const [lines, projected] = walk.layer ? [`${walk.layer}\n`, ", projections=projections"] : ["", ""];
  return `${sumCode(walk)}\n${lines}ww.analysis.attention_scores(x, where, ${sizes}${projected}).${part}[${walk.head}]`;
}

interface Dial {
  n: number;
  name: string;
  angle: number | null;
  before: [number, number];
  after: [number, number];
}

const [ACROSS, TALL, RADIUS] = [104, 132, 40];

function Dials({ walk, at, pairs }: { walk: TextWalkthrough; at: number; pairs: RotaryPairs }) {
  const { pair } = useView<{ pair: number }>().settings;
  const count = pairs.frequencies.values.length;
  const number = Math.min(Math.max(pair, 0), count - 1);
  const [a, b] = [pairs.first.values[number]!, pairs.second.values[number]!];
  const dials = shownTokens(walk).map((name, n): Dial => ({
    n,
    name,
    angle: walk.angles && cell(walk.angles, n, number),
    before: [cell(walk.q, n, a), cell(walk.q, n, b)],
    after: [cell(walk.mapped_q, n, a), cell(walk.mapped_q, n, b)],
  }));
  const speed = pairs.frequencies.values[number]!;
  const wavelength = speed ? formatNumber((2 * Math.PI) / speed) : "∞";
  const title = `The pair (${a}, ${b}) of each query, rotated by its position`;
  const angles = dials.map(({ name, angle }) => `${name} ${angle === null ? "" : `${formatNumber(angle)} rad`}`);
  return (
    <DrawnFigure
      title={title}
      note={`${formatNumber(speed)} rad for each position, one rotation in ${wavelength}. Thin: before; thick: after.`}
      draw={(width) => dialsSketch(dials, at, width)}
      words={`${title}: ${angles.join(", ")}.`}
      rows={dials}
      columns={[
        { title: "position", numeric: true, value: ({ n }) => n },
        { title: "token", value: ({ name }) => name },
        { title: "angle in radians", numeric: true, value: ({ angle }) => angle },
        ...(["before", "after"] as const).flatMap((when) =>
          ["first", "second"].map((part, n) => ({
            title: `${part} ${when}`,
            numeric: true,
            value: (dial: Dial) => dial[when][n],
          })),
        ),
      ]}
      code={scoreCode(walk, "mapped_q")}
      how={
        `(a, b) becomes (a cos pω − b sin pω, a sin pω + b cos pω) at position p, with ω = ${formatNumber(speed)} for ` +
        "this pair. The dot product of a rotated query and a rotated key then depends on the distance of their " +
        "positions alone."
      }
    >
      <Slider label="pair" help={`of ${count}`} name="pair" value={number} high={Math.max(count - 1, 1)} />
    </DrawnFigure>
  );
}

function dialsSketch(dials: Dial[], at: number, width: number): Sketch {
  const size = Math.max(...dials.flatMap(({ before, after }) => [Math.hypot(...before), Math.hypot(...after)])) || 1;
  const middle = ACROSS / 2;
  const end = ([x, y]: [number, number]) => [middle + (RADIUS * x) / size, 48 - (RADIUS * y) / size] as const;
  const beside = Math.max(1, Math.floor(width / ACROSS));
  const parts = dials.map(({ n, name, angle, before, after }) => {
    const [left, top] = [(n % beside) * ACROSS, Math.floor(n / beside) * TALL];
    return [
      `<g transform="translate(${left} ${top})">`,
      n === at ? box(0, 0, ACROSS, TALL - 4, cssColor("shade")) : "",
      circle(middle, 48, RADIUS, "none", cssColor("grid")),
      line(middle, 48, ...end(before), cssColor("muted"), 1.5),
      line(middle, 48, ...end(after), cssSeries(2), 3),
      circle(...end(after), 4, cssSeries(2)),
      label(middle, 108, `“${name}” at ${n}`, "middle"),
      label(middle, 124, angle === null ? "" : `${formatNumber(angle)} rad`, "middle", cssColor("muted")),
      "</g>",
    ].join("");
  });
  return { height: Math.ceil(dials.length / beside) * TALL, parts };
}

export function BiasStep({ walk, at, other }: StepProps) {
  const scheme = doorName(walk, "score");
  if (walk.bias === null) return <p class="lead">Nothing is added to the scores here.</p>;
  const bias = formatNumber(cell(walk.bias, at, other));
  return (
    <Matrix
      walk={walk}
      part="bias"
      title={`What ${scheme} adds to the score of each pair`}
      note={`Head ${walk.head}: ${bias} for query ${at} and key ${other}. Rows are queries, columns keys.`}
      how={`The formula of ${scheme} for every query and key${walk.causal ? "; later keys are masked" : ""}.`}
    />
  );
}

export function ScoreStep({ walk }: StepProps) {
  const masked = walk.causal ? "; later keys are masked (−∞)" : "";
  const whose = walk.layer
    ? "q and k are those of layer 0 of this run, by its norm, W_Q and W_K."
    : "q = k = x: the scores show what positions do, not what a layer has learned.";
  const how = `⟨q, k⟩ × ${formatNumber(walk.scale)}${walk.bias ? ", plus the bias" : ""}. ${whose}`;
  return (
    <div class="two even">
      <Matrix
        walk={walk}
        part="scores"
        title="The score of each query and key"
        note={`Head ${walk.head}, before the softmax${masked}.`}
        how={how}
      />
      <Matrix
        walk={walk}
        part="weights"
        title="The weight of each key"
        note={`Head ${walk.head}, after the softmax: each row sums to 1, or to less beside a sink.`}
        how={`exp(score) / the sum of exp(score) over the row. ${how}`}
      />
    </div>
  );
}

type Part = "bias" | "scores" | "weights";

const LABELS: Record<Part, string> = { bias: "bias", scores: "score", weights: "weight" };

interface MatrixProps {
  walk: TextWalkthrough;
  title: string;
  part: Part;
  note: string;
  how: string;
}

function Matrix({ walk, part, ...figure }: MatrixProps) {
  const { values, shape } = walk[part]!;
  const count = shape[0]!;
  const names = shownTokens(walk);
  const masked = (n: number) => walk.causal && n % count > Math.floor(n / count);
  const none = part === "weights" ? Number.NaN : Number.NEGATIVE_INFINITY;
  const number = (title: string, of: Tensor | null) =>
    of ? [{ title, numeric: true, value: (n: number) => of.values[n] }] : [];
  return (
    <HeatFigure
      {...figure}
      cells={{ values: Float32Array.from(values, (value, n) => (masked(n) ? none : value)), shape }}
      labels={names}
      xLabel="key"
      yLabel="query"
      square
      barLabel={LABELS[part]}
      map={part === "weights" ? "amount" : "signed"}
      cell={30}
      more={[
        { title: "distance", numeric: true, value: (n) => Math.floor(n / count) - (n % count) },
        ...number("product before", walk.products),
        ...number("product", walk.mapped_products),
        ...(part === "bias" ? [] : number("bias", walk.bias)),
        ...(part === "scores" ? [] : number("score", walk.scores)),
      ]}
      code={scoreCode(walk, part)}
    />
  );
}
