/** What one run attends to: the weights of every layer and head, and those of the token whose output is the answer. */

import { upTo } from "../../numbers";
import { useMemo } from "preact/hooks";
import { visibleToken } from "../../escape";
import { Figure } from "../../parts/figure";
import { Bar, Heat, heatsSvg, type HeatProps } from "../../parts/heat";
import { Table } from "../../parts/table";
import { literal } from "../../python";
import type { AskedAttention } from "../../types";

/** Maps side by side in a file. */
const ACROSS = 4;

export function Heads({ attention, text }: { attention: AskedAttention; text: string }) {
  const { run, scheme, seed, tokens, positions, at, causal } = attention;
  const heads = useMemo(() => headsOf(attention), [attention]);
  const names = tokens.map((token) => visibleToken(token));
  const maps = useMemo(
    () =>
      heads.map(({ layer, head, weights }): HeatProps => ({
        title: `layer ${layer}, head ${head}`,
        cells: { values: weights, shape: [tokens.length, tokens.length] },
        rowLabels: names,
        columnLabels: names,
        xLabel: "key",
        yLabel: "query",
        square: true,
        map: "amount",
        limit: 1,
        barLabel: "weight",
        framed: at,
        barless: true,
        cell: 18,
      })),
    [heads],
  );
  const title = `Attention of ${scheme}, seed ${seed}`;
  const given = `seed=${seed}, positions=[${positions.join(", ")}]`;
  const pairs = heads.flatMap(({ layer, head, weights }) =>
    Array.from(weights, (weight, n) => ({ layer, head, weight, query: Math.floor(n / tokens.length), n })),
  );
  return (
    <>
      <Figure
        title={title}
        note={`Rows are queries, columns keys; each row sums to 1${causal ? ", and later keys are masked" : ""}. Framed: token ${at}, ${names[at]}, at whose output the model answers.`}
        file={`attention-${run}`}
        svg={() => heatsSvg(`${title}: ${text}`, maps, ACROSS)}
        rows={pairs.filter(({ weight }) => !Number.isNaN(weight))}
        columns={[
          { title: "layer", numeric: true, value: ({ layer }) => layer },
          { title: "head", numeric: true, value: ({ head }) => head },
          { title: "query", value: ({ query }) => `${query} ${names[query]}` },
          { title: "key", value: ({ n }) => `${n % tokens.length} ${names[n % tokens.length]}` },
          { title: "weight", decimals: 4, value: ({ weight }) => weight },
        ]}
        code={`answers = ww.comparison.ask(PATH, ${literal(text)}, schemes=[${literal(scheme)}], ${given})\nanswers.answers[0].attention`}
        how={
          "a(i, j) = softmax over j of the attention scores of query i and key j, with everything that the scheme adds " +
          "to them, and the mask: the model's own, at the positions above."
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
      <AtTheAnswer attention={attention} heads={heads} names={names} />
    </>
  );
}

interface Head {
  layer: number;
  head: number;
  /** Of each query and key; NaN where it is masked. */
  weights: Float32Array;
}

function headsOf({ layers: { values, shape }, causal }: AskedAttention): Head[] {
  const [deep = 0, heads = 0, count = 0] = shape;
  const masked = (cell: number) => causal && cell % count > Math.floor(cell / count);
  return upTo(deep * heads).map((n) => ({
    layer: Math.floor(n / heads),
    head: n % heads,
    weights: Float32Array.from({ length: count ** 2 }, (_, cell) =>
      masked(cell) ? Number.NaN : values[n * count ** 2 + cell]!,
    ),
  }));
}

/** The weights of each head at the token whose output is the answer, summed over an expression's digits. */
function AtTheAnswer({ attention, heads, names }: { attention: AskedAttention; heads: Head[]; names: string[] }) {
  const { at, digits } = attention;
  const slots = Array.from(digits?.values ?? []);
  const rows = heads.map(({ layer, head, weights }) => {
    const own = Array.from(names, (_, key) => weights[at * names.length + key] || 0);
    const most = own.indexOf(Math.max(...own));
    const of = slots.map((slot) => own[slot]!);
    const [all, least] = [of.reduce((sum, weight) => sum + weight, 0), Math.min(...of)];
    return { layer, head, most, weight: own[most], all, least, equal: 1 / names.length };
  });
  const number = (title: string, key: "weight" | "all" | "least" | "equal") => ({
    title,
    decimals: 3,
    value: (row: (typeof rows)[number]) => row[key],
  });
  const ofDigits = [
    number("to all digits", "all"),
    number("to the digit that gets least", "least"),
    number("an equal share", "equal"),
  ];
  return (
    <Table
      caption={`What token ${at}, ${names[at]}, attends to: the model answers at its output`}
      rows={rows}
      columns={[
        { title: "layer", numeric: true, value: ({ layer }) => layer },
        { title: "head", numeric: true, value: ({ head }) => head },
        { title: "most to", value: ({ most }) => `${most} ${names[most]}` },
        number("weight", "weight"),
        ...(slots.length ? ofDigits : []),
      ]}
    />
  );
}
