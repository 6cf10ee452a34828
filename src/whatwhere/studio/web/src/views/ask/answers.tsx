/** The answers of the runs, with their probabilities, and what changed positions did to them. */

import { cssColor, pageColor } from "../../colors";
import { visibleToken } from "../../escape";
import { fixed } from "../../numbers";
import { Figure } from "../../parts/figure";
import { How } from "../../parts/how";
import { box, drawing, label } from "../../parts/svg";
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
  return (
    <Figure
      title={title}
      note="A bar is the probability of the answer. Choose a run: its attention is below."
      file="answers"
      svg={() => answersSvg(title, asked.runs)}
      rows={asked.runs}
      columns={[
        { title: "scheme", value: ({ scheme }) => scheme },
        { title: "seed", numeric: true, value: ({ seed }) => seed },
        { title: "answer", value: ({ top }) => shown(top[0]?.token) },
        {
          title: "probability",
          numeric: true,
          value: ({ top }) => top[0]?.probability ?? null,
          cell: ({ top }) => share(top[0]?.probability),
        },
        { title: "correct", value: ({ correct }) => (correct === null ? "–" : correct ? "yes" : "no") },
        {
          title: "probability of the correct answer",
          numeric: true,
          value: (one) => one.correct_probability,
          cell: (one) => share(one.correct_probability),
        },
        { title: "then", value: ({ top }) => top.slice(1).map(probable).join(", ") },
        ...(moved
          ? [
              { title: "at usual positions", value: ({ usual }: AskedRun) => (usual ? probable(usual) : "–") },
              {
                title: "of the correct answer there",
                numeric: true,
                value: (one: AskedRun) => one.usual_correct_probability,
                cell: (one: AskedRun) => share(one.usual_correct_probability),
              },
            ]
          : []),
        { title: "why none", value: ({ missing }) => missing ?? "" },
      ]}
      how={
        <How code={code(asked, text, moved)}>
          <p>
            Each model is loaded from the folder and run once, at the positions shown; softmax of its logits at the
            token whose output is the answer. “median” is the run of the median score at the longest tested length.
          </p>
        </How>
      }
    >
      <ul class="bars choices asked">
        {asked.runs.map((one) => (
          <li key={one.run}>
            <button
              type="button"
              class="name"
              aria-pressed={one.run === run}
              disabled={one.missing !== null}
              onClick={() => choose(one.run)}
            >
              {one.scheme}, seed {one.seed}
            </button>
            <span class="track" aria-hidden="true">
              <i style={{ width: `${100 * (one.top[0]?.probability ?? 0)}%`, background: cssColor(hue(one)) }} />
            </span>
            <span class="value">{sentence(one)}</span>
          </li>
        ))}
      </ul>
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

function answersSvg(title: string, runs: AskedRun[]): string {
  const [top, line, left, wide] = [12, 24, 190, 260];
  const parts = runs.flatMap((one, n) => [
    label(left - 8, top + 12 + line * n, `${one.scheme}, seed ${one.seed}`, "end"),
    box(left, top + line * n, wide, 16, pageColor("shade")),
    box(left, top + line * n, wide * (one.top[0]?.probability ?? 0), 16, pageColor(hue(one))),
    label(left + wide + 10, top + 12 + line * n, sentence(one)),
  ]);
  return drawing(760, top + line * runs.length + 6, title, parts);
}
