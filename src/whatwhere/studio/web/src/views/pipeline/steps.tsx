/** The steps before the attention: tokens, ids, rows, positions, and their sum. */

import { useMemo } from "preact/hooks";
import { pageColor } from "../../colors";
import { fixed, formatNumber, whole } from "../../numbers";
import { Figure } from "../../parts/figure";
import { Heat, heatColumns, type HeatProps, heatSvg, spread } from "../../parts/heat";
import { How } from "../../parts/how";
import { box, drawing, label } from "../../parts/svg";
import { TokenLabel } from "../../parts/token";
import { face, visibleToken } from "../../escape";
import type { Tensor } from "../../wire";
import { doorName, faces, type Read, row, vectorWords, type Walk } from "./walk";

interface TokensProps {
  read: Read;
  text: string;
  numbered: boolean;
  own: boolean;
}

export function TokensStep({ read, text, numbered, own }: TokensProps) {
  const places = read.words.map((_, n) => n);
  const shown = places.length;
  const title = numbered ? "The id of each token" : "The tokens of the text";
  const note = numbered
    ? own
      ? "An id is the number of a row in the token table: nothing else of the text reaches the model."
      : "Words are numbered as they come; a word that comes again has the same id."
    : `${whole(read.count)} ${read.count === 1 ? "token" : "tokens"}${shown < read.count ? `, of which the first ${shown} are followed` : ""}.`;
  const code = own
    ? `encoded = whatwhere.read(PATH).tokenizer.encode(${quoted(text)})\nencoded.ids, encoded.tokens`
    : `whatwhere.text.words(${quoted(text)}).encode(${quoted(text)}).ids`;
  return (
    <Figure
      title={title}
      note={note}
      file={numbered ? "ids" : "tokens"}
      svg={() => chipsSvg(read, title, numbered)}
      rows={places}
      columns={[
        { title: "position", numeric: true, value: (n) => n },
        { title: "token", value: (n) => visibleToken(read.words[n]!), cell: (n) => <TokenLabel word={read.words[n]!} text={read.texts[n] ?? null} /> },
        { title: "id", numeric: true, value: (n) => read.ids.values[n]! },
        { title: "kind", value: (n) => read.kinds[n] ?? "" },
      ]}
      how={
        <How code={code}>
          <p>
            {own
              ? "The tokenizer of the model, with the tokens that it puts around a text. A token may be a word, a part of one, a sign, or a byte."
              : "Words and runs of signs, numbered in the order of their first appearance, as one would do by hand."}
          </p>
        </How>
      }
    >
      <ol class="chips large">
        {places.map((n) => (
          <li key={n}>
            <span class="chip">
              <TokenLabel word={read.words[n]!} text={read.texts[n] ?? null} />
              <small>{numbered ? whole(read.ids.values[n]!) : (read.kinds[n] ?? "")}</small>
            </span>
          </li>
        ))}
      </ol>
    </Figure>
  );
}

function quoted(text: string): string {
  return JSON.stringify(text);
}

function chipsSvg(read: Read, title: string, numbered: boolean): string {
  const names = read.words.map((word, n) => visibleToken(face(word, read.texts[n] ?? null)));
  let [left, top] = [8, 4];
  const parts: string[] = [];
  names.forEach((name, n) => {
    const under = numbered ? String(read.ids.values[n]) : (read.kinds[n] ?? "");
    const width = 16 + 8 * Math.max(name.length, under.length);
    if (left + width > 940) [left, top] = [8, top + 50];
    parts.push(box(left, top, width, 42, pageColor("shade")), label(left + width / 2, top + 18, name, "middle"));
    parts.push(label(left + width / 2, top + 35, under, "middle", pageColor("muted")));
    left += width + 6;
  });
  return drawing(960, top + 56, title, parts);
}

export function RowsStep({ walk, at, which }: { walk: Walk; at: number; which: "rows" | "positions" | "sum" }) {
  const limit = useMemo(() => spread(walk.rows.values, walk.position_rows?.values ?? []), [walk]);
  const scheme = doorName(walk, "input");
  if (which === "positions" && walk.position_rows === null) {
    const later = walk.doors.map(({ name }) => name).join(" and ");
    return (
      <p class="lead">
        Nothing is added to the rows here, so x = E[id].{" "}
        {later ? `Position comes in later, in the attention, by ${later}.` : "And nothing else tells the position: the order of the words is not seen."}
      </p>
    );
  }
  if (which === "rows")
    return (
      <Vectors
        walk={walk}
        tensor={walk.rows}
        limit={limit}
        title="The row of each token"
        file="rows"
        note={`E[${walk.ids.values[at]}] = ${vectorWords(row(walk.rows, at), 6)}: ${whole(walk.dim)} numbers, the same wherever the token stands.`}
        code={rowsCode(walk)}
        how={
          walk.tensor === null
            ? "Rows that nothing has trained, drawn from N(0, 1) by the seed."
            : `The numbers of ${walk.tensor}, as they are stored${walk.factor === 1 ? "" : `, times ${formatNumber(walk.factor)}, as the model does`}.`
        }
      />
    );
  if (which === "positions")
    return (
      <Vectors
        walk={walk}
        tensor={walk.position_rows!}
        limit={limit}
        title="What is added at each position"
        file="position-rows"
        note={`P[${at}] = ${vectorWords(row(walk.position_rows!, at), 6)}: the same whatever token stands there.`}
        code={`${walk.python}\nwhere.input(whatwhere.positions(${walk.words.length}))`}
        how={`${scheme} says a vector for each position 0, 1, 2, …; learned tables are those of the file.`}
      />
    );
  return (
    <>
      {walk.position_rows && <SumOf walk={walk} at={at} limit={limit} />}
      <Vectors
        walk={walk}
        tensor={walk.vectors}
        limit={limit}
        title="The vector of each token at its position"
        file="vectors"
        note={`x = ${vectorWords(row(walk.vectors, at), 6)} at position ${at}.`}
        code={sumCode(walk)}
        how={`x_i = E[id_i] + P[i], feature by feature.${walk.position_rows ? "" : " Nothing is added here."}`}
      />
    </>
  );
}

function rowsCode(walk: Walk): string {
  const ids = `[${Array.from(walk.ids.values).join(", ")}]`;
  return walk.tensor === null
    ? `from whatwhere.analysis.walkthrough import random_embedding\nrows = random_embedding(${Math.max(...walk.ids.values) + 1}, ${walk.dim}, seed=${walk.seed}).weight.detach()[${ids}]`
    : `rows = ${walk.factor === 1 ? "" : `${walk.factor} * `}torch.tensor(np.float32(whatwhere.read(PATH).array(${quoted(walk.tensor)}, rows=${ids})))`;
}

/** Write what gives the vector of each token at its position. */
export function sumCode(walk: Walk): string {
  return `${walk.python}\n${rowsCode(walk)}\nx = rows${walk.position_rows ? ` + where.input(whatwhere.positions(${walk.words.length}))[0].detach()` : ""}`;
}

interface VectorsProps {
  walk: Walk;
  tensor: Tensor;
  limit: number;
  title: string;
  note: string;
  file: string;
  code: string;
  how: string;
}

export function Vectors({ walk, tensor, limit, title, note, file, code, how }: VectorsProps) {
  const [rows = 0, columns = 0] = tensor.shape;
  const props: HeatProps = useMemo(() => {
    const names = faces(walk);
    return {
      title,
      values: tensor.values,
      rows,
      columns,
      rowName: (n) => `position ${n}, ${names[n]}`,
      columnName: (column) => `feature ${column}`,
      rowLabels: names,
      xLabel: `${whole(columns)} features, left to right`,
      map: "signed",
      limit,
    };
  }, [walk, tensor, limit, title]);
  return (
    <Figure
      title={title}
      note={note}
      file={file}
      svg={() => heatSvg(props, 1000)}
      rows={Array.from({ length: rows }, (_, n) => n)}
      columns={[
        { title: "position", numeric: true, value: (n) => n },
        { title: "token", value: (n) => props.rowLabels![n]! },
        ...heatColumns(props),
      ]}
      how={
        <How code={code}>
          <p>{how} The colors end at three standard deviations of rows and positions together, so that these pictures compare.</p>
        </How>
      }
    >
      <Heat {...props} />
    </Figure>
  );
}

/** One token: its row, its position's, and the sum, one above the other. */
function SumOf({ walk, at, limit }: { walk: Walk; at: number; limit: number }) {
  const word = faces(walk)[at]!;
  const props: HeatProps = useMemo(() => {
    const parts = [row(walk.rows, at), row(walk.position_rows!, at), row(walk.vectors, at)].map((part) => Array.from(part));
    const names = [`E[${walk.ids.values[at]}]`, `P[${at}]`, "sum"];
    return {
      title: `${word} at position ${at}: row, position, sum`,
      values: new Float32Array(parts.flat()),
      rows: 3,
      columns: walk.dim,
      rowName: (n) => names[n]!,
      columnName: (column) => `feature ${column}`,
      rowLabels: names,
      xLabel: `${whole(walk.dim)} features, left to right`,
      map: "signed",
      limit,
      cell: 34,
    };
  }, [walk, at, limit]);
  return (
    <Figure
      title={props.title}
      note="Feature by feature, the third strip is the first plus the second."
      file="sum"
      svg={() => heatSvg(props, 1000)}
      rows={Array.from({ length: walk.dim }, (_, n) => n)}
      columns={[
        { title: "feature", numeric: true, value: (n) => n },
        ...[0, 1, 2].map((part) => ({
          title: props.rowLabels![part]!,
          numeric: true,
          value: (n: number) => props.values[part * walk.dim + n]!,
          cell: (n: number) => fixed(props.values[part * walk.dim + n]!, 4),
        })),
      ]}
      how={
        <How>
          <p>The vectors of the steps before, and their sum, in float32.</p>
        </How>
      }
    >
      <Heat {...props} />
    </Figure>
  );
}
