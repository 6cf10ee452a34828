/** The token tables after training in a comparison: in numbers, and the ten digits on a line. */

import { fixed, upTo } from "../../numbers";
import { DrawnFigure } from "../../parts/drawn";
import type { Measurements, NumberLine } from "../../types";
import { digitLines } from "../replay/frame_svg";
import { TextTable } from "./shared";

export function Learned({ results }: { results: Measurements }) {
  const { token_table, number_lines, sentences } = results;
  return (
    <section class="apart" aria-labelledby="learned">
      <h2 id="learned">What training changed in the token table</h2>
      <p>{sentences.table}</p>
      <p class="note reading">
        The token table E holds one vector for each token: all that the model is given about the token’s identity. It is
        random at first, E0, and is trained with the rest of the model. The change E − E0 of each run can be seen{" "}
        <a href="#/replay">step by step</a>.
      </p>
      {token_table && (
        <div class="trained">
          <TextTable table={token_table} />
        </div>
      )}
      {number_lines.length > 0 && <Digits lines={number_lines} />}
    </section>
  );
}

function Digits({ lines }: { lines: NumberLine[] }) {
  const title = "The digits on a line, by scheme";
  const each = lines.map(({ scheme, coordinates, r }) => ({
    name: `${scheme}, |r| ${fixed(r, 2)}`,
    points: coordinates.values,
  }));
  return (
    <DrawnFigure
      title={title}
      note="No input tells the model that 3 is between 2 and 4. |r| is 1 if the digits are in order and evenly spaced."
      file="digits"
      draw={(width) => digitLines(each, width)}
      words={`${title}: ${each.map(({ name }) => name).join("; ")}. The table has the coordinates.`}
      rows={lines}
      columns={[
        { title: "scheme", value: ({ scheme }) => scheme },
        ...upTo(10).map((digit) => ({
          title: String(digit),
          numeric: true,
          value: ({ coordinates }: NumberLine) => coordinates.values[digit],
        })),
        { title: "|r|", decimals: 2, value: ({ r }) => r },
      ]}
      code={"[run.token_table[-1].number_line for run in ww.comparison.read_results(PATH).first_runs]  # |r|"}
      how={
        "The change of the ten digits’ embeddings, E − E0, along its first principal axis, for the first seed of each " +
        "scheme."
      }
    />
  );
}
