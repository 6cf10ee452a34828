/** View 3, the token map: all tokens on a plane, what the plane keeps of their neighborhoods, and the true neighbors of one. */

import { useMemo, useState } from "preact/hooks";
import { type Asked, useAnswer, useSource } from "../hooks";
import { writeLink } from "../link";
import { fixed, whole } from "../numbers";
import { announce } from "../parts/announce";
import { TokenField } from "../parts/field";
import { Figure } from "../parts/figure";
import { How } from "../parts/how";
import { Progressing } from "../parts/progress";
import { Scatter, type ScatterProps, scatterSvg } from "../parts/scatter";
import { Answered, Wrong } from "../parts/states";
import { TokenLabel } from "../parts/token";
import { register, type ViewProps } from "../register";
import type { Settings } from "../source";
import type { About } from "../types";
import type { Tensor } from "../wire";
import { type Followed, useWork } from "../works";
import { coloring, type Frequencies } from "./map/coloring";
import { type Labels, Names } from "./map/labels";
import { type Method, METHODS, type Near, type Places, Plane, readBox, trust, writeBox } from "./map/places";
import { pointColumns, Selected } from "./map/selected";
import { tableName } from "./tokens/neighbors";

const COLORS = ["kind", "script", "length", "frequency"];

register({
  id: "map",
  order: 3,
  title: "Token map",
  question: "How do all tokens lie beside each other, and how much of that can a flat picture show?",
  defaults,
  shown: (about) => (about.tables.input?.rows ?? 0) >= 3,
  Page: TokenMap,
});

function defaults(about: About): Settings {
  return { method: "pca", table: "input", color: "kind", only: "", token: about.examples[0] ?? "", box: "", ...about.begin["map"] };
}

function TokenMap({ about, settings, change }: ViewProps) {
  const method = String(settings["method"]) as Method;
  const table = String(settings["table"]);
  const wanted = useAnswer<Places>("maps.places", { method, table });
  const first = useAnswer<Places>("maps.places", method === "pca" ? null : { method: "pca", table });
  const labels = useAnswer<Labels>("maps.labels", { table });
  const work = useWork<Places>("maps.draw", method === "pca" ? null : { method, table });
  const drawn = work.answer ?? (wanted.answer?.drawn && wanted.answer.method === method ? wanted.answer : null);
  const shown: Asked<Places> = drawn ? { ...wanted, answer: drawn } : method === "pca" || wanted.problem !== null ? wanted : first;
  const names = useMemo(() => labels.answer && new Names(labels.answer), [labels.answer]);
  return (
    <>
      <Controls about={about} settings={settings} change={change} />
      {method !== "pca" && !drawn && wanted.answer && <Drawing places={wanted.answer} method={method} work={work} />}
      <Answered asked={shown} what="laying the tokens out">
        {(places) =>
          names ? <Drawn about={about} settings={settings} change={change} places={places} names={names} /> : labels.problem !== null && <Wrong message={labels.problem} />
        }
      </Answered>
    </>
  );
}

function Controls({ about, settings, change }: ViewProps) {
  const source = useSource();
  const table = String(settings["table"]);
  const offered = (asked: Settings) => source.holds("maps.places", asked); // all, or what a frozen page has
  const choose = (name: string) => (event: { currentTarget: HTMLSelectElement }) => change({ [name]: event.currentTarget.value, box: "", only: "" });
  return (
    <search class="ask">
      <TokenField main label="Token" value={String(settings["token"])} choose={(token) => change({ token })} hint="text or #id, Ctrl+K" />
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
        <select value={String(settings["color"])} onChange={(event) => change({ color: event.currentTarget.value, only: "" })}>
          {COLORS.map((color) => (
            <option key={color}>{color}</option>
          ))}
        </select>
      </label>
      {about.tables.readout && offered({ method: "pca", table: "readout" }) && (
        <label class="choice">
          rows of the{" "}
          <select value={String(settings["table"])} onChange={choose("table")}>
            <option value="input">input table</option>
            <option value="readout">output head</option>
          </select>
        </label>
      )}
    </search>
  );
}

interface DrawingProps {
  places: Places;
  method: Method;
  work: Followed<Places>;
}

/** What stands above the map while the one that was asked for is not drawn yet. */
function Drawing({ places, method, work }: DrawingProps) {
  const name = METHODS[method];
  const extra = places.missing[method];
  if (extra) {
    return (
      <div class="wrong">
        <p>
          {name} needs a package that is not installed: <code>pip install "whatwhere[{extra}]"</code>, then start the studio anew. Below is PCA.
        </p>
      </div>
    );
  }
  if (work.state === "running") return <Progressing work={work} what={`drawing by ${name}`} stop={work.stop} />;
  const many = places.shown < places.rows ? `${whole(places.shown)} of ${whole(places.rows)} tokens, drawn at random,` : `${whole(places.shown)} tokens`;
  return (
    <>
      {work.problem !== null && <Wrong message={work.problem} />}
      <div class="progress">
        <button type="button" onClick={work.start}>
          Draw by {name}
        </button>
        <span>
          {many} take {places.shown > 5000 ? "some minutes" : "a while"}; the studio can be used meanwhile. Until then, this is PCA.
        </span>
      </div>
    </>
  );
}

interface DrawnProps extends ViewProps {
  places: Places;
  names: Names;
}

function Drawn({ about, settings, change, places, names }: DrawnProps) {
  const [selecting, setSelecting] = useState(false);
  const [color, only, token] = ["color", "only", "token"].map((name) => String(settings[name])) as [string, string, string];
  const counted = useAnswer<Frequencies>("maps.frequencies", color === "frequency" ? { table: places.table } : null);
  const near = useNear(about, places.table, token, names);
  const plane = useMemo(() => new Plane(places), [places]);
  const colors = useMemo(() => coloring(color, plane.ids, names, only, counted.answer), [color, plane, names, only, counted.answer]);
  const points = useMemo(() => ({ x: plane.x, y: plane.y, group: colors.group }), [plane, colors]);
  const box = useMemo(() => readBox(String(settings["box"])), [settings["box"]]);
  const inside = useMemo(() => plane.inside(box), [plane, box]);
  const link = (id: number) => writeLink("tokens", { token: `#${id}` }, {});
  const columns = useMemo(() => pointColumns(plane.ids, plane.x, plane.y, names, link), [plane, names]);
  const rows = useMemo(() => Array.from(plane.ids, (_, n) => n), [plane]);
  const chosen = near.answer ? plane.point(near.answer.id) : null;
  const joined = near.answer && chosen !== null ? Array.from(near.answer.ids.values, (id) => plane.point(id)).filter((point) => point !== null) : [];
  const title = `${whole(places.shown)} tokens by ${METHODS[places.method]}`;
  const map: ScatterProps = {
    title,
    points,
    name: (point) => names.shown(plane.ids[point]!),
    detail: (point) => names.line(plane.ids[point]!),
    ...(colors.groups && { groups: colors.groups }),
    ...(colors.amount && { amount: colors.amount }),
    only,
    chooseGroup: (name) => change({ only: name }),
    printed: trust(places),
    chosen,
    choose: (point) => change({ token: point === null ? "" : `#${plane.ids[point]!}` }),
    select: (_, found) => change({ box: writeBox(found) }),
    selecting,
    framed: box,
    joined,
  };
  return (
    <>
      <Figure title={title} note={<Trust places={places} colors={colors.note} />} file={`map-${places.method}`} svg={() => scatterSvg(map)} rows={rows} columns={columns} how={<HowOf places={places} />}>
        <label class="choice">
          <input type="checkbox" checked={selecting} onChange={(event) => setSelecting(event.currentTarget.checked)} /> drag selects
        </label>
        <Scatter {...map} />
      </Figure>
      {near.problem !== null && <Wrong message={near.problem} />}
      {near.answer && <NearOf near={near.answer} plane={plane} names={names} link={link} k={joined.length} chosen={chosen} joined={joined} change={change} />}
      {box && <Selected rows={inside} columns={columns} clear={() => (change({ box: "" }), announce("nothing is selected"))} />}
    </>
  );
}

/** Ask for the true neighbors of a token; a frozen page holds those of all. */
function useNear(about: About, table: string, token: string, names: Names): Asked<Near> {
  const frozen = about.frozen !== null;
  const live = useAnswer<Near>("maps.near", frozen || token === "" ? null : { token, table });
  const all = useAnswer<{ of: Tensor; ids: Tensor }>("maps.neighbors", frozen && token !== "" ? { table } : null);
  const found = useMemo((): Asked<Near> | null => {
    if (!all.answer || token === "") return null;
    const id = names.find(token);
    const row = id === null ? -1 : all.answer.of.values.indexOf(id);
    if (row < 0) return { answer: null, problem: `No token here is ${token}.`, busy: false };
    const [, k = 0] = all.answer.ids.shape;
    return { answer: { id: id!, ids: { values: all.answer.ids.values.slice(k * row, k * row + k), shape: [k] }, cosines: null }, problem: null, busy: false };
  }, [all.answer, token]);
  return frozen ? (found ?? { answer: null, problem: null, busy: all.busy }) : live;
}

function Trust({ places, colors }: { places: Places; colors: string }) {
  const [kept, asked] = trust(places);
  const some = places.shown < places.rows - places.left_out ? ` ${whole(places.shown)} of ${whole(places.rows)} tokens are drawn, at random.` : "";
  const broken = places.left_out ? ` ${whole(places.left_out)} rows with numbers that are not finite are left out.` : "";
  return (
    <>
      This map <b>{kept}</b> ({asked}): near on it is not near in the table. {colors}
      {some}
      {broken}
    </>
  );
}

interface NearProps {
  near: Near;
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
          : `Of its ${k} neighbors that are drawn, ${plane.keeps(chosen, joined)} are among the ${k} nearest on this map; lines lead to them all. `}
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

function HowOf({ places }: { places: Places }) {
  const { method, name, k, asked } = places;
  const ways: Record<Method, string> = {
    pca: "The two directions along which the rows differ most: C = X − mean(X) = U S Vᵀ, and the coordinates are C V₂. Where the table is large, V comes from the covariance of 16,384 rows.",
    tsne: "t-SNE, van der Maaten and Hinton 2008, by openTSNE: perplexity 30, cosine, seed 0. Neighbors stay neighbors; distances between groups mean little.",
    umap: "UMAP, McInnes, Healy and Melville 2018, by umap-learn: 15 neighbors, cosine, seed 0. Neighbors stay neighbors; distances between groups mean little.",
  };
  const code = `from whatwhere.analysis.token_map import make_map\nmade = make_map(whatwhere.read(PATH).array("${name}"), "${method}", k=${k})\nmade.places, made.kept`;
  return (
    <How code={code}>
      <p>{ways[method]}</p>
      <p>
        Kept: the mean over {whole(asked)} tokens of |N(token in the {tableName(places.table)}, by cosine) ∩ N(token on the map)| / {k}, where N are the {k} nearest, found
        exactly. Points are drawn over each other at random, so that no group hides another.
      </p>
    </How>
  );
}
