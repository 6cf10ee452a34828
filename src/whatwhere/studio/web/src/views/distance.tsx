/** View 7, distance: what each scheme makes of how far two tokens are apart, all on one axis. */

import { useMemo } from "preact/hooks";
import { useQuery } from "../hooks";
import { seriesColor } from "../colors";
import { formatNumber, whole } from "../numbers";
import { announce } from "../parts/announce";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { type Curve, Lines, type LinesProps, linesSvg } from "../parts/lines";
import { Slider } from "../parts/slider";
import { Answered } from "../parts/states";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { Tensor } from "../wire";

interface Scheme {
  /** How the address calls it: a row of the catalogue by its name. */
  id: string;
  name: string;
  door: "input" | "query_key" | "score" | null;
  own: boolean;
  learned: boolean;
  formula: string;
  url: string | null;
  /** Why there is no curve. */
  missing?: string;
  label?: string;
  values?: Tensor;
  relative?: Tensor;
}

interface Curves {
  dim: number;
  seed: number;
  heads: number;
  head: number;
  distances: number;
  schemes: Scheme[];
}

type Drawn = Scheme & { values: Tensor; relative: Tensor; label: string };

const DOORS = [
  ["input", "Similarity of two positions", "what is added to the token vectors"],
  ["query_key", "Kernel of a query and a key", "maps of queries and keys"],
  ["score", "Bias", "what is added to the scores"],
] as const;

const MOST = 8;
/** The model's own schemes are chosen at first, with one of each door beside them. */
const OWN = "own";
const DEFAULTS: Settings = { schemes: `${OWN},sinusoidal,rotary,alibi,sandwich`, head: 3, heads: 8, head_dim: 64, distances: 1024, log: true, seed: 0 };

register({
  id: "distance",
  order: 7,
  title: "Distance",
  question: "What does each way of saying where make of the distance between two tokens?",
  defaults: () => DEFAULTS,
  shown: () => true,
  Page: Distance,
});

function Distance({ settings, change }: ViewProps) {
  const { head, heads, head_dim, distances, seed } = settings as Record<string, number>;
  const asked = useQuery<Curves>("distance.curves", { head: head!, heads: heads!, head_dim: head_dim!, distances: distances!, seed: seed! });
  const turn = (name: string) => (value: number, now: boolean) => change({ [name]: value }, now);
  return (
    <>
      <div class="pair">
        <div>
          <Slider label="distances" help="up to which" value={distances!} low={16} high={4096} base={2} steps={2} whole change={turn("distances")} />
          <Slider label="head" help="of biases, counted from 0" value={head!} low={0} high={Math.max(heads! - 1, 1)} base={null} steps={1} whole change={turn("head")} />
        </div>
        <div>
          <Slider label="heads" help="of the schemes of the catalogue" value={heads!} low={1} high={32} base={null} steps={1} whole change={turn("heads")} />
          <Slider label="head_dim" help="features of a head of theirs" value={head_dim!} low={16} high={256} base={null} steps={1 / 8} whole change={turn("head_dim")} />
        </div>
      </div>
      <Answered query={asked} what="asking every scheme">
        {(answer) => <Chosen answer={answer} settings={settings} change={change} />}
      </Answered>
    </>
  );
}

function chosenOf({ schemes }: Curves, text: string): Drawn[] {
  const names = new Set(text.split(","));
  const wanted = schemes.filter(({ id, own }) => names.has(id) || (own && names.has(OWN)));
  return wanted.filter((scheme): scheme is Drawn => scheme.values !== undefined).slice(0, MOST);
}

function Chosen({ answer, settings, change }: { answer: Curves } & Pick<ViewProps, "settings" | "change">) {
  const chosen = useMemo(() => chosenOf(answer, String(settings["schemes"])), [answer, settings["schemes"]]);
  const log = Boolean(settings["log"]);
  const choose = (id: string, wanted: boolean) => {
    const rest = chosen.filter((scheme) => scheme.id !== id);
    if (wanted && rest.length === MOST) announce(`${MOST} schemes are shown at most; ${rest.shift()!.name} makes room`);
    change({ schemes: [...rest.map((scheme) => scheme.id), ...(wanted ? [id] : [])].join(",") });
  };
  return (
    <div class="two chooser">
      <section aria-label="Schemes">
        <div class="ask">
          <label class="choice">
            <input type="checkbox" checked={log} onChange={(event) => change({ log: event.currentTarget.checked })} /> logarithmic distance
          </label>
          <button type="button" onClick={() => change({ seed: Number(settings["seed"]) + 1 })}>
            Draw anew
          </button>
        </div>
        <p class="note">Up to {MOST} at once; “as drawn” is what a scheme learns, before any training. The little curves are those of the first figure.</p>
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
  answer: Curves;
  chosen: Drawn[];
  log: boolean;
  choose(id: string, wanted: boolean): void;
}

function Chooser({ answer, chosen, log, choose }: ChooserProps) {
  const groups = [
    ["Of what is open", answer.schemes.filter(({ own }) => own)],
    ...DOORS.map(([door, , words]) => [words, answer.schemes.filter((scheme) => !scheme.own && scheme.door === door)] as const),
    ["no door", answer.schemes.filter(({ own, door }) => !own && door === null)],
  ] as const;
  return (
    <>
      {groups.map(([title, schemes]) => schemes.length > 0 && (
        <fieldset key={title} class="schemes">
          <legend>{title}</legend>
          {schemes.map((scheme) => (
            <Choice key={scheme.id} scheme={scheme} place={chosen.indexOf(scheme as Drawn)} log={log} choose={choose} />
          ))}
        </fieldset>
      ))}
    </>
  );
}

function Choice({ scheme, place, log, choose }: { scheme: Scheme; place: number; log: boolean } & Pick<ChooserProps, "choose">) {
  const path = useMemo(() => (scheme.relative ? spark(scheme.relative.values, log) : ""), [scheme, log]);
  const color = place < 0 ? "var(--muted)" : `var(--c${place})`;
  return (
    <label title={scheme.formula}>
      <input type="checkbox" disabled={scheme.missing !== undefined} checked={place >= 0} onChange={(event) => choose(scheme.id, event.currentTarget.checked)} />
      <span class="name">
        <bdi>{scheme.name}</bdi>
        {scheme.learned && !scheme.own && <small> as drawn</small>}
        {scheme.missing && <small> {scheme.missing.split("\n")[0]}</small>}
      </span>
      {path && (
        <svg viewBox="0 0 80 24" width="80" height="24" aria-hidden="true">
          <path d={path} fill="none" stroke={color} stroke-width={place < 0 ? 1.2 : 2.2} />
        </svg>
      )}
    </label>
  );
}

/** Draw a curve into 80 by 24, from −1 at the bottom to 1 at the top, or from 0 where nothing is below. */
function spark(values: ArrayLike<number>, log: boolean): string {
  const count = values.length;
  const floor = Array.from(values).some((value) => value < -0.05) ? -1 : 0;
  const at = (k: number) => (log ? Math.round(count ** (k / 60)) - 1 : Math.round((k / 60) * (count - 1)));
  const points = Array.from({ length: 61 }, (_, k) => ({ k, value: values[Math.min(at(k), count - 1)]! })).filter(({ value }) => Number.isFinite(value));
  return points.map(({ k, value }, n) => `${n ? "L" : "M"}${((k / 60) * 80).toFixed(1)} ${(22 - (20 * (value - floor)) / (1 - floor)).toFixed(1)}`).join("");
}

const STROKES: (number[] | undefined)[] = [undefined, [8, 4], [2, 3], [8, 3, 2, 3], [14, 4], [5, 2], [2, 6], [12, 3, 3, 3, 3, 3]];

interface FigureProps {
  chosen: Drawn[];
  log: boolean;
  answer: Curves;
}

/** Give the curves of some schemes at the distances that are drawn: on a logarithmic axis 0 has no place. */
function linesOf(title: string, yLabel: string, schemes: Drawn[], all: Drawn[], which: "values" | "relative", log: boolean, count: number): LinesProps {
  const first = log ? 1 : 0;
  const x = Array.from({ length: count - first }, (_, n) => n + first);
  const curves = schemes.map((scheme): Curve => {
    const place = all.indexOf(scheme);
    const { values } = scheme[which];
    const stroke = STROKES[place % STROKES.length];
    return {
      name: scheme.name,
      values: x.map((distance) => (Number.isFinite(values[distance]) ? values[distance]! : null)),
      color: place,
      ...(stroke ? { dash: stroke } : {}),
    };
  });
  return { title, x, curves, xLabel: "distance", yLabel, logX: log, height: 300, levels: [{ y: 0, text: "" }] };
}

function columnsOf(schemes: Drawn[], which: "values" | "relative") {
  const number = (scheme: Drawn, distance: number) => {
    const value = scheme[which].values[distance];
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

function code(chosen: Drawn[], { dim, heads, distances, seed }: Curves): string {
  const name = chosen.find(({ own }) => !own)?.name ?? "rotary";
  return [
    "from whatwhere.analysis.position_similarity import by_distance",
    "from whatwhere.analysis.walkthrough import random_scheme",
    `where = random_scheme("${name}", dim=${dim}, num_heads=${heads}, max_length=${distances}, seed=${seed})`,
    `by_distance(where, ${distances}).curves`,
  ].join("\n");
}

function Together({ chosen, log, answer }: FigureProps) {
  const props = useMemo(
    () => linesOf("All on one axis: what is left at each distance", "share", chosen, chosen, "relative", log, answer.distances),
    [chosen, log, answer],
  );
  const rows = useMemo(() => Array.from({ length: answer.distances }, (_, n) => n), [answer.distances]);
  return (
    <Figure
      title={props.title}
      note={`As a share of the greatest: of a similarity and a kernel the number itself, of a bias the weight exp(bias) that it leaves a key. Biases are those of head ${answer.head}, where a scheme has as many.`}
      file="distance"
      svg={() => linesSvg(props)}
      rows={rows}
      columns={columnsOf(chosen, "relative")}
      how={
        <How code={code(chosen, answer)}>
          <p>
            Door input: the cosine of the vectors of position 0 and position d; of a model’s own table the mean over all pairs at that distance.
            Door query_key: the inner product of a query and a key of ones, d apart, over the features. Door score: the bias at distance d. A bias
            that depends on what tokens say (fox, cope, shaw, transformer-xl, deberta) is asked with a query, keys and vectors of ones. What is
            learned is as drawn, before any training, unless it is of what is open. Then each curve is divided by its greatest size, and of a
            bias exp(bias − greatest) is taken.
          </p>
        </How>
      }
    >
      {chosen.length ? <Lines {...props} /> : <p class="note">Choose a scheme.</p>}
    </Figure>
  );
}

function OfDoor({ title, door, chosen, log, answer }: FigureProps & { title: string; door: string }) {
  const own = useMemo(() => chosen.filter((scheme) => scheme.door === door), [chosen, door]);
  const labels = [...new Set(own.map(({ label }) => label))];
  const props = useMemo(() => linesOf(title, labels[0] ?? "", own, chosen, "values", log, answer.distances), [own, log, answer]);
  const rows = useMemo(() => Array.from({ length: answer.distances }, (_, n) => n), [answer.distances]);
  if (!own.length) return null;
  return (
    <Figure
      title={title}
      note={`In its own numbers, at distances 0 to ${whole(answer.distances - 1)}: ${labels.join("; ")}.`}
      file={`distance-${door}`}
      svg={() => linesSvg(props)}
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
                <bdi>{scheme.name}</bdi>: {scheme.formula ? <code>{scheme.formula}</code> : scheme.label}
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
