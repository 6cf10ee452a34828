/** a is to b as c is to what? With the words of the question among the answers, and without. */

import { useQuery } from "../../hooks";
import { fixed } from "../../numbers";
import { BarLists, barListsSvg } from "../../parts/bars";
import { Choice, Flag } from "../../parts/choice";
import { TokenField } from "../../parts/field";
import { Figure } from "../../parts/figure";
import { numberColumn } from "../../parts/figures";
import { Answered } from "../../parts/states";
import { TokenLabel } from "../../parts/token";
import type { ViewProps } from "../../register";
import { face, visibleToken } from "../../escape";
import type { AnalogyAnswers } from "../../types";

interface Props extends ViewProps {
  link(number: number): string;
}

const SIDES = [
  ["without_inputs", "words of the question excluded"],
  ["with_inputs", "words of the question allowed"],
] as const;

const RULES = [["add", "3CosAdd"] as const, ["multiply", "3CosMul"] as const];

export function Analogies({ settings, change, link }: Props) {
  const [a = "", b = "", c = "", rule = ""] = ["a", "b", "c", "rule"].map((name) => String(settings[name]));
  const centered = Boolean(settings["centered"]);
  const query = useQuery("tokens.analogy", a && b && c ? { a, b, c, rule, centered, k: 5 } : null);
  return (
    <section class="analogy" aria-labelledby="analogies">
      <h2 id="analogies">Analogies</h2>
      <div class="controls">
        <TokenField label="a" value={a} choose={(token) => change({ a: token })} />
        <span class="word">is to</span>
        <TokenField label="b" value={b} choose={(token) => change({ b: token })} />
        <span class="word">as</span>
        <TokenField label="c" value={c} choose={(token) => change({ c: token })} />
        <span class="word">is to …</span>
        <Choice label="rule" value={rule} options={RULES} change={(rule) => change({ rule })} />
        <Flag label="centered" value={centered} change={(centered) => change({ centered })} />
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
  const [a, b, c] = question.map(({ token, text }) => visibleToken(face(token, text)));
  const title = `${a} : ${b} = ${c} : ?`;
  const rows = SIDES.flatMap(([side, name]) => answer[side].map((found, rank) => ({ ...found, name, rank })));
  type Row = (typeof rows)[number];
  // Scores of 3CosMul may exceed 1, and all bars share one scale.
  const most = Math.max(1, ...rows.map((row) => row.score));
  const lists = SIDES.map(([side, heading]) => ({
    heading,
    bars: answer[side].map(({ token, id, text, score }) => ({
      name: visibleToken(face(token, text)),
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
        { title: "id", numeric: true, value: (row) => row.id },
        numberColumn(
          "score",
          (row: Row) => row.score,
          (score) => fixed(score!, 4),
        ),
      ]}
      code={[
        `table = ww.read(PATH).array(${JSON.stringify(table)})`,
        `ww.analysis.analogy(table, ${ids}, k=5, rule="${rule}", centered=${centered ? "True" : "False"})`,
      ].join("\n")}
      how={
        rule === "add" ? (
          <p>
            argmax over x of cos(x, b/|b| − a/|a| + c/|c|): Mikolov et al. 2013. With the words of the question allowed,
            the answer is often one of them.
          </p>
        ) : (
          <p>argmax over x of s(x, b) s(x, c) / (s(x, a) + 0.001) with s = (cos + 1) / 2: Levy and Goldberg 2014.</p>
        )
      }
    >
      <BarLists lists={lists} />
    </Figure>
  );
}
