/* files_npy.c -- NumPy's .npy: a magic word, a version, a header that is a
 * Python dictionary ({'descr': '<f4', 'fortran_order': False, 'shape': (2, 3),
 * }), then the numbers.
 */
#include <string.h>

#include "files.h"

typedef struct Header {
    DType dtype;
    bool fortran;
    int rank;
    int64_t shape[TENSOR_RANK];
    int seen;                           /* a bit for each of the three keys */
} Header;

/* A quoted word without escapes, copied; longer ones cannot matter. */
static void word(lua_State *L, Scan *t, char to[24])
{
    size_t n = 0;
    char quote = '\'';

    if (!scan_take(t, quote)) {
        quote = '"';
        scan_want(L, t, quote);
    }
    for (; t->s < t->end && *t->s != quote; t->s++)
        if (n < 23)
            to[n++] = *t->s;
    to[n] = 0;
    scan_want(L, t, quote);
}

static void parse_dtype(lua_State *L, Scan *t, Header *h)
{
    static const char *const descr[NDTYPES] = {
        [F32] = "<f4", [F16] = "<f2", [F64] = "<f8",
        [I32] = "<i4", [I64] = "<i8"
    };
    char s[24];

    word(L, t, s);
    for (int d = 0; d < NDTYPES; d++)
        if (descr[d] && strcmp(s, descr[d]) == 0) {
            h->dtype = (DType)d;
            return;
        }
    file_fault(L, t->file, "dtype '%s'; flin reads <f2, <f4, <f8, <i4 and "
               "<i8 from .npy", s);
}

static void parse_bool(lua_State *L, Scan *t, Header *h)
{
    h->fortran = scan_take(t, 'T');
    if (!h->fortran)
        scan_want(L, t, 'F');
    for (const char *s = h->fortran ? "rue" : "alse"; *s; s++)
        scan_want(L, t, *s);
}

static void parse_shape(lua_State *L, Scan *t, Header *h)
{
    scan_want(L, t, '(');
    while (!scan_take(t, ')')) {
        if (h->rank == TENSOR_RANK)
            file_fault(L, t->file, "more than %d axes", TENSOR_RANK);
        h->shape[h->rank++] = scan_integer(L, t);
        if (!scan_take(t, ',')) {
            scan_want(L, t, ')');
            break;
        }
    }
}

static void parse_header(lua_State *L, Scan *t, Header *h)
{
    char key[24];

    scan_want(L, t, '{');
    while (!scan_take(t, '}')) {
        int bit;
        word(L, t, key);
        scan_want(L, t, ':');
        bit = strcmp(key, "descr") == 0 ? 1
              : strcmp(key, "fortran_order") == 0 ? 2
              : strcmp(key, "shape") == 0 ? 4 : 0;
        if (!bit || h->seen & bit)
            file_fault(L, t->file, "the header's key '%s' is unknown or "
                       "there twice", key);
        h->seen |= bit;
        if (bit == 1)
            parse_dtype(L, t, h);
        else if (bit == 2)
            parse_bool(L, t, h);
        else
            parse_shape(L, t, h);
        if (!scan_take(t, ',')) {
            scan_want(L, t, '}');
            break;
        }
    }
    if (h->seen != 7)
        file_fault(L, t->file, "the header lacks descr, fortran_order or "
                   "shape");
}

static void fortran_strides(Tensor *t)
{
    int64_t step = 1;

    for (int k = 0; k < t->rank; k++) {
        t->stride[k] = step;
        step *= t->shape[k] ? t->shape[k] : 1;
    }
}

void npy_load(lua_State *L, File *f)
{
    unsigned char start[12];
    Header h = { .rank = 0 };
    int64_t len, at;
    Scan t = { f, NULL, NULL };
    Tensor *x;

    file_read(L, f, 0, start, 10);
    if (start[6] < 1 || start[6] > 3)
        file_fault(L, f, "version %d of .npy is not known", start[6]);
    at = start[6] == 1 ? 10 : 12;
    file_read(L, f, 0, start, (size_t)at);
    len = start[8] | start[9] << 8;
    if (at == 12)
        len |= (int64_t)start[10] << 16 | (int64_t)start[11] << 24;
    if (len > 65536 || len > f->size - at)
        file_fault(L, f, "a header of %lld bytes", (long long)len);
    t.s = memcpy(lua_newuserdatauv(L, 65536, 0), "", 1);
    file_read(L, f, at, (char *)t.s, (size_t)len);
    t.end = t.s + len;
    parse_header(L, &t, &h);
    at += len;
    x = file_tensor(L, f, NULL, h.dtype, h.rank, h.shape, at, f->size - at);
    if (h.fortran)
        fortran_strides(x);
}

void npy_save(lua_State *L, File *f, int arg)
{
    const Tensor *t = tensor_check(L, arg);
    char head[512], *s = head + 10;
    size_t n;

    if (t->dtype == BF16)
        file_fault(L, f, "bfloat16 cannot be kept in .npy: save t:to(\"float"
                   "32\"), or { name = t } as .safetensors");
    if (!tensor_contiguous(t))
        t = tensor_copy(L, t, t->dtype);
    s += sprintf(s, "{'descr': '<f%d', 'fortran_order': False, 'shape': (",
                 dtype_size(t->dtype));
    for (int k = 0; k < t->rank; k++)
        s += sprintf(s, "%s%lld%s", k ? " " : "", (long long)t->shape[k],
                     k == t->rank - 1 && k ? "" : ",");
    s += sprintf(s, "), }");
    while ((s - head) % 64 != 63)
        *s++ = ' ';
    *s++ = '\n';
    n = (size_t)(s - head);
    memcpy(head, "\x93NUMPY\1\0", 8);
    head[8] = (char)((n - 10) & 255);
    head[9] = (char)((n - 10) >> 8);
    file_write(L, f, head, n);
    file_write(L, f, tensor_data(t),
               (size_t)(tensor_count(t) * dtype_size(t->dtype)));
}
