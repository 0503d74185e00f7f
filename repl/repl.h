/* repl.h -- what the files of the program share. */
#ifndef FLIN_REPL_H
#define FLIN_REPL_H

#include <stdio.h>

#include "lang/lang.h"

/* ---- options.c ---- */

typedef struct Options {
    const char *dump, *check, *compile; /* NULL: not asked for */
    const char *arch, *color;
    const char *backend, *threads;
    bool interactive, version, sandbox, help, luacats, warnings, no_init;
    Limits limits;
    int script;                         /* argv's index of its name (or the
                                           verb); 0: none */
    const char *verb;                   /* check, bench, plan, new; or NULL */
    bool ran;                           /* by -e or -l */
} Options;

extern const char usage[];
/* False: a fault, said on stderr. */
bool parse_options(Options *o, char **argv);
bool takes_value(const char *option);

/* What `flin VERB --help` says. */
const char *verb_usage(const char *verb);

/* ---- wait.c ---- */

/* Ctrl-C: a first one asks what runs to stop; the second one ends the program,
 * or at the prompt, which is patient, the fifth. */
void interrupt_open(lua_State *L);      /* once, before it is armed */
void interrupt_arm(lua_State *L);
bool interrupt_taken(void);             /* since it was armed */
void interrupt_patient(void);

/* What is said on a terminal of work that takes more than a second or two:
 * `what` (a string that stays; NULL: nothing but the time) begins now. */
void progress(const char *what);
void progress_clear(void);

/* ---- main.c ---- */

/* Calls the function below `nargs` arguments; any number of results. On an
 * error its message is printed and popped; false. */
bool call(lua_State *L, int nargs);
void complain(const char *message);
/* Pushes what the program's embedded Lua file `name` returns, when called
 * with the nargs values on top of the stack; false: said on stderr. */
bool call_own(lua_State *L, const char *name, int nargs);
/* How wide the terminal is; 80 where there is none. */
int terminal_columns(void);
/* Pushes the terminal as a table: colours = "true", "256" or "ascii", columns()
 * its width. */
void push_terminal(lua_State *L, const Options *o);
/* evaluate(text): what the expressions in the text are. */
int evaluate(lua_State *L);
/* dofile(path): runs a script; what it returns. */
int do_file(lua_State *L);
/* stage(name): what the time from here on goes to. */
int stage(lua_State *L);

/* The files of repl/ written in Lua, embedded at build time. */
const char *repl_source(const char *name, size_t *len);
const char *repl_name(int i);

/* ---- terminal.c ---- */

/* Into the table on top: graphics(), rows(), page(text). */
void push_views(lua_State *L);

/* ---- raster.c ---- */

/* Pushes a table: png, sixel and kitty take the text of an SVG, and how many
 * pixels a unit has, and return it drawn. */
void push_raster(lua_State *L);

/* Registry: what the script before the prompt returned, with its path. */
#define FLIN_RETURNED "flin.returned"

/* ---- prompt.c ---- */

/* The interactive prompt, until the end of input; false: an entry failed. */
bool prompt(lua_State *L, const Options *o);

#endif
