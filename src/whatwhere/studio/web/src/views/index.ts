/** All views: each file registers its own. */

import "./tokens";
import "./rotary";
import "./pipeline";
import "./positions";
import "./map";
import "./biases";
import "./diagnostics";
import "./compare";
import "./replay";
import "./attention";
import "./ask";
import "./overview";
