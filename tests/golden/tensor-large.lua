local flin = require "flin"
flin.zeros(1024, 2^20, 2^20)
