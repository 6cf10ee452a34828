/** The answers of the runs, with their probabilities, and what changed positions did to them. */

import { visibleToken } from "../../escape";
import { useView } from "../../hooks";
import { fixed } from "../../numbers";
import { Bars, barsSvg } from "../../parts/bars";
import { Figure } from "../../parts/figure";
import type { Column } from "../../parts/table";
import { literal } from "../../python";
import type { AskedRun, AskedRuns, TokenProbability } from "../../types";

export function Answering({ asked, text }: { asked: AskedRuns; text: string }) {
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
      file="answers"
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
