/* files.c -- flin.load and flin.save: .npy and .safetensors.
 *
 * A file is never trusted: every length is checked against the file's size
 * before anything is allocated for it. Numbers are little-endian.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"

#define FILE_META "flin.file"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "flin's readers of files want a little-endian machine"
#endif

/* ---- load and save ---- */

void file_close(File *f)
{
    if (f->f)
        fclose(f->f);
    if (f->part)
        remove(f->part);
    f->f = NULL;
    f->part = NULL;
}

static int collect(lua_State *L)
{
    file_close(luaL_checkudata(L, 1, FILE_META));
    return 0;
}

File *file_new(lua_State *L, const char *path)
{
    File *f = lua_newuserdatauv(L, sizeof *f, 1);

    *f = (File){ .path = path };
    if (luaL_newmetatable(L, FILE_META)) {
        lua_pushcfunction(L, collect);
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, "__gc");
        lua_setfield(L, -2, "__close");
    }
    lua_setmetatable(L, -2);
    return f;
}

int file_open(const char *path, int how, const char **why)
{
    int fd = open(path, how | O_NONBLOCK | O_CLOEXEC, 0666);
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        return fd;
    *why = fd < 0 ? strerror(errno) : S_ISDIR(st.st_mode)
         ? "is a folder, not a file" : "is a pipe or a device, not a file";
    if (fd >= 0)
        close(fd);
    return -1;
}

/* One that is written is emptied, is no link, and is removed again unless its
 * part is taken away. */
static void open_part(lua_State *L, File *f, const char *path, bool write)
{
    const char *wrong;
    int fd = file_open(path, write ? O_WRONLY | O_CREAT | O_NOFOLLOW
                                   : O_RDONLY, &wrong);

    if (fd < 0)
        file_fault(L, f, "%s", wrong);
    f->part = write ? path : NULL;
    if ((write && ftruncate(fd, 0) != 0)
        || !(f->f = fdopen(fd, write ? "wb" : "rb"))) {
        int why = errno;
        close(fd);
        file_fault(L, f, "%s", strerror(why));
    }
}

/* shown: its name in messages. */
static File *open_file(lua_State *L, const char *path, const char *shown,
                       bool write)
{
    File *f = file_new(L, shown);

    lua_pushstring(L, path);
    path = lua_tostring(L, -1);
    lua_setiuservalue(L, -2, 1);        /* the name lives as long as f */
    lua_toclose(L, -1);                 /* with its function, or an error */
    open_part(L, f, path, write);
    return f;
}

int file_load(lua_State *L, File *f)
{
    static const char npy[6] = { '\x93', 'N', 'U', 'M', 'P', 'Y' };
    char start[6] = { 0 };

    if (fseeko(f->f, 0, SEEK_END) != 0 || (f->size = ftello(f->f)) < 0)
        file_fault(L, f, "is not a file that can be read");
    if (f->size >= 8)
        file_read(L, f, 0, start, sizeof start);
    if (memcmp(start, npy, sizeof npy) == 0)
        return npy_load(L, f), 1;
    safetensors_load(L, f);
    return 2;
}

static void files_allowed(lua_State *L, const char *what)
{
    if (lua_getfield(L, LUA_REGISTRYINDEX, SANDBOX_CLOSED) != LUA_TNIL)
        luaL_error(L, "%s: files are closed to a script in the sandbox",
                   what);
    lua_pop(L, 1);
}

static int load(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);

    files_allowed(L, "load");
    return file_load(L, open_file(L, path, path, false));
}

/* The drawing at index 2 becomes pixels, where a program has said how. */
static void rasterise(lua_State *L, const char *path)
{
    lua_settop(L, 2);
    lua_getfield(L, LUA_REGISTRYINDEX, FLIN_OWN);
    if (lua_getfield(L, -1, "raster") != LUA_TTABLE)
        luaL_error(L, "save: %s: the program flin makes PNG, the library does "
                   "not\n  help: save a .svg, which browsers and editors show",
                   path);
    lua_getfield(L, -1, "png");
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    lua_replace(L, 2);
    lua_settop(L, 2);
}

static bool ends_in(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);

    return n > m && !strcmp(path + n - m, ending);
}

static void text_save(lua_State *L, File *f, int arg)
{
    size_t n;
    const char *text = lua_tolstring(L, arg, &n);

    if (fwrite(text, 1, n, f->f) != n)
        file_fault(L, f, "cannot be written: %s", strerror(errno));
}

/* Written beside its place and renamed, so that a reader never meets half a
 * file. */
static int save(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1), *part;
    bool one = tensor_test(L, 2) != NULL;
    bool text = lua_type(L, 2) == LUA_TSTRING;
    File *f;

    files_allowed(L, "save");
    if (!one && !text && lua_type(L, 2) != LUA_TTABLE)
        return luaL_error(L, "save: a tensor, a table of tensors by name, or "
                          "a text is wanted, not a %s", luaL_typename(L, 2));
    if (text && ends_in(path, ".png"))
        rasterise(L, path);
    part = lua_pushfstring(L, "%s.part", path);
    f = open_file(L, part, path, true);
    if (text)
        text_save(L, f, 2);
    else if (one)
        npy_save(L, f, 2);
    else
        safetensors_save(L, f, 2);
    FILE *out = f->f;
    f->f = NULL;
    if (fclose(out) != 0 || rename(part, path) != 0)
        file_fault(L, f, "cannot be written: %s", strerror(errno));
    f->part = NULL;
    return 0;
}

void files_open(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "load", load }, { "save", save }, { NULL, NULL }
    };

    luaL_setfuncs(L, functions, 0);
}
