/** All views: each file registers its own. */

import "./tokens";
import "./rotary";
import "./pipeline";
import "./positions";
import "./against";
import "./map";
import "./distance";
import "./biases";
import "./health";
import "./compare";
import "./replay";
import "./attention";
import "./overview";
