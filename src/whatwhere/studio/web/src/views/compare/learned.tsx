/** What became of the token table in a comparison: in numbers, and the ten digits on a line. */

import { fixed, formatNumber } from "../../numbers";
import { Figure } from "../../parts/figure";
import { How } from "../../parts/how";
import { linesSvg } from "../replay/moving";
import { StillSvg } from "../replay/still";
import { type Line, type Results, Words } from "./results";

export function Learned({ results }: { results: Results }) {
  const { story, sentences } = results;
  return (
    <section class="apart" aria-labelledby="learned">
      <h2 id="learned">What training wrote into the token table</h2>
      <p>{sentences.table}</p>
      <p class="note reading">
        The token table E holds one row of numbers for each token: all that the model is given about what it is. It starts as random numbers, E0, and is
        trained with the rest. The change E − E0 is what training wrote: <a href="#/replay">step by step</a> of each run.
      </p>
      {story && (
        <div class="verdicts">
          <Words {...story} />
        </div>
      )}
      {results.lines.length > 0 && <Digits lines={results.lines} />}
    </section>
  );
}

function Digits({ lines }: { lines: Line[] }) {
  const title = "The digits on a line, by scheme";
  const each = lines.map(({ scheme, along, r }) => ({ name: `${scheme}, |r| ${fixed(r, 2)}`, places: along.values }));
  return (
    <Figure
      title={title}
      note="No input says that 3 lies between 2 and 4. |r| is 1 where the digits are in order and evenly spaced."
      file="digits"
      svg={() => linesSvg(each, title)}
      rows={lines}
      columns={[
        { title: "scheme", value: ({ scheme }) => scheme },
        ...Array.from({ length: 10 }, (_, digit) => ({
          title: String(digit),
          numeric: true,
          value: ({ along }: Line) => along.values[digit]!,
          cell: ({ along }: Line) => formatNumber(along.values[digit]!, 3),
        })),
        { title: "|r|", numeric: true, value: ({ r }) => r, cell: ({ r }) => fixed(r, 2) },
      ]}
      how={
        <How code={"from whatwhere.claims import number_lines\nnumber_lines(read_results(Path(PATH)))"}>
          <p>What training wrote into the ten digits, E − E0, along its first principal axis, for the first seed of each scheme.</p>
        </How>
      }
    >
      <StillSvg svg={(width) => linesSvg(each, "", width)} words={`${title}: ${each.map(({ name }) => name).join("; ")}. The table has the places.`} />
    </Figure>
  );
}
