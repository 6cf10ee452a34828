/** All views: each file registers its own. */

import "./tokens";
