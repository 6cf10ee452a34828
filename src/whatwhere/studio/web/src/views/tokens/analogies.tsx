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
import type { Analogy } from "../../types";

interface Props extends ViewProps {
  link(number: number): string;
}

const SIDES = [
  ["without", "words of the question excluded"],
  ["allowed", "words of the question allowed"],
] as const;

const RULES = [["add", "3CosAdd"] as const, ["multiply", "3CosMul"] as const];

export function Analogies({ about, settings, change, link }: Props) {
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
          {(answer) => (
            <Completed
              table={about.tables.input?.name ?? ""}
              answer={answer}
              rule={rule}
              centered={centered}
              link={link}
            />
          )}
        </Answered>
      ) : (
        <p class="note">Enter three tokens, such as man, woman, king.</p>
      )}
    </section>
  );
}

function Completed({
  table,
  answer,
  rule,
  centered,
  link,
}: {
  table: string;
  answer: Analogy;
  rule: string;
  centered: boolean;
  link(number: number): string;
}) {
  const [a, b, c] = answer.words.map((word, n) => visibleToken(face(word, answer.texts[n] ?? null)));
  const title = `${a} : ${b} = ${c} : ?`;
  const rows = SIDES.flatMap(([side, name]) => answer[side].words.map((word, rank) => ({ side, name, word, rank })));
  type Row = (typeof rows)[number];
  // Scores of 3CosMul may exceed 1, and all bars share one scale.
  const most = Math.max(1, ...answer.allowed.scores.values, ...answer.without.scores.values);
  const lists = SIDES.map(([side, heading]) => ({
    heading,
    bars: answer[side].words.map((word, n) => {
      const text = answer[side].texts[n] ?? null;
      const score = answer[side].scores.values[n]!;
      return {
        name: visibleToken(face(word, text)),
        link: <TokenLabel word={word} text={text} href={link(answer[side].ids.values[n]!)} />,
        share: score / most,
        text: fixed(score, 3),
        color: "c6",
      };
    }),
  }));
  const ids = Array.from(answer.ids.values).join(", ");
  return (
    <Figure
      title={title}
      file="analogy"
      svg={() => barListsSvg(title, lists)}
      rows={rows}
      columns={[
        { title: "answers", value: (row) => row.name },
        { title: "rank", numeric: true, value: (row) => row.rank + 1 },
        { title: "token", value: (row) => visibleToken(row.word) },
        { title: "id", numeric: true, value: (row) => answer[row.side].ids.values[row.rank]! },
        numberColumn(
          "score",
          (row: Row) => answer[row.side].scores.values[row.rank],
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
