/** The steps before the attention: tokens, ids, rows, positions, and their sum. */

import { useMemo } from "preact/hooks";
import { pageColor } from "../../colors";
import { formatNumber, whole } from "../../numbers";
import { Figure } from "../../parts/figure";
import { HeatFigure, numberColumn } from "../../parts/figures";
import { heatColumns, type HeatProps, spread } from "../../parts/heat";
import { box, drawing, label } from "../../parts/svg";
import { TokenLabel } from "../../parts/token";
import { face, visibleToken } from "../../escape";
import type { Tensor } from "../../wire";
import type { TextTokens, TextWalkthrough } from "../../types";
import { doorName, faces, row, vectorWords } from "./walk";

interface TokensProps {
  read: TextTokens;
  text: string;
  numbered: boolean;
  own: boolean;
}

export function TokensStep({ read, text, numbered, own }: TokensProps) {
  const slots = read.words.map((_, n) => n);
  const shown = slots.length;
  const more = shown < read.count ? `, of which the first ${shown} are shown` : "";
  const title = numbered ? "The id of each token" : "The tokens of the text";
  const note = numbered
    ? own
      ? "An id is the number of a row in the token table: nothing else of the text reaches the model."
      : "Words are numbered as they come; a word that comes again has the same id."
    : `${whole(read.count)} ${read.count === 1 ? "token" : "tokens"}${more}.`;
  const code = own
    ? `encoded = ww.read(PATH).tokenizer.encode(${quoted(text)})\nencoded.ids, encoded.tokens`
    : `ww.text.words(${quoted(text)}).encode(${quoted(text)}).ids`;
  return (
    <Figure
      title={title}
      note={note}
      file={numbered ? "ids" : "tokens"}
      svg={() => chipsSvg(read, title, numbered)}
      rows={slots}
      columns={[
        { title: "position", numeric: true, value: (n) => n },
        {
          title: "token",
          value: (n) => visibleToken(read.words[n]!),
          cell: (n) => <TokenLabel word={read.words[n]!} text={read.texts[n] ?? null} />,
        },
        { title: "id", numeric: true, value: (n) => read.ids.values[n]! },
        { title: "type", value: (n) => read.kinds[n] ?? "" },
      ]}
      code={code}
      how={
        <p>
          {own
            ? "The tokenizer of the model, with its special tokens. A token is a word, a part of one, or a byte."
            : "Words and runs of other characters, numbered in the order of their first appearance."}
        </p>
      }
    >
      <ol class="chips large">
        {slots.map((n) => (
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

function chipsSvg(read: TextTokens, title: string, numbered: boolean, wide = 960): string {
  const names = read.words.map((word, n) => visibleToken(face(word, read.texts[n] ?? null)));
  let [left, top] = [8, 4];
  const parts: string[] = [];
  names.forEach((name, n) => {
    const under = numbered ? String(read.ids.values[n]) : (read.kinds[n] ?? "");
    const width = 16 + 8 * Math.max(name.length, under.length);
    if (left > 8 && left + width > wide - 8) [left, top] = [8, top + 50];
    parts.push(box(left, top, width, 42, pageColor("shade")), label(left + width / 2, top + 18, name, "middle"));
    parts.push(label(left + width / 2, top + 35, under, "middle", pageColor("muted")));
    left += width + 6;
  });
  return drawing(wide, top + 56, title, parts);
}

export function RowsStep({
  walk,
  at,
  which,
}: {
  walk: TextWalkthrough;
  at: number;
  which: "rows" | "positions" | "sum";
}) {
  const limit = useMemo(() => spread(walk.rows.values, walk.position_rows?.values ?? []), [walk]);
  const scheme = doorName(walk, "input");
  if (which === "positions" && walk.position_rows === null) {
    const later = walk.doors.map(({ name }) => name).join(" and ");
    return (
      <p class="lead">
        Nothing is added to the rows here, so x = E[id].{" "}
        {later
          ? `Position comes in later, in the attention, by ${later}.`
          : "This scheme has no position: the order of the tokens has no effect."}
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
        note={`E[${walk.ids.values[at]}] = ${vectorWords(row(walk.rows, at), 6)}: the same at every position.`}
        code={rowsCode(walk)}
        how={
          walk.tensor === null
            ? "Random rows, N(0, 1), of this seed."
            : `The rows of ${walk.tensor}${walk.factor === 1 ? "" : `, times ${formatNumber(walk.factor, 4)}`}.`
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
        note={`P[${at}] = ${vectorWords(row(walk.position_rows!, at), 6)}: the same for every token.`}
        code={`${walk.python}\nwhere.input(ww.positions(${walk.words.length}))`}
        how={`${scheme} computes a vector for each position 0, 1, 2, …; learned tables are read from the file.`}
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

function rowsCode(walk: TextWalkthrough): string {
  const ids = `[${Array.from(walk.ids.values).join(", ")}]`;
  if (walk.tensor === null) {
    const size = Math.max(...walk.ids.values) + 1;
    return `rows = torch.randn(${size}, ${walk.dim}, generator=torch.Generator().manual_seed(${walk.seed}))[${ids}]`;
  }
  const factor = walk.factor === 1 ? "" : `${walk.factor} * `;
  return `rows = ${factor}torch.tensor(np.float32(ww.read(PATH).array(${quoted(walk.tensor)}, rows=${ids})))`;
}

/** Return the Python that computes the vector of each token at its position. */
export function sumCode(walk: TextWalkthrough): string {
  const positions = walk.position_rows ? ` + where.input(ww.positions(${walk.words.length}))[0].detach()` : "";
  return `${walk.python}\n${rowsCode(walk)}\nx = rows${positions}`;
}

interface VectorsProps {
  walk: TextWalkthrough;
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
      xLabel: "feature",
      yLabel: "token",
      map: "signed",
      limit,
    };
  }, [walk, tensor, limit, title]);
  return (
    <HeatFigure
      heat={props}
      note={note}
      file={file}
      table={{
        rows: Array.from({ length: rows }, (_, n) => n),
        columns: [
          { title: "position", numeric: true, value: (n) => n },
          { title: "token", value: (n) => props.rowLabels![n]! },
          ...heatColumns(props),
        ],
      }}
      code={code}
      how={
        <p>
          {how} The colors end at three standard deviations of rows and positions together, so that these pictures
          compare.
        </p>
      }
    />
  );
}

/** One token: its row, its position's, and the sum, one above the other. */
function SumOf({ walk, at, limit }: { walk: TextWalkthrough; at: number; limit: number }) {
  const word = faces(walk)[at]!;
  const props: HeatProps = useMemo(() => {
    const parts = [row(walk.rows, at), row(walk.position_rows!, at), row(walk.vectors, at)].map((part) =>
      Array.from(part),
    );
    const names = [`E[${walk.ids.values[at]}]`, `P[${at}]`, "sum"];
    return {
      title: `${word} at position ${at}: row, position, sum`,
      values: new Float32Array(parts.flat()),
      rows: 3,
      columns: walk.dim,
      rowName: (n) => names[n]!,
      columnName: (column) => `feature ${column}`,
      rowLabels: names,
      xLabel: "feature",
      yLabel: "",
      map: "signed",
      limit,
      cell: 34,
    };
  }, [walk, at, limit]);
  return (
    <HeatFigure
      heat={props}
      note="Feature by feature, the third strip is the first plus the second."
      file="sum"
      table={{
        rows: Array.from({ length: walk.dim }, (_, n) => n),
        columns: [
          { title: "feature", numeric: true, value: (n) => n },
          ...[0, 1, 2].map((part) =>
            numberColumn(props.rowLabels![part]!, (n: number) => props.values[part * walk.dim + n]),
          ),
        ],
      }}
      how={<p>The vectors of the steps before, and their sum, in float32.</p>}
    />
  );
}
