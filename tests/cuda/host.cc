/* host.cc -- what host.h declares: fibers, what a warp does together, a look at
 * each access. One library for all kernels; never with a sanitizer, whose hooks
 * are here.
 */
#include "host.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

volatile Index threadIdx, blockIdx, gridDim;
int faults;

void fault(const char *what)
{
    if (faults++ < 20)
        fprintf(stderr, "FAIL thread %d of block %d: %s\n", threadIdx.x,
                blockIdx.x, what);
}

float half_to_float(unsigned short h)
{
    _Float16 x;
    memcpy(&x, &h, sizeof x);
    return (float)x;
}
unsigned short float_to_half(float x)
{
    _Float16 h = (_Float16)x;
    unsigned short y;
    memcpy(&y, &h, sizeof y);
    return y;
}

/* ---- fibers ---- */

/* Stacks so far apart that their tops are of all sets of a cache. */
enum { MOST_THREADS = 1024, STACK = (1 << 16) + 17 * 64 };
enum State { READY, WITH_WARP, AT_BARRIER, DONE };

/* Where a fiber goes on: turn(FROM, TO) does, and comes back to FROM's. */
#ifdef __x86_64__
typedef void *Place;                    /* its stack, with what calls keep */
extern "C" void turn(Place *from, Place *to);
asm(".text\n.hidden turn\n.globl turn\n.type turn, @function\nturn:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov (%rsi), %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size turn, .-turn\n");
static void begin(Place *p, char *stack, size_t size, void (*f)())
{
    void **top = (void **)(stack + size) - 2;   /* f returns to NULL */
    memset(top - 6, 0, 8 * sizeof *top);
    memcpy(top, &f, sizeof f);
    *p = top - 6;
}
#else
typedef ucontext_t Place;
static void turn(Place *from, Place *to) { swapcontext(from, to); }
static void begin(Place *p, char *stack, size_t size, void (*f)())
{
    getcontext(p);
    p->uc_stack.ss_sp = stack;
    p->uc_stack.ss_size = size;
    makecontext(p, f, 0);
}
#endif
struct Fiber { Place at; State state; bool begun; Part *part; };

static Fiber fiber[MOST_THREADS];
alignas(16) static char stacks[MOST_THREADS][STACK];
static int first_fiber;                 /* of the block that runs */
static Place scheduler;
static void (*kernel)(void *);
static void *argument;
static unsigned now = 1;                /* the stretch between two barriers */
static unsigned warp_now[MOST_THREADS / WARP_SIZE]; /* and within, a warp's */

static void pause_as(State s)
{
    Fiber *f = &fiber[first_fiber + threadIdx.x];
    f->state = s;
    turn(&f->at, &scheduler);
}

static void fiber_main()
{
    for (;;) {
        kernel(argument);
        pause_as(DONE);
    }
}

static void resume(int thread)
{
    const int i = first_fiber + thread;
    threadIdx.x = thread;
    if (!fiber[i].begun)
        begin(&fiber[i].at, stacks[i], STACK, fiber_main);
    fiber[i].begun = true;
    turn(&scheduler, &fiber[i].at);
    if (stacks[i][0]) {
        fault("its stack is full");
        exit(1);
    }
}

static void perform(const Fiber *lane);

/* Until its lanes are done, or wait for the block. */
static void run_warp(Fiber *lane)
{
    for (;;) {
        int ready = 0, with = 0;
        for (int i = 0; i < WARP_SIZE; i++)
            if (lane[i].state == READY) {
                ready++;
                resume((int)(lane - fiber) + i);
            }
        for (int i = 0; i < WARP_SIZE; i++)
            with += lane[i].state == WITH_WARP;
        if (!ready && !with)
            return;
        if (with && !ready && with < WARP_SIZE) {
            fault("not all of its warp act together");
            exit(1);                    /* no thread can go on */
        }
        if (with < WARP_SIZE)
            continue;
        perform(lane);
        for (int i = 0; i < WARP_SIZE; i++)
            lane[i].state = READY;
    }
}

static void run_block(int threads)
{
    for (int i = 0; i < threads; i++)
        fiber[i].state = READY;
    for (int waiting = 1; waiting;) {
        waiting = 0;
        for (int i = 0; i < threads; i += WARP_SIZE)
            run_warp(fiber + i);
        for (int i = 0; i < threads; i++)
            waiting += fiber[i].state == AT_BARRIER;
        if (waiting && waiting < threads)
            fault("not all of the block reach the barrier");
        for (int i = 0; i < threads; i++)
            if (fiber[i].state == AT_BARRIER)
                fiber[i].state = READY;
        now++;
    }
}

static unsigned launches;
static bool has_roles;                  /* the launch: races.h has its clocks */
static char *shared_memory;

void launch(long grid, int threads, char *arena, void (*f)(void *), void *ud)
{
    kernel = f;
    argument = ud;
    shared_memory = arena;
    has_roles = false;
    launches++;
    now++;
    gridDim.x = (int)grid;
    for (int i = 0; i < grid; i++) {
        blockIdx.x = i;
        memset(arena, 0xff, ARENA);
        run_block(threads);
    }
}

void __syncthreads() { pause_as(AT_BARRIER); }

/* ---- what a warp does together ---- */

float together(Part *part)
{
    fiber[threadIdx.x].part = part;
    pause_as(WITH_WARP);
    return part->x;
}

/* Entry x of a register: of two bf16, or one tf32, whose last bits nobody
 * reads. */
static float entry(unsigned r, int x, bool two)
{
    return bits(two ? x ? r & 0xffff0000 : r << 16 : r & 0xffffe000);
}
/* Lane l of a step holds of `a` rows l / 4 and eight on, of b column l / 4;
 * each register (l % 4) * EACH columns or rows on, and half a step. */
static void step_of(const Fiber *lane, int each)
{
    float a[16][16], b[16][8], c[16][8];
    for (int l = 0; l < WARP_SIZE; l++)
        for (int r = 0; r < 4 * each; r++) {
            const Part *p = lane[l].part;
            int reg = r / each, k = l % 4 * each + r % each;
            a[l / 4 + reg % 2 * 8][k + reg / 2 * 4 * each]
                = entry(p->a[reg], r % each, each == 2);
            if (reg < 2)
                b[k + reg * 4 * each][l / 4]
                    = entry(p->b[reg], r % each, each == 2);
            if (r < 4)
                c[l / 4 + r / 2 * 8][l % 4 * 2 + r % 2] = p->c[r];
        }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 8 * each; k++)
            for (int col = 0; col < 8; col++)
                c[row][col] += a[row][k] * b[k][col];
    for (int l = 0; l < WARP_SIZE; l++)
        for (int e = 0; e < 4; e++)
            lane[l].part->c[e] = c[l / 4 + e / 2 * 8][l % 4 * 2 + e % 2];
}

/* Row r of tile t is what lane 8 t + r brought; of it or, turned, of column
 * l / 4 lane l gets pair l % 4. */
static void hand_out(const Fiber *lane)
{
    unsigned short tile[4][8][8];
    for (int l = 0; l < WARP_SIZE; l++)
        memcpy(tile[l / 8][l % 8], lane[l].part->a, 16);
    for (int l = 0; l < WARP_SIZE; l++)
        for (int t = 0; t < 4; t++) {
            int r = l / 4, c = l % 4 * 2;
            bool turned = lane[l].part->by;
            unsigned lo = turned ? tile[t][c][r] : tile[t][r][c];
            unsigned hi = turned ? tile[t][c + 1][r] : tile[t][r][c + 1];
            lane[l].part->a[t] = lo | hi << 16;
        }
}

static void perform(const Fiber *lane)
{
    float x[WARP_SIZE], sum = 0;
    const Part *first = lane[0].part;

    for (int l = 0; l < WARP_SIZE; l++) {
        x[l] = lane[l].part->x;
        if (lane[l].part->act != first->act)
            fault("its warp does not do the same");
    }
    if (first->act == TF32_STEP || first->act == BF16_STEP)
        return step_of(lane, first->act == BF16_STEP ? 2 : 1);
    if (first->act == TILES)
        return hand_out(lane);
    if (first->act == ORDER)
        warp_now[(lane - fiber) / WARP_SIZE]++;
    for (int by = first->by / 2; by && first->act == SUM; by /= 2) {
        float y[WARP_SIZE];
        for (int l = 0; l < WARP_SIZE; l++)
            y[l] = x[l] + x[l ^ by];
        memcpy(x, y, sizeof x);
    }
    for (int l = 0; l < WARP_SIZE; l++)
        sum += x[l] != 0;
    for (int l = 0; l < WARP_SIZE; l++) {
        Part *p = lane[l].part;
        p->x = first->act == ANY ? sum : first->act == SUM ? x[l]
             : first->act == XOR ? x[l ^ p->by]
             : first->act == OF ? x[p->by]
             : x[l - (l >= p->by ? p->by : 0)];
    }
}

/* ---- each access ---- */

/* Who has written or read two bytes: in which stretch and block, which thread
 * (-1: several; below: several of warp -2 - thread). Where roles act: which of
 * races.h's parties, by its own clock (-1: more than there is room for). */
struct Seen { unsigned when, warp_when; int block, thread, party;
              unsigned clock; };
/* In which launch the last was, of which block (-1: several). */
struct Blocks { unsigned launch; int block; };
enum { READERS = 2 };
struct Cell { Seen written, read[READERS]; Blocks writers, readers; };
/* Who does it, where roles act. A copy counts among blocks as read by its own
 * where that looks at what it brought. */
struct By { int party; unsigned clock; bool copies; };
enum { PAGE = 4096, PAGES = 1 << 16 };
struct Page { uintptr_t at; Cell *cell; };
static Page pages[PAGES];
static Page *last_page;

static Cell *cell_of(uintptr_t at)
{
    uintptr_t page = at / PAGE;
    if (!last_page || last_page->at != page) {
        size_t x = page * 0x9e3779b97f4a7c15u >> 48;
        while (pages[x].cell && pages[x].at != page)
            x = (x + 1) % PAGES;
        pages[x].at = page;
        if (!pages[x].cell)
            pages[x].cell = (Cell *)calloc(PAGE / 2, sizeof(Cell));
        last_page = &pages[x];
    }
    return last_page->cell + at % PAGE / 2;
}

static int own_warp() { return threadIdx.x / WARP_SIZE; }
/* Whether only threads of this warp have, before it last acted in order. */
static bool of_own_warp(const Seen &s)
{
    return s.thread >= 0 ? s.thread / WARP_SIZE == own_warp()
                         : s.thread == -2 - own_warp();
}
static bool in_order(const Seen &s)
{
    return of_own_warp(s) && s.warp_when != warp_now[own_warp()];
}

static By by_own_warp();
static bool is_over(const Seen &s);     /* as this thread has been told */

static bool of_others(const Blocks &b)
{
    return b.launch == launches && b.block != blockIdx.x;
}
static void add_own(Blocks *b)
{
    *b = Blocks { launches, of_others(*b) ? -1 : blockIdx.x };
}
static bool is_recent(const Seen &s)
{
    return s.when == now && s.block == blockIdx.x;
}
static bool meets(const Seen &s)
{
    if (!is_recent(s))
        return false;
    return has_roles ? !is_over(s) : s.thread != threadIdx.x && !in_order(s);
}
static bool meets_any(const Seen *s, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++)
        any |= meets(s[i]);
    return any;
}
/* In the place of one that is over, or of the same party. */
static void see_role(Seen *s, int n, const By &by)
{
    int to = -1;
    for (int i = n - 1; i >= 0; i--)
        if (!is_recent(s[i]) || s[i].party == by.party || is_over(s[i]))
            to = i;
    Seen *one = s + max(to, 0);
    const bool more = is_recent(*one) && one->party == by.party
                   && one->thread != threadIdx.x;
    *one = Seen { now, 0, blockIdx.x, more ? -1 : threadIdx.x,
                  to < 0 ? -1 : by.party, by.clock };
}
static void see(Seen *s)
{
    int who = !is_recent(*s) || s->thread == threadIdx.x || in_order(*s)
            ? threadIdx.x : of_own_warp(*s) ? -2 - own_warp() : -1;
    *s = Seen { now, warp_now[own_warp()], blockIdx.x, who, -1, 0 };
}

/* Whether memory is among it that is as fake/driver.c gave it: a number of 16
 * bits that says so, or two side by side. */
enum { NEW = 0xffe5 };
static bool is_new(const void *p, size_t bytes)
{
    unsigned short x[2] = { 0, NEW };
    const size_t each = bytes < 4 ? bytes : 4;
    bool found = false;
    for (size_t i = 0; i + each <= bytes && bytes > 1; i += each) {
        memcpy(x, (const char *)p + i, each);
        found |= x[0] == NEW && x[1] == NEW;
    }
    return found;
}

static bool looks;                      /* at each access */
static void complain(const void *p, size_t bytes, bool shared, const char *what,
                     const void *from)
{
    char text[120];
    Dl_info of = {};
    dladdr(from, &of);                  /* the kernel's library */
    snprintf(text, sizeof text, "%s memory at %ld, %d bytes: %s (code at %#lx)",
             shared ? "shared" : "global",
             (long)(shared ? (char *)p - shared_memory : (intptr_t)p),
             (int)bytes, what, (long)((char *)from - (char *)of.dli_fbase));
    fault(text);
}
/* What is wrong with it, among those of its block and among blocks. */
static const char *wrong_at(Cell *c, bool shared, bool write, const By &by)
{
    const bool across = !shared && !by.copies;
    const char *wrong = meets(c->written) || (across && of_others(c->writers))
                      ? write ? "written twice" : "read while it is written"
                      : write && (meets_any(c->read, READERS)
                                  || (across && of_others(c->readers)))
                      ? "written while it is read" : NULL;
    if (across)
        add_own(write ? &c->writers : &c->readers);
    if (has_roles)
        see_role(write ? &c->written : c->read, write ? 1 : READERS, by);
    else
        see(write ? &c->written : c->read);
    return wrong;
}
static void access(const void *p, size_t bytes, size_t align, bool write,
                   const void *from, const By &by)
{
    uintptr_t at = (uintptr_t)p;
    bool shared = (size_t)((char *)p - shared_memory) < ARENA;
    const char *wrong = at % align ? "not aligned"
                      : !write && !shared && is_new(p, bytes)
                      ? "read, and nobody wrote there" : NULL;

    if ((char *)p >= stacks[0] && (char *)p < stacks[MOST_THREADS])
        return;
    for (size_t b = 0; b < bytes; b += 2) {
        const char *found = wrong_at(cell_of(at + b), shared, write, by);
        wrong = found ? found : wrong;
    }
    if (wrong)
        complain(p, bytes, shared, wrong, from);
}
/* Looks at what a copy has read there. */
static void looks_at(const char *p, size_t bytes, const void *from)
{
    bool wrong = false;
    for (size_t b = 0; b < bytes; b += 2) {
        Cell *c = cell_of((uintptr_t)p + b);
        wrong |= of_others(c->writers);
        add_own(&c->readers);
    }
    if (wrong)
        complain(p, bytes, false, "read while it is written", from);
}

#define HOOK(n, size)                                                        \
    void n(const void *p)                                                    \
    { access(p, size, size, WRITES, __builtin_return_address(0),         \
             by_own_warp()); }
#define LOOSE(n, size)                                                       \
    void n(const void *p)                                                    \
    { access(p, size, 1, WRITES, __builtin_return_address(0),         \
             by_own_warp()); }
extern "C" {
#define WRITES false
HOOK(__tsan_read1, 1) HOOK(__tsan_read2, 2) HOOK(__tsan_read4, 4)
HOOK(__tsan_read8, 8) HOOK(__tsan_read16, 16)
LOOSE(__tsan_unaligned_read2, 2) LOOSE(__tsan_unaligned_read4, 4)
LOOSE(__tsan_unaligned_read8, 8) LOOSE(__tsan_unaligned_read16, 16)
#undef WRITES
#define WRITES true
HOOK(__tsan_write1, 1) HOOK(__tsan_write2, 2) HOOK(__tsan_write4, 4)
HOOK(__tsan_write8, 8) HOOK(__tsan_write16, 16)
LOOSE(__tsan_unaligned_write2, 2) LOOSE(__tsan_unaligned_write4, 4)
LOOSE(__tsan_unaligned_write8, 8) LOOSE(__tsan_unaligned_write16, 16)
#undef WRITES
void __tsan_read_range(void *p, size_t n)
{
    access(p, n, 1, false, __builtin_return_address(0), by_own_warp());
}
void __tsan_write_range(void *p, size_t n)
{
    access(p, n, 1, true, __builtin_return_address(0), by_own_warp());
}
void __tsan_init() { looks = true; }
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
}
