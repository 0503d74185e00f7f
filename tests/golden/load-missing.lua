local flin = require "flin"
flin.load "nothing.npy"
