/* cache.c -- compiled kernels on disk: read and checked, published, evicted. */
#include "cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- SHA-256 (FIPS 180-4) ---- */

typedef struct Sha { uint32_t h[8]; uint64_t bytes; unsigned char part[64]; }
    Sha;

static const uint32_t sha_start[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19
};
static const uint32_t sha_round[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1,
    0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3,
    0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
    0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
    0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
    0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2
};

static uint32_t rotated(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void sha_block(Sha *s, const unsigned char *p)
{
    uint32_t w[64], v[8];
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16
             | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3)
             + (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t e = v[4], a = v[0];
        uint32_t x = v[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25))
                   + ((e & v[5]) ^ (~e & v[6])) + sha_round[i] + w[i];
        uint32_t y = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22))
                   + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += x;
        v[0] = x + y;
    }
    for (int i = 0; i < 8; i++)
        s->h[i] += v[i];
}

static void sha_add(Sha *s, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (; n; s->bytes++, n--) {
        s->part[s->bytes % 64] = *p++;
        if (s->bytes % 64 == 63)
            sha_block(s, s->part);
    }
}

static void sha_end(Sha *s, unsigned char to[DIGEST])
{
    uint64_t bits = s->bytes * 8;
    unsigned char length[8], pad = 0x80;
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(bits >> (56 - 8 * i));
    do {
        sha_add(s, &pad, 1);
        pad = 0;
    } while (s->bytes % 64 != 56);
    sha_add(s, length, sizeof length);
    for (int i = 0; i < DIGEST; i++)
        to[i] = (unsigned char)(s->h[i / 4] >> (24 - i % 4 * 8));
}

static void digest_of(const void *bytes, size_t n, unsigned char to[DIGEST])
{
    Sha s = { .bytes = 0 };
    memcpy(s.h, sha_start, sizeof s.h);
    sha_add(&s, bytes, n);
    sha_end(&s, to);
}

CacheKey cache_key(const char *const *text, int n)
{
    Sha s = { .bytes = 0 };
    CacheKey key;
    memcpy(s.h, sha_start, sizeof s.h);
    for (int i = 0; i < n; i++) {
        uint64_t len = strlen(text[i]);
        sha_add(&s, &len, sizeof len);
        sha_add(&s, text[i], len);
    }
    sha_end(&s, key.digest);
    return key;
}

/* ---- where ---- */

static void join(Cache *k, const char *root, const char *tail)
{
    int n = snprintf(k->folder, sizeof k->folder, "%s%s", root, tail);
    if (n < 0 || (size_t)n + 80 > sizeof k->folder)
        k->folder[0] = 0;               /* no room for the files' names */
}

/* What is wrong with a folder that others could have put something into. */
static const char *distrust(const struct stat *st)
{
    if (!S_ISDIR(st->st_mode))
        return "is not a folder";
    if (st->st_uid != geteuid())
        return "belongs to another user";
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return "may be written by others (chmod go-w)";
    return NULL;
}

static void refuse_folder(Cache *k)
{
    struct stat st;
    const char *why = k->folder[0] && !stat(k->folder, &st) ? distrust(&st)
                                                            : NULL;
    if (!why)
        return;
    snprintf(k->refused, sizeof k->refused, "%s %s: compiled kernels are not "
             "kept there; FLIN_CACHE names another folder, or off", k->folder,
             why);
    k->folder[0] = 0;
}

/* To find entries in; -1: there is none that is to be trusted. */
static int open_folder(const Cache *k)
{
    struct stat st;
    int dir = open(k->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir >= 0 && (fstat(dir, &st) || distrust(&st))) {
        close(dir);
        return -1;
    }
    return dir;
}

void cache_open(Cache *k)
{
    const char *own = getenv("FLIN_CACHE"), *xdg = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    memset(k, 0, sizeof *k);
    k->limit = CACHE_LIMIT;
    if (own && *own) {
        if (strcmp(own, "off") != 0)
            join(k, own, "");
    } else if (xdg && *xdg == '/') {
        join(k, xdg, "/flin");
    } else if (home && *home) {
        join(k, home, "/.cache/flin");
    }
    refuse_folder(k);
}

static bool make_folder(const Cache *k)
{
    char path[CACHE_PATH];
    snprintf(path, sizeof path, "%s", k->folder);
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = 0;
            if (mkdir(path, 0777) && errno != EEXIST)
                return false;
            *p = '/';
        }
    return !mkdir(path, 0700) || errno == EEXIST;
}

enum { NAME = 64 };

static void entry_name(const CacheKey *key, char name[NAME])
{
    int n = 0;
    for (int i = 0; i < 20; i++)
        n += snprintf(name + n, (size_t)(NAME - n), "%02x", key->digest[i]);
    snprintf(name + n, (size_t)(NAME - n), ".cubin");
}

/* ---- entries ---- */

typedef struct Header {
    char magic[16];
    unsigned char key[DIGEST], sum[DIGEST];
    uint64_t size;
} Header;

static const char magic[16] = "flin-kernel-001";

static bool read_all(int fd, void *to, size_t n)
{
    char *p = to;
    while (n) {
        ssize_t got = read(fd, p, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        p += got;
        n -= (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const void *from, size_t n)
{
    const char *p = from;
    while (n) {
        ssize_t put = write(fd, p, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        p += put;
        n -= (size_t)put;
    }
    return true;
}

/* The header of a file that is our own, of the length it says. */
static bool read_header(int fd, const Cache *k, const CacheKey *key, Header *h)
{
    struct stat st;
    return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid()
        && read_all(fd, h, sizeof *h) && !memcmp(h->magic, magic, sizeof magic)
        && !memcmp(h->key, key->digest, DIGEST) && h->size
        && h->size <= (uint64_t)k->limit
        && (uint64_t)st.st_size == sizeof *h + h->size;
}

/* A file of this name in the folder, and never one that waits: a pipe. */
static int open_entry(const Cache *k, const CacheKey *key)
{
    char name[NAME];
    int dir = k->folder[0] ? open_folder(k) : -1;
    if (dir < 0)
        return -1;
    entry_name(key, name);
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    close(dir);
    return fd;
}

unsigned char *cache_get(const Cache *k, const CacheKey *key, size_t *size)
{
    unsigned char sum[DIGEST], *bytes = NULL;
    Header h;
    int fd = open_entry(k, key);
    if (fd < 0)
        return NULL;
    bool whole = read_header(fd, k, key, &h)
              && (bytes = malloc((size_t)h.size)) != NULL
              && read_all(fd, bytes, (size_t)h.size);
    if (whole) {
        digest_of(bytes, (size_t)h.size, sum);
        whole = !memcmp(sum, h.sum, DIGEST);
    }
    if (whole)
        futimens(fd, NULL);             /* used now: the last to go */
    close(fd);
    if (!whole) {
        free(bytes);
        return NULL;
    }
    *size = (size_t)h.size;
    return bytes;
}

/* ---- the limit ---- */

typedef struct Entry { char name[NAME]; int64_t bytes, used; } Entry;

static int by_use(const void *a, const void *b)
{
    const Entry *x = a, *y = b;
    return x->used != y->used ? (x->used > y->used) - (x->used < y->used)
                              : strcmp(x->name, y->name);
}

/* Adds what `name` is, if it is ours; a temporary file that was left behind
 * an hour ago is removed. */
static void note_entry(int folder, const char *name, Entry *e, int *n)
{
    struct stat st;
    size_t len = strlen(name);
    bool cubin = len > 6 && !strcmp(name + len - 6, ".cubin");
    bool part = !strncmp(name, "part-", 5);
    if (len >= sizeof e->name || (!cubin && !part)
        || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW)
        || !S_ISREG(st.st_mode))
        return;
    if (part) {
        if (time(NULL) - st.st_mtime > 3600)
            unlinkat(folder, name, 0);
        return;
    }
    e += (*n)++;
    memcpy(e->name, name, len + 1);
    e->bytes = (int64_t)st.st_size;
    e->used = (int64_t)st.st_mtime;
}

/* Down to three quarters of the limit, so that not every entry evicts. */
static void evict(const Cache *k, int folder)
{
    enum { MOST = 16384 };
    int own = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = own < 0 ? NULL : fdopendir(own);
    Entry *e = dir ? malloc(MOST * sizeof *e) : NULL;
    int64_t total = 0;
    int n = 0;
    for (struct dirent *d; e && n < MOST && (d = readdir(dir)); )
        note_entry(dirfd(dir), d->d_name, e, &n);
    for (int i = 0; i < n; i++)
        total += e[i].bytes;
    if (total > k->limit) {
        qsort(e, (size_t)n, sizeof *e, by_use);
        for (int i = 0; i < n && total > k->limit / 4 * 3; i++) {
            unlinkat(dirfd(dir), e[i].name, 0);
            total -= e[i].bytes;
        }
    }
    free(e);
    if (dir)
        closedir(dir);
    else if (own >= 0)
        close(own);
}

/* A new file in the folder, of a name that no other has. */
static int open_part(int folder, char name[NAME])
{
    struct timespec now;
    int fd = -1;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < 100 && fd < 0 && (i == 0 || errno == EEXIST); i++) {
        snprintf(name, NAME, "part-%ld-%lx-%lx-%d", (long)getpid(),
                 (unsigned long)(uintptr_t)&now, (unsigned long)now.tv_nsec,
                 i);
        fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW
                    | O_CLOEXEC, 0600);
    }
    return fd;
}

/* Into the folder, all of it or nothing. */
static bool publish(int folder, const CacheKey *key, const Header *h,
                    const void *bytes)
{
    char name[NAME], part[NAME];
    int fd = open_part(folder, part);
    if (fd < 0)
        return false;
    entry_name(key, name);
    bool ok = write_all(fd, h, sizeof *h)
           && write_all(fd, bytes, (size_t)h->size) && !fsync(fd);
    ok = !close(fd) && ok;
    ok = ok && !renameat(folder, part, folder, name);
    if (!ok)
        unlinkat(folder, part, 0);
    return ok;
}

bool cache_put(const Cache *k, const CacheKey *key, const void *bytes,
               size_t size)
{
    Header h = { .size = size };
    if (!k->folder[0] || !size || (int64_t)size > k->limit / 2
        || !make_folder(k))
        return false;
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.key, key->digest, DIGEST);
    digest_of(bytes, size, h.sum);
    int folder = open_folder(k);
    bool ok = folder >= 0 && publish(folder, key, &h, bytes);
    if (ok)
        evict(k, folder);
    if (folder >= 0)
        close(folder);
    return ok;
}
