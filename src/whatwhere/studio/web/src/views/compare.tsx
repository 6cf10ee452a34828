/** Compare: the results of a comparison, or the difference between two checkpoints. */

import { useView } from "../hooks";
import { register } from "../register";
import { Differences } from "./compare/difference";
import { Measured } from "./compare/measured";

register({
  id: "compare",
  title: "Compare",
  question: "Which positional encoding holds beyond the trained length, and what differs between two checkpoints?",
  defaults: () => ({ group: "all", log: false, table: "input", k: 10 }),
  Page: Compare,
});

function Compare() {
  const { other } = useView().about;
  return other === null ? <Measured /> : <Differences other={other} />;
}
