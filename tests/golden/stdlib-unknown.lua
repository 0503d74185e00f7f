local flin = require "flin"
flin.stdlib.deltanets:check {}
