/* files.h -- what files.c and the readers of each format share. */
#ifndef FLIN_FILES_H
#define FLIN_FILES_H

#include <stdio.h>

#include "tensor.h"

/* An open file that Lua closes. Everything read from it is suspect. */
typedef struct File {
    FILE *f;
    int64_t size;
    const char *path;                   /* for messages */
    const char *part;                   /* to remove unless it is finished */
} File;

/* Pushes one, still closed; collecting it closes it. */
File *file_new(lua_State *L, const char *path);
void file_close(File *f);
/* Opens a file, and nothing that waits for someone to write or read, as a pipe
 * does; how: of open(2). -1: *why says what it is instead. */
int file_open(const char *path, int how, const char **why);
/* n bytes from offset `at`; a Lua error when the file ends before. */
void file_read(lua_State *L, File *f, int64_t at, void *to, size_t n);
void file_write(lua_State *L, File *f, const void *from, size_t n);
_Noreturn void file_fault(lua_State *L, const File *f, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A position in a header, which is text that ends at `end`. */
typedef struct Scan { File *file; const char *s, *end; } Scan;
bool scan_take(Scan *t, char c);        /* skips white space, then c */
void scan_want(lua_State *L, Scan *t, char c);
int64_t scan_integer(lua_State *L, Scan *t);    /* 0 .. 2^62, or an error */

/* Reads a tensor's numbers, row-major from `at`, into a new tensor on top of
 * the stack. Fails unless `bytes` is what the shape takes; NULL `name` in .npy.
 */
Tensor *file_tensor(lua_State *L, File *f, const char *name, DType d,
                    int rank, const int64_t *shape, int64_t at,
                    int64_t bytes);

void npy_load(lua_State *L, File *f);           /* pushes a tensor */
void npy_save(lua_State *L, File *f, int arg);
void safetensors_load(lua_State *L, File *f);   /* pushes a table, metadata */
void safetensors_save(lua_State *L, File *f, int arg);

/* Pushes what the file holds: one value or two. Returns how many. */
int file_load(lua_State *L, File *f);

#endif
