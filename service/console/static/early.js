"use strict";
// before the first paint: styles may rely on scripts
document.documentElement.dataset.scripts = "";
