/** a is to b as c is to what? With the words of the question among the answers, and without. */

import { shownToken, visibleToken } from "../../escape";
import { useQuery, useView } from "../../hooks";
import { fixed } from "../../numbers";
import { BarLists, barListsSvg } from "../../parts/bars";
import { Choice, Flag, type Option } from "../../parts/controls";
import { TokenField } from "../../parts/field";
import { Figure } from "../../parts/figure";
import { Answered } from "../../parts/states";
import { TokenLabel } from "../../parts/token";
import type { AnalogyAnswers } from "../../types";

const SIDES = [
  ["without_inputs", "words of the question excluded"],
  ["with_inputs", "words of the question allowed"],
] as const;

const RULES: Option[] = [
  ["add", "3CosAdd"],
  ["multiply", "3CosMul"],
];

export function Analogies({ link }: { link(number: number): string }) {
  const { a, b, c, rule, centered } = useView<Record<"a" | "b" | "c" | "rule", string> & { centered: boolean }>()
    .settings;
  const query = useQuery("tokens.analogy", a && b && c ? { a, b, c, rule, centered, k: 5 } : null);
  return (
    <section class="analogy" aria-labelledby="analogies">
      <h2 id="analogies">Analogies</h2>
      <div class="controls">
        <TokenField label="a" name="a" />
        <span class="word">is to</span>
        <TokenField label="b" name="b" />
        <span class="word">as</span>
        <TokenField label="c" name="c" />
        <span class="word">is to …</span>
        <Choice label="rule" name="rule" options={RULES} />
        <Flag label="centered" name="centered" />
      </div>
      {a && b && c ? (
        <Answered query={query} what="completing">
          {(answer) => <Completed answer={answer} link={link} />}
        </Answered>
      ) : (
        <p class="note">Enter three tokens, such as man, woman, king.</p>
      )}
    </section>
  );
}

function Completed({ answer, link }: { answer: AnalogyAnswers; link(number: number): string }) {
  const { question, table, rule, centered } = answer;
  const [a, b, c] = question.map(({ token, text }) => shownToken(token, text));
  const title = `${a} : ${b} = ${c} : ?`;
  const rows = SIDES.flatMap(([side, name]) => answer[side].map((found, rank) => ({ ...found, name, rank })));
  // Scores of 3CosMul may exceed 1, and all bars share one scale.
  const most = Math.max(1, ...rows.map((row) => row.score));
  const lists = SIDES.map(([side, heading]) => ({
    heading,
    bars: answer[side].map(({ token, id, text, score }) => ({
      name: shownToken(token, text),
      link: <TokenLabel word={token} text={text} href={link(id)} />,
      share: score / most,
      text: fixed(score, 3),
      color: "c6",
    })),
  }));
  const ids = question.map(({ id }) => id).join(", ");
  return (
    <Figure
      title={title}
      file="analogy"
      svg={() => barListsSvg(title, lists)}
      rows={rows}
      columns={[
        { title: "answers", value: (row) => row.name },
        { title: "rank", numeric: true, value: (row) => row.rank + 1 },
        { title: "token", value: (row) => visibleToken(row.token) },
        { title: "id", numeric: true, value: (row) => row.id, cell: (row) => row.id },
        { title: "score", decimals: 4, value: (row) => row.score },
      ]}
      code={[
        `table = ww.read(PATH).array(${JSON.stringify(table)})`,
        `ww.analysis.analogy(table, ${ids}, k=5, rule="${rule}", centered=${centered ? "True" : "False"})`,
      ].join("\n")}
      how={
        rule === "add"
          ? "argmax over x of cos(x, b/|b| − a/|a| + c/|c|): Mikolov et al. 2013. With the words of the question " +
            "allowed, the answer is often one of them."
          : "argmax over x of s(x, b) s(x, c) / (s(x, a) + 0.001) with s = (cos + 1) / 2: Levy and Goldberg 2014."
      }
    >
      <BarLists lists={lists} />
    </Figure>
  );
}
