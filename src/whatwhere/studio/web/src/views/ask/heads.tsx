/** What one run attends to: the weights of every layer and head, and those of the token whose output is the answer. */

import { useMemo } from "preact/hooks";
import { visibleToken } from "../../escape";
import { fixed } from "../../numbers";
import { Figure } from "../../parts/figure";
import { numberColumn } from "../../parts/figures";
import { Bar, Heat, heatsSvg, type HeatProps } from "../../parts/heat";
import { Table } from "../../parts/table";
import type { AskedAttention } from "../../types";
import { literal } from "./python";

interface Props {
  attention: AskedAttention;
  text: string;
}

/** Maps side by side in a file. */
const ACROSS = 4;

export function Heads({ attention, text }: Props) {
  const { run, scheme, seed, tokens, positions, at, causal } = attention;
  const maps = useMemo(() => mapsOf(attention), [attention]);
  const names = tokens.map((token) => visibleToken(token));
  const heading = `Attention of ${scheme}, seed ${seed}`;
  const pairs = useMemo(() => allPairs(attention), [attention]);
  const name = (slot: number) => `${slot} ${names[slot]}`;
  const given = `[${positions.join(", ")}]`;
  const code = `answers = ww.comparison.ask(PATH, ${literal(text)}, schemes=[${literal(scheme)}], seed=${seed}, positions=${given})\nanswers.answers[0].attention`;
  return (
    <>
      <Figure
        title={heading}
        note={`Rows are queries, columns keys; each row sums to 1${causal ? ", and later keys are masked" : ""}. Framed: token ${at}, ${names[at]}, at whose output the model answers.`}
        file={`attention-${run}`}
        svg={() => heatsSvg(`${heading}: ${text}`, maps, ACROSS)}
        rows={pairs}
        columns={[
          { title: "layer", numeric: true, value: ({ layer }) => layer },
          { title: "head", numeric: true, value: ({ head }) => head },
          { title: "query", value: ({ query }) => name(query) },
          { title: "key", value: ({ key }) => name(key) },
          numberColumn(
            "weight",
            ({ weight }: Pair) => weight,
            (weight) => fixed(weight!, 4),
          ),
        ]}
        code={code}
        how={
          <p>
            a(i, j) = softmax over j of the attention scores of query i and key j, with everything that the scheme adds
            to them, and the mask: the model's own, at the positions above.
          </p>
        }
      >
        <ul class="heads">
          {maps.map((map) => (
            <li key={map.title}>
              <h4>{map.title}</h4>
              <Heat {...map} />
            </li>
          ))}
        </ul>
        <p class="under">
          <span />
          <Bar map="amount" range={[0, 1]} text="weight" />
        </p>
      </Figure>
      <AtTheAnswer attention={attention} names={names} />
    </>
  );
}

function weightOf({ layers }: AskedAttention, layer: number, head: number, query: number, key: number): number {
  const [, heads = 0, count = 0] = layers.shape;
  return layers.values[((layer * heads + head) * count + query) * count + key]!;
}

function eachHead({ layers }: AskedAttention): { layer: number; head: number }[] {
  const [deep = 0, heads = 0] = layers.shape;
  return Array.from({ length: deep * heads }, (_, n) => ({ layer: Math.floor(n / heads), head: n % heads }));
}

function mapsOf(attention: AskedAttention): HeatProps[] {
  const { tokens, at, causal, layers } = attention;
  const names = tokens.map((token) => visibleToken(token));
  const count = tokens.length;
  return eachHead(attention).map(({ layer, head }, n) => ({
    title: `layer ${layer}, head ${head}`,
    values: Float32Array.from(layers.values.subarray(n * count * count, (n + 1) * count * count), (weight, cell) =>
      causal && cell % count > Math.floor(cell / count) ? Number.NaN : weight,
    ),
    rows: count,
    columns: count,
    rowName: (query) => `query ${query}, ${names[query]}`,
    columnName: (key) => `key ${key}, ${names[key]}`,
    rowLabels: names,
    columnLabels: names,
    xLabel: "key",
    yLabel: "query",
    square: true,
    map: "amount",
    range: [0, 1],
    barLabel: "weight",
    framed: at,
    barless: true,
    cell: 18,
  }));
}

interface Pair {
  layer: number;
  head: number;
  query: number;
  key: number;
  weight: number;
}

function allPairs(attention: AskedAttention): Pair[] {
  const slots = attention.tokens.map((_, n) => n);
  return eachHead(attention).flatMap(({ layer, head }) =>
    slots.flatMap((query) =>
      slots
        .filter((key) => !attention.causal || key <= query)
        .map((key) => ({ layer, head, query, key, weight: weightOf(attention, layer, head, query, key) })),
    ),
  );
}

/** The weights of each head at the token whose output is the answer, summed over an expression's digits. */
function AtTheAnswer({ attention, names }: { attention: AskedAttention; names: string[] }) {
  const { at, digits } = attention;
  const slots = digits ? Array.from(digits.values) : [];
  const rows = eachHead(attention).map(({ layer, head }) => {
    const weights = names.map((_, key) => weightOf(attention, layer, head, at, key));
    const most = weights.indexOf(Math.max(...weights));
    const own = slots.map((slot) => weights[slot]!);
    return { layer, head, most, weights, all: own.reduce((sum, weight) => sum + weight, 0), least: Math.min(...own) };
  });
  type Row = (typeof rows)[number];
  const number = (title: string, value: (row: Row) => number) =>
    numberColumn(title, value, (share) => fixed(share!, 3));
  return (
    <Table
      caption={`What token ${at}, ${names[at]}, attends to: the model answers at its output`}
      rows={rows}
      columns={[
        { title: "layer", numeric: true, value: ({ layer }) => layer },
        { title: "head", numeric: true, value: ({ head }) => head },
        { title: "most to", value: ({ most }) => `${most} ${names[most]}` },
        number("weight", ({ weights, most }) => weights[most]!),
        ...(slots.length
          ? [
              number("to all digits", ({ all }) => all),
              number("to the digit that gets least", ({ least }) => least),
              number("an equal share", () => 1 / names.length),
            ]
          : []),
      ]}
    />
  );
}
