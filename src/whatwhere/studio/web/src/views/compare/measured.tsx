/** What a comparison measured: scores by length with their range over seeds, shift test, how to repeat. */

import { useMemo } from "preact/hooks";
import { useQuery } from "../../hooks";
import { fixed, formatNumber, whole } from "../../numbers";
import { Choice, Flag } from "../../parts/choice";
import { Figure } from "../../parts/figure";
import { numberColumn } from "../../parts/figures";
import { type Curve, Lines, type LinesProps, linesSvg } from "../../parts/lines";
import { look } from "../../parts/plot";
import type { Cell } from "../../parts/save";
import { Parts } from "../../parts/sections";
import { Answered } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { ViewProps } from "../../register";
import type { Measurements } from "../../types";
import type { Tensor } from "../../wire";
import { ByDistance, Fingerprints } from "./schemes";
import { capital, known, TextTable } from "./shared";
import { Learned } from "./token_table";

export function Measured(props: ViewProps) {
  const query = useQuery("compare.results", {});
  return (
    <Answered query={query} what="reading the results">
      {(results) => (
        <>
          <p class="answer">{results.sentences.answer}</p>
          <p class="note reading">{results.sentences.scope}</p>
          <p class="note reading">{results.sentences.question}</p>
          <Summary results={results} />
          <Differences results={results} />
          <Scores {...props} results={results} />
          <Groups results={results} />
          {results.layouts.map((section) => (
            <section key={section.name} aria-label={section.title}>
              <h2>{section.title}</h2>
              <Parts section={section} about={props.about} />
            </section>
          ))}
          <Shift results={results} />
          <Learned results={results} />
          <Fingerprints results={results} />
          <ByDistance results={results} />
          <Reproduction results={results} />
        </>
      )}
    </Answered>
  );
}

type Props = { results: Measurements };

/** Strokes of the baselines, which share a color. */
const BASELINES = [
  [1, 3],
  [7, 4],
  [12, 3, 2, 3],
  [3, 7],
];

/** Scores are shown in percent where they are shares. */
function factorOf({ task }: Measurements): number {
  return task.percent ? 100 : 1;
}

/** Return one curve for each scheme, with a band from the least seed to the greatest. */
function curvesOf(results: Measurements, spreads: Tensor, factor: number): Curve[] {
  const count = spreads.shape[1]!;
  return results.schemes.map((name, scheme) => {
    const part = (which: number) =>
      Array.from({ length: count }, (_, n) => known(spreads.values[(scheme * count + n) * 3 + which]!, factor));
    return { name, values: part(0), low: part(1), high: part(2), ...look(results.looks[scheme]!) };
  });
}

/** A score axis of shares ends above 100 %. */
function scoreAxis({ task }: Measurements): Pick<LinesProps, "y"> {
  return task.percent ? { y: [0, 103] } : {};
}

/** A row of a table: a scheme and one of its lengths or shifts. */
interface Row {
  scheme: number;
  n: number;
}

function rowsOf(names: string[], values: Tensor): Row[] {
  return names.flatMap((_, scheme) => Array.from(values.values, (_, n) => ({ scheme, n })));
}

function scoreCell(value: number | null): string {
  return value === null ? "no row" : formatNumber(value);
}

function spreadColumns({ values, shape }: { values: ArrayLike<number>; shape: number[] }, factor: number) {
  return ["median", "least", "greatest"].map((title, which): Column<Row> => {
    const value = ({ scheme, n }: Row) => known(values[(scheme * shape[1]! + n) * 3 + which]!, factor);
    return numberColumn(title, value, scoreCell);
  });
}

function seedColumns({ seeds, each }: Measurements, factor: number) {
  const [schemes = 0, count = 0, lengths = 0] = each.shape;
  return seeds.map((seed, index): Column<Row> => {
    const value = ({ scheme, n }: Row) => known(each.values[(scheme * count + index) * lengths + n]!, factor);
    const cell = (row: Row) => (row.scheme < schemes ? scoreCell(value(row)) : "");
    return { title: `seed ${seed}`, numeric: true, value: (row): Cell => value(row), cell };
  });
}

function Scores({ results, settings, change }: ViewProps & Props) {
  const { task, lengths } = results;
  const group = task.groups.includes(String(settings["group"])) ? String(settings["group"]) : "all";
  const log = Boolean(settings["log"]);
  const factor = factorOf(results);
  const title = capital(`${task.measure} by length${group === "all" ? "" : `, ${group} alone`}`);
  const trained = Math.max(...task.trained);
  const scores = results.scores[group]!;
  const baselines = group === "all" ? results.baselines : [];
  const props: LinesProps = useMemo(() => {
    const plain = baselines
      .filter(({ in_chart }) => in_chart)
      .map(({ name, values }, n): Curve => {
        const scores = Array.from(values.values, (value) => known(value, factor));
        return { name, values: scores, color: 0, dash: BASELINES[n % BASELINES.length]!, baseline: true };
      });
    return {
      title,
      x: lengths.values,
      curves: [...curvesOf(results, scores, factor), ...plain],
      xLabel: task.unit,
      yLabel: task.scored,
      logX: log,
      dots: true,
      marks: [{ x: trained, text: `trained up to ${trained}` }],
      ...scoreAxis(results),
      height: 380,
    };
  }, [results, group, log]);
  const names = [...results.schemes, ...baselines.map(({ name }) => name)];
  // A baseline has one score for each length, which is median, least and greatest.
  const tripled = baselines.flatMap(({ values }) => Array.from(values.values, (value) => [value, value, value]).flat());
  const code = `ww.comparison.read_results(PATH).score(${JSON.stringify(names[0])}, ${lengths.values[0]})`;
  return (
    <Figure
      title={title}
      note={results.sentences.scores}
      file={`scores-${group}`}
      svg={() => linesSvg(props, 900)}
      rows={rowsOf(names, lengths)}
      columns={[
        { title: "scheme", value: ({ scheme }) => names[scheme]! },
        { title: task.unit, numeric: true, value: ({ n }) => lengths.values[n]! },
        ...spreadColumns({ ...scores, values: [...scores.values, ...tripled] }, factor),
        ...(group === "all" ? seedColumns(results, factor) : []),
      ]}
      code={`${code}  # median, least, greatest; None is in length`}
      how={
        <>
          <p>
            The same Transformer is trained under each scheme with {results.seeds.length}{" "}
            {results.seeds.length === 1 ? "seed" : "seeds"} on inputs of {task.trained_text} {task.unit}, then tested on
            new sequences of each length. The curve is the median over the seeds, the band the range from the least to
            the greatest. A gap is a length for which the scheme has no row. Bands that overlap do not show that schemes
            are alike, for runs are paired by seed: see the paired differences.
          </p>
          <Baselines baselines={baselines} />
        </>
      }
    >
      <div class="controls">
        <Choice
          label="scores of"
          value={group}
          options={task.groups.map((name) => [name, name === "all" ? "all together" : name] as const)}
          change={(group) => change({ group })}
        />
        <Flag label="logarithmic lengths" value={log} change={(log) => change({ log })} />
      </div>
      <Lines {...props} />
    </Figure>
  );
}

function Baselines({ baselines }: Pick<Measurements, "baselines">) {
  const far = baselines.filter(({ in_chart }) => !in_chart).map(({ name }) => name);
  const described = baselines.map(({ name, description }) => (description ? `${name} (${description})` : name));
  return (
    <>
      {described.length > 0 && <p>Thin gray lines, predictors that ignore positions: {described.join("; ")}.</p>}
      {far.length > 0 && <p>Too far from the schemes for the chart, but in the table: {far.join("; ")}.</p>}
    </>
  );
}

function Shift({ results }: Props) {
  const { task, shifts, shift } = results;
  const score: LinesProps = useMemo(
    () => ({
      title: "The same inputs, every position shifted",
      x: shifts.values,
      curves: curvesOf(results, shift, factorOf(results)),
      xLabel: "positions shifted by",
      yLabel: task.scored,
      dots: true,
      ...scoreAxis(results),
    }),
    [results],
  );
  if (!shifts.values.length) return null;
  return (
    <Figure
      title={score.title}
      note={results.sentences.shift}
      file="shift-scores"
      svg={() => linesSvg(score)}
      rows={rowsOf(results.schemes, shifts)}
      columns={[
        { title: "scheme", value: ({ scheme }) => results.schemes[scheme]! },
        { title: "shifted by", numeric: true, value: ({ n }) => shifts.values[n]! },
        ...spreadColumns(shift, factorOf(results)),
      ]}
      how={
        <p>
          New inputs of {task.shift_length} {task.unit} are tested again with the first token at position 1, 2, 4, …
          instead of 0. Nothing else changes. A gap is a position for which a table has no row.
        </p>
      }
    >
      <Lines {...score} />
    </Figure>
  );
}

/** Return the cell of a score, with its range where seeds differ. */
function spreadCell(results: Measurements, spreads: Tensor, at: number) {
  const [median = null, least, greatest] = [0, 1, 2].map((which) =>
    known(spreads.values[3 * at + which]!, factorOf(results)),
  );
  if (median === null) return "no row";
  const [middle, low, high] = [median, least, greatest].map((value) =>
    fixed(value ?? Number.NaN, results.task.percent ? 1 : 3),
  );
  return (
    <>
      {middle} {low !== high && <small>{`${low} to ${high}`}</small>}
    </>
  );
}

/** Return a column of scores with their ranges; `at` returns the index of a row's spread. */
function spreadColumn<R>(results: Measurements, title: string, spreads: Tensor, at: (row: R) => number): Column<R> {
  return {
    title,
    numeric: true,
    value: (row) => known(spreads.values[3 * at(row)]!, factorOf(results)),
    cell: (row) => spreadCell(results, spreads, at(row)),
  };
}

function Summary({ results }: Props) {
  const { task, lengths, shifts, costs } = results;
  const count = lengths.values.length;
  const beyond = Array.from({ length: count - results.trained }, (_, n) => results.trained + n);
  const scores = results.scores["all"]!;
  const shifted = (by: number, title: string) => {
    const index = Array.from(shifts.values).indexOf(by);
    const at = (scheme: number) => scheme * shifts.values.length + index;
    return index < 0 ? [] : [spreadColumn(results, title, results.shift, at)];
  };
  return (
    <section class="summary" aria-label="Scores and costs">
      <Table
        caption={`Scores: ${task.scored}; “at” counts ${task.unit}`}
        rows={results.schemes.map((_, n) => n)}
        columns={[
          { title: "scheme", value: (n) => results.schemes[n]! },
          spreadColumn(results, "in length", results.in_length, (scheme: number) => scheme),
          ...beyond.map((n) =>
            spreadColumn(results, `at ${lengths.values[n]}`, scores, (scheme: number) => scheme * count + n),
          ),
          ...shifted(1, "shifted by 1"),
          ...shifted(0, "unshifted"),
          numberColumn(
            "parameters",
            (n: number) => costs[n]!.parameters,
            (count) => whole(count!),
          ),
          numberColumn(
            "of positions",
            (n: number) => costs[n]!.positions,
            (count) => whole(count!),
          ),
          numberColumn("ms per step", (n: number) => costs[n]!.milliseconds),
        ]}
      />
      <p class="note">
        Shifted: the same inputs with every position one higher, and as they are. No row: a learned table ends before
        such a position.
      </p>
    </section>
  );
}

/** The schemes in pairs, seed by seed. */
function Differences({ results: { differences, sentences } }: Props) {
  if (!differences) return null;
  return (
    <section class="differences" aria-label="Paired differences">
      {differences.rows.length > 15 ? (
        <details class="how">
          <summary>{differences.rows.length} paired differences</summary>
          <TextTable table={differences} />
        </details>
      ) : (
        <TextTable table={differences} />
      )}
      <p class="note">{sentences.differences}</p>
    </section>
  );
}

/** All groups in one table; the figure shows one at a time. */
function Groups({ results }: Props) {
  const { task, lengths, schemes, sentences } = results;
  const groups = task.groups.slice(1);
  if (!groups.length) return null;
  const count = lengths.values.length;
  const rows = groups.flatMap((group) => schemes.map((_, scheme) => ({ group, scheme })));
  const scoreColumn = (length: number, n: number): Column<(typeof rows)[number]> => ({
    title: String(length),
    numeric: true,
    value: ({ group, scheme }) => {
      return known(results.scores[group]!.values[3 * (scheme * count + n)]!, factorOf(results));
    },
    cell: ({ group, scheme }) => spreadCell(results, results.scores[group]!, scheme * count + n),
  });
  return (
    <section aria-label="Each group by itself">
      <p>{sentences.groups}</p>
      <details class="how">
        <summary>Every group by itself</summary>
        <Table
          caption={`By group and ${task.unit}: ${task.scored}`}
          rows={rows}
          columns={[
            { title: "group", value: ({ group }) => group },
            { title: "scheme", value: ({ scheme }) => schemes[scheme]! },
            ...Array.from(lengths.values, scoreColumn),
          ]}
        />
      </details>
    </section>
  );
}

function Reproduction({ results }: Props) {
  const { command, settings, runs } = results.reproduction;
  return (
    <section class="apart" aria-labelledby="reproduction">
      <h2 id="reproduction">How to repeat it</h2>
      <p>{results.sentences.record}</p>
      {command === null ? (
        <p>{results.sentences.repeat}</p>
      ) : (
        <>
          <p>The same command, versions and threads give the same numbers on the same machine:</p>
          <pre tabIndex={0}>
            <code>{command}</code>
          </pre>
        </>
      )}
      <details class="how">
        <summary>Every run</summary>
        <TextTable table={runs} />
      </details>
      <details class="how">
        <summary>Settings, machine, versions</summary>
        <TextTable table={settings} />
      </details>
    </section>
  );
}
