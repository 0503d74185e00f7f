/* history.c -- what was entered at the prompt, in $XDG_STATE_HOME/flin/history.
 *
 * Nothing here fails: a prompt without a history is still a prompt.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "edit.h"

enum { KEPT = 1000, SPARE = 1000 };     /* entries; the file may have more */

/* Pushes the file's path, its folders made; false, nothing: nowhere. */
static bool push_path(lua_State *L)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

    if (state && *state == '/')
        lua_pushfstring(L, "%s/flin/history", state);
    else if (home && *home == '/')
        lua_pushfstring(L, "%s/.local/state/flin/history", home);
    else
        return false;
    const char *path = lua_tostring(L, -1);
    for (const char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
        lua_pushlstring(L, path, (size_t)(s - path));
        mkdir(lua_tostring(L, -1), 0700);
        lua_pop(L, 1);
    }
    return true;
}

/* Pushes the entry as it was, or as it is written. */
static const char *push_plain(lua_State *L, const char *s)
{
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    for (; *s; s++) {
        if (*s == '\\' && s[1])
            luaL_addchar(&b, *++s == 'n' ? '\n' : *s);
        else
            luaL_addchar(&b, *s);
    }
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

static const char *push_escaped(lua_State *L, const char *s)
{
    luaL_Buffer b;

    luaL_buffinit(L, &b);
    for (; *s; s++) {
        if (*s == '\\' || *s == '\n')
            luaL_addchar(&b, '\\');
        luaL_addchar(&b, *s == '\n' ? 'n' : *s);
    }
    luaL_addchar(&b, '\n');
    luaL_pushresult(&b);
    return lua_tostring(L, -1);
}

static bool write_all(int fd, const char *s, size_t n)
{
    while (n) {
        ssize_t k = write(fd, s, n);
        if (k < 0 && errno != EINTR)
            return false;
        s += k > 0 ? k : 0;
        n -= k > 0 ? (size_t)k : 0;
    }
    return true;
}

/* A file, and nothing that waits, as a pipe does, or has no end; else -1. */
static int open_file(const char *path, int how)
{
    int fd = open(path, how | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The last entries of a file that has grown long, in its place. */
static void shorten(lua_State *L, const char *path, const char *from)
{
    const char *part = lua_pushfstring(L, "%s.%d", path, (int)getpid());
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL, 0600);

    if (fd >= 0) {
        bool ok = write_all(fd, from, strlen(from));
        if (close(fd) != 0 || !ok || rename(part, path) != 0)
            unlink(part);
    }
    lua_pop(L, 1);
}

/* Pushes the file's text; "" where there is none. */
static void push_file(lua_State *L, const char *path)
{
    int fd = open_file(path, O_RDONLY);
    luaL_Buffer b;
    ssize_t n;

    luaL_buffinit(L, &b);
    while (fd >= 0 && (n = read(fd, luaL_prepbuffer(&b), LUAL_BUFFERSIZE)) > 0)
        luaL_addsize(&b, (size_t)n);
    luaL_pushresult(&b);
    if (fd >= 0)
        close(fd);
}

void history_load(lua_State *L, HistoryAdd *add, void *ud)
{
    int top = lua_gettop(L), lines = 0;

    if (!push_path(L))
        return;
    push_file(L, lua_tostring(L, -1));
    const char *s = lua_tostring(L, -1), *first = s;
    for (const char *p = s; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    for (int skip = lines - KEPT; skip > 0; skip--)
        first = strchr(first, '\n') + 1;
    if (lines > KEPT + SPARE)
        shorten(L, lua_tostring(L, top + 1), first);
    for (const char *end; (end = strchr(first, '\n')) != NULL;
         first = end + 1) {
        lua_pushlstring(L, first, (size_t)(end - first));
        add(ud, push_plain(L, lua_tostring(L, -1)));
        lua_pop(L, 2);
    }
    lua_settop(L, top);
}

void history_append(lua_State *L, const char *text)
{
    int top = lua_gettop(L);

    if (!push_path(L))
        return;
    int fd = open_file(lua_tostring(L, -1), O_WRONLY | O_CREAT | O_APPEND);
    if (fd >= 0) {
        fchmod(fd, 0600);
        const char *line = push_escaped(L, text);
        write_all(fd, line, strlen(line));
        close(fd);
    }
    lua_settop(L, top);
}
