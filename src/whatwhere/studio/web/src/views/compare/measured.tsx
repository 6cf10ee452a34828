/** What a comparison has measured: scores by length with their spread, the shift test, costs, verdicts, and how it was made. */

import { useMemo } from "preact/hooks";
import { useAnswer } from "../../hooks";
import { told, whole } from "../../numbers";
import { Figure } from "../../parts/figure";
import { How } from "../../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg } from "../../parts/lines";
import type { Cell } from "../../parts/save";
import { Answered } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { ViewProps } from "../../register";
import type { Tensor } from "../../wire";

export interface Results {
  task: { name: string; unit: string; trained: number[]; measure: string; percent: boolean; higher: boolean; groups: string[]; shift_length: number | null };
  schemes: string[];
  seeds: number[];
  lengths: Tensor;
  /** How many of the lengths were trained. */
  trained: number;
  in_length: Tensor;
  scores: Record<string, Tensor>;
  each: Tensor;
  baselines: { name: string; said: string; drawn: boolean; values: Tensor }[];
  shifts: Tensor;
  shift: { score: Tensor; largest_logit_change: Tensor };
  costs: { parameters: number; positions: number; milliseconds: number | null }[];
  verdicts: { claim: string; claimed: string; measured: string; verdict: string; why: string }[];
  seen: { answer: string; scores: string; shift: string };
  made: { command: string; runs: number; settings: [string, string][] };
}

const DASHES = [undefined, [8, 3], [2, 3], [8, 3, 2, 3], [12, 4], [4, 4], [1, 2]];

export function Measured(props: ViewProps) {
  const asked = useAnswer<Results>("compare.results", {});
  return (
    <Answered asked={asked} what="reading the results">
      {(results) => (
        <>
          <p class="answer">{results.seen.answer}</p>
          <Scores {...props} results={results} />
          <Shift results={results} />
          <Costs results={results} />
          <Verdicts results={results} />
          <Made results={results} />
        </>
      )}
    </Answered>
  );
}

/** Give one curve a scheme, with a band from the least seed to the greatest; each has a color and strokes of its own. */
function curves(results: Results, spreads: Tensor, factor: number): Curve[] {
  const count = spreads.shape[1]!;
  return results.schemes.map((name, scheme) => {
    const part = (which: number) => Array.from({ length: count }, (_, n) => known(spreads.values[(scheme * count + n) * 3 + which]!, factor));
    const dash = DASHES[scheme % DASHES.length];
    return { name, values: part(0), low: part(1), high: part(2), color: 1 + (scheme % 7), ...(dash ? { dash } : {}) };
  });
}

function known(value: number, factor = 1): number | null {
  return Number.isFinite(value) ? value * factor : null;
}

function Scores({ results, settings, change }: ViewProps & { results: Results }) {
  const { task } = results;
  const group = task.groups.includes(String(settings["group"])) ? String(settings["group"]) : "all";
  const log = Boolean(settings["log"]);
  const factor = task.percent ? 100 : 1;
  const title = `${task.measure} by length${group === "all" ? "" : `, ${group} alone`}`.replace(/^./, (letter) => letter.toUpperCase());
  const most = Math.max(...task.trained);
  const props: LinesProps = useMemo(() => {
    const guesses: Curve[] = results.baselines
      .filter(({ drawn }) => drawn && group === "all")
      .map(({ name, values }) => ({ name, values: Array.from(values.values, (value) => known(value, factor)), color: 0, dash: [1, 4] }));
    return {
      title,
      x: results.lengths.values,
      curves: [...curves(results, results.scores[group]!, factor), ...guesses],
      xLabel: task.unit,
      yLabel: scoreName(results),
      logX: log,
      dots: true,
      marks: [{ x: most, text: `trained up to ${most}` }],
      ...(task.percent ? { y: [0, 103] as [number, number] } : {}),
      height: 380,
    };
  }, [results, group, log]);
  return (
    <Figure
      title={title}
      note={results.seen.scores}
      file={`scores-${group}`}
      svg={() => linesSvg(props, 900, 460)}
      rows={rowsOf(results, results.lengths)}
      columns={[
        { title: "scheme", value: ({ scheme }) => results.schemes[scheme]! },
        { title: task.unit, numeric: true, value: ({ place }) => results.lengths.values[place]! },
        ...spreadColumns(results.scores[group]!, factor),
        ...(group === "all" ? seedColumns(results, factor) : []),
      ]}
      how={
        <How code={"from whatwhere.comparison.page.reading import read_results\nread_results(Path(FOLDER)).score(scheme, length)  # median, least, greatest"}>
          <p>
            The same Transformer is trained under each scheme with {results.seeds.length} {results.seeds.length === 1 ? "seed" : "seeds"} on {run(task.trained)}{" "}
            {task.unit}, then asked new sequences of each length. The curve is the median over the seeds, the band reaches from the least to the greatest.
            A gap is a length for which the scheme has no row. With fewer than five seeds an order of schemes is a lead, not a proof.
          </p>
          {group === "all" && <p>Dotted, what can be scored without any position: {results.baselines.map(({ name, said }) => (said ? `${name} (${said})` : name)).join("; ")}.</p>}
        </How>
      }
    >
      <div class="ask">
        <label class="choice">
          scores of{" "}
          <select value={group} onChange={(event) => change({ group: event.currentTarget.value })}>
            {task.groups.map((name) => (
              <option key={name} value={name}>
                {name === "all" ? "all together" : name}
              </option>
            ))}
          </select>
        </label>
        <label class="choice">
          <input type="checkbox" checked={log} onChange={(event) => change({ log: event.currentTarget.checked })} /> lengths by their logarithm
        </label>
      </div>
      <Lines {...props} />
    </Figure>
  );
}

interface Place {
  scheme: number;
  place: number;
}

function rowsOf({ schemes }: Results, places: Tensor): Place[] {
  return schemes.flatMap((_, scheme) => Array.from(places.values, (_, place) => ({ scheme, place })));
}

function spreadColumns(spreads: Tensor, factor: number): Column<Place>[] {
  return ["median", "least", "greatest"].map((title, which) => {
    const value = ({ scheme, place }: Place): Cell => known(spreads.values[(scheme * spreads.shape[1]! + place) * 3 + which]!, factor);
    return { title, numeric: true, value, cell: (row: Place) => cell(value(row) as number | null) };
  });
}

function seedColumns({ seeds, each }: Results, factor: number): Column<Place>[] {
  const [, count = 0, places = 0] = each.shape;
  return seeds.map((seed, n) => {
    const value = ({ scheme, place }: Place): Cell => known(each.values[(scheme * count + n) * places + place]!, factor);
    return { title: `seed ${seed}`, numeric: true, value, cell: (row: Place) => cell(value(row) as number | null) };
  });
}

function cell(value: number | null): string {
  return value === null ? "no row" : told(value);
}

function scoreName({ task }: Results): string {
  return `${task.measure}${task.percent ? ", %" : ""}; ${task.higher ? "higher" : "lower"} is better`;
}

function run(lengths: number[]): string {
  const [first = 0, last = 0] = [lengths[0], lengths.at(-1)];
  return lengths.length > 2 && last - first === lengths.length - 1 ? `${first} to ${last}` : lengths.join(", ");
}

function Shift({ results }: { results: Results }) {
  const { task, shifts } = results;
  const factor = task.percent ? 100 : 1;
  const score: LinesProps = useMemo(
    () => ({
      title: "The same inputs, every position moved",
      x: shifts.values,
      curves: curves(results, results.shift.score, factor),
      xLabel: "positions moved by",
      yLabel: scoreName(results),
      dots: true,
      ...(task.percent ? { y: [0, 103] as [number, number] } : {}),
    }),
    [results],
  );
  const change: LinesProps = useMemo(() => {
    const found = curves(results, results.shift.largest_logit_change, 1);
    const above = (values: Curve["values"] = []) => Array.from(values, (value) => (value !== null && value > 0 ? value : null));
    return {
      title: "Largest change of any logit",
      x: shifts.values,
      curves: found.map((curve) => ({ ...curve, values: above(curve.values), low: above(curve.low), high: above(curve.high) })),
      xLabel: "positions moved by",
      yLabel: "change, logarithmic",
      logY: true,
      dots: true,
    };
  }, [results]);
  if (!shifts.values.length) return null;
  const rows = rowsOf(results, shifts);
  const first: Column<Place>[] = [
    { title: "scheme", value: ({ scheme }) => results.schemes[scheme]! },
    { title: "moved by", numeric: true, value: ({ place }) => shifts.values[place]! },
  ];
  return (
    <div class="pair">
      <Figure
        title={score.title}
        note={results.seen.shift}
        file="shift-scores"
        svg={() => linesSvg(score)}
        rows={rows}
        columns={[...first, ...spreadColumns(results.shift.score, factor)]}
        how={
          <How>
            <p>
              New inputs of {task.shift_length ?? "a trained number of"} {task.unit} are read again with the first token standing at 1, 2, 4, … instead of 0. Nothing
              else changes. A gap is a position for which a table has no row.
            </p>
          </How>
        }
      >
        <Lines {...score} />
      </Figure>
      <Figure
        title={change.title}
        note="What looks at distances alone gives the same logits, up to rounding (about 0.00001)."
        file="shift-logits"
        svg={() => linesSvg(change)}
        rows={rows}
        columns={[...first, ...spreadColumns(results.shift.largest_logit_change, 1)]}
        how={
          <How>
            <p>The greatest |logit moved − logit unmoved| over all inputs and answers; median, least and greatest over the seeds. A change of exactly 0 has no place on a logarithmic axis; the table has it.</p>
          </How>
        }
      >
        <Lines {...change} />
      </Figure>
    </div>
  );
}

function Costs({ results }: { results: Results }) {
  const factor = results.task.percent ? 100 : 1;
  const rows = results.schemes.map((_, n) => n);
  const inside = (n: number) => known(results.in_length.values[3 * n]!, factor);
  return (
    <section class="apart" aria-labelledby="costs">
      <h2 id="costs">Within the trained length, and what it costs</h2>
      <Table
        caption={`Medians over the seeds: ${scoreName(results)}`}
        rows={rows}
        columns={[
          { title: "scheme", value: (n) => results.schemes[n]! },
          { title: "in length", numeric: true, value: inside, cell: (row) => cell(inside(row)) },
          { title: "parameters", numeric: true, value: (n) => results.costs[n]!.parameters, cell: (n) => whole(results.costs[n]!.parameters) },
          { title: "of them for position", numeric: true, value: (n) => results.costs[n]!.positions, cell: (n) => whole(results.costs[n]!.positions) },
          { title: "ms per step", numeric: true, value: (n) => results.costs[n]!.milliseconds, cell: (n) => told(results.costs[n]!.milliseconds, 3) },
        ]}
      />
    </section>
  );
}

const SIGNS: Record<string, string> = { holds: "✓", fails: "✗", depends: "≈" };

function Verdicts({ results }: { results: Results }) {
  if (!results.verdicts.length) return null;
  return (
    <section class="verdicts apart" aria-labelledby="verdicts">
      <h2 id="verdicts">What tutorials claim, beside what was measured</h2>
      <Table
        caption="Each verdict is computed from these runs"
        rows={results.verdicts}
        columns={[
          { title: "the tutorial says", value: (row) => row.claim },
          { title: "its number", value: (row) => row.claimed },
          { title: "measured here", value: (row) => row.measured },
          { title: "verdict", value: (row) => row.verdict, cell: (row) => <b class={`judged ${row.verdict}`}>{`${SIGNS[row.verdict] ?? "–"} ${row.verdict}`}</b> },
          { title: "why", value: (row) => row.why },
        ]}
      />
    </section>
  );
}

function Made({ results }: { results: Results }) {
  const rows = results.made.settings;
  return (
    <section class="apart" aria-labelledby="made">
      <h2 id="made">How it was made</h2>
      <p>{results.made.runs} runs. The same command, versions and threads give the same numbers on the same machine:</p>
      <pre tabIndex={0}>
        <code>{results.made.command}</code>
      </pre>
      <details class="how">
        <summary>Settings, machine, versions</summary>
        <Table
          caption="As results.json has them"
          rows={rows}
          columns={[
            { title: "what", value: ([name]) => name },
            { title: "value", value: ([, value]) => value },
          ]}
        />
      </details>
    </section>
  );
}
