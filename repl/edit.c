/* edit.c -- lines from a terminal, by libedit: history, search, completion,
 * pasted blocks, colours. libedit is opened at run time; without it the
 * prompt reads plain lines.
 *
 * Colours: libedit draws the text; whenever it waits for a key, the same
 * characters are drawn over it in colours. What libedit believes to be on the
 * screen stays true.
 */
#define _XOPEN_SOURCE 700               /* wcwidth */
#include "edit.h"

#ifdef FLIN_NO_LIBEDIT

Editor *edit_open(lua_State *L, bool colours)
{
    (void)colours;
    lua_pop(L, 1);
    return NULL;
}

EditResult edit_line(Editor *e, const char *mark)
{
    (void)e;
    (void)mark;
    return EDIT_END;
}

void edit_remember(Editor *e, const char *text)
{
    (void)e;
    (void)text;
}

void edit_close(Editor *e)
{
    (void)e;
}

#else

#include <dlfcn.h>
#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>
#include <wchar.h>

/* libedit, once it is open: its callbacks are given an EditLine alone. */
#define FUNCTIONS(F) F(el_init) F(el_end) F(el_set) F(el_wset) F(el_get) \
    F(el_wgets) F(el_wgetc) F(el_wline) F(el_insertstr) F(el_deletestr) \
    F(el_resize) F(el_source) F(history_init) F(history) F(history_end)
#define ENTRY(f) __typeof__(f) *f;
static struct Libedit { FUNCTIONS(ENTRY) } lib;
#undef ENTRY

struct Editor {
    lua_State *L;
    int tools;                          /* a reference to the Lua table */
    EditLine *el;
    History *history;
    bool colours;
    const char *mark;
    char last[1024];                    /* what was entered last */
};

/* What comes while a key is waited for. Those that end the program do so when
 * the terminal is as it was. */
static const int noticed[] = { SIGWINCH, SIGCONT, SIGTERM, SIGHUP, SIGQUIT };
enum { NNOTICED = sizeof noticed / sizeof *noticed };
static volatile sig_atomic_t resized, continued, ending;

static void on_signal(int sig)
{
    if (sig == SIGWINCH)
        resized = 1;
    else if (sig == SIGCONT)
        continued = 1;
    else
        ending = sig;
}

static Editor *editor_of(EditLine *el)
{
    void *e;

    lib.el_get(el, EL_CLIENTDATA, &e);
    return e;
}

/* ---- text ---- */

/* Pushes n wide characters as UTF-8 (of the locale: it is UTF-8 or ASCII). */
static const char *push_narrow(lua_State *L, const wchar_t *s, size_t n)
{
    luaL_Buffer b;
    char c[MB_LEN_MAX];
    mbstate_t state = { 0 };

    luaL_buffinit(L, &b);
    for (size_t i = 0; i < n; i++) {
        size_t len = wcrtomb(c, s[i], &state);
        if (len != (size_t)-1)
            luaL_addlstring(&b, c, len);
    }
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

/* Pushes the line: all of it, or what is before the cursor. */
static const char *push_line(Editor *e, bool all)
{
    const LineInfoW *line = lib.el_wline(e->el);

    return push_narrow(e->L, line->buffer, (size_t)((all ? line->lastchar
                       : line->cursor) - line->buffer));
}

/* Calls e's Lua function `name` with the string on top, which it replaces by
 * `results`; false, nothing: it failed. */
static bool call_tool(Editor *e, const char *name, int results)
{
    lua_rawgeti(e->L, LUA_REGISTRYINDEX, e->tools);
    lua_getfield(e->L, -1, name);
    lua_insert(e->L, -3);
    lua_pop(e->L, 1);
    if (lua_pcall(e->L, 1, results, 0) == LUA_OK)
        return true;
    lua_pop(e->L, 1);
    return false;
}

/* ---- colours ---- */

/* Where the text from..to ends on the screen, when it starts at `at` cells;
 * -1: in a place that depends on the terminal. */
static int cells(const wchar_t *from, const wchar_t *to, int at, int width)
{
    for (; from < to; from++) {
        int w = wcwidth(*from);
        if (*from == L'\n') {
            at = (at / width + 1) * width;
            continue;
        }
        if (w < 1 || (w > 1 && at % width + w > width))
            return -1;
        at += w;
    }
    return at;
}

/* Draws the line again, in colours. */
static void paint(Editor *e)
{
    const LineInfoW *line = lib.el_wline(e->el);
    int width = terminal_columns(), start = (int)strlen(e->mark);
    int at = cells(line->buffer, line->cursor, start, width);
    int end = cells(line->buffer, line->lastchar, start, width);

    if (at < 0 || end < 0 || line->buffer == line->lastchar)
        return;
    push_line(e, true);
    if (!call_tool(e, "highlight", 1))
        return;
    const char *text = lua_tostring(e->L, -1);
    /* at the right margin the terminal waits, libedit is a line further */
    int last = end > start && end % width == 0 && line->lastchar[-1] != L'\n'
        ? end / width - 1 : end / width;
    if (at / width > 0)
        printf("\033[%dA", at / width);
    printf("\r\033[%dC", start);
    for (; text && *text; text++)
        fputs(*text == '\n' ? "\r\n" : (char[]){ *text, 0 }, stdout);
    if (last > 0)
        printf("\033[%dA", last);
    printf("\r");
    if (at / width > 0)
        printf("\033[%dB", at / width);
    if (at % width > 0)
        printf("\033[%dC", at % width);
    fflush(stdout);
    lua_pop(e->L, 1);
}

/* ---- keys ---- */

static bool key_waits(void)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

    return poll(&p, 1, 0) > 0;
}

static void on_signals(Editor *e)
{
    if (resized) {
        resized = 0;
        lib.el_resize(e->el);
    }
    if (continued) {
        continued = 0;
        lib.el_set(e->el, EL_PREP_TERM, 1);
        lib.el_set(e->el, EL_REFRESH);
    }
}

/* Waits for a key; signals come then alone, so that none comes just before
 * the wait and is not seen. False: a signal. */
static bool wait_for_key(const sigset_t *mask)
{
    fd_set keys;

    FD_ZERO(&keys);
    FD_SET(STDIN_FILENO, &keys);
    return pselect(STDIN_FILENO + 1, &keys, NULL, NULL, NULL, mask) > 0
        || errno != EINTR;
}

/* A byte: 1; 0 at the end of input, -1 on Ctrl-C. */
static int read_byte(Editor *e, char *c)
{
    sigset_t set, mask;
    ssize_t n = -1;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    for (int i = 0; i < NNOTICED; i++)
        sigaddset(&set, noticed[i]);
    sigprocmask(SIG_BLOCK, &set, &mask);
    while (!interrupt_taken() && !ending) {
        if (wait_for_key(&mask)) {
            n = read(STDIN_FILENO, c, 1);
            break;
        }
        on_signals(e);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    return (int)n;
}

/* libedit's EL_GETCFN: a character, however many bytes it has. Keys that come
 * faster than colours can be drawn are drawn with the last of them, or when
 * the line ends. */
static int read_key(EditLine *el, wchar_t *key)
{
    Editor *e = editor_of(el);
    mbstate_t state = { 0 };
    bool behind = e->colours && key_waits();
    char c;

    if (interrupt_taken())
        return -1;
    if (e->colours && !behind)
        paint(e);
    for (int i = 0; i < 8; i++) {
        int n = read_byte(e, &c);
        if (n <= 0)
            return n;
        if (behind && (c == '\r' || c == '\n'))
            paint(e);
        switch (mbrtowc(key, &c, 1, &state)) {
        case (size_t)-1:
            *key = (unsigned char)c;    /* not in this locale: as it is */
            return 1;
        case (size_t)-2:
            continue;
        default:
            return 1;
        }
    }
    return -1;
}

static unsigned char insert_newline(EditLine *el, int key)
{
    (void)key;
    return lib.el_insertstr(el, "\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* A pasted block goes into the line as it is, line breaks and all; it runs
 * when Enter is pressed. */
static unsigned char paste(EditLine *el, int key)
{
    static const wchar_t end[] = L"\033[201~";
    lua_State *L = editor_of(el)->L;
    luaL_Buffer b;
    size_t matched = 0;
    wchar_t c;

    (void)key;
    luaL_buffinit(L, &b);
    while (end[matched] && lib.el_wgetc(el, &c) == 1) {
        if (c == end[matched]) {
            matched++;
            continue;
        }
        for (size_t i = 0; i < matched; i++)
            luaL_addchar(&b, (char)end[i]);
        matched = c == end[0];
        c = c == L'\r' ? L'\n' : c == L'\t' ? L' ' : c;
        if (!matched) {
            push_narrow(L, &c, 1);
            luaL_addvalue(&b);
        }
    }
    luaL_pushresult(&b);
    size_t n = lua_rawlen(L, -1);
    const char *s = lua_tostring(L, -1);
    while (n && s[n - 1] == '\n')       /* the line waits for Enter */
        n--;
    lua_pushlstring(L, s, n);
    int failed = lib.el_insertstr(el, lua_tostring(L, -1));
    lua_pop(L, 2);
    return failed ? CC_ERROR : CC_REFRESH;
}

/* ---- completion ---- */

/* What all candidates in the table on top begin with; pushed. */
static void push_common(lua_State *L)
{
    size_t n;

    lua_rawgeti(L, -1, 1);
    const char *first = lua_tolstring(L, -1, &n);
    for (int i = 2; lua_rawgeti(L, -2, i) == LUA_TSTRING; i++) {
        const char *s = lua_tostring(L, -1);
        size_t k = 0;
        while (k < n && s[k] == first[k])
            k++;
        n = k;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    lua_pushlstring(L, first, n);
    lua_remove(L, -2);
}

/* The candidates in columns, below the line. */
static void show_candidates(lua_State *L)
{
    int n = (int)lua_rawlen(L, -1), wide = 0;

    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, i);
        int w = (int)lua_rawlen(L, -1) + 2;
        wide = w > wide ? w : wide;
        lua_pop(L, 1);
    }
    int across = terminal_columns() / wide > 0 ? terminal_columns() / wide : 1;
    int rows = (n + across - 1) / across;
    putchar('\n');
    for (int row = 0; row < rows; row++) {
        for (int i = row; i < n; i += rows) {
            lua_rawgeti(L, -1, i + 1);
            printf("%-*s", i + rows < n ? wide : 0, lua_tostring(L, -1));
            lua_pop(L, 1);
        }
        putchar('\n');
    }
    fflush(stdout);
}

/* complete(text before the cursor) gives where the word starts and what could
 * stand there. */
static unsigned char complete(EditLine *el, int key)
{
    Editor *e = editor_of(el);
    lua_State *L = e->L;
    unsigned char result = CC_ERROR;
    int top = lua_gettop(L);

    (void)key;
    size_t length = strlen(push_line(e, false));
    if (strspn(lua_tostring(L, -1), " \n") == length) {
        lua_settop(L, top);
        return lib.el_insertstr(el, "  ") == 0 ? CC_REFRESH : CC_ERROR;
    }
    if (call_tool(e, "complete", 2) && lua_istable(L, -1)
        && lua_rawlen(L, -1)) {
        size_t typed = length + 1 - (size_t)lua_tointeger(L, -2);
        push_common(L);
        if (lua_rawlen(L, -1) > typed) {
            lib.el_insertstr(el, lua_tostring(L, -1) + typed);
            result = CC_REFRESH;
        } else if (lua_rawlen(L, -2) > 1) {
            lua_pop(L, 1);
            show_candidates(L);
            result = CC_REDISPLAY;
        }
    }
    lua_settop(L, top);
    return result;
}

/* ---- opening ---- */

static bool open_library(void)
{
    static const char *const soname[] = { "libedit.so.2", "libedit.so.0",
                                          "libedit.so" };
    void *so = NULL;

    for (int i = 0; i < 3 && !so; i++)
        so = dlopen(soname[i], RTLD_NOW | RTLD_LOCAL);
#define FIND(f) (so && (symbol = dlsym(so, #f)) \
                 && memcpy(&lib.f, &symbol, sizeof symbol)) &&
    void *symbol;
    return FUNCTIONS(FIND) true;
#undef FIND
}

static char *mark_of(EditLine *el)
{
    return (char *)editor_of(el)->mark;
}

static void add_loaded(void *ud, const char *text)
{
    Editor *e = ud;
    HistEvent event;

    lib.history(e->history, &event, H_ENTER, text);
}

static void bind_keys(EditLine *el)
{
    static const char *const keys[][2] = {
        { "^I", "flin-complete" }, { "\\e^M", "flin-newline" },
        { "\\e^J", "flin-newline" }, { "\\e[200~", "flin-paste" },
        { "^R", "em-inc-search-prev" }, { "^S", "em-inc-search-next" },
        { "\\e[A", "ed-search-prev-history" },
        { "\\e[B", "ed-search-next-history" },
        { "\\eOA", "ed-search-prev-history" },
        { "\\eOB", "ed-search-next-history" },
        { "\\e[H", "ed-move-to-beg" }, { "\\e[F", "ed-move-to-end" },
        { "\\e[3~", "ed-delete-next-char" },
        { "\\e[1;5C", "em-next-word" }, { "\\e[1;5D", "ed-prev-word" },
    };

    lib.el_set(el, EL_EDITOR, "emacs");
    lib.el_set(el, EL_ADDFN, "flin-complete", "complete", complete);
    lib.el_set(el, EL_ADDFN, "flin-newline", "new line", insert_newline);
    lib.el_set(el, EL_ADDFN, "flin-paste", "pasted text", paste);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        lib.el_set(el, EL_BIND, keys[i][0], keys[i][1], NULL);
    lib.el_source(el, NULL);            /* the user's own ~/.editrc */
}

/* Where no locale is named, that of UTF-8 if there is one. */
static void set_locale(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "ANSI_X3.4-1968") == 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static bool is_terminal(void)
{
    const char *term = getenv("TERM");

    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && *term
        && strcmp(term, "dumb") != 0;
}

Editor *edit_open(lua_State *L, bool colours)
{
    Editor *e = NULL;
    HistEvent event;

    if (!is_terminal() || !open_library()
        || !(e = calloc(1, sizeof *e))) {
        lua_pop(L, 1);
        return NULL;
    }
    e->L = L;
    e->tools = luaL_ref(L, LUA_REGISTRYINDEX);
    e->colours = colours;
    e->mark = "";
    set_locale();
    e->el = lib.el_init("flin", stdin, stdout, stderr);
    e->history = lib.history_init();
    if (!e->el || !e->history) {
        edit_close(e);
        return NULL;
    }
    lib.history(e->history, &event, H_SETSIZE, 2000);
    lib.history(e->history, &event, H_SETUNIQUE, 1);
    history_load(L, add_loaded, e);
    lib.el_set(e->el, EL_CLIENTDATA, e);
    lib.el_set(e->el, EL_PROMPT, mark_of);
    lib.el_set(e->el, EL_HIST, lib.history, e->history);
    lib.el_wset(e->el, EL_GETCFN, read_key);
    bind_keys(e->el);
    return e;
}

void edit_close(Editor *e)
{
    if (!e)
        return;
    if (e->el)
        lib.el_end(e->el);
    if (e->history)
        lib.history_end(e->history);
    luaL_unref(e->L, LUA_REGISTRYINDEX, e->tools);
    free(e);
}

/* ---- lines ---- */

EditResult edit_line(Editor *e, const char *mark)
{
    struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    struct sigaction was[NNOTICED];
    int n = 0;

    e->mark = mark;
    interrupt_arm(e->L);
    for (int i = 0; i < NNOTICED; i++) {
        sigaction(noticed[i], &act, &was[i]);
        if (was[i].sa_handler == SIG_IGN)       /* nohup */
            sigaction(noticed[i], &was[i], NULL);
    }
    fputs("\033[?2004h", stdout);       /* pasted text comes marked as such */
    lib.el_set(e->el, EL_PREP_TERM, 1); /* keys are ours from the mark on */
    const wchar_t *line = lib.el_wgets(e->el, &n);
    fputs("\033[?2004l", stdout);
    fflush(stdout);
    for (int i = 0; i < NNOTICED; i++)
        sigaction(noticed[i], &was[i], NULL);
    if (ending)
        raise(ending);
    if (!line || n <= 0)
        return interrupt_taken() ? EDIT_STOPPED : EDIT_END;
    while (n > 0 && (line[n - 1] == L'\n' || line[n - 1] == L'\r'))
        n--;
    push_narrow(e->L, line, (size_t)n);
    return EDIT_LINE;
}

void edit_remember(Editor *e, const char *text)
{
    HistEvent event;

    if (strspn(text, " \n") == strlen(text))
        return;
    bool same = strlen(text) < sizeof e->last && !strcmp(text, e->last);
    lib.history(e->history, &event, H_ENTER, text);
    if (!same)
        history_append(e->L, text);
    snprintf(e->last, sizeof e->last, "%s", strlen(text) < sizeof e->last
             ? text : "");
}

#endif
