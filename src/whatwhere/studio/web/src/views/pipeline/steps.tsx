/** The steps before the attention: tokens, ids, rows, positions, and their sum. */

import { shownTokens, visibleToken } from "../../escape";
import { useView } from "../../hooks";
import { formatNumber, upTo, whole } from "../../numbers";
import { HeatFigure, How } from "../../parts/figure";
import { spread } from "../../parts/heat";
import { TokenLabel } from "../../parts/field";
import { Table } from "../../parts/table";
import type { DoorScheme, FirstTokens, TextWalkthrough } from "../../types";
import type { Tensor } from "../../wire";

export function TokensStep({ read }: { read: FirstTokens }) {
  const { settings } = useView<Record<"text" | "tokens", string>>();
  const numbered = settings.tokens !== "loaded" && read.ids.values[0] === 0; // an expression begins with an id above 0
  const text = JSON.stringify(settings.text);
  const asIds = read.words[0] === `#${read.ids.values[0]}`; // of a file without a vocabulary
  const given = asIds
    ? `--ids ${Array.from(read.ids.values).join(",")}`
    : `'${settings.text.replaceAll("'", "'\\''")}'`;
  const more = read.words.length < read.count ? `: the first ${read.words.length} of ${whole(read.count)}` : "";
  return (
    <>
      <p class="lead">
        {numbered
          ? "Words are numbered as they come; a word that comes again has the same id."
          : `${asIds ? "There is no tokenizer: these numbers are ids. " : ""}An id is the number of a row in the token table: nothing else of the text reaches the model.`}
      </p>
      <Table
        caption={`The tokens of the text${more}`}
        rows={upTo(read.words.length)}
        columns={[
          { title: "position", numeric: true, value: (n) => n },
          {
            title: "token",
            value: (n) => visibleToken(read.words[n]!),
            cell: (n) => <TokenLabel word={read.words[n]!} text={read.texts[n]} />,
          },
          { title: "id", numeric: true, value: (n) => read.ids.values[n], cell: (n) => read.ids.values[n] },
          ...(asIds ? [] : [{ title: "type", value: (n: number) => read.kinds[n] }]),
        ]}
        saved
      />
      <How
        code={numbered ? `ww.text.words(${text}).encode(${text}).ids` : `whatwhere encode --from PATH ${given}`}
        text={
          numbered
            ? "Words and runs of other characters, numbered in the order of their first appearance."
            : asIds
              ? "Numbers of the text, as they are."
              : "The tokenizer of the model, with its special tokens. A token is a word, a part of one, or a byte."
        }
      />
    </>
  );
}

/** Return where the colors of rows, positions and sums end, so that their pictures compare. */
function limitOf({ rows, position_rows }: TextWalkthrough): number {
  return spread(rows.values, position_rows?.values ?? []);
}

export function RowsStep({ walk, at }: StepProps) {
  return (
    <Vectors
      walk={walk}
      cells={walk.rows}
      title="The row of each token"
      note={`E[${walk.ids.values[at]}] = ${vectorWords(row(walk.rows, at), 6)}: the same at every position.`}
      code={rowsCode(walk)}
      how={
        walk.tensor === null
          ? "Random rows, N(0, 1), of this seed."
          : `The rows of ${walk.tensor}${walk.factor === 1 ? "" : `, times ${formatNumber(walk.factor, 4)}`}.`
      }
    />
  );
}

export function PositionsStep({ walk, at }: StepProps) {
  if (walk.position_rows === null) {
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
  return (
    <Vectors
      walk={walk}
      cells={walk.position_rows}
      title="What is added at each position"
      note={`P[${at}] = ${vectorWords(row(walk.position_rows, at), 6)}: the same for every token.`}
      code={`${walk.python}\nwhere.input(ww.positions(${walk.words.length}))`}
      how={`${doorName(walk, "input")} computes a vector for each position 0, 1, 2, …; learned tables are read from the file.`}
    />
  );
}

export function SumStep({ walk, at }: StepProps) {
  return (
    <>
      {walk.position_rows && <SumOf walk={walk} at={at} positions={walk.position_rows} />}
      <Vectors
        walk={walk}
        cells={walk.vectors}
        title="The vector of each token at its position"
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
  return `rows = ${factor}torch.tensor(np.float32(ww.read(PATH).array(${JSON.stringify(walk.tensor)}, rows=${ids})))`;
}

export function sumCode(walk: TextWalkthrough): string {
  const positions = walk.position_rows ? ` + where.input(ww.positions(${walk.words.length}))[0].detach()` : "";
  return `${walk.python}\n${rowsCode(walk)}\nx = rows${positions}`;
}

interface VectorsProps {
  walk: TextWalkthrough;
  cells: Tensor;
  limit?: number;
  title: string;
  note: string;
  code: string;
  how: string;
}

export function Vectors({ walk, how, ...figure }: VectorsProps) {
  return (
    <HeatFigure
      limit={limitOf(walk)}
      {...figure}
      labels={shownTokens(walk)}
      xLabel="feature"
      yLabel="token"
      how={`${how} The colors end at three standard deviations of rows and positions together, so that these pictures compare.`}
    />
  );
}

/** One token: its row, its position's, and the sum, one above the other. */
function SumOf({ walk, at, positions }: { walk: TextWalkthrough; at: number; positions: Tensor }) {
  const parts = [walk.rows, positions, walk.vectors].map((tensor) => row(tensor, at));
  const names = [`E[${walk.ids.values[at]}]`, `P[${at}]`, "sum"];
  return (
    <HeatFigure
      title={`“${shownTokens(walk)[at]}” at ${at}: row, position, sum`}
      cells={{ values: Float32Array.from(parts.flatMap((part) => Array.from(part))), shape: [3, walk.dim] }}
      labels={names}
      xLabel="feature"
      yLabel="part"
      limit={limitOf(walk)}
      cell={34}
      note="Feature by feature, the third strip is the first plus the second."
      rows={upTo(walk.dim)}
      columns={[
        { title: "feature", numeric: true, value: (n) => n },
        ...names.map((title, k) => ({ title, numeric: true, value: (n: number) => parts[k]![n] })),
      ]}
      how="The vectors of the steps before, and their sum, in float32."
    />
  );
}

export const STEPS = [
  { id: "tokens", title: "Tokens, ids" },
  { id: "rows", title: "Rows" },
  { id: "positions", title: "Positions" },
  { id: "sum", title: "Sum" },
  { id: "rotation", title: "Queries, keys" },
  { id: "bias", title: "Bias" },
  { id: "score", title: "Scores" },
] as const;

export type StepId = (typeof STEPS)[number]["id"];

/** The text that is followed: the query at one position, a key at another. */
export interface StepProps {
  walk: TextWalkthrough;
  at: number;
  other: number;
}

export function doorName(walk: TextWalkthrough, door: DoorScheme["door"]): string | null {
  return walk.doors.find((each) => each.door === door)?.name ?? null;
}

export function row({ values, shape }: Tensor, number: number): ArrayLike<number> {
  const columns = shape[1] ?? 0;
  return values.subarray(number * columns, (number + 1) * columns);
}

export function cell({ values, shape }: Tensor, i: number, j: number): number {
  return values[i * (shape[1] ?? 0) + j] ?? Number.NaN;
}

/** Return the first numbers of a vector, and dots where there are more. */
export function vectorWords(values: ArrayLike<number>, most = 4): string {
  const first = Array.from(values).slice(0, most);
  const rest = values.length - first.length;
  return `(${first.map((value) => formatNumber(value)).join(", ")}${rest > 0 ? ", …" : ""})`;
}
