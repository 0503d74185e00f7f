/* nvrtc.c -- NVRTC for tests on a machine without a GPU: makes a library of
 * the source with the host's C++ compiler, as tests/cuda/host.h lets it be.
 * FAKE_CXX is the compiler ("g++"), FAKE_SOURCES counts what it has
 * compiled, a byte each, in that file, or of that what has FAKE_COUNTED in
 * it; with FAKE_CHECKED each access to memory is looked at; kernels of
 * sources that have FAKE_WRONG in them do nothing, FAKE_SPOILT ("OLD=>NEW")
 * changes each text; sources that have FAKE_SPILLS in them spill registers, or
 * the first FAKE_SPILLED of those that a process compiles, or (each) the first
 * text of each kernel, as many as FAKE_SPILLED_BYTES (8000); those that have
 * FAKE_SERIAL in them ptxas is said to have serialised, or the first
 * FAKE_SERIALISED; with FAKE_CROWDED the first one that keeps states spills,
 * and is not compiled; FAKE_KEEP leaves the files where they are, with lines
 * for what FAKE_CHECKED finds; in the folder FAKE_HEADS what sources begin
 * with is compiled once for all that begin so; in FAKE_KEPT what is compiled
 * is kept for all whose texts and flags are the same, wherever the tests lie:
 * it is of one compiler, and of one set of what hosts have in place of a GPU;
 * with FAKE_HOPPER=1 only what is Hopper's is compiled, with 2 others, too,
 * but their way forward runs once: when the way back is checked; with
 * FAKE_EMPTY nothing is compiled, see fake/driver.c; to the file FAKE_BESIDE
 * goes how many are compiled at a time, each for 50 ms. A kernel of a schedule
 * in which two roles leave a vector in one place is not compiled. Of Hopper's
 * headers those functions are left out that have assembler in them:
 * tests/cuda/hopper.h has them. What kernels do most of the time is in
 * HOST_LIBRARY, so that to compile them well would take longer than it saves.
 */
#define _DEFAULT_SOURCE                 /* signal() as most have it */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

#define EXPORT __attribute__((visibility("default")))
#define ENTRY(type, name, ...) EXPORT type name(__VA_ARGS__); \
    EXPORT type name(__VA_ARGS__)

enum { OK, OUT_OF_MEMORY, FAILED = 6 };
enum { HOPPER_ALONE = 1, HOPPER_FORWARD };      /* FAKE_HOPPER */

typedef struct Program {
    char *source;
    int n;
    char **text, **name;
    unsigned char *out;                 /* its length, then the library */
    size_t size;
    char log[2000];
} Program;

ENTRY(int, nvrtcVersion, int *major, int *minor)
{
    *major = 13;
    *minor = 0;
    return OK;
}

ENTRY(int, nvrtcCreateProgram, Program **p, const char *source,
      const char *name, int n, const char *const *text,
      const char *const *names)
{
    Program *q = calloc(1, sizeof *q);
    (void)name;
    q->source = strdup(source);
    q->text = calloc((size_t)n + 1, sizeof *q->text);
    q->name = calloc((size_t)n + 1, sizeof *q->name);
    for (q->n = 0; q->n < n; q->n++) {
        q->text[q->n] = strdup(text[q->n]);
        q->name[q->n] = strdup(names[q->n]);
    }
    *p = q;
    return OK;
}

ENTRY(int, nvrtcDestroyProgram, Program **p)
{
    for (int i = 0; i < (*p)->n; i++) {
        free((*p)->text[i]);
        free((*p)->name[i]);
    }
    free((*p)->text);
    free((*p)->name);
    free((*p)->source);
    free((*p)->out);
    free(*p);
    *p = NULL;
    return OK;
}

/* ---- the library ---- */

static int is_hopper(const char *text)
{
    return strstr(text, "\"wgmma.cuh\"") || strstr(text, "\"schedule.cuh\"");
}

static int wish(void)
{
    const char *s = getenv("FAKE_HOPPER");
    return s ? atoi(s) : 0;
}

/* The wrapper of the kernel whose name begins at s: each parameter from where
 * its address says, for each thread. first: of the source, all of whose kernels
 * have one name for shared memory; named: each has a namespace of its own. */
static void write_wrapper(FILE *f, const char *s, int hopper, bool wrong,
                          bool first, bool named)
{
    const char *open = strchr(s, '('), *end = strchr(open, ')');
    int params = 0, len = (int)(open - s);
    if (hopper && named)
        fprintf(f, "namespace in_%.*s {\n", len, s);
    if (hopper && first)
        fprintf(f, "unsigned char raw[1];\n");
    bool once = !hopper && wish() == HOPPER_FORWARD && !strncmp(s, "k0_", 3);
    fprintf(f, "extern \"C\" int fake_%.*s(void **ud, long grid, int threads)"
            "\n{\n%s%s    launch%s(grid, threads, arena, [](void *ud) {\n"
            "        void **p = (void **)ud;\n        %.*s(", len, s,
            wrong ? "    return 0;\n" : "", once
            ? "    static int times;\n    if (times++)\n"
              "        fault(\"not by Hopper's kernel\");\n" : "",
            hopper ? "_roles" : "", len, s);
    for (const char *at = open + 1; at < end; params++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end, *name = stop;
        while (name[-1] != ' ' && name[-1] != '*')
            name--;
        fprintf(f, "%s*(Bare<%.*s>::type *)p[%d]",
                params ? ", " : "", (int)(name - at), at, params);
        at = stop + 1;
    }
    fprintf(f, ");\n    }, ud);\n    return faults;\n}\n%s",
            hopper && named ? "}\n" : "");
}

/* The end of the line, macro or definition that begins at s. */
static const char *end_of(const char *s)
{
    int macro = *s == '#', body = !strncmp(s, "INLINE", 6)
                               || !strncmp(s, "template", 8);
    for (;;) {
        const char *line = s, *end = strchr(s, '\n');
        if (!end)
            return s + strlen(s);
        char last = end > line ? end[-1] : ' ';
        s = end + 1;
        if (macro ? last != '\\'
            : !body || (*line != ' ' && strchr("};", last)))
            return s;
    }
}

/* A header without the functions that have assembler in them. */
static void write_plain(FILE *f, const char *s)
{
    while (*s) {
        const char *end = end_of(s);
        char *text = strndup(s, (size_t)(end - s));
        if (!strstr(text, "asm(") && !strstr(text, "asm volatile("))
            fputs(text, f);
        free(text);
        s = end;
    }
}

/* A copy in which FAKE_SPOILT, "OLD=>NEW", holds: OLD, wherever it stands. */
static char *spoilt(const char *text)
{
    const char *edit = getenv("FAKE_SPOILT");
    const char *new = edit ? strstr(edit, "=>") : NULL;
    size_t len = new ? (size_t)(new - edit) : 0, size;
    char *old = new ? strndup(edit, len) : NULL, *copy = NULL;
    FILE *f = open_memstream(&copy, &size);
    for (const char *at; old && (at = strstr(text, old)); text = at + len)
        fprintf(f, "%.*s%s", (int)(at - text), text, new + 2);
    fputs(text, f);
    fclose(f);
    free(old);
    return copy;
}

enum { SOURCE, HEAD, HEADER, HEADER_OF_HOPPER };

/* How much of a source comes before its kernels: its last #include ends it. */
static size_t head_of(const char *source)
{
    const char *at = source, *end = source;
    while ((at = strstr(at, "#include \"")))
        end = at += strcspn(at, "\n");
    return (size_t)(end - source);
}

static void write_host(FILE *f, const char *text)
{
    fprintf(f, "%s#include \"%s/%s.h\"\nextern char arena[ARENA];\n",
            strstr(text, "#define ELEMENT_F16") ? "#define ELEMENT_F16\n" : "",
            HOST_DIR, is_hopper(text) ? "hopper" : "host");
}

static void write_wrappers(FILE *f, const char *text)
{
    const char *wrong = getenv("FAKE_WRONG");
    bool first = true, named = strstr(text, "\nnamespace in_");
    for (const char *s = text; (s = strstr(s, "__global__"));
         s++, first = false) {
        const char *name_at = strchr(s, '(');
        while (!strncmp(name_at - 2, "__", 2))  /* an attribute's */
            name_at = strchr(strchr(name_at, ')'), '(');
        while (name_at[-1] != ' ' && name_at[-1] != '\n')
            name_at--;
        write_wrapper(f, name_at, is_hopper(text),
                      wrong && strstr(text, wrong), first, named);
    }
}

/* heads: what it begins with is in that file; or NULL. */
static int write_file(const char *dir, const char *name, const char *as,
                      int kind, const char *heads)
{
    char path[256], *text = spoilt(as);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    if (!f) {
        free(text);
        return 0;
    }
    if (heads)
        fprintf(f, "#include \"%s\"\n", heads);
    else if (kind < HEADER)
        write_host(f, text);
    if (kind == HEADER_OF_HOPPER)
        write_plain(f, text);
    else
        fprintf(f, "%.*s", kind == HEAD ? (int)head_of(text)
                : (int)strlen(text), text + (heads ? head_of(text) : 0));
    if (kind == SOURCE)
        write_wrappers(f, text);
    free(text);
    return fclose(f) == 0;
}

static void write_headers(const Program *p, const char *dir)
{
    for (int i = 0; i < p->n; i++)
        write_file(dir, p->name[i], p->text[i], is_hopper(p->source)
                   ? HEADER_OF_HOPPER : HEADER, NULL);
}

static void read_file(Program *p, const char *path)
{
    FILE *f = fopen(path, "rb");
    uint64_t size;
    if (!f)
        return;
    fseek(f, 0, SEEK_END);
    size = (uint64_t)ftell(f);
    rewind(f);
    p->out = malloc(size + sizeof size);
    memcpy(p->out, &size, sizeof size);
    if (fread(p->out + sizeof size, 1, size, f) == size)
        p->size = size + sizeof size;
    fclose(f);
}

static void count_source(const char *source)
{
    const char *path = getenv("FAKE_SOURCES"), *in = getenv("FAKE_COUNTED");
    FILE *f = path && (!in || strstr(source, in)) ? fopen(path, "a") : NULL;
    if (f) {
        fputc('.', f);
        fclose(f);
    }
}

/* The real one crashes now and then where its destructors run beside it. */
static atomic_int compiling;
static pid_t process;

__attribute__((destructor)) static void end(void)
{
    if (compiling && process == getpid()) {
        fputs("NVRTC ends while it compiles\n", stderr);
        _exit(9);
    }
}

static bool is_crowded(const char *source)
{
    static atomic_int kept;
    return strstr(source, "keep_state<") && !kept++;
}

/* As system() does, which would have SIGINT ignored meanwhile. */
static int shell(const char *command)
{
    char *argv[] = { (char *)"sh", (char *)"-c", (char *)command, NULL };
    int status = 1;
    pid_t pid;
    if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ) != 0
        || waitpid(pid, &status, 0) != pid)
        return 1;
    return status;
}

/* Whether the source is one of those that the two variables tell of. */
static bool is_told(const char *source, const char *has, const char *first,
                    atomic_int *seen)
{
    const char *with = getenv(has), *most = getenv(first);

    return with && strstr(source, with)
        && (!most || atomic_fetch_add(seen, 1) < atoi(most));
}

/* Whether no text before had a kernel of these nodes. */
static bool is_first(const char *source)
{
    enum { MOST = 4096 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t seen[MOST];
    static int n;
    const char *from = strstr(source, "\n// ");
    const char *to = from ? strstr(from, "\nnamespace ") : NULL;
    uint64_t hash = 14695981039346656037u;
    bool first = from && to;
    for (const char *s = from; first && s < to; s++)
        hash = (hash ^ (unsigned char)*s) * 1099511628211u;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++)
        first &= seen[i] != hash;
    if (first && n < MOST)
        seen[n++] = hash;
    pthread_mutex_unlock(&lock);
    return first;
}

/* Whether registers are said to spill, or products to be serialised. */
static bool spills(const char *source)
{
    static atomic_int seen;
    const char *with = getenv("FAKE_SPILLS"), *most = getenv("FAKE_SPILLED");
    if (with && most && !strcmp(most, "each"))
        return strstr(source, with) && is_first(source);
    return is_told(source, "FAKE_SPILLS", "FAKE_SPILLED", &seen);
}

static bool is_serialised(const char *source)
{
    static atomic_int seen;
    return is_told(source, "FAKE_SERIAL", "FAKE_SERIALISED", &seen);
}

/* A vector of tokens that two roles of a kernel from a schedule leave in one
 * place, as it is printed; its length. */
static int left_twice(const char *source, const char **at)
{
    static const char *const leaves[] = { "keep_pair(", "output_pair<" };
    for (int i = 0; i < 2 && strstr(source, "schedule.cuh"); i++)
        for (const char *s = source; (s = strstr(s, leaves[i])); s++) {
            size_t len = strcspn(s, "\n");
            for (const char *t = s; (t = strstr(t + 1, leaves[i]));)
                if (strcspn(t, "\n") == len && !strncmp(s, t, len)) {
                    *at = s;
                    return (int)len;
                }
        }
    return 0;
}

/* A lane's registers are arrays: an index beyond one ends the process; of pairs
 * of tokens, what lies where numbers of its type may not does. */
#define TRAPPING " -fsanitize-undefined-trap-on-error"
#define BOUNDED "-fsanitize=bounds" TRAPPING
#define ALIGNED "-fsanitize=alignment" TRAPPING

/* What no one has written is -1.7e38, wherever the compiler can have it so. */
#if defined __clang__ || __GNUC__ >= 12
#define UNWRITTEN " -ftrivial-auto-var-init=pattern"
#else
#define UNWRITTEN ""
#endif

static void options_for(const Program *p, char *to, size_t size)
{
    snprintf(to, size, "-std=c++17 %s -fno-exceptions -fPIC -w -I.%s %s",
             !getenv("FAKE_CHECKED") ? "-O0" : getenv("FAKE_KEEP")
             ? "-O1 -g -fsanitize=thread" : "-O1 -fsanitize=thread",
             UNWRITTEN, strstr(p->source, "schedule.cuh") ? BOUNDED
             : strstr(p->source, "pairs_call.cuh") ? ALIGNED : "");
}

static uint64_t hash(uint64_t h, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3;
    return h;
}

/* What the source begins with, as compiled; its name tells all of it, and the
 * compiler. */
typedef struct Head {
    char name[32], dir[256], path[300];
} Head;

/* False: there is to be none. */
static bool name_head(const Program *p, const char *cxx, Head *head)
{
    const char *in = getenv("FAKE_HEADS");
    char options[256];
    if (!in || getenv("FAKE_SPOILT"))
        return false;
    options_for(p, options, sizeof options);
    uint64_t h = hash(0xcbf29ce484222325, options, strlen(options));
    h = hash(h, cxx, strlen(cxx));
    h = hash(h, p->source, head_of(p->source));
    for (int i = 0; i < p->n; i++)
        h = hash(h, p->text[i], strlen(p->text[i]));
    snprintf(head->name, sizeof head->name, "%016llx", (unsigned long long)h);
    snprintf(head->dir, sizeof head->dir, "%s/%s", in, head->name);
    snprintf(head->path, sizeof head->path, "%s/head.h", head->dir);
    return true;
}

/* Who makes it does so elsewhere and has it appear at once. */
static bool make_head(const Program *p, const char *cxx, const Head *head)
{
    const char *in = getenv("FAKE_HEADS");
    char options[256], made[256], command[1400];
    if (access(head->path, R_OK) == 0)
        return true;
    options_for(p, options, sizeof options);
    mkdir(in, 0777);
    snprintf(made, sizeof made, "%s/XXXXXX", in);
    if (!mkdtemp(made) || !write_file(made, "head.h", p->source, HEAD, NULL))
        return false;
    write_headers(p, made);
    snprintf(command, sizeof command, "exec >/dev/null 2>&1; unset LD_PRELOAD;"
             " cd %s && %s %s -x c++-header head.h; rm -f *.cuh; mv -T %s %s"
             " || rm -rf %s", made, cxx, options, made, head->dir, made);
    shell(command);
    return access(head->path, R_OK) == 0;
}

/* Where the library of the folder's text is kept, behind its first line, which
 * is the head's path; false: nowhere. */
static bool find_kept(const Head *head, const char *dir, char *path,
                      size_t size)
{
    const char *in = getenv("FAKE_KEPT");
    Program text = { 0 };
    char source[64];
    if (!in || !*in || getenv("FAKE_KEEP"))
        return false;
    snprintf(source, sizeof source, "%s/kernel.cc", dir);
    read_file(&text, source);
    uint64_t h = hash(0xcbf29ce484222325, head->name, strlen(head->name));
    size_t first = sizeof(uint64_t);
    while (first < text.size && text.out[first] != '\n')
        first++;
    h = hash(h, (char *)text.out + first, text.size - first);
    free(text.out);
    mkdir(in, 0777);
    snprintf(path, size, "%s/%016llx.so", in, (unsigned long long)h);
    return true;
}

/* As a whole, or not at all. */
static void keep(const Program *p, const char *path)
{
    char made[320];
    snprintf(made, sizeof made, "%s.XXXXXX", path);
    int to = mkstemp(made);
    FILE *f = to < 0 ? NULL : fdopen(to, "wb");
    size_t n = p->size - sizeof(uint64_t);
    if (f) {
        size_t put = fwrite(p->out + sizeof(uint64_t), 1, n, f);
        if (fclose(f) != 0 || put != n || rename(made, path) != 0)
            unlink(made);
    }
}

static bool remove_all(const char *dir)
{
    DIR *d = opendir(dir);
    char path[320];
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);                   /* not of the two folders */
    }
    return d && closedir(d) == 0 && rmdir(dir) == 0;
}

static int compile(Program *p)
{
    char dir[] = "/tmp/flin-nvrtc-XXXXXX", command[1024], path[256];
    char options[256], kept[300];
    Head head;
    const char *cxx = getenv("FAKE_CXX");
    count_source(p->source);
    if (getenv("FAKE_EMPTY")) {
        p->out = calloc(1, p->size = sizeof(uint64_t));
        return OK;
    }
    if (wish() == HOPPER_ALONE && !is_hopper(p->source))
        return FAILED;
    if (getenv("FAKE_CROWDED") && is_crowded(p->source)) {
        strcpy(p->log, "8 bytes spill stores\n");
        p->out = calloc(1, p->size = 1);
        return OK;
    }
    cxx = cxx ? cxx : "g++";
    bool begins = name_head(p, cxx, &head);
    if (!mkdtemp(dir) || !write_file(dir, "kernel.cc", p->source, SOURCE,
                                     begins ? head.path : NULL))
        return FAILED;
    options_for(p, options, sizeof options);
    snprintf(command, sizeof command, "%s %s -c kernel.cc &&"
             " ld -shared -Bsymbolic -o kernel.so kernel.o '%s'",
             cxx, options, HOST_LIBRARY);
    const char *twice = NULL;
    int len = left_twice(p->source, &twice), code = len != 0;
    bool keeps = begins && find_kept(&head, dir, kept, sizeof kept);
    if (keeps && !len)
        read_file(p, kept);
    if (keeps && p->size)
        utimes(kept, NULL);             /* it is of use */
    if (!p->size && !len) {
        char whole[1400];
        if (!begins || !make_head(p, cxx, &head)) {
            write_file(dir, "kernel.cc", p->source, SOURCE, NULL);
            write_headers(p, dir);
        }
        snprintf(whole, sizeof whole, "exec >%s/log 2>&1; unset LD_PRELOAD;"
                 " cd %s && %s", dir, dir, command);
        code = shell(whole);
        snprintf(path, sizeof path, "%s/kernel.so", dir);
        if (code == 0)
            read_file(p, path);
        if (p->size && keeps)
            keep(p, kept);
    }
    snprintf(path, sizeof path, "%s/log", dir);
    FILE *f = fopen(path, "r");
    if (f) {
        p->log[fread(p->log, 1, sizeof p->log - 1, f)] = 0;
        fclose(f);
    }
    if (len)
        snprintf(p->log, sizeof p->log, "left by two roles: %.*s", len, twice);
    const char *counted = getenv("FAKE_COUNTED");
    if (code != 0 && counted && strstr(p->source, counted))
        fprintf(stderr, "FAIL %s: does not compile\n%s\n", counted, p->log);
    const char *bytes = getenv("FAKE_SPILLED_BYTES");
    if (spills(p->source))
        snprintf(p->log, sizeof p->log, "%s bytes spill stores\n",
                 bytes ? bytes : "8000");
    if (is_serialised(p->source))
        strcpy(p->log, "ptxas info : (C7512) Potential Performance Loss\n");
    if (!getenv("FAKE_KEEP") && !remove_all(dir))
        return FAILED;
    return code == 0 && p->size ? OK : FAILED;
}

static void on_signal(int sig)
{
    (void)sig;
    _exit(9);
}

/* How many there are now, this one among them. */
static void say_beside(int now)
{
    const char *path = getenv("FAKE_BESIDE");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (!f)
        return;
    fprintf(f, "%d\n", now);
    fclose(f);
    usleep(50000);
}

/* It takes the host's signals as the real one's front end does. */
ENTRY(int, nvrtcCompileProgram, Program *p, int n, const char *const *option)
{
    void (*interrupt)(int) = signal(SIGINT, on_signal);
    void (*terminate)(int) = signal(SIGTERM, on_signal);
    (void)n;
    (void)option;
    process = getpid();
    say_beside(++compiling);
    int result = compile(p);
    compiling--;
    signal(SIGINT, interrupt);
    signal(SIGTERM, terminate);
    return result;
}

ENTRY(int, nvrtcGetCUBINSize, Program *p, size_t *size)
{
    *size = p->size;
    return OK;
}
ENTRY(int, nvrtcGetCUBIN, Program *p, char *to)
{
    memcpy(to, p->out, p->size);
    return OK;
}
ENTRY(int, nvrtcGetProgramLogSize, Program *p, size_t *size)
{
    *size = strlen(p->log) + 1;
    return OK;
}
ENTRY(int, nvrtcGetProgramLog, Program *p, char *to)
{
    strcpy(to, p->log);
    return OK;
}
ENTRY(const char *, nvrtcGetErrorString, int result)
{
    return result ? "the host's compiler failed" : "no error";
}
