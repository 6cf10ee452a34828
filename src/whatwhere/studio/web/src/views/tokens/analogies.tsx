/** a is to b as c is to what? With the words of the question among the answers, and without. */

import { useQuery } from "../../hooks";
import { fixed } from "../../numbers";
import { barListsSvg } from "../../parts/bars";
import { TokenField } from "../../parts/field";
import { Figure } from "../../parts/figure";
import { How } from "../../parts/how";
import { Answered } from "../../parts/states";
import { TokenLabel } from "../../parts/token";
import type { ViewProps } from "../../register";
import { seriesColor } from "../../colors";
import { face, visibleToken } from "../../escape";
import type { Analogy } from "../../types";

interface Props extends ViewProps {
  link(number: number): string;
}

const SIDES = [
  ["without", "words of the question excluded"],
  ["allowed", "words of the question allowed"],
] as const;

export function Analogies({ about, settings, change, link }: Props) {
  const [a, b, c, rule] = ["a", "b", "c", "rule"].map((name) => String(settings[name])) as [
    string,
    string,
    string,
    string,
  ];
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
        <label class="choice">
          rule{" "}
          <select value={rule} onChange={(event) => change({ rule: event.currentTarget.value })}>
            <option value="add">3CosAdd</option>
            <option value="multiply">3CosMul</option>
          </select>
        </label>
        <label class="choice">
          <input
            type="checkbox"
            checked={centered}
            onChange={(event) => change({ centered: event.currentTarget.checked })}
          />{" "}
          centered
        </label>
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
  const ids = Array.from(answer.ids.values).join(", ");
  return (
    <Figure
      title={title}
      file="analogy"
      svg={(width) => svg(title, answer, width)}
      rows={rows}
      columns={[
        { title: "answers", value: (row) => row.name },
        { title: "rank", numeric: true, value: (row) => row.rank + 1 },
        { title: "token", value: (row) => visibleToken(row.word) },
        { title: "id", numeric: true, value: (row) => answer[row.side].ids.values[row.rank]! },
        {
          title: "score",
          numeric: true,
          value: (row) => answer[row.side].scores.values[row.rank]!,
          cell: (row) => fixed(answer[row.side].scores.values[row.rank]!, 4),
        },
      ]}
      how={
        <How
          code={[
            `table = ww.read(PATH).array(${JSON.stringify(table)})`,
            `ww.analysis.analogy(table, ${ids}, k=5, rule="${rule}", centered=${centered ? "True" : "False"})`,
          ].join("\n")}
        >
          {rule === "add" ? (
            <p>
              argmax over x of cos(x, b/|b| − a/|a| + c/|c|): Mikolov et al. 2013. With the words of the question
              allowed, the answer is often one of them.
            </p>
          ) : (
            <p>argmax over x of s(x, b) s(x, c) / (s(x, a) + 0.001) with s = (cos + 1) / 2: Levy and Goldberg 2014.</p>
          )}
        </How>
      }
    >
      <div class="lists">
        {SIDES.map(([side, name]) => (
          <section key={side} aria-label={name}>
            <h4>{name}</h4>
            <ol class="bars">
              {answer[side].words.map((word, n) => (
                <li key={answer[side].ids.values[n]}>
                  <span class="name">
                    <TokenLabel
                      word={word}
                      text={answer[side].texts[n] ?? null}
                      href={link(answer[side].ids.values[n]!)}
                    />
                  </span>
                  <span class="track" aria-hidden="true">
                    <i style={{ width: `${100 * share(answer, side, n)}%`, background: "var(--c6)" }} />
                  </span>
                  <span class="value">{fixed(answer[side].scores.values[n]!, 3)}</span>
                </li>
              ))}
            </ol>
          </section>
        ))}
      </div>
    </Figure>
  );
}

/** Return the length of a bar: scores of 3CosMul may exceed 1, and all bars share one scale. */
function share(answer: Analogy, side: "allowed" | "without", n: number): number {
  const most = Math.max(1, ...answer.allowed.scores.values, ...answer.without.scores.values);
  return Math.max(0, answer[side].scores.values[n]!) / most;
}

function svg(title: string, answer: Analogy, width = 640): string {
  const lists = SIDES.map(([side, heading]) => ({
    heading,
    rows: answer[side].words.map((word, n) => ({
      name: visibleToken(face(word, answer[side].texts[n] ?? null)),
      shares: [share(answer, side, n)],
      text: fixed(answer[side].scores.values[n]!, 3),
    })),
  }));
  const color = seriesColor(6);
  return barListsSvg(
    title,
    lists,
    lists.map(() => color),
    width,
  );
}
