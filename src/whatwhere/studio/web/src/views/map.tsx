/** View 3, the token map: all tokens on a plane, how many neighbors it keeps, and the true neighbors of one token. */

import { useMemo, useState } from "preact/hooks";
import { type Query, useQuery, useSource } from "../hooks";
import { writeLink } from "../link";
import { fixed, whole } from "../numbers";
import { announce } from "../parts/announce";
import { TokenField } from "../parts/field";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { JobProgress } from "../parts/progress";
import { Scatter, type ScatterProps, scatterSvg } from "../parts/scatter";
import { Answered, Wrong } from "../parts/states";
import { TokenLabel } from "../parts/token";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { About, MapNeighbors, MapPoints } from "../types";
import { type Followed, useJob } from "../jobs";
import { coloring } from "./map/coloring";
import { Names } from "./map/labels";
import { type ComputedMap, isComputed, type Method, METHODS, Plane, readBox, trust, writeBox } from "./map/points";
import { pointColumns, Selected } from "./map/selected";
import { tableName } from "./tokens/neighbors";

const COLORS = ["type", "script", "norm", "frequency"];

register({
  id: "map",
  order: 3,
  title: "Token map",
  question: "How are all tokens arranged, and how much of that does a map in two dimensions keep?",
  defaults,
  shown: (about) => (about.tables.input?.rows ?? 0) >= 3,
  Page: TokenMap,
});

function defaults(about: About): Settings {
  return {
    method: "pca",
    table: "input",
    color: "type",
    only: "",
    token: about.examples[0] ?? "",
    box: "",
    ...about.begin["map"],
  };
}

function TokenMap({ about, settings, change }: ViewProps) {
  const method = String(settings["method"]) as Method;
  const table = String(settings["table"]);
  const wanted = useQuery("maps.points", { method, table });
  const first = useQuery("maps.points", method === "pca" ? null : { method: "pca", table });
  const labels = useQuery("maps.labels", { table });
  const job = useJob("maps.draw", method === "pca" ? null : { method, table });
  const layout = job.answer ?? (isComputed(wanted.answer) && wanted.answer.method === method ? wanted.answer : null);
  const shown: Query<MapPoints> = layout
    ? { ...wanted, answer: layout }
    : method === "pca" || wanted.problem !== null
      ? wanted
      : first;
  const names = useMemo(() => labels.answer && new Names(labels.answer), [labels.answer]);
  return (
    <>
      <Controls about={about} settings={settings} change={change} />
      {method !== "pca" && !layout && wanted.answer && <Drawing map={wanted.answer} method={method} job={job} />}
      <Answered query={shown} what="laying the tokens out">
        {(map) =>
          names && isComputed(map) ? (
            <MapFigure about={about} settings={settings} change={change} map={map} names={names} />
          ) : (
            labels.problem !== null && <Wrong message={labels.problem} />
          )
        }
      </Answered>
    </>
  );
}

function Controls({ about, settings, change }: ViewProps) {
  const source = useSource();
  const table = String(settings["table"]);
  const offered = (wanted: Settings) => source.holds("maps.points", wanted); // all, or what an exported page has
  const choose = (name: string) => (event: { currentTarget: HTMLSelectElement }) =>
    change({ [name]: event.currentTarget.value, box: "", only: "" });
  return (
    <search class="controls">
      <TokenField
        main
        label="Token"
        value={String(settings["token"])}
        choose={(token) => change({ token })}
        hint="text or #id, Ctrl+K"
      />
      <label class="choice">
        laid out by{" "}
        <select value={String(settings["method"])} onChange={choose("method")}>
          {Object.entries(METHODS)
            .filter(([method]) => offered({ method, table }))
            .map(([method, name]) => (
              <option key={method} value={method}>
                {name}
              </option>
            ))}
        </select>
      </label>
      <label class="choice">
        colored by{" "}
        <select
          value={String(settings["color"])}
          onChange={(event) => change({ color: event.currentTarget.value, only: "" })}
        >
          {COLORS.map((color) => (
            <option key={color}>{color}</option>
          ))}
        </select>
      </label>
      {about.tables.output && offered({ method: "pca", table: "output" }) && (
        <label class="choice">
          rows of the{" "}
          <select value={String(settings["table"])} onChange={choose("table")}>
            <option value="input">token table</option>
            <option value="output">output projection</option>
          </select>
        </label>
      )}
    </search>
  );
}

interface DrawingProps {
  map: MapPoints;
  method: Method;
  job: Followed<MapPoints>;
}

/** Shown above the map while the requested one is not computed yet. */
function Drawing({ map, method, job }: DrawingProps) {
  const name = METHODS[method];
  const extra = map.missing[method];
  if (extra) {
    return (
      <div class="wrong">
        <p>
          {name} needs a package that is not installed: <code>pip install "whatwhere[{extra}]"</code>, then restart the
          studio. Below is PCA.
        </p>
      </div>
    );
  }
  if (job.state === "running") return <JobProgress job={job} what={`drawing by ${name}`} stop={job.stop} />;
  const many =
    map.shown < map.rows
      ? `${whole(map.shown)} of ${whole(map.rows)} tokens, sampled at random,`
      : `${whole(map.shown)} tokens`;
  return (
    <>
      {job.problem !== null && <Wrong message={job.problem} />}
      <div class="progress">
        <button type="button" onClick={job.start}>
          Draw by {name}
        </button>
        <span>
          {many} take {map.shown > 5000 ? "some minutes" : "a while"}; the studio can be used meanwhile. Until then,
          this is PCA.
        </span>
      </div>
    </>
  );
}

interface MapFigureProps extends ViewProps {
  map: ComputedMap;
  names: Names;
}

function MapFigure({ about, settings, change, map, names }: MapFigureProps) {
  const [selecting, setSelecting] = useState(false);
  const [color, only, token] = ["color", "only", "token"].map((name) => String(settings[name])) as [
    string,
    string,
    string,
  ];
  const counted = useQuery("maps.frequencies", color === "frequency" ? { table: map.table } : null);
  const near = useNear(about, map.table, token, names);
  const plane = useMemo(() => new Plane(map), [map]);
  const colors = useMemo(
    () => coloring(color, plane.ids, names, only, counted.answer),
    [color, plane, names, only, counted.answer],
  );
  const points = useMemo(() => ({ x: plane.x, y: plane.y, group: colors.group }), [plane, colors]);
  const box = useMemo(() => readBox(String(settings["box"])), [settings["box"]]);
  const inside = useMemo(() => plane.inside(box), [plane, box]);
  const link = (id: number) => writeLink("tokens", { token: `#${id}` }, {});
  const columns = useMemo(() => pointColumns(plane.ids, plane.x, plane.y, names, link), [plane, names]);
  const rows = useMemo(() => Array.from(plane.ids, (_, n) => n), [plane]);
  const chosen = near.answer ? plane.point(near.answer.id) : null;
  const joined =
    near.answer && chosen !== null
      ? Array.from(near.answer.ids.values, (id) => plane.point(id)).filter((point) => point !== null)
      : [];
  const title = `${whole(map.shown)} tokens by ${METHODS[map.method]}`;
  const scatter: ScatterProps = {
    title,
    points,
    name: (point) => names.shown(plane.ids[point]!),
    detail: (point) => names.line(plane.ids[point]!),
    ...(colors.groups && { groups: colors.groups }),
    ...(colors.amount && { amount: colors.amount }),
    only,
    chooseGroup: (name) => change({ only: name }),
    printed: trust(map.quality),
    chosen,
    choose: (point) => change({ token: point === null ? "" : `#${plane.ids[point]!}` }),
    select: (_, area) => change({ box: writeBox(area) }),
    selecting,
    framed: box,
    joined,
  };
  return (
    <>
      <Figure
        title={title}
        note={<Trust map={map} colors={colors.note} />}
        file={`map-${map.method}`}
        svg={() => scatterSvg(scatter)}
        rows={rows}
        columns={columns}
        how={<HowOf map={map} />}
      >
        <label class="choice">
          <input
            type="checkbox"
            checked={selecting}
            onChange={({ currentTarget }) => setSelecting(currentTarget.checked)}
          />{" "}
          drag selects
        </label>
        <Scatter {...scatter} />
      </Figure>
      {near.problem !== null && <Wrong message={near.problem} />}
      {near.answer && (
        <NearOf
          near={near.answer}
          plane={plane}
          names={names}
          link={link}
          k={joined.length}
          chosen={chosen}
          joined={joined}
          change={change}
        />
      )}
      {box && (
        <Selected
          rows={inside}
          columns={columns}
          clear={() => (change({ box: "" }), announce("nothing is selected"))}
        />
      )}
    </>
  );
}

/** Return the true neighbors of a token; an exported page holds those of all. */
function useNear(about: About, table: string, token: string, names: Names): Query<MapNeighbors> {
  const exported = about.exported !== null;
  const live = useQuery("maps.near", exported || token === "" ? null : { token, table });
  const all = useQuery("maps.neighbors", exported && token !== "" ? { table } : null);
  const stored = useMemo((): Query<MapNeighbors> | null => {
    if (!all.answer || token === "") return null;
    const id = names.find(token);
    const row = id === null ? -1 : all.answer.of.values.indexOf(id);
    if (row < 0) return { answer: null, problem: `No token here is ${token}.`, busy: false };
    const [, k = 0] = all.answer.ids.shape;
    return {
      answer: {
        id: id!,
        ids: { values: all.answer.ids.values.slice(k * row, k * row + k), shape: [k] },
        cosines: null,
      },
      problem: null,
      busy: false,
    };
  }, [all.answer, token]);
  return exported ? (stored ?? { answer: null, problem: null, busy: all.busy }) : live;
}

function Trust({ map, colors }: { map: ComputedMap; colors: string }) {
  const [kept, sampled] = trust(map.quality);
  const some =
    map.shown < map.rows - map.not_finite
      ? ` ${whole(map.shown)} of ${whole(map.rows)} tokens are shown, sampled at random.`
      : "";
  const broken = map.not_finite
    ? ` ${whole(map.not_finite)} rows with numbers that are not finite are not on the map.`
    : "";
  return (
    <>
      This map <b>{kept}</b> ({sampled}): near on it is not near in the table. {colors}
      {some}
      {broken}
    </>
  );
}

interface NearProps {
  near: MapNeighbors;
  plane: Plane;
  names: Names;
  link(id: number): string;
  k: number;
  chosen: number | null;
  joined: number[];
  change: ViewProps["change"];
}

function NearOf({ near, plane, names, link, k, chosen, joined, change }: NearProps) {
  const ids = Array.from(near.ids.values);
  return (
    <section class="near" aria-label="True neighbors">
      <h2>
        True neighbors of <TokenLabel word={names.word(near.id)} text={names.text(near.id)} href={link(near.id)} />
      </h2>
      <p class="note">
        {chosen === null
          ? "This token is not among those that are drawn. "
          : `Of its ${k} neighbors that are drawn, ${plane.keeps(chosen, joined)} ` +
            `are among the ${k} nearest on this map; lines lead to them all. `}
        The nearest in the full space, by cosine:
      </p>
      <ol class="plain chips">
        {ids.map((id, n) => (
          <li key={id}>
            <button type="button" onClick={() => change({ token: `#${id}` })} title={names.line(id)}>
              <TokenLabel word={names.word(id)} text={names.text(id)} />
              {near.cosines && <small>{fixed(near.cosines.values[n]!, 3)}</small>}
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function HowOf({ map }: { map: ComputedMap }) {
  const { method, name } = map;
  const { k, sampled } = map.quality;
  const ways: Record<Method, string> = {
    pca:
      "The two directions of largest variance: C = X − mean(X) = U S Vᵀ, and the coordinates are C V₂. " +
      "Where the table is large, V comes from the covariance of 16,384 rows.",
    tsne:
      "t-SNE, van der Maaten and Hinton 2008, by openTSNE: perplexity 30, cosine, seed 0. " +
      "Neighbors stay neighbors; distances between groups mean little.",
    umap:
      "UMAP, McInnes, Healy and Melville 2018, by umap-learn: 15 neighbors, cosine, seed 0. " +
      "Neighbors stay neighbors; distances between groups mean little.",
  };
  const code = [
    `made = ww.analysis.make_map(ww.read(PATH).array("${name}"), "${method}", k=${k})`,
    "made.coordinates, made.kept",
  ].join("\n");
  return (
    <How code={code}>
      <p>{ways[method]}</p>
      <p>
        Kept: the mean over {whole(sampled)} tokens of |N(token in the {tableName(map.table)}, by cosine) ∩ N(token on
        the map)| / {k}, where N are the {k} nearest, computed exactly. Points are drawn over each other at random, so
        that no group hides another.
      </p>
    </How>
  );
}
