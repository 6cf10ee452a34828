/** The equation of the input layer with the tokens of the text; each term leads to its step. */

import type { ComponentChildren } from "preact";
import { formatNumber } from "../../numbers";
import { TokenLabel } from "../../parts/field";
import { cell, doorName, row, type StepId, type StepProps, vectorWords } from "./steps";

interface Props extends StepProps {
  step: StepId;
  go(step: StepId): void;
}

export function Equation({ walk, at, other, step, go }: Props) {
  const word = (n: number) => <TokenLabel word={walk.words[n]!} text={walk.texts[n]} />;
  const term = (to: StepId, what: ComponentChildren, label: string) => (
    <button type="button" class="term" aria-pressed={step === to} title={label} onClick={() => go(to)}>
      {what}
    </button>
  );
  const [input, rotation, bias] = [doorName(walk, "input"), doorName(walk, "query_key"), doorName(walk, "score")];
  const hidden = walk.causal && other > at;
  const id = walk.ids.values[at]!;
  return (
    <section class="equation" aria-label="The equation">
      <p>
        {term("sum", <>x({word(at)})</>, "The sum")} = {walk.factor !== 1 && `${formatNumber(walk.factor, 4)} · `}
        {term("rows", <>what({word(at)})</>, "The token's row")} +{" "}
        {term("positions", input ? <>where({at})</> : "0", "The position's row")}
      </p>
      <p class="numbers">
        {vectorWords(row(walk.vectors, at))} = {term("ids", <>E[{id}]</>, "The id")} {vectorWords(row(walk.rows, at))}
        {walk.position_rows && (
          <>
            {" "}
            + P[{at}] {vectorWords(row(walk.position_rows, at))}
          </>
        )}
      </p>
      <p>
        {term(
          "score",
          <>
            score({word(at)} → {word(other)})
          </>,
          "The score",
        )}{" "}
        = {formatNumber(walk.scale)} ·{" "}
        {term(
          "rotation",
          <>
            ⟨ {rotation ? <>R({at})</> : ""} q({word(at)}), {rotation ? <>R({other})</> : ""} k({word(other)}) ⟩
          </>,
          "Queries and keys",
        )}{" "}
        + {term("bias", bias ? <>bias({at - other})</> : "0", "The bias")}
      </p>
      <p class="numbers">
        {hidden ? (
          <>−∞: the query at {at} does not attend to a later key</>
        ) : (
          <>
            {formatNumber(cell(walk.scores, at, other))} = {formatNumber(cell(walk.mapped_products, at, other))}
            {walk.bias && signed(cell(walk.bias, at, other))}
            {rotation && <> (without the rotation {formatNumber(cell(walk.products, at, other))})</>}
          </>
        )}
      </p>
    </section>
  );
}

function signed(value: number): string {
  return value < 0 ? ` − ${formatNumber(-value)}` : ` + ${formatNumber(value)}`;
}
