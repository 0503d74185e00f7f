/* files.c -- file operations fail: each in turn, once and for good, while a
 * script is loaded that reads a module and writes and reads tensors. What
 * fails is named; a file that was there keeps its old content or has its new
 * one whole; nothing is left open or lying about.
 */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "host.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) \
    && !defined(__SANITIZE_THREAD__)
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <unistd.h>

static long count, fail_from = 1L << 60, fail_to = 1L << 60, open_files;
static FILE *broken;
static char folder[64];

/* Whether this operation is to fail. */
static bool denied(void)
{
    long n = count++;

    if (n < fail_from || n >= fail_to)
        return false;
    errno = EIO;
    return true;
}

/* The C library's own function of that name. */
#define REAL(type, name, ...) \
    type (*real)(__VA_ARGS__); \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

static bool ours(const char *path)
{
    return *folder && !strncmp(path, folder, strlen(folder));
}

int open(const char *path, int how, ...)
{
    REAL(int, open, const char *, int, ...);
    va_list ap;

    va_start(ap, how);
    unsigned mode = how & O_CREAT ? va_arg(ap, unsigned) : 0;
    va_end(ap);
    return ours(path) && denied() ? -1 : real(path, how, mode);
}

FILE *fdopen(int fd, const char *mode)
{
    REAL(FILE *, fdopen, int, const char *);
    FILE *f = denied() ? NULL : real(fd, mode);
    open_files += f != NULL;
    return f;
}

int ftruncate(int fd, off_t n)
{
    REAL(int, ftruncate, int, off_t);
    return denied() ? -1 : real(fd, n);
}

FILE *fopen(const char *path, const char *mode)
{
    REAL(FILE *, fopen, const char *, const char *);
    if (ours(path) && denied())
        return NULL;
    FILE *f = real(path, mode);
    open_files += f && ours(path);
    return f;
}

int fclose(FILE *f)
{
    REAL(int, fclose, FILE *);
    bool fails = denied();
    open_files--;
    if (f == broken)
        broken = NULL;
    return real(f) || fails ? EOF : 0;
}

size_t fread(void *to, size_t size, size_t n, FILE *f)
{
    REAL(size_t, fread, void *, size_t, size_t, FILE *);
    if (denied()) {
        broken = f;
        return 0;
    }
    return real(to, size, n, f);
}

size_t fwrite(const void *from, size_t size, size_t n, FILE *f)
{
    REAL(size_t, fwrite, const void *, size_t, size_t, FILE *);
    return f != stdout && denied() ? 0 : real(from, size, n, f);
}

int ferror(FILE *f)
{
    REAL(int, ferror, FILE *);
    return f == broken || real(f);
}

int fseeko(FILE *f, off_t at, int from)
{
    REAL(int, fseeko, FILE *, off_t, int);
    return denied() ? -1 : real(f, at, from);
}

off_t ftello(FILE *f)
{
    REAL(off_t, ftello, FILE *);
    return denied() ? -1 : real(f);
}

int rename(const char *from, const char *to)
{
    REAL(int, rename, const char *, const char *);
    return denied() ? -1 : real(from, to);
}

static void deny(long from, bool ever)
{
    count = 0;
    fail_from = from;
    fail_to = ever ? 1L << 60 : from + 1;
}

static void allow(void)
{
    fail_from = fail_to = 1L << 60;
}

/* ---- the files ---- */

static const char script[] =
    "local flin = require 'flin'\n"
    "local size = require 'size'\n"
    "local t, folder = flin.ones(size, 3), require 'folder'\n"
    "flin.save(folder .. '/x.npy', t * size)\n"
    "flin.save(folder .. '/all.safetensors', { t = t, u = t * 2 })\n"
    "local x = flin.load(folder .. '/x.npy')\n"
    "local all = flin.load(folder .. '/all.safetensors')\n"
    "assert(x[{ 2, 3 }] == size and all.u[{ 1, 1 }] == 2)\n"
    "return flin.variant {\n"
    "  input = { k = 't k', v = 't v' }, state = { S = 'k v' },\n"
    "  step = function (a, s)\n"
    "    local S = s.S + flin.outer(a.k, a.v)\n"
    "    return { S = S }, flin.dot(a.k, S)\n"
    "  end }\n";

static char *in_folder(const char *name)
{
    static char path[2][128];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void write_text(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "wb");

    fputs(text, f);
    fclose(f);
}

/* The bytes of a file; -1: none there. */
static long read_all(const char *name, char *to, size_t size)
{
    FILE *f = fopen(in_folder(name), "rb");
    long n = -1;

    if (f) {
        n = (long)fread(to, 1, size, f);
        fclose(f);
    }
    return n;
}

/* Files in a folder. */
static int count_files(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;

    for (struct dirent *f; (f = readdir(d)) != NULL;)
        n += *f->d_name != '.';
    closedir(d);
    return n;
}

static void remove_all(void)
{
    static const char *const name[] = { "main.lua", "size.lua", "folder.lua",
                                        "x.npy", "all.safetensors" };

    for (int i = 0; i < 5; i++)
        remove(in_folder(name[i]));
    rmdir(folder);
}

/* ---- the trials ---- */

static int load_all(flin_Error *e)
{
    flin_Options o = { .size = sizeof o, .trusted = 1 };
    flin_State *s = flin_open(&o, e);
    flin_Variant *v = flin_load_file(s, in_folder("main.lua"), e);
    int code = e->code;

    CHECK((v != NULL) == (code == FLIN_OK));
    flin_close(s);
    return code;
}

enum { KINDS = 2, BYTES = 4096 };

/* Of an earlier run, or of this one. */
static bool whole(const char *name, const char *old, const char *new, long n)
{
    static char now[BYTES];

    return read_all(name, now, sizeof now) == n
        && (!memcmp(now, old, (size_t)n) || !memcmp(now, new, (size_t)n));
}

static void try_all(void)
{
    static char before[2][BYTES], after[2][BYTES];
    static const char *const name[2] = { "x.npy", "all.safetensors" };
    long bytes[2], n;
    int refused = 0, bad = 0;
    flin_Error e;

    write_text("size.lua", "return 3");
    CHECK(!load_all(&e));
    int held = count_files("/proc/self/fd");
    for (int i = 0; i < 2; i++)
        bytes[i] = read_all(name[i], after[i], BYTES);
    write_text("size.lua", "return (3)");
    count = 0;
    CHECK(!load_all(&e));
    n = count;
    for (long i = 0; i < KINDS * n; i++) {
        for (int k = 0; k < 2; k++)
            read_all(name[k], before[k], BYTES);
        deny(i / KINDS, i % KINDS);
        int code = load_all(&e);
        allow();
        refused += code == FLIN_ERROR && strstr(e.message, folder);
        bool ok = (code == FLIN_OK || code == FLIN_ERROR)
            && open_files == 0 && count_files(folder) == 5;
        for (int k = 0; k < 2; k++)
            ok = ok && whole(name[k], before[k], after[k], bytes[k]);
        if (!ok && bad++ < 5)
            printf("operation %ld denied %s: code %d, %s; %ld open, %d files\n",
                   i / KINDS, i % KINDS ? "for good" : "once", code,
                   e.message, open_files, count_files(folder));
    }
    CHECK(bad == 0 && refused > n);
    CHECK(count_files("/proc/self/fd") == held);
    CHECK(!load_all(&e));
    printf("%ld operations, each denied, %d refusals\n", n, refused);
}

int main(void)
{
    char text[128];

    strcpy(folder, "/tmp/flin_files_XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(text, sizeof text, "return '%s'", folder);
    write_text("main.lua", script);
    write_text("folder.lua", text);
    try_all();
    remove_all();
    return report();
}

#else

int main(void)
{
    puts("skip: the C library's functions cannot be replaced here");
    return 0;
}

#endif
