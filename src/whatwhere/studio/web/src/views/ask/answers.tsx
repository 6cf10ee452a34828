/** The answers of the runs, with their probabilities, and what changed positions did to them. */

import { visibleToken } from "../../escape";
import { fixed } from "../../numbers";
import { Bars, barsSvg } from "../../parts/bars";
import { Figure } from "../../parts/figure";
import { numberColumn } from "../../parts/figures";
import type { AskedRun, AskedRuns } from "../../types";
import { literal } from "./python";

interface Props {
  asked: AskedRuns;
  text: string;
  /** The run whose attention is shown. */
  run: string;
  choose(run: string): void;
}

export function Answering({ asked, text, run, choose }: Props) {
  const moved = asked.positions.some((position, n) => position !== asked.usual[n]);
  const title = "Answers and their probabilities";
  const bars = asked.runs.map((one) => ({
    name: `${one.scheme}, seed ${one.seed}`,
    share: one.top[0]?.probability ?? 0,
    text: sentence(one),
    color: hue(one),
    choose: () => choose(one.run),
    chosen: one.run === run,
    disabled: one.missing !== null,
  }));
  return (
    <Figure
      title={title}
      note="A bar is the probability of the answer. Choose a run: its attention is below."
      file="answers"
      svg={() => barsSvg(title, bars, 760)}
      rows={asked.runs}
      columns={[
        { title: "scheme", value: ({ scheme }) => scheme },
        { title: "seed", numeric: true, value: ({ seed }) => seed },
        { title: "answer", value: ({ top }) => shown(top[0]?.token) },
        numberColumn("probability", ({ top }: AskedRun) => top[0]?.probability, share),
        { title: "correct", value: ({ correct }) => (correct === null ? "–" : correct ? "yes" : "no") },
        numberColumn("probability of the correct answer", (one: AskedRun) => one.correct_probability, share),
        { title: "then", value: ({ top }) => top.slice(1).map(probable).join(", ") },
        ...(moved
          ? [
              { title: "at usual positions", value: ({ usual }: AskedRun) => (usual ? probable(usual) : "–") },
              numberColumn("of the correct answer there", (one: AskedRun) => one.usual_correct_probability, share),
            ]
          : []),
        { title: "why none", value: ({ missing }) => missing ?? "" },
      ]}
      code={code(asked, text, moved)}
      how={
        <p>
          Each model is loaded from the folder and run once, at the positions shown; softmax of its logits at the token
          whose output is the answer. “median” is the run of the median score at the longest tested length.
        </p>
      }
    >
      <Bars bars={bars} kind="choices asked" />
    </Figure>
  );
}

function sentence(one: AskedRun): string {
  const [first] = one.top;
  if (!first) return one.missing ?? "";
  const judged = one.correct === null ? "" : one.correct ? " ✓ correct" : " ✗ wrong";
  const before = one.usual ? `; before ${probable(one.usual)}` : "";
  return `${probable(first)}${judged}${before}`;
}

function hue({ correct }: AskedRun): string {
  return correct === null ? "c2" : correct ? "good" : "bad";
}

function shown(token: string | undefined): string {
  return token === undefined ? "–" : visibleToken(token);
}

function probable({ token, probability }: { token: string; probability: number }): string {
  return `${shown(token)} ${share(probability)}`;
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
