/* cache.c -- the kernels on disk: many processes at once, entries that are
 * not whole, folders and disks that take nothing, and the limit.
 */
#include "../../backend/cuda/cache.h"
#include "expect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 64, KEYS = 5, BYTES = 30000 };


static CacheKey key_of(int i)
{
    char number[16];
    snprintf(number, sizeof number, "%d", i);
    const char *const text[] = { "source", number };
    return cache_key(text, 2);
}

static unsigned char *bytes_of(int i)
{
    unsigned char *b = malloc(BYTES);
    for (int x = 0; x < BYTES; x++)
        b[x] = (unsigned char)(x * 7 + i * 13 + x / 251);
    return b;
}

static bool put(const Cache *k, int i)
{
    CacheKey key = key_of(i);
    unsigned char *b = bytes_of(i);
    bool ok = cache_put(k, &key, b, BYTES);
    free(b);
    return ok;
}

/* -1: not there, 1: as it was put, 0: anything else. */
static int get(const Cache *k, int i)
{
    CacheKey key = key_of(i);
    size_t size = 0;
    unsigned char *b = cache_get(k, &key, &size), *want = bytes_of(i);
    int found = !b ? -1 : size == BYTES && !memcmp(b, want, size);
    free(b);
    free(want);
    return found;
}

/* Calls f for each file; counts those that it says yes to. */
static int each_file(const Cache *k, bool (*f)(int dir, const char *name))
{
    DIR *dir = opendir(k->folder);
    int n = 0;
    for (struct dirent *d; dir && (d = readdir(dir)); )
        if (d->d_name[0] != '.')
            n += f(dirfd(dir), d->d_name);
    if (dir)
        closedir(dir);
    return n;
}

static bool any(int dir, const char *name) { (void)dir; return *name; }
static bool is_part(int dir, const char *name)
{
    (void)dir;
    return !strncmp(name, "part-", 5);
}
static bool removed(int dir, const char *name)
{
    return !unlinkat(dir, name, 0);
}

/* ---- 64 processes ---- */

static int one_process(const Cache *k, int me)
{
    for (int i = 0; i < 12; i++) {
        int key = (me + i) % KEYS, found = get(k, key);
        if (found == 0)
            return 1;                   /* never half of one */
        if (found < 0 || i % 3 == 0)
            put(k, key);
    }
    return 0;
}

static void test_processes(const Cache *k)
{
    pid_t pid[PROCESSES];
    int wrong = 0, status;
    for (int i = 0; i < PROCESSES; i++)
        if ((pid[i] = fork()) == 0)
            _exit(one_process(k, i));
    for (int i = 0; i < PROCESSES; i++)
        wrong += waitpid(pid[i], &status, 0) != pid[i] || status != 0;
    expect(wrong == 0, "64 processes find whole entries or none");
    for (int i = 0; i < KEYS; i++)
        expect(get(k, i) == 1, "an entry that many have put");
    expect(each_file(k, is_part) == 0, "no part is left behind");
}

/* A process that is killed leaves nothing that another takes for whole. */
static void test_killed(const Cache *k)
{
    int wrong = 0;
    for (int round = 0; round < 10; round++) {
        pid_t pid = fork();
        if (pid == 0)
            for (int i = 0; ; i++)
                put(k, i % KEYS);
        struct timespec some = { .tv_nsec = 500000 + 300000 * round };
        nanosleep(&some, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        for (int i = 0; i < KEYS; i++)
            wrong += get(k, i) == 0;
    }
    expect(wrong == 0, "a killed process leaves whole entries or none");
    each_file(k, removed);
}

/* ---- entries that are not whole ---- */

static void entry_name(const Cache *k, int i, char *path, size_t n)
{
    CacheKey key = key_of(i);
    int at = snprintf(path, n, "%s/", k->folder);
    for (int b = 0; b < 20; b++)
        at += snprintf(path + at, n - (size_t)at, "%02x", key.digest[b]);
    snprintf(path + at, n - (size_t)at, ".cubin");
}

static void flip(const char *path, off_t at)
{
    unsigned char x = 0;
    int fd = open(path, O_RDWR);
    if (pread(fd, &x, 1, at) == 1) {
        x ^= 1;
        if (pwrite(fd, &x, 1, at) != 1)
            expect(false, "writing a test's file");
    }
    close(fd);
}

static void test_corrupt(const Cache *k)
{
    char path[CACHE_PATH + 80];
    struct stat st;
    int taken = 0, cases = 0;
    entry_name(k, 0, path, sizeof path);
    put(k, 0);
    expect(!stat(path, &st) && get(k, 0) == 1, "an entry is where it should");
    for (off_t at = 0; at < st.st_size; at += at < 128 ? 1 : 977, cases++) {
        flip(path, at);
        taken += get(k, 0) != -1;
        flip(path, at);
    }
    expect(taken == 0 && cases > 100, "an entry with a flipped bit");
    expect(get(k, 0) == 1, "the same, mended");
    for (off_t n = 0; n < st.st_size; n = n * 3 + 1) {
        put(k, 0);
        taken += truncate(path, n) || get(k, 0) != -1;
    }
    expect(taken == 0, "an entry that was cut off");
    put(k, 0);
    expect(get(k, 0) == 1, "a broken entry is replaced");
    char other[CACHE_PATH + 80];
    entry_name(k, 1, other, sizeof other);
    expect(!rename(path, other) && get(k, 1) == -1, "another key's entry");
    unlink(other);
    expect(!symlink("/etc/passwd", path) && get(k, 0) == -1, "a link");
    unlink(path);
}

/* ---- what others could have put there ---- */

/* Ends a test that waits for ever. */
static void test_pipe(const Cache *k)
{
    char path[CACHE_PATH + 80];
    entry_name(k, 0, path, sizeof path);
    unlink(path);
    alarm(20);
    expect(!mkfifo(path, 0600) && get(k, 0) == -1, "a pipe is no entry");
    expect(put(k, 0) && get(k, 0) == 1, "an entry takes its place");
    unlink(path);
    expect(!mkdir(path, 0700) && get(k, 0) == -1 && !put(k, 0),
           "a folder is no entry");
    rmdir(path);
    alarm(0);
}

static bool is_refused(const Cache *k, const char *why)
{
    Cache found;
    setenv("FLIN_CACHE", k->folder, 1);
    cache_open(&found);
    return !found.folder[0] && strstr(found.refused, k->folder)
        && strstr(found.refused, why) && get(&found, 0) == -1
        && !put(&found, 0) && get(k, 0) == -1 && !put(k, 0);
}

static bool is_taken(const Cache *k)
{
    Cache found;
    setenv("FLIN_CACHE", k->folder, 1);
    cache_open(&found);
    return !strcmp(found.folder, k->folder) && !found.refused[0]
        && get(k, 0) == 1 && put(&found, 0);
}

static void test_trust(const Cache *k)
{
    static const mode_t others[] = { 0777, 01777, 0770, 0720, 0702 };
    Cache other = *k;
    put(k, 0);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        chmod(k->folder, others[i]);
        expect(is_refused(k, "may be written by others"), "a folder that "
               "others may write");
    }
    for (mode_t mode = 0700; mode <= 0755; mode += 055) {
        chmod(k->folder, mode);
        expect(is_taken(k), "a folder that others may read, or not");
    }
    if (geteuid() == 0) {
        expect(!chown(k->folder, 65534, 65534) && is_refused(k, "belongs to "
               "another user"), "a folder of another user");
        expect(!chown(k->folder, 0, 0), "giving it back");
    }
    chmod(k->folder, 0700);
    snprintf(other.folder, sizeof other.folder, "%.400s-link", k->folder);
    expect(!symlink(k->folder, other.folder) && is_taken(&other),
           "a link to a folder");
    unlink(other.folder);
    snprintf(other.folder, sizeof other.folder, "/dev/null");
    expect(is_refused(&other, "is not a folder"), "what is no folder");
}

/* ---- no room ---- */

/* Runs f in a process of its own, as nobody where we are root. */
static bool apart(bool (*f)(const Cache *), const Cache *k, bool nobody)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
        if (nobody && geteuid() == 0 && (setgid(65534) || setuid(65534)))
            _exit(1);
        _exit(!f(k));
    }
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static bool full_disk(const Cache *k)
{
    struct rlimit most = { BYTES / 2, BYTES / 2 };
    signal(SIGXFSZ, SIG_IGN);
    return !setrlimit(RLIMIT_FSIZE, &most) && !put(k, 77) && get(k, 77) == -1
        && each_file(k, is_part) == 0;
}

static bool no_files(const Cache *k)
{
    struct rlimit none = { 3, 3 };
    return !setrlimit(RLIMIT_NOFILE, &none) && !put(k, 78)
        && get(k, 78) == -1;
}

static bool takes_nothing(const Cache *k)
{
    return !put(k, 79) && get(k, 79) == -1;
}

static void test_no_room(const Cache *k)
{
    Cache other = *k;
    expect(apart(full_disk, k, false), "a full disk");
    expect(apart(no_files, k, false), "no more open files");
    chmod(k->folder, 0555);
    expect(apart(takes_nothing, k, true), "a folder that is read-only");
    chmod(k->folder, 0700);
    snprintf(other.folder, sizeof other.folder, "/dev/null/flin");
    expect(takes_nothing(&other), "a folder that cannot be");
    other.folder[0] = 0;
    expect(takes_nothing(&other), "no folder");
}

/* ---- the limit ---- */

static void test_limit(const Cache *k)
{
    Cache small = *k;
    int64_t each = BYTES + 88;
    char path[CACHE_PATH + 80];
    struct timespec old[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    each_file(k, removed);
    small.limit = 8 * each;
    for (int i = 0; i < 8; i++) {
        put(&small, i);
        old[0].tv_sec = old[1].tv_sec = 1000 + i;
        entry_name(k, i, path, sizeof path);
        utimensat(AT_FDCWD, path, old, 0);
    }
    expect(each_file(k, any) == 8, "as many entries as fit");
    expect(get(k, 0) == 1, "the oldest one is used");
    put(&small, 8);
    expect(each_file(k, any) == 6, "three quarters of the limit are left");
    expect(get(k, 0) == 1 && get(k, 8) == 1 && get(k, 1) == -1
           && get(k, 2) == -1, "the ones that are used stay");
    small.limit = BYTES;
    expect(!put(&small, 9), "an entry that is too large");
}

static void set(const char *fl, const char *xdg, const char *home)
{
    setenv("FLIN_CACHE", fl, 1);
    setenv("XDG_CACHE_HOME", xdg, 1);
    setenv("HOME", home, 1);
}

static bool opens_at(const char *want)
{
    Cache k;
    cache_open(&k);
    return !strcmp(k.folder, want);
}

static void test_where(void)
{
    set("/a/b", "/x", "/h");
    expect(opens_at("/a/b"), "FLIN_CACHE");
    set("off", "/x", "/h");
    expect(opens_at(""), "FLIN_CACHE=off");
    set("", "/x", "/h");
    expect(opens_at("/x/flin"), "XDG_CACHE_HOME");
    set("", "", "/h");
    expect(opens_at("/h/.cache/flin"), "HOME");
    set("", "", "");
    expect(opens_at(""), "nowhere");
}

static void test_digest(void)
{
    /* eight bytes of length, then the text: 3, "abc" */
    static const unsigned char want[8] = {
        0xce, 0x91, 0xdc, 0x5e, 0xec, 0x01, 0x39, 0xad
    };
    const char *const text[] = { "abc" };
    CacheKey k = cache_key(text, 1);
    expect(!memcmp(k.digest, want, sizeof want), "SHA-256");
}

int main(void)
{
    char root[] = "/tmp/flin-cache-XXXXXX";
    Cache k = { .limit = CACHE_LIMIT };
    if (!mkdtemp(root))
        return printf("no folder for the test: %s\n", strerror(errno)), 1;
    chmod(root, 0755);
    snprintf(k.folder, sizeof k.folder, "%s/deep/er", root);
    test_digest();
    test_processes(&k);
    test_killed(&k);
    test_corrupt(&k);
    test_pipe(&k);
    test_trust(&k);
    test_no_room(&k);
    test_limit(&k);
    each_file(&k, removed);
    rmdir(k.folder);
    snprintf(k.folder, sizeof k.folder, "%s/deep", root);
    rmdir(k.folder);
    rmdir(root);
    test_where();
    return report();
}
