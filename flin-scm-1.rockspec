rockspec_format = "3.0"
package = "flin"
version = "scm-1"
source = {
  url = "git+file:.",          -- `luarocks make` in a checkout fetches nothing
}
description = {
  summary = "Linear-attention and state-space layers from one token's step",
  detailed = [[
An embeddable language and compiler: write the mathematics of one token in Lua;
flin derives how many tokens are computed at once, and the gradients, and runs
them on the CPU or a GPU.]],
  license = "MIT",
}
supported_platforms = { "unix" }
dependencies = { "lua >= 5.4, < 5.5" }
build = {
  type = "make",
  build_target = "rock",
  install_pass = false,
  build_variables = {
    CC = "$(CC)",
    GLPK = "0",
    LUA_CFLAGS = "-I$(LUA_INCDIR)",
  },
  install = { lib = { flin = "build/flin.so" } },
}
