/** The token card: one token's properties, the norm of its row, its nearest rows, and analogies. */

import { type ComponentChildren, Fragment } from "preact";
import { shownToken, shownTokens, visibleToken } from "../escape";
import { type Query, useQuery, useView } from "../hooks";
import { writeLink } from "../link";
import { fixed, formatNumber, whole } from "../numbers";
import { type BarList, BarLists, barListsSvg } from "../parts/bars";
import { Choice, Flag, Folded, type Option } from "../parts/controls";
import { TokenField, TokenLabel } from "../parts/field";
import { Figure, HeatFigure, LineFigure } from "../parts/figure";
import { spread } from "../parts/heat";
import { Answered } from "../parts/states";
import type { Column } from "../parts/table";
import type { About, AnalogyAnswers, NeighborList, RowInTable, TokenCard, TokenNeighbors } from "../types";

export function defaults({ analogy: [a = "", b = "", c = ""], examples }: About) {
  return { token: examples[0] ?? "#0", k: 10, a, b, c, rule: "add", centered: false };
}

export function Tokens() {
  const { about, settings, change } = useView<ReturnType<typeof defaults>>();
  const { token, k } = settings;
  const card = useQuery("tokens.card", { token });
  const near = useQuery("tokens.neighbors", { token, k });
  const link = (number: number) => writeLink("tokens", { ...settings, token: `#${number}` }, defaults(about));
  return (
    <>
      <search class="controls">
        <TokenField main label="Token" name="token" hint="text or #id, Ctrl+K" />
        <p class="examples">
          for example
          {about.examples.map((example) => (
            <button key={example} type="button" onClick={() => change({ token: example })}>
              <TokenLabel word={example} />
            </button>
          ))}
        </p>
      </search>
      <div class="two">
        <section aria-label="The token">
          <Answered query={card} what="reading the token">
            {(answer) => <CardOf card={answer} />}
          </Answered>
        </section>
        <section aria-label="Neighbors">
          {(near.problem ?? "") !== card.problem && (
            <Answered query={near} what="looking for its neighbors">
              {(answer) => <Neighborhood near={answer} k={k} link={link} />}
            </Answered>
          )}
        </section>
      </div>
      <RowsOf near={near} />
      <Analogies link={link} />
    </>
  );
}

function CardOf({ card }: { card: TokenCard }) {
  const tables = Object.entries(card.tables);
  const written: [string, ComponentChildren][] =
    card.kind === "no token"
      ? [["in the vocabulary", "no word: this row has a number only"]]
      : [
          ["in the vocabulary", <code>{visibleToken(card.word)}</code>],
          ["type", card.kind + (card.script && card.script !== "no letters" ? `, ${card.script}` : "")],
          ["from text", reached(card.reachable)],
        ];
  const stored: typeof written =
    card.kind === "no token"
      ? []
      : [
          [card.byte_count === 1 ? "byte" : `${card.byte_count} bytes`, <code>{bytes(card)}</code>],
          ["characters", card.characters.length ? <Characters of={card.characters} /> : "part of a character"],
        ];
  const rows = tables.map(([, { name, dtype }]) => (
    <div key={name}>
      <code>{name}</code>, {dtype}
    </div>
  ));
  return (
    <div class="card">
      <h2 class="big">
        <TokenLabel word={card.word} text={card.text} />
      </h2>
      <Facts of={[["id", card.id], ...written]} />
      <Folded title="bytes, characters, and its row">
        <Facts of={[...stored, ["its row in", rows]]} />
      </Folded>
      {tables.map(([which, row]) => (
        <NormOf key={which} card={card} which={which} row={row} />
      ))}
    </div>
  );
}

function Facts({ of }: { of: [string, ComponentChildren][] }) {
  return (
    <dl>
      {of.map(([name, fact]) => (
        <Fragment key={name}>
          <dt>{name}</dt>
          <dd>{fact}</dd>
        </Fragment>
      ))}
    </dl>
  );
}

function bytes({ bytes: { values }, byte_count }: TokenCard): string {
  const shown = Array.from(values, (value) => value.toString(16).toUpperCase().padStart(2, "0")).join(" ");
  return byte_count > values.length ? `${shown} …` : shown || "none";
}

function Characters({ of }: { of: TokenCard["characters"] }) {
  const some = of.slice(0, 12);
  return (
    <ul class="plain">
      {some.map(([code, name], n) => (
        <li key={n}>
          <code>{code}</code> {name.toLowerCase()}
        </li>
      ))}
      {of.length > some.length && <li>and {of.length - some.length} more</li>}
    </ul>
  );
}

function reached(reachable: boolean | null): string {
  if (reachable === null) return "not known: there is no tokenizer";
  return reachable
    ? "reachable: some text becomes this token"
    : "unreachable: no text that was tried becomes this token";
}

function NormOf({ card, which, row }: { card: TokenCard; which: string; row: RowInTable }) {
  return (
    <LineFigure
      title={`Norm of the row in the ${tableName(which)}`}
      x={row.edges.values}
      curves={[{ name: "tokens", values: row.counts.values, color: 2 }]}
      xLabel="norm |x|"
      yLabel="tokens"
      steps
      marks={row.norm === null ? [] : [{ x: row.norm, text: shownToken(card.word, card.text) }]}
      note={
        row.norm === null || row.percentile === null ? (
          "This row holds numbers that are not finite."
        ) : (
          <>
            <b>{formatNumber(row.norm)}</b>,{" "}
            {row.percentile === 0 ? (
              "the least of all rows"
            ) : (
              <>
                larger than those of <b>{fixed(row.percentile, 1)} %</b> of all rows
              </>
            )}
            ; the median is {formatNumber(row.median)}.
          </>
        )
      }
      code={`table = ww.read(PATH).array("${row.name}")\nnp.linalg.norm(table.astype(np.float64), axis=1)`}
      how={
        <>
          |x| = √(x₁² + … + x<sub>n</sub>²) of each of the {whole(row.rows)} rows of <code>{row.name}</code> (stored as{" "}
          {row.dtype}), in float64; {row.counts.values.length} bins of equal width. The percentage counts the rows whose
          norm is strictly smaller.
        </>
      }
    />
  );
}

function Neighborhood({ near, k, link }: { near: TokenNeighbors; k: number; link(number: number): string }) {
  const lists = barsOf(near, link);
  const means = Object.entries(near.mean).map(
    ([which, size]) => `the mean row of the ${tableName(which)} has norm ${formatNumber(size)}`,
  );
  return (
    <Figure
      title="Nearest tokens in the full space"
      note={`By cosine, over all rows; ${means.join(", ")}.`}
      svg={() => barListsSvg(`Nearest to ${visibleToken(near.word)}, by cosine`, lists)}
      rows={nearRows(near)}
      columns={nearColumns(link)}
      code={near.lists.map((list) => inPython(list, near.id, k)).join("\n")}
      how={
        "cos(x, y) = ⟨x, y⟩ / (|x| |y|) with every other row of the table, in float64, exact: no projection, no " +
        "approximate index. “Centered” subtracts the mean of all rows first, a direction that all tokens share."
      }
    >
      <Choice label="neighbors" name="k" options={[5, 10, 20, 50]} />
      <BarLists lists={lists} />
      <InEvery near={near} />
    </Figure>
  );
}

function inPython({ name, centered }: NeighborList, id: number, k: number): string {
  if (centered) return `ww.analysis.neighbors(table, ${id}, k=${k}, centered=True)`;
  return `table = ww.read(PATH).array("${name}")\nww.analysis.neighbors(table, ${id}, k=${k})`;
}

function RowsOf({ near: { answer } }: { near: Query<TokenNeighbors> }) {
  const list = answer?.lists[0];
  if (!answer || !list) return null;
  const names = [shownToken(answer.word, answer.text), ...shownTokens(list)];
  return (
    <HeatFigure
      title="The row of the token, and below it those of its neighbors"
      cells={list.rows}
      labels={names.slice(0, list.rows.shape[0])}
      xLabel="feature"
      yLabel="token"
      limit={spread(list.rows.values)}
      note="Columns of one color show what these tokens share; the rows are those of the table, not centered."
      how={
        `The numbers of the ${tableName(list.table)} as they are stored. The colors end at three standard deviations of ` +
        "what is shown, so that a few large features do not wash out the rest."
      }
    />
  );
}

interface NearRow {
  list: NeighborList;
  rank: number;
}

export function tableName(which: string): string {
  return which === "output" ? "output projection" : "token table";
}

function heading(list: NeighborList): string {
  return `${tableName(list.table)}, ${list.centered ? "centered" : "as it is"}`;
}

/** Return the lists as bars; a mark is on tokens that are not in every list. */
function barsOf(near: TokenNeighbors, link: (number: number) => string): BarList[] {
  const everywhere = shared(near);
  return near.lists.map((list, k) => ({
    heading: heading(list),
    bars: list.words.map((word, n) => {
      const number = list.ids.values[n]!;
      const text = list.texts[n];
      const cosine = list.cosines.values[n]!;
      return {
        name: shownToken(word, text),
        link: <TokenLabel word={word} text={text} href={link(number)} />,
        share: cosine,
        text: fixed(cosine, 3),
        color: k % 2 ? "c1" : "c2",
        mark: (
          <span class="mark" title={everywhere.has(number) ? "in every list" : "not in every list"}>
            {everywhere.has(number) ? "" : "◦"}
          </span>
        ),
      };
    }),
  }));
}

function InEvery({ near }: { near: TokenNeighbors }) {
  if (near.lists.length < 2) return null;
  return (
    <p class="note">
      {shared(near).size} of {near.lists[0]!.words.length} are in every list; ◦ marks those that are not.
    </p>
  );
}

function shared({ lists }: TokenNeighbors): Set<number> {
  const [first, ...rest] = lists.map((list) => new Set<number>(list.ids.values));
  return new Set([...(first ?? [])].filter((id) => rest.every((list) => list.has(id))));
}

function nearRows(near: TokenNeighbors): NearRow[] {
  return near.lists.flatMap((list) => list.words.map((_, rank) => ({ list, rank })));
}

function nearColumns(link: (number: number) => string): Column<NearRow>[] {
  const number = ({ list, rank }: NearRow) => list.ids.values[rank]!;
  return [
    { title: "list", value: ({ list }) => heading(list) },
    { title: "rank", numeric: true, value: ({ rank }) => rank + 1 },
    {
      title: "token",
      value: ({ list, rank }) => visibleToken(list.words[rank]!),
      cell: (row) => (
        <TokenLabel word={row.list.words[row.rank]!} text={row.list.texts[row.rank]} href={link(number(row))} />
      ),
    },
    { title: "id", numeric: true, value: number, cell: number },
    { title: "type", value: ({ list, rank }) => list.kinds[rank] },
    { title: "cosine", decimals: 4, value: ({ list, rank }) => list.cosines.values[rank] },
    { title: "norm", numeric: true, value: ({ list, rank }) => list.norms.values[rank] },
  ];
}

const SIDES = [
  ["without_inputs", "words of the question excluded"],
  ["with_inputs", "words of the question allowed"],
] as const;

const RULES: Option[] = [
  ["add", "3CosAdd"],
  ["multiply", "3CosMul"],
];

function Analogies({ link }: { link(number: number): string }) {
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
