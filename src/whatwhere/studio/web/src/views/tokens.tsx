/** The token card: one token's properties, the norm of its row, its nearest rows, and analogies. */

import { useMemo } from "preact/hooks";
import { type Query, useQuery } from "../hooks";
import { writeLink } from "../link";
import { fixed, formatNumber, whole } from "../numbers";
import { BarLists, barListsSvg } from "../parts/bars";
import { SizeChoice } from "../parts/choice";
import { TokenField } from "../parts/field";
import { Figure } from "../parts/figure";
import { HeatFigure, LineFigure, numberColumn } from "../parts/figures";
import { type HeatProps, spread } from "../parts/heat";
import type { LinesProps } from "../parts/lines";
import { Answered } from "../parts/states";
import { TokenLabel } from "../parts/token";
import { register, type ViewProps } from "../register";
import { face, visibleToken } from "../escape";
import type { Settings } from "../source";
import type { About, NeighborList, TokenCard, TokenNeighbors, RowInTable } from "../types";
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

function defaults(about: About): Settings {
  const [a = "", b = "", c = ""] = about.analogy;
  return { token: about.examples[0] ?? "#0", k: 10, a, b, c, rule: "add", centered: false };
}

function Tokens({ about, settings, change }: ViewProps) {
  const token = String(settings["token"]);
  const card = useQuery("tokens.card", { token });
  const near = useQuery("tokens.neighbors", { token, k: Number(settings["k"]) });
  const link = (number: number) => writeLink("tokens", { ...settings, token: `#${number}` }, defaults(about));
  return (
    <>
      <search class="controls">
        <TokenField
          main
          label="Token"
          value={token}
          choose={(text) => change({ token: text })}
          hint="text or #id, Ctrl+K"
        />
        <p class="examples">
          for example
          {about.examples.map((example) => (
            <button key={example} type="button" onClick={() => change({ token: example })}>
              <TokenLabel word={example} text={null} />
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
            {(answer) => <Neighborhood near={answer} k={Number(settings["k"])} change={change} link={link} />}
          </Answered>
        </section>
      </div>
      <RowsOf near={near} />
      <Analogies about={about} settings={settings} change={change} link={link} />
    </>
  );
}

function CardOf({ card }: { card: TokenCard }) {
  return (
    <div class="card">
      <h2 class="big">
        <TokenLabel word={card.word} text={card.text} />
      </h2>
      <dl>
        <dt>id</dt>
        <dd>{card.id}</dd>
        {card.kind === "no token" ? (
          <>
            <dt>in the vocabulary</dt>
            <dd>no word: this row has a number only</dd>
          </>
        ) : (
          <Written card={card} />
        )}
        <dt>its row in</dt>
        <dd>
          {Object.values(card.tables).map(({ name, dtype }) => (
            <div key={name}>
              <code>{name}</code>, {dtype}
            </div>
          ))}
        </dd>
      </dl>
      {Object.entries(card.tables).map(([which, row]) => (
        <NormOf key={which} card={card} which={which} row={row} />
      ))}
    </div>
  );
}

/** A token's properties in the vocabulary and the tokenizer. */
function Written({ card }: { card: TokenCard }) {
  return (
    <>
      <dt>in the vocabulary</dt>
      <dd>
        <code>{visibleToken(card.word)}</code>
      </dd>
      <dt>type</dt>
      <dd>
        {card.kind}
        {card.script && card.script !== "no letters" ? `, ${card.script}` : ""}
      </dd>
      <dt>{card.byte_count === 1 ? "byte" : `${card.byte_count} bytes`}</dt>
      <dd>
        <code>{bytes(card)}</code>
      </dd>
      <dt>characters</dt>
      <dd>{card.characters.length ? <Characters of={card.characters} /> : "part of a character"}</dd>
      <dt>from text</dt>
      <dd>{reached(card.reachable)}</dd>
    </>
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
  const edges = row.edges.values;
  const counts = row.counts.values;
  const shown = visibleToken(face(card.word, card.text));
  const title = `Norm of the row in the ${tableName(which)}`;
  const props: LinesProps = useMemo(
    () => ({
      title,
      x: edges,
      // The last edge has no bin: the step goes down to 0.
      curves: [{ name: "tokens", values: [...counts, 0], color: 2 }],
      xLabel: "norm |x|",
      yLabel: "tokens",
      steps: true,
      marks: row.norm === null ? [] : [{ x: row.norm, text: shown }],
      height: 190,
    }),
    [row],
  );
  const note =
    row.norm === null || row.percentile === null ? (
      "This row holds numbers that are not finite."
    ) : (
      <>
        <b>{formatNumber(row.norm)}</b>, larger than those of <b>{fixed(row.percentile, 1)} %</b> of all rows; the
        median is {formatNumber(row.median)}.
      </>
    );
  return (
    <LineFigure
      lines={props}
      note={note}
      file={`norms-${which}`}
      table={{
        rows: Array.from(counts, (_, n) => n),
        columns: [
          numberColumn("from", (n: number) => edges[n]),
          numberColumn("to", (n: number) => edges[n + 1]),
          { title: "tokens", numeric: true, value: (n) => counts[n]! },
        ],
      }}
      code={`table = ww.read(PATH).array("${row.name}")\nnp.linalg.norm(table.astype(np.float64), axis=1)`}
      how={
        <p>
          |x| = √(x₁² + … + x<sub>n</sub>²) of each of the {whole(row.rows)} rows of <code>{row.name}</code> (stored as{" "}
          {row.dtype}), in float64; {counts.length} bins of equal width. The percentage counts the rows whose norm is
          strictly smaller.
        </p>
      }
    />
  );
}

interface NeighborhoodProps {
  near: TokenNeighbors;
  k: number;
  change: ViewProps["change"];
  link(number: number): string;
}

function Neighborhood({ near, k, change, link }: NeighborhoodProps) {
  const lists = barsOf(near, link);
  return (
    <Figure
      title="Nearest tokens in the full space"
      note={`By cosine, over all rows; ${Object.entries(near.mean)
        .map(([which, size]) => `the mean row of the ${tableName(which)} has norm ${formatNumber(size)}`)
        .join(", ")}.`}
      file={`neighbors-${near.id}`}
      svg={() => barListsSvg(`Nearest to ${visibleToken(near.word)}, by cosine`, lists)}
      rows={nearRows(near)}
      columns={nearColumns(link)}
      code={near.lists.map((list) => inPython(list, near.id, k)).join("\n")}
      how={
        <p>
          cos(x, y) = ⟨x, y⟩ / (|x| |y|) with every other row of the table, in float64, exact: no projection, no
          approximate index. “Centered” subtracts the mean of all rows first, a direction that all tokens share.
        </p>
      }
    >
      <SizeChoice label="neighbors" value={k} sizes={[5, 10, 20, 50]} change={(k) => change({ k })} />
      <BarLists lists={lists} />
      <InEvery near={near} />
    </Figure>
  );
}

function inPython({ name, centered }: NeighborList, id: number, k: number): string {
  if (centered) return `ww.analysis.neighbors(table, ${id}, k=${k}, centered=True)`;
  return `table = ww.read(PATH).array("${name}")\nww.analysis.neighbors(table, ${id}, k=${k})`;
}

function RowsOf({ near }: { near: Query<TokenNeighbors> }) {
  const list: NeighborList | undefined = near.answer?.lists[0];
  const props: HeatProps | null = useMemo(() => {
    if (!near.answer || !list) return null;
    const [rows = 0, columns = 0] = list.rows.shape;
    const names = [near.answer.word, ...list.words]
      .slice(0, rows)
      .map((word, n) => visibleToken(face(word, (n ? list.texts[n - 1] : near.answer!.text) ?? null)));
    const title = "The row of the token, and below it those of its neighbors";
    return {
      title,
      values: list.rows.values,
      rows,
      columns,
      rowName: (row) => names[row] ?? "",
      columnName: (column) => `feature ${column}`,
      rowLabels: names,
      xLabel: "feature",
      yLabel: "token",
      map: "signed",
      limit: spread(list.rows.values),
    };
  }, [list]);
  if (!props || !list || !near.answer) return null;
  return (
    <HeatFigure
      heat={props}
      note="Columns of one color show what these tokens share; the rows are those of the table, not centered."
      file={`rows-${near.answer.id}`}
      how={
        <p>
          The numbers of the {tableName(list.table)} as they are stored. The colors end at three standard deviations of
          what is shown, so that a few large features do not wash out the rest.
        </p>
      }
    />
  );
}
