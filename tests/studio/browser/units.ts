/** What units.mjs asks of the page's modules that need no browser. */

export {
  characters,
  face,
  visible,
  visibleToken,
} from "../../../src/whatwhere/studio/web/src/escape";
export {
  fitted,
  readLink,
  writeLink,
} from "../../../src/whatwhere/studio/web/src/link";
export {
  axis,
  counting,
  tickText,
} from "../../../src/whatwhere/studio/web/src/parts/axes";
export {
  fixed,
  formatNumber,
} from "../../../src/whatwhere/studio/web/src/numbers";
export {
  before,
  Grid,
  pixel,
  radius,
  Raster,
  whole,
} from "../../../src/whatwhere/studio/web/src/parts/raster";
export { csv } from "../../../src/whatwhere/studio/web/src/parts/save";
export {
  parameterMap,
  stepOf,
  valueAt,
  withParameter,
} from "../../../src/whatwhere/studio/web/src/parts/slider";
export { runnable } from "../../../src/whatwhere/studio/web/src/python";
export { unpack } from "../../../src/whatwhere/studio/web/src/wire";
export { matcher } from "../../../src/whatwhere/studio/web/src/views/map/filter";
export { placeLabels } from "../../../src/whatwhere/studio/web/src/parts/labels";
export { legendName } from "../../../src/whatwhere/studio/web/src/parts/legend";
export {
  plotOf,
  plotSvg,
  readableBiases,
} from "../../../src/whatwhere/studio/web/src/parts/plot";
export { barRows } from "../../../src/whatwhere/studio/web/src/parts/bars";
