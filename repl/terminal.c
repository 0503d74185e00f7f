/* terminal.c -- what a terminal is asked for: pictures, and pages of long
 * texts. */
#define _DEFAULT_SOURCE                 /* TIOCGWINSZ */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "repl.h"

/* ---- pictures ---- */

enum { ANSWER = 256, PATIENCE = 300 };  /* milliseconds for the first byte */

/* Reads what the terminal answers, up to the 'c' that ends the answer to the
 * last question, which all terminals know. */
static void read_answer(char *answer)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    size_t n = 0;
    ssize_t got = 1;

    while (n + 1 < ANSWER && got > 0 && poll(&p, 1, PATIENCE) > 0) {
        got = read(STDIN_FILENO, answer + n, 1);
        if (got > 0 && answer[n++] == 'c')
            break;
    }
    answer[n] = 0;
}

/* Asks for a picture by kitty's protocol, and what the terminal can do
 * otherwise ("4": sixel). */
static void ask(char *answer)
{
    static const char question[] =
        "\033_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\033\\\033[c";
    struct termios old, raw;

    *answer = 0;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO)
        || tcgetattr(STDIN_FILENO, &old) != 0)
        return;
    raw = old;
    raw.c_lflag &= (tcflag_t)~(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    fflush(stdout);
    if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw) != 0)
        return;
    if (write(STDOUT_FILENO, question, sizeof question - 1) > 0)
        read_answer(answer);
    tcsetattr(STDIN_FILENO, TCSANOW, &old);
}

/* "\033[?62;4;22c": is `number` among them? */
static bool among(const char *answer, const char *number)
{
    const char *p = strstr(answer, "\033[?");
    size_t n = strlen(number);

    for (p = p ? p + 2 : NULL; p && *p; p = strchr(p, ';')) {
        p++;
        if (!strncmp(p, number, n) && (p[n] == ';' || p[n] == 'c'))
            return true;
    }
    return false;
}

/* graphics(): "kitty", "sixel", or nil; FLIN_GRAPHICS says so before any
 * terminal is asked. */
static int graphics(lua_State *L)
{
    const char *said = getenv("FLIN_GRAPHICS");
    char answer[ANSWER];

    if (said && *said) {
        if (!strcmp(said, "kitty") || !strcmp(said, "sixel"))
            lua_pushstring(L, said);
        else
            lua_pushnil(L);
        return 1;
    }
    ask(answer);
    if (strstr(answer, "_Gi=31;OK"))
        lua_pushliteral(L, "kitty");
    else if (among(answer, "4"))
        lua_pushliteral(L, "sixel");
    else
        lua_pushnil(L);
    return 1;
}

/* ---- pages ---- */

/* rows(): of the terminal; nothing where what is printed goes elsewhere. */
static int rows(lua_State *L)
{
    struct winsize w;

    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)
        || ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) != 0 || !w.ws_row)
        return 0;
    lua_pushinteger(L, w.ws_row);
    return 1;
}

/* page(text): shows it by $PAGER, or less; false: none is there. Who leaves it
 * early leaves what is not shown unread. */
static int page(lua_State *L)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    const char *pager = getenv("PAGER");
    void (*before)(int) = signal(SIGPIPE, SIG_IGN);
    void (*stop)(int) = signal(SIGINT, SIG_IGN);

    if (!getenv("LESS"))
        setenv("LESS", "FRX", 1);
    progress_clear();
    fflush(stdout);
    FILE *f = popen(pager && *pager ? pager : "less", "w");
    if (f)
        fwrite(text, 1, n, f);
    int status = f ? pclose(f) : -1;
    signal(SIGPIPE, before);
    signal(SIGINT, stop);
    lua_pushboolean(L, status != -1 && status != 127 << 8);
    return 1;
}

void push_views(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "graphics", graphics }, { "rows", rows }, { "page", page },
        { NULL, NULL }
    };

    luaL_setfuncs(L, functions, 0);
}
