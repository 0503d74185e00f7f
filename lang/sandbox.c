/* sandbox.c -- what a script may do, and how much of it.
 *
 * Two limits. Memory is counted in the allocator, tensors included. Effort is
 * a budget of VM instructions, counted by a hook; what C functions do in one
 * instruction is charged to it as well: memory turned over, the worst case of
 * a pattern, elements that a function goes through (sandbox_lib.c, `work`).
 * What has no such price (two texts compared, an empty table searched for its
 * next entry) is charged by the clock. A spent budget stays spent, so that no
 * pcall outlives it.
 */
#include <string.h>
#include <time.h>

#include "sandbox.h"

#define ATTACHED "flin.attached"        /* a guard, of another's Lua */

enum { HOOK_STEP = 200, BYTES_STEP = 64, ELEMENTS_STEP = 4,
       POLL_COST = 20000, TELL = 1 << 20 };

/* Nanoseconds: what one instruction counts as at least, and LONG of them, which
 * those between two looks never take by themselves. On a machine that is slow
 * it counts as a few times of what it takes there. */
enum { INSTRUCTION = 10, LONG = 100000, FEW = 4 };

/* ---- the allocator ---- */

/* What the limit leaves: Lua and what has been compiled share it. */
static size_t room_left(const Guard *g)
{
    size_t all = g->used + atomic_load_explicit(&g->like.tally->used,
                                                memory_order_relaxed);

    return all < g->lim.memory ? g->lim.memory - all : 0;
}

/* The guard is not Lua's memory: it goes when the last of Lua's does. */
static void *guarded_alloc(void *ud, void *p, size_t old, size_t size)
{
    Guard *g = ud;
    size_t had = p ? old : 0;
    void *q;

    if (size > had) {
        uint64_t cost = size / BYTES_STEP;
        if (g->lim.memory && size - had > room_left(g))
            return NULL;
        g->left -= cost < g->left ? cost : g->left;
    }
    q = g->alloc(g->ud, p, old, size);
    if (!q && size)
        return NULL;
    g->used = g->used - had + size;
    atomic_store_explicit(&g->like.tally->beside, g->used,
                          memory_order_relaxed);
    if (g->used == 0) {
        tally_release(g->like.tally);
        g->alloc(g->ud, g, sizeof *g, 0);
    }
    return q;
}

static Guard *guard_new(lua_State *L, const Limits *lim)
{
    void *ud;
    lua_Alloc alloc = lua_getallocf(L, &ud);
    Guard *g = alloc(ud, NULL, 0, sizeof *g);

    if (!g)
        lang_no_memory(L, "no memory for a script");
    memset(g, 0, sizeof *g);
    g->alloc = alloc;
    g->ud = ud;
    g->lim = *lim;
    g->left = lim->instructions ? lim->instructions : UINT64_MAX;
    g->instruction = INSTRUCTION;
    g->used = (size_t)lua_gc(L, LUA_GCCOUNT) * 1024
              + (size_t)lua_gc(L, LUA_GCCOUNTB);
    if (g->lim.memory && g->lim.memory < g->used)
        g->lim.memory = g->used;
    g->like.tally = tally_new(g->lim.memory);
    if (!g->like.tally) {
        alloc(ud, g, sizeof *g, 0);
        lang_no_memory(L, "no memory for a script");
    }
    lua_setallocf(L, guarded_alloc, g);
    return g;
}

Guard *guard_of(lua_State *L)
{
    void *ud;

    if (lua_getallocf(L, &ud) == guarded_alloc)
        return ud;
    lua_getfield(L, LUA_REGISTRYINDEX, ATTACHED);
    ud = lua_touserdata(L, -1);
    lua_pop(L, 1);
    return ud;
}

/* ---- the budget ---- */

/* Blames the running line of the script. */
static _Noreturn void stop(lua_State *L, const char *why)
{
    int line = current_line(L);

    luaL_checkstack(L, 8, NULL);
    if (line)
        lua_pushfstring(L, "%s:%d: %s", current_file(L), line, why);
    else
        lua_pushstring(L, why);
    lua_error(L);
    for (;;) { }                        /* lua_error does not return */
}

static bool asked(const Guard *g)
{
    return g->asked && g->asked(g->asked_ud);
}

void guard_check(lua_State *L, Guard *g)
{
    if (asked(g))
        stop(L, "interrupted");
    if (g->left == 0) {
        char s[160];
        snprintf(s, sizeof s, "the script has used up its budget of %llu "
                 "instructions\n  help: does a loop end? A host can give "
                 "more: limits.instructions",
                 (unsigned long long)g->lim.instructions);
        stop(L, s);
    }
}

static void charge(Guard *g, uint64_t steps)
{
    steps += (uint64_t)atomic_exchange(&g->polls, 0) * POLL_COST;
    if (g->lim.instructions)
        g->left -= steps < g->left ? steps : g->left;
}

static uint64_t nanoseconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Between two looks. */
static uint64_t usual_time(const Guard *g)
{
    return LONG * g->instruction;
}

/* The CPU's time, which the system is to be asked for, is not taken at each
 * look, but so often that what was done before is no long time. */
static void note_time(Guard *g, uint64_t now)
{
    g->looked = now;
    if (now - g->sampled < usual_time(g) / 8)
        return;
    g->sampled = now;
    g->used_cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
}

/* The time since the last look, where it was long: as the clock has it, but no
 * more than this thread had of the CPU. */
static void charge_time(Guard *g)
{
    uint64_t now, spent, cpu;

    if (!g->lim.instructions)
        return;
    now = nanoseconds(CLOCK_MONOTONIC);
    spent = now - g->looked;
    if (g->looked && spent > usual_time(g)) {
        cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - g->used_cpu;
        if (spent > cpu)
            spent = cpu;
        if (spent > usual_time(g))
            charge(g, spent / g->instruction);
    }
    note_time(g, now);
}

/* The same script is to get as far on any machine, an emulated one, too. */
static void measure_instruction(lua_State *L, Guard *g)
{
    static const char loop[] =
        "local t = {} for i = 1, 4000 do t[i & 7] = i end";
    enum { RUN = 4000 * 3, RUNS = 3 };
    uint64_t least = UINT64_MAX;

    for (int n = 0; n < RUNS; n++) {
        if (luaL_loadbufferx(L, loop, sizeof loop - 1, "=flin:loop", "t"))
            lua_error(L);
        uint64_t start = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
        lua_call(L, 0, 0);
        uint64_t took = nanoseconds(CLOCK_THREAD_CPUTIME_ID) - start;
        least = took < least ? took : least;
    }
    g->instruction = FEW * least / RUN;
    if (g->instruction < INSTRUCTION)
        g->instruction = INSTRUCTION;
}

/* What was done since the last look has been paid for. */
static void look(Guard *g)
{
    if (g->lim.instructions)
        note_time(g, nanoseconds(CLOCK_MONOTONIC));
}

void guard_charge(lua_State *L, uint64_t steps)
{
    Guard *g = guard_of(L);

    if (g) {
        charge_time(g);
        charge(g, steps);
        guard_check(L, g);
    }
}

uint64_t work_times(uint64_t a, uint64_t b)
{
    uint64_t r;

    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

void work(lua_State *L, uint64_t n)
{
    guard_charge(L, n / ELEMENTS_STEP);
}

void work_on(lua_State *L)
{
    Guard *g = guard_of(L);

    if (!g)
        return;
    if (g->at_work)
        g->at_work();
    look(g);
    guard_check(L, g);
}

void work_begin(lua_State *L)
{
    Guard *g = guard_of(L);

    if (g)
        charge_time(g);
}

/* The collector cannot see what contexts hold, and would let what has been
 * compiled lie. */
static void tell_collector(lua_State *L, Guard *g)
{
    size_t now = g->like.tally ? atomic_load(&g->like.tally->used) : 0;
    size_t more = now > g->told ? now - g->told : 0;

    if (more >> 30)
        more = (size_t)1 << 30;
    if (more && more < TELL)
        return;
    g->told = now;
    if (more)
        lua_gc(L, LUA_GCSTEP, (int)(more >> 10));
}

void work_end(lua_State *L, bool stopped)
{
    Guard *g = guard_of(L);

    if (!g)
        return;
    look(g);
    charge(g, 0);
    tell_collector(L, g);
    if (stopped && g->left == 0 && !asked(g))
        guard_check(L, g);
}

/* What a compilation or a call asks now and then. */
static bool polled(void *ud)
{
    Guard *g = ud;
    uint64_t polls = atomic_fetch_add(&g->polls, 1) + (uint64_t)1;

    if (g->at_work)
        g->at_work();
    return asked(g)
           || (g->lim.instructions && polls * POLL_COST >= g->left);
}

void sandbox_hook(lua_State *L, lua_Debug *ar)
{
    Guard *g = guard_of(L);

    (void)ar;
    if (!g)
        return;
    charge_time(g);
    charge(g, HOOK_STEP);
    if (g->at_lua)
        g->at_lua();
    if (g->left == 0 || asked(g))       /* at once, whoever catches it */
        lua_sethook(L, sandbox_hook, LUA_MASKCOUNT, 1);
    guard_check(L, g);
}

void sandbox_rehook(lua_State *L)
{
    const Guard *g = guard_of(L);

    if (g && g->alloc)                  /* another's Lua has its own hooks */
        lua_sethook(L, sandbox_hook, LUA_MASKCOUNT, HOOK_STEP);
    else
        lua_sethook(L, NULL, 0, 0);
}

/* ---- compilations ---- */

static void guard_limits(Guard *g)
{
    g->like.limit = g->lim.memory;
    g->like.max_nodes = g->lim.nodes;
    g->like.interrupted = polled;
    g->like.interrupt_ud = g;
}

void sandbox_hooks(lua_State *L, const Ctx *like)
{
    Guard *g = guard_of(L);

    if (!g)
        return;
    g->like.mem = like->mem;
    g->like.progress = like->progress;
    g->like.progress_ud = like->progress_ud;
    g->like.say = like->say;
    g->like.say_ud = like->say_ud;
    g->like.parallel = like->parallel;
    g->like.parallel_ud = like->parallel_ud;
}

bool sandbox_attach(lua_State *L, const Limits *lim)
{
    if (guard_of(L))
        return false;
    Guard *g = lua_newuserdatauv(L, sizeof *g, 0);
    memset(g, 0, sizeof *g);
    g->lim = (Limits){ 0, lim->memory, lim->nodes };
    g->left = UINT64_MAX;
    guard_limits(g);
    lua_setfield(L, LUA_REGISTRYINDEX, ATTACHED);
    return true;
}

void sandbox_detach(lua_State *L)
{
    lua_pushnil(L);
    lua_setfield(L, LUA_REGISTRYINDEX, ATTACHED);
}

Ctx *sandbox_ctx(lua_State *L)
{
    Guard *g = guard_of(L);
    if (g && g->lim.memory && g->like.tally
        && room_left(g) < g->lim.memory / 4)
        lua_gc(L, LUA_GCCOLLECT, 0);
    Ctx *c = g ? ctx_like(&g->like) : ctx_new();

    if (!c)
        lang_no_memory(L, "out of memory");
    return c;
}

void protect(lua_State *L, Ctx *c, void (*f)(Ctx *, void *), void *ud)
{
    work_begin(L);
    bool ok = ctx_protect(c, f, ud);
    work_end(L, !ok && c->err.code == ERR_INTERRUPT);
    if (!ok)
        lang_raise(L, &c->err);
}

/* ---- tables from a script ---- */

int raw_field(lua_State *L, int table, const char *name)
{
    table = lua_absindex(L, table);
    lua_pushstring(L, name);
    return lua_rawget(L, table);
}

void set_number(lua_State *L, const char *name, double x)
{
    lua_pushnumber(L, x);
    lua_setfield(L, -2, name);
}

void set_text(lua_State *L, const char *name, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

lua_Integer list_length(lua_State *L, int list, const char *what)
{
    lua_Unsigned n = lua_rawlen(L, list);

    if (n > LIST_MAX)
        lang_fail(L, NULL, "%s: a list of %llu entries; at most %d", what,
                  (unsigned long long)n, LIST_MAX);
    return (lua_Integer)n;
}

/* ---- the state ---- */

Guard *guard_open(lua_State *L, const Limits *lim, bool open_files)
{
    Guard *g = guard_new(L, lim);

    guard_limits(g);
    g->open_files = open_files;
    if (!open_files) {
        lua_pushboolean(L, 1);
        lua_setfield(L, LUA_REGISTRYINDEX, SANDBOX_CLOSED);
    }
    return g;
}

void guard_begin(lua_State *L, Guard *g)
{
    if (g->lim.instructions)
        measure_instruction(L, g);
    lua_sethook(L, sandbox_hook, LUA_MASKCOUNT, HOOK_STEP);
}

void sandbox_renew(lua_State *L)
{
    Guard *g = guard_of(L);

    if (g && g->lim.instructions) {
        g->left = g->lim.instructions;
        g->looked = 0;
        lua_sethook(L, sandbox_hook, LUA_MASKCOUNT, HOOK_STEP);
    }
}

uint64_t budget_suspend(lua_State *L)
{
    Guard *g = guard_of(L);
    uint64_t instructions = g ? g->lim.instructions : 0;

    if (g) {
        g->lim.instructions = 0;
        g->left = UINT64_MAX;
        sandbox_rehook(L);
    }
    return instructions;
}

void budget_resume(lua_State *L, uint64_t instructions)
{
    Guard *g = guard_of(L);

    if (g)
        g->lim.instructions = instructions;
    sandbox_renew(L);
}

void sandbox_interrupt(lua_State *L, bool (*ask)(void *ud), void *ud)
{
    Guard *g = guard_of(L);

    if (g) {
        g->asked = ask;
        g->asked_ud = ud;
    }
    if (g && g->alloc)
        sandbox_rehook(L);
}

void sandbox_wake(lua_State *L)
{
    lua_sethook(L, sandbox_hook, LUA_MASKCOUNT, 1);
}

void sandbox_progress(lua_State *L, void (*at_lua)(void),
                      void (*at_work)(void))
{
    Guard *g = guard_of(L);

    if (g) {
        g->at_lua = at_lua;
        g->at_work = at_work;
    }
}
