local flin = require "flin"
flin.attention { decay = { name = "mine" } }
