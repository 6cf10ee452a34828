/** What a comparison measured: scores by length with their range over seeds, shift test, how to repeat. */

import { useQuery, useView } from "../../hooks";
import { formatNumber, upTo } from "../../numbers";
import { Choice, Flag } from "../../parts/controls";
import { LineFigure } from "../../parts/figure";
import { type Curve, look, type LinesProps } from "../../parts/plot";
import { Parts, TextTable } from "../../parts/sections";
import { Answered } from "../../parts/states";
import type { Column } from "../../parts/table";
import type { Measurements } from "../../types";
import type { Tensor } from "../../wire";
import { ByDistance, capital, Fingerprints, Learned } from "./schemes";

export function Measured() {
  const query = useQuery("compare.results", {});
  return (
    <Answered query={query} what="reading the results">
      {(results) => (
        <>
          <p class="answer">{results.sentences.answer}</p>
          <p class="note reading">{results.sentences.scope}</p>
          <p class="note reading">{results.sentences.question}</p>
          <section class="summary" aria-label="Scores and costs">
            <Tables of={results.summary} />
          </section>
          <Differences results={results} />
          <Scores results={results} />
          <Groups results={results} />
          {results.layouts.map((section) => (
            <section key={section.name} aria-label={section.title}>
              <h2>{section.title}</h2>
              <Parts section={section} />
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

/** A score, or null where there is none; in percent where it is a share. */
type Score = number | null;

type Spread = [median: Score, least: Score, greatest: Score];

const BASELINES = ["1 3", "7 4", "12 3 2 3", "3 7"];

function scoresOf({ task }: Measurements, values: ArrayLike<number>): Score[] {
  return Array.from(values, (value) => (Number.isFinite(value) ? value * (task.percent ? 100 : 1) : null));
}

/** Return the spreads of each scheme, one for each length or shift. */
function spreadsOf(results: Measurements, { values, shape }: Tensor): Spread[][] {
  const scores = scoresOf(results, values);
  const count = shape.length > 2 ? shape[1]! : 1;
  const spread = (at: number) => scores.slice(3 * at, 3 * at + 3) as Spread;
  return results.schemes.map((_, scheme) => upTo(count).map((n) => spread(scheme * count + n)));
}

/** Return one curve for each scheme, with a band from the least seed to the greatest. */
function curvesOf({ schemes, looks }: Measurements, spreads: Spread[][]): Curve[] {
  return schemes.map((name, scheme) => {
    const [values, low, high] = [0, 1, 2].map((which) => spreads[scheme]!.map((spread) => spread[which]!));
    return { name, values: values!, low: low!, high: high!, ...look(looks[scheme]!) };
  });
}

/** A score axis of shares ends above 100 %. */
function scoreAxis({ task }: Measurements): Pick<LinesProps, "yLabel" | "y"> {
  return { yLabel: task.scored, ...(task.percent && { y: [0, 103] }) };
}

/** A row of a table: a scheme and one of its lengths or shifts. */
interface Row {
  scheme: string;
  x: number;
  spread: Spread;
  seeds?: Score[];
}

function rowsOf({ schemes }: Measurements, spreads: Spread[][], { values }: Tensor): Row[] {
  return schemes.flatMap((scheme, k) => spreads[k]!.map((spread, n) => ({ scheme, x: values[n]!, spread })));
}

function scoreColumn(title: string, value: (row: Row) => Score | undefined): Column<Row> {
  const written = (score: Score) => (score === null ? "no row" : formatNumber(score));
  return { title, numeric: true, value, cell: (row) => (value(row) === undefined ? "" : written(value(row)!)) };
}

function scoreColumns(xLabel: string): Column<Row>[] {
  return [
    { title: "scheme", value: ({ scheme }) => scheme },
    { title: xLabel, numeric: true, value: ({ x }) => x },
    ...["median", "least", "greatest"].map((title, which) => scoreColumn(title, ({ spread }) => spread[which])),
  ];
}

function Scores({ results }: Props) {
  const { settings } = useView<{ group: string; log: boolean }>();
  const { task, lengths, seeds, each } = results;
  const group = task.groups.includes(settings.group) ? settings.group : "all";
  const trained = Math.max(...task.trained);
  const spreads = spreadsOf(results, results.scores[group]!);
  const rows = rowsOf(results, spreads, lengths);
  const baselines = group === "all" ? results.baselines : [];
  const bare = baselines.map(({ values, ...baseline }) => ({ ...baseline, scores: scoresOf(results, values.values) }));
  const gray = bare
    .filter(({ in_chart }) => in_chart)
    .map(({ name, scores }, n): Curve => ({
      name,
      values: scores,
      color: 0,
      dash: BASELINES[n % BASELINES.length]!,
      baseline: true,
    }));
  const count = lengths.values.length;
  const scores = scoresOf(results, each.values);
  rows.forEach((row, at) => {
    const [scheme, n] = [Math.floor(at / count), at % count];
    row.seeds = seeds.map((_, seed) => scores[(scheme * seeds.length + seed) * count + n]!);
  });
  // A baseline has one score for each length, which is median, least and greatest.
  const plain = bare.flatMap(({ name, scores }) =>
    scores.map((score, n): Row => ({ scheme: name, x: lengths.values[n]!, spread: [score, score, score] })),
  );
  const bySeed = seeds.map((seed, n) => scoreColumn(`seed ${seed}`, ({ seeds }) => seeds?.[n]));
  const far = bare.filter(({ in_chart }) => !in_chart).map(({ name }) => name);
  const described = bare.map(({ name, description }) => (description ? `${name} (${description})` : name));
  const code = `ww.comparison.read_results(PATH).score(${JSON.stringify(results.schemes[0])}, ${lengths.values[0]})`;
  return (
    <LineFigure
      title={capital(`${task.measure} by length${group === "all" ? "" : `, ${group} alone`}`)}
      x={lengths.values}
      curves={[...curvesOf(results, spreads), ...gray]}
      xLabel={task.unit}
      {...scoreAxis(results)}
      logX={settings.log}
      dots
      marks={[{ x: trained, text: `trained up to ${trained}` }]}
      height={380}
      note={results.sentences.scores}
      rows={[...rows, ...plain]}
      columns={[...scoreColumns(task.unit), ...(group === "all" ? bySeed : [])]}
      code={`${code}  # median, least, greatest; None is in length`}
      how={[
        `The same Transformer is trained under each scheme with ${seeds.length} ${seeds.length === 1 ? "seed" : "seeds"} ` +
          `on inputs of ${task.trained_text} ${task.unit}, then tested on new sequences of each length. The curve is the ` +
          "median over the seeds, the band the range from the least to the greatest. A gap is a length for which the " +
          "scheme has no row. Bands that overlap do not show that schemes are alike, for runs are paired by seed: see " +
          "the paired differences.",
        described.length > 0 && `Thin gray lines, predictors that ignore positions: ${described.join("; ")}.`,
        far.length > 0 && `Too far from the schemes for the chart, but in the table: ${far.join("; ")}.`,
      ]}
    >
      <div class="controls">
        <Choice
          label="scores of"
          name="group"
          value={group}
          options={task.groups.map((name) => [name, name === "all" ? "all together" : name] as const)}
        />
        <Flag label="logarithmic lengths" name="log" />
      </div>
    </LineFigure>
  );
}

function Shift({ results }: Props) {
  const { task, shifts, shift } = results;
  if (!shifts.values.length) return null;
  const spreads = spreadsOf(results, shift);
  return (
    <LineFigure
      title="The same inputs, every position shifted"
      x={shifts.values}
      curves={curvesOf(results, spreads)}
      xLabel="positions shifted by"
      {...scoreAxis(results)}
      dots
      note={results.sentences.shift}
      rows={rowsOf(results, spreads, shifts)}
      columns={scoreColumns("shifted by")}
      how={
        `New inputs of ${task.shift_length} ${task.unit} are tested again with the first token at position 1, 2, 4, … ` +
        "instead of 0. Nothing else changes. A gap is a position for which a table has no row."
      }
    />
  );
}

function Differences({ results: { differences, sentences } }: Props) {
  if (!differences) return null;
  return (
    <section class="differences" aria-label="Paired differences">
      <TextTable table={differences} />
      <p class="note">{sentences.differences}</p>
    </section>
  );
}

/** All groups; the figure shows one at a time. */
function Groups({ results: { by_group, sentences } }: Props) {
  if (!by_group.length) return null;
  return (
    <section aria-label="Each group by itself">
      <p>{sentences.groups}</p>
      <details class="how">
        <summary>Every group by itself</summary>
        <Tables of={by_group} />
      </details>
    </section>
  );
}

function Tables({ of }: { of: Measurements["by_group"] }) {
  return (
    <>
      {of.map((table) => (
        <TextTable key={table.caption} table={table} />
      ))}
    </>
  );
}

function Reproduction({ results }: Props) {
  const { command, settings, runs } = results;
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
      <Tables of={[runs, settings]} />
    </section>
  );
}
