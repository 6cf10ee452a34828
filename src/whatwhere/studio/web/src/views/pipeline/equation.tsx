/** The equation of the input layer with the tokens of the text; each term leads to its step, and a narrow screen shows the part of this one. */

import type { ComponentChildren } from "preact";
import { formatNumber } from "../../numbers";
import { Folded } from "../../parts/controls";
import { TokenLabel } from "../../parts/field";
import { cell, doorName, row, type StepId, type StepProps, vectorWords } from "./steps";

interface Props extends StepProps {
  step: StepId;
  go(step: StepId): void;
}

export function Equation({ walk, at, other, step, go }: Props) {
  const { factor, scale } = walk;
  const word = (n: number) => ["“", <TokenLabel key={n} word={walk.words[n]!} text={walk.texts[n]} />, "”"];
  const term = (to: StepId, label: string, ...what: ComponentChildren[]) => (
    <button type="button" class="term" aria-pressed={step === to} title={label} onClick={() => go(to)}>
      {what}
    </button>
  );
  const [input, rotation, bias] = [doorName(walk, "input"), doorName(walk, "query_key"), doorName(walk, "score")];
  const vector = (of: typeof walk.rows) => vectorWords(row(of, at));
  const rotated = (n: number, name: string) => [rotation && `R(${n}) `, `${name}(`, word(n), ")"];
  const within: StepId[] = ["rotation", "bias", "score"];
  const part = (steps: boolean, formula: ComponentChildren, ...numbers: ComponentChildren[]) => (
    <div class={within.includes(step) === steps ? "now" : undefined}>
      <p>{formula}</p>
      <Folded title="with its numbers">
        {numbers.map((line, n) => (
          <p key={n} class="numbers">
            {line}
          </p>
        ))}
      </Folded>
    </div>
  );
  return (
    <section class="equation" aria-label="The equation">
      {part(
        false,
        <>
          {term("sum", "The sum", "x(", word(at), ` at ${at})`)} = {factor !== 1 && `${formatNumber(factor, 4)} · `}
          {term("rows", "The token's row", "what(", word(at), ")")} +{" "}
          {term("positions", "The position's row", input ? `where(${at})` : "0")}
        </>,
        <>
          = {term("tokens", "The id", `E[${walk.ids.values[at]}]`)} {vector(walk.rows)}
          {walk.position_rows && ` + P[${at}] ${vector(walk.position_rows)} = ${vector(walk.vectors)}`}
        </>,
      )}
      {part(
        true,
        <>
          {term("score", "The score", "score(", word(at), ` at ${at} → `, word(other), ` at ${other})`)} ={" "}
          {scale !== 1 && `${formatNumber(scale)} · `}
          {term("rotation", "Queries and keys", "⟨ ", rotated(at, "q"), ", ", rotated(other, "k"), " ⟩")} +{" "}
          {term("bias", "The bias", bias ? `bias(${at - other})` : "0")}
        </>,
        walk.causal && other > at
          ? `= −∞: the query at ${at} does not attend to a later key`
          : scoreWords({ walk, at, other }),
        walk.layer ? (
          <>
            with q = W<sub>Q</sub> norm(x), k = W<sub>K</sub> norm(x): head {walk.head} of layer 0 of this run
          </>
        ) : (
          <>
            with <b>q = k = x</b>, {walk.head_dim} of its features: no norm, W<sub>Q</sub> or W<sub>K</sub> is applied
          </>
        ),
      )}
    </section>
  );
}

/** Return the numbers of a score, each once: the scaled product and the bias, where they are, and what they make. */
function scoreWords({ walk, at, other }: StepProps): string {
  const { scale, bias } = walk;
  const score = formatNumber(cell(walk.scores, at, other));
  const product = cell(walk.mapped_products, at, other) / scale;
  const added = bias && cell(bias, at, other);
  const parts =
    (scale === 1 ? "" : `${formatNumber(scale)} · `) +
    (scale !== 1 && product < 0 ? `(${formatNumber(product)})` : formatNumber(product)) +
    (added === null ? "" : ` ${added < 0 ? "−" : "+"} ${formatNumber(Math.abs(added))}`);
  const without =
    doorName(walk, "query_key") &&
    `; without the rotation ⟨ q, k ⟩ is ${formatNumber(cell(walk.products, at, other) / scale)}`;
  return `${parts === score ? "" : `= ${parts} `}= ${score}${without ?? ""}`;
}
