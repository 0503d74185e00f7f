/* host.h -- a block of a GPU on the host: what numbers.cuh and warp.cuh take
 * from CUDA, for the sources that cuda_tiles prints as plain C++. Threads are
 * fibers, which take turns at barriers and where a warp acts together; what
 * they do wrong there is said, and counted in `faults`.
 *
 * Compiled with -fsanitize=thread, and without its library, each access to
 * memory is looked at, too: two threads must not meet at a place between two
 * barriers, nor two blocks in a launch, if one writes; and pieces of 4, 8 and
 * 16 bytes are to start at multiples of that.
 */
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#pragma GCC visibility push(hidden)

#define HOST
#define __device__
#define __global__
#define __grid_constant__
#define __shared__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define NO_UNROLL
#define UNROLL_TWICE
#define UNROLL_FOUR
#define UNROLL_EIGHT
#define UNROLL
#define PLAIN __attribute__((no_sanitize("thread")))

struct Index { int x; };
struct float2 { float x, y; };
inline volatile Index threadIdx, blockIdx, gridDim;
inline int faults;

PLAIN inline void fault(const char *what)
{
    if (faults++ < 20)
        fprintf(stderr, "FAIL thread %d of block %d: %s\n", threadIdx.x,
                blockIdx.x, what);
}

/* ---- fibers ---- */

enum { MOST_THREADS = 1024, STACK = 1 << 16, WARP_SIZE = 32 };
enum State { READY, WITH_WARP, AT_BARRIER, DONE };
enum Together { UP, XOR, SUM, ANY, TF32_STEP, BF16_STEP, TILES, ORDER };

/* What a thread brings to an act of its warp. */
struct Part {
    Together act;
    int by;
    float x;
    float *c;
    unsigned a[4], b[2];
};
struct Fiber { jmp_buf at; State state; bool begun; Part *part; };

inline Fiber fiber[MOST_THREADS];
inline char stacks[MOST_THREADS][STACK];
inline int first_fiber;                 /* of the block that runs */
inline jmp_buf scheduler;
inline ucontext_t context;
inline void (*kernel)(void *);
inline void *argument;
inline unsigned now = 1;                /* the stretch between two barriers */
inline unsigned warp_now[MOST_THREADS / WARP_SIZE]; /* and within, a warp's */

PLAIN inline void pause_as(State s)
{
    Fiber *f = &fiber[first_fiber + threadIdx.x];
    f->state = s;
    if (!_setjmp(f->at))
        _longjmp(scheduler, 1);
}

PLAIN inline void fiber_main()
{
    for (;;) {
        kernel(argument);
        pause_as(DONE);
    }
}

PLAIN inline void resume(int thread)
{
    Fiber *f = &fiber[first_fiber + thread];
    threadIdx.x = thread;
    if (_setjmp(scheduler))
        return;
    if (f->begun)
        _longjmp(f->at, 1);
    f->begun = true;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks[first_fiber + thread];
    context.uc_stack.ss_size = STACK;
    makecontext(&context, fiber_main, 0);
    setcontext(&context);
}

inline void perform(const Fiber *lane);

/* Until its lanes are done, or wait for the block. */
PLAIN inline void run_warp(Fiber *lane)
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

PLAIN inline void run_block(int threads)
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

enum { ARENA = 1 << 18 };
inline unsigned launches;
inline char *shared_memory;

/* f(ud) by all threads of each block, whose shared memory begins as NaN. */
PLAIN inline void launch(long grid, int threads, char *arena,
                         void (*f)(void *), void *ud)
{
    kernel = f;
    argument = ud;
    shared_memory = arena;
    launches++;
    gridDim.x = (int)grid;
    for (int i = 0; i < grid; i++) {
        blockIdx.x = i;
        memset(arena, 0xff, ARENA);
        run_block(threads);
    }
}

PLAIN inline void atomicMin(unsigned long long *p, unsigned long long x)
{
    *p = x < *p ? x : *p;
}
PLAIN inline void __syncthreads() { pause_as(AT_BARRIER); }

/* ---- numbers ---- */

PLAIN inline float bits(unsigned x)
{
    float y;
    memcpy(&y, &x, sizeof y);
    return y;
}
PLAIN inline unsigned bits_of(float x)
{
    unsigned y;
    memcpy(&y, &x, sizeof y);
    return y;
}
PLAIN inline float exp2_(float x) { return exp2f(x); }
PLAIN inline float log2_(float x) { return log2f(x); }
PLAIN inline float half_to_float(unsigned short h)
{
    _Float16 x;
    memcpy(&x, &h, sizeof x);
    return (float)x;
}
PLAIN inline unsigned short float_to_half(float x)
{
    _Float16 h = (_Float16)x;
    unsigned short y;
    memcpy(&y, &h, sizeof y);
    return y;
}
PLAIN inline unsigned to_bf16(float x)
{
    const unsigned u = bits_of(x);
    return x == x ? (u + 0x7fff + (u >> 16 & 1)) >> 16 : 0x7fff;
}
PLAIN inline unsigned pack(float2 x)
{
    return to_bf16(x.x) | to_bf16(x.y) << 16;
}
PLAIN inline unsigned to_tf32(float x)
{
    return x - x == 0 ? (bits_of(x) + 0x1000) & 0xffffe000 : bits_of(x);
}
#define __sinf sinf
#define __cosf cosf
template<class T> PLAIN inline T min(T a, T b) { return a < b ? a : b; }
template<class T> PLAIN inline T max(T a, T b) { return a > b ? a : b; }

/* ---- what a warp does together ---- */

PLAIN inline float together(Part *part)
{
    fiber[threadIdx.x].part = part;
    pause_as(WITH_WARP);
    return part->x;
}
PLAIN inline int thread_here() { return threadIdx.x; }
PLAIN inline int blocks_here() { return gridDim.x; }
PLAIN inline int fresh(int x) { return x; }
template<class T> PLAIN inline T *global(T *p) { return p; }
PLAIN inline float lane_up(float x, int by)
{
    Part p = { UP, by, x };
    return together(&p);
}
/* What two floats hold of it. */
PLAIN inline double lane_up(double x, int by)
{
    const float high = (float)x, low = (float)(x - high);
    const float up = lane_up(high, by);
    return (double)up + lane_up(low, by);
}
PLAIN inline float lane_xor(float x, int by)
{
    Part p = { XOR, by, x };
    return together(&p);
}
template<int W> PLAIN inline float lane_sum(float x)
{
    Part p = { SUM, W, x };
    return together(&p);
}
PLAIN inline bool warp_any(bool x)
{
    Part p = { ANY, 0, (float)x };
    return together(&p) != 0;
}
PLAIN inline void __syncwarp()
{
    Part p = { ORDER };
    together(&p);
}
PLAIN inline void mma_tf32(float c[4], const unsigned a[4], unsigned b0,
                           unsigned b1)
{
    Part p = { TF32_STEP, 0, 0, c, { a[0], a[1], a[2], a[3] }, { b0, b1 } };
    together(&p);
}
PLAIN inline void mma_bf16(float c[4], const unsigned a[4], unsigned b0,
                           unsigned b1)
{
    Part p = { BF16_STEP, 0, 0, c, { a[0], a[1], a[2], a[3] }, { b0, b1 } };
    together(&p);
}
/* by: whether transposed; b: the row, as a lane's part holds a piece of it. */
struct alignas(16) Row { unsigned x[4]; };
typedef const char *Shared;
PLAIN inline Shared shared_at(const void *p) { return (Shared)p; }
template<bool TURNED> inline void load_tiles(unsigned x[4], Shared row)
{
    Part p = { TILES, TURNED };
    const Row own = *(const Row *)row;
    memcpy(p.a, own.x, 16);
    together(&p);
    memcpy(x, p.a, 16);
}

/* Entry x of a register: of two bf16, or one tf32, whose last bits nobody
 * reads. */
PLAIN inline float entry(unsigned r, int x, bool two)
{
    return bits(two ? x ? r & 0xffff0000 : r << 16 : r & 0xffffe000);
}
/* Lane l of a step holds of `a` rows l / 4 and eight on, of b column l / 4;
 * each register (l % 4) * EACH columns or rows on, and half a step. */
PLAIN inline void step_of(const Fiber *lane, int each)
{
    float a[16][16], b[16][8], *c;
    for (int l = 0; l < WARP_SIZE; l++)
        for (int r = 0; r < 4 * each; r++) {
            const Part *p = lane[l].part;
            int reg = r / each, k = l % 4 * each + r % each;
            a[l / 4 + reg % 2 * 8][k + reg / 2 * 4 * each]
                = entry(p->a[reg], r % each, each == 2);
            if (reg < 2)
                b[k + reg * 4 * each][l / 4]
                    = entry(p->b[reg], r % each, each == 2);
        }
    for (int l = 0; l < WARP_SIZE; l++)
        for (int e = 0; e < 4; e++) {
            c = lane[l].part->c + e;
            for (int k = 0; k < 8 * each; k++)
                *c += a[l / 4 + e / 2 * 8][k] * b[k][l % 4 * 2 + e % 2];
        }
}

/* Row r of tile t is what lane 8 t + r brought; of it or, turned, of column
 * l / 4 lane l gets pair l % 4. */
PLAIN inline void hand_out(const Fiber *lane)
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

PLAIN inline void perform(const Fiber *lane)
{
    float x[WARP_SIZE], sum = 0;
    const Part *first = lane[0].part;

    for (int l = 0; l < WARP_SIZE; l++) {
        x[l] = lane[l].part->x;
        if (lane[l].part->act != first->act)
            fault("its warp does not do the same");
    }
    if (first->act == TF32_STEP || first->act == BF16_STEP)
        step_of(lane, first->act == BF16_STEP ? 2 : 1);
    if (first->act == TILES)
        hand_out(lane);
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
             : x[l - (l >= p->by ? p->by : 0)];
    }
}

/* ---- copies ---- */

template<class P> inline void copy_ahead(P *to, const P *from)
{
    *to = *from;
}
inline void copy_commit() {}
template<int LEFT> inline void copy_wait() {}

/* ---- each access ---- */

/* Who last wrote and read two bytes: when, in which launch and block (-1:
 * several), which thread (-1: several; below: several of warp -2 - thread). */
struct Seen { unsigned when, warp_when, launch; int block, thread; };
struct Cell { Seen written, read; };
enum { PAGE = 4096, PAGES = 1 << 16 };
struct Page { uintptr_t at; Cell *cell; };
inline Page pages[PAGES];
inline Page *last_page;

PLAIN inline Cell *cell_of(uintptr_t at)
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

PLAIN inline int own_warp() { return threadIdx.x / WARP_SIZE; }
/* Whether only threads of this warp have, before it last acted in order. */
PLAIN inline bool of_own_warp(const Seen &s)
{
    return s.thread >= 0 ? s.thread / WARP_SIZE == own_warp()
                         : s.thread == -2 - own_warp();
}
PLAIN inline bool in_order(const Seen &s)
{
    return of_own_warp(s) && s.warp_when != warp_now[own_warp()];
}

PLAIN inline bool meets(const Seen &s, bool shared)
{
    if (!shared && s.launch == launches && s.block != blockIdx.x)
        return true;
    return s.when == now && s.thread != threadIdx.x && !in_order(s);
}
PLAIN inline void see(Seen *s)
{
    int who = s->when != now || s->thread == threadIdx.x || in_order(*s)
            ? threadIdx.x : of_own_warp(*s) ? -2 - own_warp() : -1;
    int block = s->launch != launches || s->block == blockIdx.x ? blockIdx.x
              : -1;
    *s = Seen { now, warp_now[own_warp()], launches, block, who };
}

/* Whether memory is among it that is as fake/driver.c gave it: a number of 16
 * bits that says so, or two side by side. */
enum { NEW = 0xffe5 };
PLAIN inline bool is_new(const void *p, size_t bytes)
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

extern "C" const char __ehdr_start[];   /* of the library */
PLAIN inline void access(const void *p, size_t bytes, size_t align, bool write,
                         const void *from)
{
    uintptr_t at = (uintptr_t)p;
    bool shared = (size_t)((char *)p - shared_memory) < ARENA;
    char text[120];
    const char *wrong = at % align ? "not aligned"
                      : !write && !shared && is_new(p, bytes)
                      ? "read, and nobody wrote there" : NULL;

    if ((char *)p >= stacks[0] && (char *)p < stacks[MOST_THREADS])
        return;
    for (size_t b = 0; b < bytes; b += 2) {
        Cell *c = cell_of(at + b);
        if (meets(c->written, shared) || (write && meets(c->read, shared)))
            wrong = meets(c->written, shared) ? write ? "written twice"
                  : "read while it is written" : "written while it is read";
        see(write ? &c->written : &c->read);
    }
    if (wrong) {
        snprintf(text, sizeof text, "%s memory at %ld, %d bytes: %s (code at "
                 "%#lx)", shared ? "shared" : "global",
                 shared ? (long)((char *)p - shared_memory) : (long)at,
                 (int)bytes, wrong, (long)((char *)from - __ehdr_start));
        fault(text);
    }
}

#define HOOK(n, size)                                                        \
    PLAIN inline __attribute__((used)) void n(const void *p)                 \
    { access(p, size, size, WRITES, __builtin_return_address(0)); }
#define LOOSE(n, size)                                                       \
    PLAIN inline __attribute__((used)) void n(const void *p)                 \
    { access(p, size, 1, WRITES, __builtin_return_address(0)); }
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
PLAIN inline __attribute__((used)) void __tsan_read_range(void *p, size_t n)
{
    access(p, n, 1, false, __builtin_return_address(0));
}
PLAIN inline __attribute__((used)) void __tsan_write_range(void *p, size_t n)
{
    access(p, n, 1, true, __builtin_return_address(0));
}
PLAIN inline __attribute__((used)) void __tsan_init() {}
PLAIN inline __attribute__((used)) void __tsan_func_entry(void *) {}
PLAIN inline __attribute__((used)) void __tsan_func_exit() {}
}
#pragma GCC visibility pop
