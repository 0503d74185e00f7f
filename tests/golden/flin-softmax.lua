local flin = require "flin"
print(flin.softmax(flin.ones(3)))
