/** View 7, distance: similarity, kernel or bias of every scheme by the distance between two tokens, on one axis. */

import { useMemo } from "preact/hooks";
import { useQuery } from "../hooks";
import { seriesColor } from "../colors";
import { formatNumber, whole } from "../numbers";
import { announce } from "../parts/announce";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg, strokeOf } from "../parts/lines";
import { DEEP_BIASES, readableBiases } from "../parts/plot";
import { HeadSlider, HeadsSlider, Slider } from "../parts/slider";
import { Answered } from "../parts/states";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { DistanceCurve, SchemeCurve, SchemeCurves } from "../types";

/** A scheme that has a curve. */
type Chosen = SchemeCurve & { curve: DistanceCurve };
type Which = "values" | "relative";

const DOORS = [
  ["input", "Similarity of two positions", "what is added to the token vectors"],
  ["query_key", "Kernel of a query and a key", "maps of queries and keys"],
  ["score", "Bias", "what is added to the scores"],
] as const;

const MAX_CHOSEN = 8;
/** The model's own schemes are chosen at first, with one of each door beside them. */
const OWN = "own";
const DEFAULTS: Settings = {
  schemes: `${OWN},sinusoidal,rotary,alibi,sandwich`,
  head: 3,
  heads: 8,
  head_dim: 64,
  distances: 1024,
  log: true,
  seed: 0,
};

register({
  id: "distance",
  order: 7,
  title: "Distance",
  question: "How does each positional encoding depend on the distance between two tokens?",
  defaults: () => DEFAULTS,
  shown: () => true,
  Page: Distance,
});

function Distance({ settings, change }: ViewProps) {
  const [head, heads, head_dim, distances, seed] = ["head", "heads", "head_dim", "distances", "seed"].map((name) =>
    Number(settings[name]),
  ) as [number, number, number, number, number];
  const query = useQuery("distance.curves", { head, heads, head_dim, distances, seed });
  const set = (name: string) => (value: number, now: boolean) => change({ [name]: value }, now);
  return (
    <>
      <div class="pair">
        <div>
          <Slider
            label="distances"
            help="greatest distance shown"
            value={distances}
            low={16}
            high={4096}
            base={2}
            steps={2}
            whole
            change={set("distances")}
          />
          <HeadSlider value={head} heads={heads} change={set("head")} />
        </div>
        <div>
          <HeadsSlider value={heads} high={32} change={set("heads")} />
          <Slider
            label="head_dim"
            help="features of each of these heads"
            value={head_dim}
            low={16}
            high={256}
            base={null}
            steps={1 / 8}
            whole
            change={set("head_dim")}
          />
        </div>
      </div>
      <Answered query={query} what="computing the curves">
        {(answer) => <Schemes answer={answer} settings={settings} change={change} />}
      </Answered>
    </>
  );
}

function chosenOf({ schemes }: SchemeCurves, text: string): Chosen[] {
  const names = new Set(text.split(","));
  const wanted = schemes.filter(({ id, own }) => names.has(id) || (own && names.has(OWN)));
  return wanted.filter((scheme): scheme is Chosen => !("missing" in scheme.curve)).slice(0, MAX_CHOSEN);
}

type SchemesProps = { answer: SchemeCurves } & Pick<ViewProps, "settings" | "change">;

function Schemes({ answer, settings, change }: SchemesProps) {
  const chosen = useMemo(() => chosenOf(answer, String(settings["schemes"])), [answer, settings["schemes"]]);
  const log = Boolean(settings["log"]);
  const choose = (id: string, wanted: boolean) => {
    const rest = chosen.filter((scheme) => scheme.id !== id);
    if (wanted && rest.length === MAX_CHOSEN) {
      announce(`At most ${MAX_CHOSEN} schemes are shown: ${rest.shift()!.name} is removed`);
    }
    change({ schemes: [...rest.map((scheme) => scheme.id), ...(wanted ? [id] : [])].join(",") });
  };
  return (
    <div class="two chooser">
      <section aria-label="Schemes">
        <div class="controls">
          <label class="choice">
            <input type="checkbox" checked={log} onChange={(event) => change({ log: event.currentTarget.checked })} />{" "}
            logarithmic distance
          </label>
          <button type="button" onClick={() => change({ seed: Number(settings["seed"]) + 1 })}>
            Sample new parameters
          </button>
        </div>
        <p class="note">
          Up to {MAX_CHOSEN} at once. The parameters of an untrained scheme are random. The small curves are those of
          the first figure.
        </p>
        <Chooser answer={answer} chosen={chosen} log={log} choose={choose} />
      </section>
      <section aria-label="Curves">
        <Together chosen={chosen} log={log} answer={answer} />
        {DOORS.map(([door, title, words]) => (
          <OfDoor key={door} title={`${title}: ${words}`} door={door} chosen={chosen} log={log} answer={answer} />
        ))}
      </section>
    </div>
  );
}

interface ChooserProps {
  answer: SchemeCurves;
  chosen: Chosen[];
  log: boolean;
  choose(id: string, wanted: boolean): void;
}

function Chooser({ answer, chosen, log, choose }: ChooserProps) {
  const listed = answer.schemes.filter(({ own }) => !own);
  const groups = [
    ["Of what is open", answer.schemes.filter(({ own }) => own)],
    ...DOORS.map(([door, , words]) => [words, listed.filter((scheme) => scheme.door === door)] as const),
    ["no door", listed.filter(({ door }) => door === null)],
  ] as const;
  return (
    <>
      {groups.map(
        ([title, schemes]) =>
          schemes.length > 0 && (
            <fieldset key={title} class="schemes">
              <legend>{title}</legend>
              {schemes.map((scheme) => (
                <Choice
                  key={scheme.id}
                  scheme={scheme}
                  index={chosen.findIndex(({ id }) => id === scheme.id)}
                  log={log}
                  choose={choose}
                />
              ))}
            </fieldset>
          ),
      )}
    </>
  );
}

interface ChoiceProps {
  scheme: SchemeCurve;
  /** Of the chosen schemes; -1 where it is none of them. */
  index: number;
  log: boolean;
  choose(id: string, wanted: boolean): void;
}

function Choice({ scheme, index, log, choose }: ChoiceProps) {
  const { id, name, curve } = scheme;
  const missing = "missing" in curve ? curve.missing : null;
  const path = useMemo(() => ("missing" in curve ? "" : sparkline(curve.relative.values, log)), [curve, log]);
  const color = index < 0 ? "var(--muted)" : `var(--c${index})`;
  return (
    <label title={scheme.formula}>
      <input
        type="checkbox"
        disabled={missing !== null}
        checked={index >= 0}
        onChange={(event) => choose(id, event.currentTarget.checked)}
      />
      <span class="name">
        <bdi>{name}</bdi>
        {scheme.learned && !scheme.own && <small> untrained</small>}
        {missing !== null && <small> {missing.split("\n")[0]}</small>}
      </span>
      {path && (
        <svg viewBox="0 0 80 24" width="80" height="24" aria-hidden="true">
          <path d={path} fill="none" stroke={color} stroke-width={index < 0 ? 1.2 : 2.2} />
        </svg>
      )}
    </label>
  );
}

/** Return the path of a curve in 80 by 24 pixels, from −1 at the bottom to 1, or from 0 where no value is negative. */
function sparkline(values: ArrayLike<number>, log: boolean): string {
  const count = values.length;
  const floor = Array.from(values).some((value) => value < -0.05) ? -1 : 0;
  const at = (k: number) => (log ? Math.round(count ** (k / 60)) - 1 : Math.round((k / 60) * (count - 1)));
  const points = Array.from({ length: 61 }, (_, k) => ({ k, value: values[Math.min(at(k), count - 1)]! }));
  const y = (value: number) => 22 - (20 * (value - floor)) / (1 - floor);
  return points
    .filter(({ value }) => Number.isFinite(value))
    .map(({ k, value }, n) => `${n ? "L" : "M"}${((k / 60) * 80).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
}

interface FigureProps {
  chosen: Chosen[];
  log: boolean;
  answer: SchemeCurves;
}

/** Return the curves of some schemes for a figure; a logarithmic axis has no distance 0. */
function linesOf(
  title: string,
  yLabel: string,
  schemes: Chosen[],
  { chosen, log, answer }: FigureProps,
  which: Which,
): LinesProps {
  const first = log ? 1 : 0;
  const x = Array.from({ length: answer.distances - first }, (_, n) => n + first);
  const curves = schemes.map((scheme): Curve => {
    const index = chosen.indexOf(scheme);
    const { values } = scheme.curve[which];
    return {
      name: scheme.name,
      values: x.map((distance) => (Number.isFinite(values[distance]) ? values[distance]! : null)),
      color: index,
      ...strokeOf(index),
    };
  });
  const y = /^bias/.test(yLabel) ? readableBiases(curves) : {};
  return { title, x, curves, xLabel: "distance", yLabel, logX: log, height: 300, levels: [{ y: 0, text: "" }], ...y };
}

function columnsOf(schemes: Chosen[], which: Which) {
  const number = (scheme: Chosen, distance: number) => {
    const value = scheme.curve[which].values[distance];
    return value === undefined || !Number.isFinite(value) ? null : value;
  };
  return [
    { title: "distance", numeric: true, value: (distance: number) => distance },
    ...schemes.map((scheme) => ({
      title: scheme.name,
      numeric: true,
      value: (distance: number) => number(scheme, distance),
      cell: (distance: number) => formatNumber(number(scheme, distance)),
    })),
  ];
}

/** Return the Python of the first of some schemes that belongs to the catalogue, if there is one. */
function code(chosen: Chosen[], { distances }: SchemeCurves): string | null {
  const python = chosen.find((scheme) => scheme.python)?.python;
  return python ? `${python}\nww.analysis.by_distance(where, ${distances}).curves` : null;
}

function Together(shown: FigureProps) {
  const { chosen, log, answer } = shown;
  const props = useMemo(
    () => linesOf("All on one axis: relative size by distance", "relative size", chosen, shown, "relative"),
    [chosen, log, answer],
  );
  const rows = useMemo(() => Array.from({ length: answer.distances }, (_, n) => n), [answer.distances]);
  return (
    <Figure
      title={props.title}
      note={`Similarities and kernels are divided by their greatest size; a bias is shown as the attention weight \
exp(bias − greatest bias). Biases are those of head ${answer.head}, or of the last head of a scheme with fewer.`}
      file="distance"
      svg={(width) => linesSvg(props, width)}
      rows={rows}
      columns={columnsOf(chosen, "relative")}
      how={
        <How code={code(chosen, answer)}>
          <p>
            Door input: the cosine of the vectors of position 0 and position d; for a model’s own table, the mean over
            all pairs at that distance. Door query_key: the dot product of a query and a key of ones at distance d,
            divided by the number of features. Door score: the bias at distance d. A bias that depends on content (fox,
            cope, shaw, transformer-xl, deberta) is computed for a query, keys and vectors of ones. Learned schemes are
            untrained, unless they belong to what is open.
          </p>
        </How>
      }
    >
      {chosen.length ? <Lines {...props} /> : <p class="note">Choose a scheme.</p>}
    </Figure>
  );
}

function OfDoor({ title, door, ...shown }: FigureProps & { title: string; door: string }) {
  const { chosen, log, answer } = shown;
  const own = useMemo(() => chosen.filter((scheme) => scheme.door === door), [chosen, door]);
  const labels = [...new Set(own.map(({ curve }) => curve.label))];
  const props = useMemo(() => linesOf(title, labels[0] ?? "", own, shown, "values"), [own, log, answer]);
  const rows = useMemo(() => Array.from({ length: answer.distances }, (_, n) => n), [answer.distances]);
  if (!own.length) return null;
  return (
    <Figure
      title={title}
      note={`The values themselves, at distances 0 to ${whole(answer.distances - 1)}: ${labels.join("; ")}. ${props.y ? DEEP_BIASES : ""}`}
      file={`distance-${door}`}
      svg={(width) => linesSvg(props, width)}
      rows={rows}
      columns={columnsOf(own, "values")}
      how={
        <How code={code(own, answer)}>
          <ul class="plain">
            {own.map((scheme) => (
              <li key={scheme.id}>
                <span style={{ color: seriesColor(chosen.indexOf(scheme)) }} aria-hidden="true">
                  ━{" "}
                </span>
                <bdi>{scheme.name}</bdi>: {scheme.formula ? <code>{scheme.formula}</code> : scheme.curve.label}
                {scheme.url && (
                  <>
                    {" "}
                    (<a href={scheme.url}>source</a>)
                  </>
                )}
              </li>
            ))}
          </ul>
        </How>
      }
    >
      <Lines {...props} />
    </Figure>
  );
}
