-- A file that something else loads, as stdlib's are.
local flin, options = ...
local exp = flin.exp
return { options = options, exp = exp }
