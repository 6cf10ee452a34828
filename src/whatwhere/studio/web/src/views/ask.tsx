/** The view Ask: what the models of a comparison answer to a text, with positions changed by hand, and their attention. */

import { useMemo } from "preact/hooks";
import { visibleToken } from "../escape";
import { useQuery, useView } from "../hooks";
import { fixed, upTo } from "../numbers";
import { Bars, barsSvg } from "../parts/bars";
import { Choice, type Option } from "../parts/controls";
import { TextField, TokenLabel } from "../parts/field";
import { Figure } from "../parts/figure";
import { Bar, Heat, type HeatProps, heatsSvg } from "../parts/heat";
import { Answered } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { literal } from "../python";
import type { AskedAttention, AskedRun, AskedRuns, TokenProbability } from "../types";

export function Ask() {
  const { about, settings, change } = useView<Record<"text" | "seeds" | "run" | "positions", string>>();
  const { text, seeds, run, positions } = settings;
  const empty = text.trim() === "";
  const asked = useQuery("ask.answers", empty ? null : { text, positions, seeds });
  const heads = useQuery("ask.attention", empty ? null : { text, positions, run });
  const known = (asked.answer?.seeds ?? []).map((seed): Option => [String(seed), `seed ${seed}`]);
  return (
    <>
      <div class="controls" role="search">
        <TextField
          label="Question"
          hint="a sequence of the task, Ctrl+K"
          name="text"
          set={(next) => ({ text: next, positions: "" })}
        />
        {!about.exported && (
          <Choice
            label="runs"
            name="seeds"
            options={[["median", "of each scheme the median"], ["all", "all"], ...known]}
          />
        )}
        {positions !== "" && (
          <button type="button" onClick={() => change({ positions: "" })}>
            Reset positions
          </button>
        )}
      </div>
      {empty ? (
        <p class="lead">Type a question above.</p>
      ) : (
        <>
          <Answered query={asked} what="asking the models">
            {(answer) => (
              <>
                <Positions asked={answer} />
                <Answering asked={answer} text={text} />
              </>
            )}
          </Answered>
          {asked.problem === null && (
            <Answered query={heads} what="reading the attention">
              {(answer) => <Heads attention={answer} text={text} />}
            </Answered>
          )}
        </>
      )}
    </>
  );
}

/** The tokens, and below each its position, which may be changed. */
function Positions({ asked }: { asked: AskedRuns }) {
  const { change } = useView();
  const { tokens, usual, positions, at, trained, correct } = asked;
  const set = (slot: number, written: string) => {
    if (!/^\d{1,7}$/.test(written)) return; // half typed
    const next = positions.map((position, n) => (n === slot ? Number(written) : position));
    change({ positions: next.every((position, n) => position === usual[n]) ? "" : next.join(",") }, true);
  };
  const longest = trained[trained.length - 1] ?? 0;
  const length =
    tokens.length > longest
      ? `${tokens.length} tokens, longer than any in training (${longest})`
      : `${tokens.length} tokens; trained with up to ${longest}`;
  return (
    <>
      <ol class="moved" aria-label="Tokens and their positions">
        {tokens.map((token, n) => (
          <li key={n} class={n === at ? "here" : undefined}>
            <TokenLabel word={token} />
            <input
              type="number"
              min={0}
              max={1_000_000}
              value={positions[n]}
              class={positions[n] === usual[n] ? undefined : "changed"}
              aria-label={`position of token ${n}, ${token}`}
              onInput={(event) => set(n, event.currentTarget.value)}
            />
          </li>
        ))}
      </ol>
      <p class="note">
        {length}. {correct === null ? "The task knows no correct answer to it." : `Correct is ${correct}.`}
        {at !== null && ` The answer is read at token ${at}, which is marked.`} The numbers are positions: change one,
        and the models are asked again. The mask follows the order of the tokens, whatever their positions.
      </p>
    </>
  );
}

function Answering({ asked, text }: { asked: AskedRuns; text: string }) {
  const { run, change } = useView();
  const moved = asked.positions.some((position, n) => position !== asked.usual[n]);
  const title = "Answers and their probabilities";
  // A run whose attention is shown below is chosen.
  const bars = asked.runs.map((one) => ({
    name: `${one.scheme}, seed ${one.seed}`,
    share: one.top[0]?.probability ?? 0,
    text: sentence(one),
    color: one.correct === null ? "c2" : one.correct ? "good" : "bad",
    choose: () => change({ run: one.run }),
    chosen: one.run === run,
    disabled: one.missing !== null,
  }));
  const usual: Column<AskedRun>[] = [
    { title: "at usual positions", value: (one) => (one.usual ? probable(one.usual) : "–") },
    probability("of the correct answer there", (one) => one.usual_correct_probability),
  ];
  return (
    <Figure
      title={title}
      note="A bar is the probability of the answer. Choose a run: its attention is below."
      svg={() => barsSvg(title, bars, 760)}
      rows={asked.runs}
      columns={[
        { title: "scheme", value: ({ scheme }) => scheme },
        { title: "seed", numeric: true, value: ({ seed }) => seed },
        { title: "answer", value: ({ top }) => (top[0] ? visibleToken(top[0].token) : "–") },
        probability("probability", ({ top }) => top[0]?.probability),
        { title: "correct", value: ({ correct }) => (correct === null ? "–" : correct ? "yes" : "no") },
        probability("probability of the correct answer", (one) => one.correct_probability),
        { title: "then", value: ({ top }) => top.slice(1).map(probable).join(", ") },
        ...(moved ? usual : []),
        { title: "why none", value: ({ missing }) => missing ?? "" },
      ]}
      code={code(asked, text, moved)}
      how={
        "Each model is loaded from the folder and run once, at the positions shown; softmax of its logits at the token " +
        "whose output is the answer. “median” is the run of the median score at the longest tested length."
      }
    >
      <Bars bars={bars} kind="choices asked" />
    </Figure>
  );
}

function probability(title: string, value: (run: AskedRun) => number | null | undefined): Column<AskedRun> {
  return { title, numeric: true, value, cell: (run) => share(value(run)) };
}

function sentence({ top: [first], missing, correct, usual }: AskedRun): string {
  if (!first) return missing ?? "";
  const judged = correct === null ? "" : correct ? " ✓ correct" : " ✗ wrong";
  return `${probable(first)}${judged}${usual ? `; before ${probable(usual)}` : ""}`;
}

function probable({ token, probability }: TokenProbability): string {
  return `${visibleToken(token)} ${share(probability)}`;
}

function share(probability: number | null | undefined): string {
  return probability === null || probability === undefined ? "–" : `${fixed(100 * probability, 1)} %`;
}

function code({ positions, runs }: AskedRuns, text: string, moved: boolean): string {
  const given = moved ? `, positions=[${positions.join(", ")}]` : "";
  const seeds = new Set(runs.map(({ seed }) => seed));
  const several = runs.length > new Set(runs.map(({ scheme }) => scheme)).size;
  const seed = several ? ', seed="all"' : seeds.size === 1 ? `, seed=${[...seeds][0]}` : "";
  return `ww.comparison.ask(PATH, ${literal(text)}${seed}${given}).answers`;
}

const ACROSS = 4;

function Heads({ attention, text }: { attention: AskedAttention; text: string }) {
  const { scheme, seed, tokens, positions, at, causal } = attention;
  const heads = useMemo(() => headsOf(attention), [attention]);
  const names = tokens.map((token) => visibleToken(token));
  const maps = useMemo(
    () =>
      heads.map(({ layer, head, weights }): HeatProps => ({
        title: `layer ${layer}, head ${head}`,
        cells: { values: weights, shape: [tokens.length, tokens.length] },
        labels: names,
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
