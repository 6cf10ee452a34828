/** The token card: one token's properties, the norm of its row, its nearest rows, and analogies. */

import { type ComponentChildren, Fragment } from "preact";
import { shownToken, shownTokens, visibleToken } from "../escape";
import { type Query, useQuery, useView } from "../hooks";
import { writeLink } from "../link";
import { fixed, formatNumber, whole } from "../numbers";
import { BarLists, barListsSvg } from "../parts/bars";
import { Choice } from "../parts/controls";
import { TokenField } from "../parts/field";
import { Figure, HeatFigure, LineFigure } from "../parts/figure";
import { spread } from "../parts/heat";
import { Answered } from "../parts/states";
import { TokenLabel } from "../parts/token";
import { register } from "../register";
import type { About, NeighborList, RowInTable, TokenCard, TokenNeighbors } from "../types";
import { Analogies } from "./tokens/analogies";
import { barsOf, InEvery, nearColumns, nearRows, tableName } from "./tokens/neighbors";

register({
  id: "tokens",
  title: "Token card",
  question: "What is a token, what is the norm of its vector, and which tokens are near it in the full space?",
  defaults,
  byRun: true,
  Page: Tokens,
});

function defaults({ analogy: [a = "", b = "", c = ""], examples }: About) {
  return { token: examples[0] ?? "#0", k: 10, a, b, c, rule: "add", centered: false };
}

function Tokens() {
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
          <Answered query={near} what="looking for its neighbors">
            {(answer) => <Neighborhood near={answer} k={k} link={link} />}
          </Answered>
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
          [card.byte_count === 1 ? "byte" : `${card.byte_count} bytes`, <code>{bytes(card)}</code>],
          ["characters", card.characters.length ? <Characters of={card.characters} /> : "part of a character"],
          ["from text", reached(card.reachable)],
        ];
  const rows = tables.map(([, { name, dtype }]) => (
    <div key={name}>
      <code>{name}</code>, {dtype}
    </div>
  ));
  const facts: typeof written = [["id", card.id], ...written, ["its row in", rows]];
  return (
    <div class="card">
      <h2 class="big">
        <TokenLabel word={card.word} text={card.text} />
      </h2>
      <dl>
        {facts.map(([name, fact]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{fact}</dd>
          </Fragment>
        ))}
      </dl>
      {tables.map(([which, row]) => (
        <NormOf key={which} card={card} which={which} row={row} />
      ))}
    </div>
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
      {some.map(({ code, name }, n) => (
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
      height={190}
      note={
        row.norm === null || row.percentile === null ? (
          "This row holds numbers that are not finite."
        ) : (
          <>
            <b>{formatNumber(row.norm)}</b>, larger than those of <b>{fixed(row.percentile, 1)} %</b> of all rows; the
            median is {formatNumber(row.median)}.
          </>
        )
      }
      file={`norms-${which}`}
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

interface NeighborhoodProps {
  near: TokenNeighbors;
  k: number;
  link(number: number): string;
}

function Neighborhood({ near, k, link }: NeighborhoodProps) {
  const lists = barsOf(near, link);
  const means = Object.entries(near.mean).map(
    ([which, size]) => `the mean row of the ${tableName(which)} has norm ${formatNumber(size)}`,
  );
  return (
    <Figure
      title="Nearest tokens in the full space"
      note={`By cosine, over all rows; ${means.join(", ")}.`}
      file={`neighbors-${near.id}`}
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
      rowLabels={names.slice(0, list.rows.shape[0])}
      xLabel="feature"
      yLabel="token"
      limit={spread(list.rows.values)}
      note="Columns of one color show what these tokens share; the rows are those of the table, not centered."
      file={`rows-${answer.id}`}
      how={
        `The numbers of the ${tableName(list.table)} as they are stored. The colors end at three standard deviations of ` +
        "what is shown, so that a few large features do not wash out the rest."
      }
    />
  );
}
