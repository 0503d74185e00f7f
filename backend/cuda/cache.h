/* cache.h -- compiled kernels, kept on disk.
 *
 * A file an entry: a header with the whole key, the length and the checksum,
 * then the bytes. Whatever is wrong with an entry, it counts as not there; a
 * folder that cannot be written is as good as none. Any number of processes
 * may share one, of one user: what is in an entry runs on the GPU, and it is
 * only as good as whoever may write there.
 */
#ifndef FLIN_CUDA_CACHE_H
#define FLIN_CUDA_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST = 32, CACHE_PATH = 512 };
#define CACHE_LIMIT ((int64_t)256 << 20)    /* bytes that a folder may hold */

typedef struct Cache {
    char folder[CACHE_PATH];            /* "": no cache */
    char refused[CACHE_PATH + 160];     /* why the folder that there is is not
                                           used; "": it is, or none is there */
    int64_t limit;
} Cache;

/* FLIN_CACHE (a folder, or "off"), else XDG_CACHE_HOME/flin, else
 * HOME/.cache/flin. One that others own or may write is refused, and refused
 * again where it becomes so later. */
void cache_open(Cache *k);

/* The SHA-256 of n texts, their lengths included. */
typedef struct CacheKey { unsigned char digest[DIGEST]; } CacheKey;
CacheKey cache_key(const char *const *text, int n);

/* An entry's bytes, to be freed; NULL: it is not there, or not whole. */
unsigned char *cache_get(const Cache *k, const CacheKey *key, size_t *size);

/* Publishes an entry, all of it or nothing, and then removes the entries that
 * were used the longest ago, down to the limit. False: it is not kept. */
bool cache_put(const Cache *k, const CacheKey *key, const void *bytes,
               size_t size);

#endif
