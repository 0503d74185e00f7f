/* edit.h -- lines from a terminal, with history and completion. */
#ifndef FLIN_EDIT_H
#define FLIN_EDIT_H

#include "repl.h"

typedef struct Editor Editor;

/* The Lua table on top of the stack has complete(text) -> first, candidates
 * and highlight(text) -> text; it is popped and kept. NULL: no editing here
 * (no terminal, a dumb one, no libedit); plain lines will do. */
Editor *edit_open(lua_State *L, bool colours);
void edit_close(Editor *e);

/* Pushes a line without its end: EDIT_LINE. Nothing is pushed at the end of
 * input, or when Ctrl-C gave the line up. */
typedef enum EditResult { EDIT_LINE, EDIT_END, EDIT_STOPPED } EditResult;
EditResult edit_line(Editor *e, const char *mark);

/* Adds what was entered, one line or several, to the history. */
void edit_remember(Editor *e, const char *text);

/* history.c: the file of what was entered, for this user's eyes alone: an
 * entry a line, in which \n and \\ stand for a line break and a backslash.
 * Sessions append to it as they go. */
typedef void HistoryAdd(void *ud, const char *text);
void history_load(lua_State *L, HistoryAdd *add, void *ud);
void history_append(lua_State *L, const char *text);

#endif
