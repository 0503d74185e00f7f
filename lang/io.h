/* io.h -- v:io, and flin.pebble. */
#ifndef FLIN_LANG_IO_H
#define FLIN_LANG_IO_H

#include "lang.h"

void io_methods(lua_State *L);          /* into the methods on top */
void pebble_open(lua_State *L);         /* into the flin table on top */

#endif
