/** The view Ask: what the models of a comparison answer to a text, with positions changed by hand, and their attention. */

import { useMemo } from "preact/hooks";
import { visible, visibleToken } from "../escape";
import { useQuery, useSource, useView } from "../hooks";
import { fixed, upTo } from "../numbers";
import { Bars, barsSvg } from "../parts/bars";
import { Choice, type Option } from "../parts/controls";
import { TextField, TokenLabel } from "../parts/field";
import { Figure } from "../parts/figure";
import { Bar, Heat, type HeatProps, heatsSvg } from "../parts/heat";
import { Answered } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { literal } from "../python";
import type { Answer, Asked, TokenProbability } from "../types";

/** A run: its name to choose it by, how it is shown, its answer, or why there is none, and that at the usual positions. */
interface Run {
  name: string;
  title: string;
  answer: Answer | null;
  missing: string;
  usual: Answer | undefined;
}

function runsOf({ answers, runs, usual }: Asked): Run[] {
  return [...answers.answers, ...answers.without].map((one, n) => ({
    name: runs[n]!,
    title: `${visible(one.scheme)}, seed ${one.seed}`,
    answer: "reason" in one ? null : one,
    missing: "reason" in one ? one.reason.split("\n")[0]! : "",
    usual: usual?.answers.find(({ scheme, seed }) => scheme === one.scheme && seed === one.seed),
  }));
}

export function Ask() {
  const { about, settings, change, run } = useView<Record<"text" | "seeds" | "positions" | "shown", string>>();
  const { text, seeds, positions, shown: chosen } = settings;
  const source = useSource();
  const empty = text.trim() === "";
  const query = useQuery("ask.answers", empty ? null : { text, positions, seeds });
  const known = (query.answer?.seeds ?? []).map((seed): Option => [String(seed), `seed ${seed}`]);
  return (
    <>
      <div class="controls" role="search">
        {!about.exported && (
          <>
            <TextField
              label="Question"
              hint="a sequence of the task, Ctrl+K"
              name="text"
              set={(next) => ({ text: next, positions: "" })}
            />
            <Choice
              label="runs"
              name="seeds"
              options={[["median", "of each scheme the median"], ["all", "all"], ...known]}
            />
          </>
        )}
        <p class="examples">
          {about.exported ? "This page answers" : "or"}
          {query.answer?.examples
            .filter((example) => source.holds("ask.answers", { text: example, positions: "", seeds }))
            .map((example) => (
              <button
                key={example}
                type="button"
                aria-pressed={example === text}
                onClick={() => change({ text: example, positions: "" })}
              >
                {example}
              </button>
            ))}
        </p>
      </div>
      {empty ? (
        <p class="lead">Type a question above.</p>
      ) : (
        <Answered query={query} what="asking the models">
          {(asked) => {
            const runs = runsOf(asked);
            const answering = runs.filter(({ answer }) => answer);
            const shown = answering.find(({ name }) => name === (chosen || run)) ?? answering[0]!;
            return (
              <>
                <Positions asked={asked} text={text} />
                <Answering asked={asked} runs={runs} shown={shown} text={text} />
                {shown.answer!.attention.length > 0 && (
                  <Heads asked={asked} of={shown} answer={shown.answer!} text={text} />
                )}
              </>
            );
          }}
        </Answered>
      )}
    </>
  );
}

/** The tokens, and below each its position, which may be changed where the models can be asked again. */
function Positions({ asked: { answers, usual: unmoved }, text }: { asked: Asked; text: string }) {
  const { about, settings, change } = useView<{ seeds: string; positions: string }>();
  const source = useSource();
  const { tokens, trained, correct } = answers;
  const { positions } = answers.answers[0]!;
  const usual = unmoved?.answers[0]!.positions ?? positions;
  const slots = new Set(answers.answers.map(({ at }) => at));
  const at = slots.size === 1 ? [...slots][0] : null;
  const set = (slot: number, written: string) => {
    if (!/^\d{1,7}$/.test(written)) return; // half typed
    const next = positions.map((position, n) => (n === slot ? Number(written) : position));
    change({ positions: next.every((position, n) => position === usual[n]) ? "" : next.join(",") }, true);
  };
  const shifted = positions.map((position) => position + 1).join(",");
  const shiftable = source.holds("ask.answers", { text, positions: shifted, seeds: settings.seeds });
  const longest = trained[trained.length - 1] ?? 0;
  const length = `${tokens.length} tokens${tokens.length > longest ? ", longer than any in training" : ""}`;
  return (
    <>
      <ol class="moved" aria-label="Tokens and their positions">
        {tokens.map((token, n) => (
          <li key={n} class={n === at ? "here" : undefined}>
            <TokenLabel word={token} />
            {about.exported ? (
              <span class={positions[n] === usual[n] ? undefined : "changed"}>{positions[n]}</span>
            ) : (
              <input
                type="number"
                min={0}
                max={1_000_000}
                value={positions[n]}
                class={positions[n] === usual[n] ? undefined : "changed"}
                aria-label={`position of token ${n}, ${token}`}
                onInput={(event) => set(n, event.currentTarget.value)}
              />
            )}
          </li>
        ))}
      </ol>
      <p class="examples near">
        {shiftable && (
          <button type="button" onClick={() => change({ positions: shifted })}>
            Shift all positions by 1
          </button>
        )}
        {settings.positions !== "" && (
          <button type="button" onClick={() => change({ positions: "" })}>
            Reset positions
          </button>
        )}
      </p>
      <p class="note">
        {length}; trained with up to {longest}. {correct === null && "The task knows no correct answer to it. "}The
        numbers are positions
        {!about.exported && ": change one, and the models are asked again"}.
      </p>
    </>
  );
}

interface AnsweringProps {
  asked: Asked;
  runs: Run[];
  shown: Run;
  text: string;
}

function Answering({ asked, runs, shown, text }: AnsweringProps) {
  const { change } = useView();
  const title = "Answers and their probabilities";
  // A run whose attention is shown below is chosen.
  const bars = runs.map((one) => ({
    name: one.title,
    share: one.answer?.top[0]!.probability ?? 0,
    text: sentence(one),
    color: judged(one, "good", "bad", "c2"),
    choose: () => change({ shown: one.name }),
    chosen: one === shown,
    disabled: one.answer === null,
  }));
  const { correct } = asked.answers;
  const right = runs.filter((one) => judged(one, "yes", "no", "") === "yes").length;
  const usual: Column<Run>[] = [
    { title: "at usual positions", value: (one) => (one.usual ? probable(one.usual.top[0]!) : "–") },
    probability("of the correct answer there", (one) => one.usual?.correct_probability),
  ];
  return (
    <Figure
      title={title}
      note={
        <>
          {correct !== null && (
            <b>
              {right} of {runs.length} answer {correct}, which is correct.{" "}
            </b>
          )}
          A bar is the probability of the answer. Choose a run: its attention is below.
        </>
      }
      svg={() => barsSvg(title, bars, 760)}
      rows={runs}
      columns={[
        { title: "run", value: (one) => one.title },
        { title: "answer", value: ({ answer }) => (answer ? quoted(answer.top[0]!.token) : "–") },
        probability("probability", ({ answer }) => answer?.top[0]!.probability),
        { title: "correct", value: (one) => judged(one, "yes", "no", "–") },
        probability("probability of the correct answer", ({ answer }) => answer?.correct_probability),
        { title: "then", value: ({ answer }) => answer?.top.slice(1).map(probable).join(", ") ?? "" },
        ...(asked.usual ? usual : []),
        { title: "why none", value: ({ missing }) => missing },
      ]}
      code={code(asked, text)}
      how={
        "Each model is loaded from the folder and run once, at the positions shown; softmax of its logits at the token " +
        "whose output is the answer, which is marked. The mask follows the order of the tokens, whatever their positions. " +
        "“median” is the run of the median score at the longest tested length."
      }
    >
      <Bars bars={bars} kind="choices asked" />
    </Figure>
  );
}

function judged({ answer }: Run, right: string, wrong: string, unknown: string): string {
  return answer?.correct == null ? unknown : answer.correct ? right : wrong;
}

function probability(title: string, value: (run: Run) => number | null | undefined): Column<Run> {
  return { title, numeric: true, value, cell: (run) => share(value(run)) };
}

function sentence(run: Run): string {
  const { answer, missing, usual } = run;
  if (!answer) return missing;
  const before = usual ? `; before ${probable(usual.top[0]!)}` : "";
  return `${probable(answer.top[0]!)}${judged(run, " ✓ correct", " ✗ wrong", "")}${before}`;
}

function probable({ token, probability }: TokenProbability): string {
  return `${quoted(token)} ${share(probability)}`;
}

function quoted(token: string, at?: number): string {
  return `“${visibleToken(token)}”${at === undefined ? "" : ` at ${at}`}`;
}

function share(probability: number | null | undefined): string {
  return probability === null || probability === undefined ? "–" : `${fixed(100 * probability, 1)} %`;
}

function code({ answers: { answers, without, chosen }, usual }: Asked, text: string): string {
  const given = usual ? `, positions=[${answers[0]!.positions.join(", ")}]` : "";
  const [{ seed }] = [...answers, ...without] as [Answer];
  const seeds = { median: "", all: ', seed="all"', given: `, seed=${seed}` }[chosen];
  return `ww.comparison.ask(PATH, ${literal(text)}${seeds}${given}).answers`;
}

const ACROSS = 4;

function Heads({ asked, of, answer, text }: { asked: Asked; of: Run; answer: Answer; text: string }) {
  const { scheme, seed, positions, at } = answer;
  const { causal, digits } = asked;
  const { tokens } = asked.answers;
  const heads = useMemo(() => headsOf(answer, causal), [answer]);
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
  const title = `Attention of ${of.title}`;
  const given = `seed=${seed}, positions=[${positions.join(", ")}]`;
  const pairs = heads.flatMap(({ layer, head, weights }) =>
    Array.from(weights, (weight, n) => ({ layer, head, weight, query: Math.floor(n / tokens.length), n })),
  );
  return (
    <>
      <Figure
        title={title}
        note={`Rows are queries, columns keys; each row sums to 1${causal ? ", and later keys are masked" : ""}. Framed: ${quoted(tokens[at]!, at)}, at whose output the model answers.`}
        svg={() => heatsSvg(`${title}: ${text}`, maps, ACROSS)}
        rows={pairs.filter(({ weight }) => !Number.isNaN(weight))}
        columns={[
          { title: "layer", numeric: true, value: ({ layer }) => layer },
          { title: "head", numeric: true, value: ({ head }) => head },
          { title: "query", value: ({ query }) => quoted(tokens[query]!, query) },
          { title: "key", value: ({ n }) => quoted(tokens[n % tokens.length]!, n % tokens.length) },
          { title: "weight", decimals: 4, value: ({ weight }) => weight },
        ]}
        code={`answers = ww.comparison.ask(PATH, ${literal(text)}, schemes=[${literal(scheme)}], ${given})\nanswers.answers[0].attention`}
        how={
          "a(i, j) = softmax over j of the attention scores of query i and key j, with everything that the scheme adds " +
          "to them, and the mask: the model's own, at the positions above."
        }
      >
        <ul class={names.every((name) => name.length < 7) && names.length < 16 ? "heads short" : "heads"}>
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
      <AtTheAnswer at={at} digits={digits} heads={heads} tokens={tokens} />
    </>
  );
}

interface Head {
  layer: number;
  head: number;
  weights: Float32Array;
}

function headsOf({ attention }: Answer, causal: boolean): Head[] {
  return attention.flatMap(({ values, shape: [heads = 0, count = 0] }, layer) => {
    const masked = (cell: number) => causal && cell % count > Math.floor(cell / count);
    return upTo(heads).map((head) => ({
      layer,
      head,
      weights: Float32Array.from({ length: count ** 2 }, (_, cell) =>
        masked(cell) ? Number.NaN : values[head * count ** 2 + cell]!,
      ),
    }));
  });
}

type AtProps = Pick<Asked, "digits"> & { heads: Head[]; tokens: string[] };

/** The weights of each head at the token whose output is the answer, summed over an expression's digits. */
function AtTheAnswer({ at, digits, heads, tokens }: Pick<Answer, "at"> & AtProps) {
  const slots = digits ?? [];
  const rows = heads.map(({ layer, head, weights }) => {
    const own = Array.from(tokens, (_, key) => weights[at * tokens.length + key] || 0);
    const most = own.indexOf(Math.max(...own));
    const of = slots.map((slot) => own[slot]!);
    const [all, least] = [of.reduce((sum, weight) => sum + weight, 0), Math.min(...of)];
    return { layer, head, most, weight: own[most], all, least };
  });
  const number = (title: string, key: "weight" | "all" | "least") => ({
    title,
    decimals: 3,
    value: (row: (typeof rows)[number]) => row[key],
  });
  const ofDigits = [number("to all digits", "all"), number("to the digit that gets least", "least")];
  const share = `an equal share of ${tokens.length} tokens is ${(1 / tokens.length).toFixed(3)}`;
  return (
    <Table
      caption={`What ${quoted(tokens[at]!, at)} attends to: the model answers at its output; ${share}`}
      rows={rows}
      columns={[
        { title: "layer", numeric: true, value: ({ layer }) => layer },
        { title: "head", numeric: true, value: ({ head }) => head },
        { title: "most to", value: ({ most }) => quoted(tokens[most]!, most) },
        number("weight", "weight"),
        ...(slots.length ? ofDigits : []),
      ]}
    />
  );
}
