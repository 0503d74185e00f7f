/* files_scan.c -- what formats of files share: bytes in and out, texts of
 * headers, what a tensor's file may hold.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "tensor.h"

_Noreturn void file_fault(lua_State *L, const File *f, const char *fmt, ...)
{
    char s[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    luaL_error(L, "%s: %s", f->path, s);
    for (;;) { }                        /* luaL_error does not return */
}

void file_read(lua_State *L, File *f, int64_t at, void *to, size_t n)
{
    if (at < 0 || at > f->size || n > (uint64_t)(f->size - at))
        file_fault(L, f, "cut short: %zu bytes wanted at %lld, the file has "
                   "%lld", n, (long long)at, (long long)f->size);
    if (fseeko(f->f, (off_t)at, SEEK_SET) != 0 || fread(to, 1, n, f->f) != n)
        file_fault(L, f, "cannot be read");
}

void file_write(lua_State *L, File *f, const void *from, size_t n)
{
    if (fwrite(from, 1, n, f->f) != n)
        file_fault(L, f, "cannot be written: %s", strerror(errno));
}

static void skip_space(Scan *t)
{
    while (t->s < t->end && strchr(" \t\r\n", *t->s) && *t->s)
        t->s++;
}

bool scan_take(Scan *t, char c)
{
    skip_space(t);
    if (t->s == t->end || *t->s != c)
        return false;
    t->s++;
    return true;
}

void scan_want(lua_State *L, Scan *t, char c)
{
    if (!scan_take(t, c))
        file_fault(L, t->file, "the header lacks a '%c'", c);
}

int64_t scan_integer(lua_State *L, Scan *t)
{
    int64_t n = 0;
    const char *start;

    skip_space(t);
    for (start = t->s; t->s < t->end && *t->s >= '0' && *t->s <= '9'; t->s++)
        if (__builtin_mul_overflow(n, 10, &n) || (n += *t->s - '0') >> 62)
            file_fault(L, t->file, "a number in the header is too large");
    if (t->s == start)
        file_fault(L, t->file, "the header lacks a number");
    return n;
}

Tensor *file_tensor(lua_State *L, File *f, const char *name, DType d,
                    int rank, const int64_t *shape, int64_t at, int64_t bytes)
{
    int64_t want = dtype_size(d);
    Tensor *t;

    for (int k = 0; k < rank; k++)
        if (__builtin_mul_overflow(want, shape[k], &want))
            want = -1;
    for (int k = 0; k < rank; k++)
        if (shape[k] == 0)
            want = 0;
    if (want != bytes)
        file_fault(L, f, "%s%shas %lld bytes where its shape wants %lld",
                   name ? name : "", name ? " " : "the array ",
                   (long long)bytes, (long long)want);
    if (at > f->size || bytes > f->size - at)
        file_fault(L, f, "cut short: %lld bytes wanted at %lld, the file has "
                   "%lld", (long long)bytes, (long long)at,
                   (long long)f->size);
    t = tensor_push(L, d, rank, shape);
    file_read(L, f, at, tensor_data(t), (size_t)bytes);
    return t;
}
