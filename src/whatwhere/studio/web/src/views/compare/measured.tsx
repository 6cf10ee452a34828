/** What a comparison has measured: scores by length with their spread, the shift test, verdicts, and how it was made. */

import { useMemo } from "preact/hooks";
import { useQuery } from "../../hooks";
import { fixed, formatNumber, whole } from "../../numbers";
import { Figure } from "../../parts/figure";
import { How } from "../../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg } from "../../parts/lines";
import type { Cell } from "../../parts/save";
import { Answered } from "../../parts/states";
import { type Column, Table } from "../../parts/table";
import type { ViewProps } from "../../register";
import type { Tensor } from "../../wire";
import { ByDistance, Fingerprints } from "./given";
import { Learned } from "./learned";
import { look, type Results, Words } from "./results";

export function Measured(props: ViewProps) {
  const asked = useQuery<Results>("compare.results", {});
  return (
    <Answered query={asked} what="reading the results">
      {(results) => (
        <>
          <p class="answer">{results.sentences.answer}</p>
          <p class="note reading">{results.sentences.question}</p>
          <Summary results={results} />
          <Scores {...props} results={results} />
          <Groups results={results} />
          <Shift results={results} />
          <Learned results={results} />
          <Fingerprints results={results} />
          <ByDistance results={results} />
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
    return { name, values: part(0), low: part(1), high: part(2), ...look(scheme) };
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
  const guesses = group === "all" ? results.baselines : [];
  const names = [...results.schemes, ...guesses.map(({ name }) => name)];
  const scores = results.scores[group]!;
  const all = { ...scores, values: [...scores.values, ...guesses.flatMap(({ values }) => Array.from(values.values, (value) => [value, value, value]).flat())] };
  const far = guesses.filter(({ drawn }) => !drawn);
  return (
    <Figure
      title={title}
      note={results.sentences.scores}
      file={`scores-${group}`}
      svg={() => linesSvg(props, 900, 460)}
      rows={rowsOf(names, results.lengths)}
      columns={[
        { title: "scheme", value: ({ scheme }) => names[scheme]! },
        { title: task.unit, numeric: true, value: ({ place }) => results.lengths.values[place]! },
        ...spreadColumns(all, factor),
        ...(group === "all" ? seedColumns(results, factor) : []),
      ]}
      how={
        <How code={`read_results(Path(PATH)).score(${JSON.stringify(names[0])}, ${results.lengths.values[0]})  # median, least, greatest; None is in length`}>
          <p>
            The same Transformer is trained under each scheme with {results.seeds.length} {results.seeds.length === 1 ? "seed" : "seeds"} on {task.trained_text}{" "}
            {task.unit}, then tested on new sequences of each length. The curve is the median over the seeds, the band reaches from the least to the greatest.
            A gap is a length for which the scheme has no row. With fewer than six seeds treat the order of schemes as a hint.
          </p>
          {guesses.length > 0 && (
            <p>Dotted, what can be scored without positions: {guesses.map(({ name, description }) => (description ? `${name} (${description})` : name)).join("; ")}.</p>
          )}
          {far.length > 0 && <p>Too far away to be drawn, but in the table: {far.map(({ name }) => name).join("; ")}.</p>}
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

function rowsOf(names: string[], places: Tensor): Place[] {
  return names.flatMap((_, scheme) => Array.from(places.values, (_, place) => ({ scheme, place })));
}

function spreadColumns(spreads: { values: ArrayLike<number>; shape: number[] }, factor: number): Column<Place>[] {
  return ["median", "least", "greatest"].map((title, which) => {
    const value = ({ scheme, place }: Place): Cell => known(spreads.values[(scheme * spreads.shape[1]! + place) * 3 + which]!, factor);
    return { title, numeric: true, value, cell: (row: Place) => cell(value(row) as number | null) };
  });
}

function seedColumns({ seeds, each }: Results, factor: number): Column<Place>[] {
  const [, count = 0, places = 0] = each.shape;
  return seeds.map((seed, n) => {
    const value = ({ scheme, place }: Place): Cell => known(each.values[(scheme * count + n) * places + place]!, factor);
    return { title: `seed ${seed}`, numeric: true, value, cell: (row: Place) => (row.scheme < each.shape[0]! ? cell(value(row) as number | null) : "") };
  });
}

function cell(value: number | null): string {
  return value === null ? "no row" : formatNumber(value);
}

function scoreName({ task }: Results): string {
  return task.scored;
}

function Shift({ results }: { results: Results }) {
  const { task, shifts } = results;
  const factor = task.percent ? 100 : 1;
  const score: LinesProps = useMemo(
    () => ({
      title: "The same inputs, every position shifted",
      x: shifts.values,
      curves: curves(results, results.shift.score, factor),
      xLabel: "positions shifted by",
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
      xLabel: "positions shifted by",
      yLabel: "change, logarithmic",
      logY: true,
      dots: true,
    };
  }, [results]);
  if (!shifts.values.length) return null;
  const rows = rowsOf(results.schemes, shifts);
  const first: Column<Place>[] = [
    { title: "scheme", value: ({ scheme }) => results.schemes[scheme]! },
    { title: "shifted by", numeric: true, value: ({ place }) => shifts.values[place]! },
  ];
  return (
    <div class="pair">
      <Figure
        title={score.title}
        note={results.sentences.shift}
        file="shift-scores"
        svg={() => linesSvg(score)}
        rows={rows}
        columns={[...first, ...spreadColumns(results.shift.score, factor)]}
        how={
          <How>
            <p>
              New inputs of {task.shift_length} {task.unit} are read again with the first token at position 1, 2, 4, … instead of 0. Nothing else changes. A
              gap is a position for which a table has no row.
            </p>
          </How>
        }
      >
        <Lines {...score} />
      </Figure>
      <Figure
        title={change.title}
        note="Relative schemes keep their logits, up to rounding (about 0.00001)."
        file="shift-logits"
        svg={() => linesSvg(change)}
        rows={rows}
        columns={[...first, ...spreadColumns(results.shift.largest_logit_change, 1)]}
        how={
          <How>
            <p>The greatest |shifted logit − unshifted logit| over all inputs and answers; median, least and greatest over the seeds. A change of exactly 0 has no place on a logarithmic axis; the table has it.</p>
          </How>
        }
      >
        <Lines {...change} />
      </Figure>
    </div>
  );
}

/** Give the cell of a score, with its range where seeds differ. */
function spreadCell(results: Results, spreads: Tensor, at: number) {
  const factor = results.task.percent ? 100 : 1;
  const [middle, least, greatest] = [0, 1, 2].map((which) => known(spreads.values[3 * at + which]!, factor));
  if (middle === null) return "no row";
  const said = (value: number | null | undefined) => fixed(value ?? NaN, results.task.percent ? 1 : 3);
  const range = `${said(least)} to ${said(greatest)}`;
  return (
    <>
      {said(middle)} {said(least) !== said(greatest) && <small>{range}</small>}
    </>
  );
}

function Summary({ results }: { results: Results }) {
  const { task, lengths, shifts, costs } = results;
  const factor = task.percent ? 100 : 1;
  const count = lengths.values.length;
  const beyond = Array.from({ length: count - results.trained }, (_, n) => results.trained + n);
  const score = (title: string, spreads: Tensor, at: (scheme: number) => number): Column<number> => ({
    title,
    numeric: true,
    value: (scheme) => known(spreads.values[3 * at(scheme)]!, factor),
    cell: (scheme) => spreadCell(results, spreads, at(scheme)),
  });
  const shifted = (to: number, title: string) => {
    const place = Array.from(shifts.values).indexOf(to);
    return place < 0 ? [] : [score(title, results.shift.score, (scheme) => scheme * shifts.values.length + place)];
  };
  return (
    <section class="summary" aria-label="Scores and costs">
      <Table
        caption={`Scores: ${scoreName(results)}; “at” counts ${task.unit}`}
        rows={results.schemes.map((_, n) => n)}
        columns={[
          { title: "scheme", value: (n) => results.schemes[n]! },
          score("in length", results.in_length, (scheme) => scheme),
          ...beyond.map((place) => score(`at ${lengths.values[place]}`, results.scores["all"]!, (scheme) => scheme * count + place)),
          ...shifted(1, "shifted by 1"),
          ...shifted(0, "unshifted"),
          { title: "parameters", numeric: true, value: (n) => costs[n]!.parameters, cell: (n) => whole(costs[n]!.parameters) },
          { title: "of positions", numeric: true, value: (n) => costs[n]!.positions, cell: (n) => whole(costs[n]!.positions) },
          { title: "ms per step", numeric: true, value: (n) => costs[n]!.milliseconds, cell: (n) => formatNumber(costs[n]!.milliseconds, 3) },
        ]}
      />
      <p class="note">
        Shifted: the same inputs with every position one higher, and as they are. No row: a learned table ends before such a position.
      </p>
    </section>
  );
}

/** Every group, which the figure shows one by one, in one table. */
function Groups({ results }: { results: Results }) {
  const { task, lengths, schemes, sentences } = results;
  const groups = task.groups.slice(1);
  if (!groups.length) return null;
  const count = lengths.values.length;
  const rows = groups.flatMap((group) => schemes.map((_, scheme) => ({ group, scheme })));
  return (
    <section aria-label="Each group by itself">
      <p>{sentences.groups}</p>
      <details class="how">
        <summary>Every group by itself</summary>
        <Table
          caption={`By group and ${task.unit}: ${scoreName(results)}`}
          rows={rows}
          columns={[
            { title: "group", value: ({ group }) => group },
            { title: "scheme", value: ({ scheme }) => schemes[scheme]! },
            ...Array.from(lengths.values, (length, place) => ({
              title: String(length),
              numeric: true,
              value: ({ group, scheme }: (typeof rows)[number]) => known(results.scores[group]!.values[3 * (scheme * count + place)]!, task.percent ? 100 : 1),
              cell: ({ group, scheme }: (typeof rows)[number]) => spreadCell(results, results.scores[group]!, scheme * count + place),
            })),
          ]}
        />
      </details>
    </section>
  );
}

const SIGNS: Record<string, string> = { holds: "✓", fails: "✗", depends: "≈" };

function Verdicts({ results }: { results: Results }) {
  return (
    <section class="verdicts apart" aria-labelledby="verdicts">
      <h2 id="verdicts">What tutorials claim</h2>
      <p>{results.sentences.verdicts}</p>
      {results.verdicts.length > 0 && (
        <Table
          caption="Each claim is judged by these runs alone"
          rows={results.verdicts}
          columns={[
            { title: "claim", value: (row) => row.claim },
            { title: "the tutorial's number", value: (row) => row.tutorial },
            { title: "measured here", value: (row) => row.measured },
            { title: "verdict", value: (row) => row.verdict, cell: (row) => <b class={`judged ${row.verdict}`}>{`${SIGNS[row.verdict] ?? "–"} ${row.verdict}`}</b> },
            { title: "reason", value: (row) => row.reason },
            { title: "precondition", value: (row) => row.precondition },
          ]}
        />
      )}
    </section>
  );
}

function Made({ results }: { results: Results }) {
  const { command, settings, runs } = results.reproduction;
  return (
    <section class="apart" aria-labelledby="made">
      <h2 id="made">How it was made</h2>
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
        <Words {...runs} />
      </details>
      <details class="how">
        <summary>Settings, machine, versions</summary>
        <Words caption="As results.json has them" head={["what", "value"]} rows={settings} />
      </details>
    </section>
  );
}
