/* races.cc -- what the driver of tests sees of accesses to global memory where
 * roles act: a block's own are in order where barriers say so; rows that a copy
 * brings along are read by who looks at them, not by the copy.
 */
#include "hopper.cc"

enum { ROWS = 8, EACH = 128, FULL = 8192, FREE = FULL + 8, TILE = 1024 };
/* Two tiles of eight rows, one behind the other; a copy brings both of them. */
alignas(128) static unsigned short memory[2 * ROWS][EACH / 2];
static Map both, one[2];

static Map map_of(unsigned short *p, unsigned rows)
{
    return Map { (char *)p, 4, 2, { EACH / 2, rows, 1, 1 },
                 { EACH, rows * EACH, rows * EACH }, { EACH / 2, rows, 1, 1 } };
}

/* What is left out, whose block copies: the first's or the other's. */
struct Case {
    const char *name;
    bool waits, clears, turned;
    bool wrong;
};
static const Case *now_on;

/* Warp 0 has it copied, warp 1 looks at it and stores over its own rows. */
static void kernel_of_roles(void *)
{
    const int own = blockIdx.x ^ (int)now_on->turned;
    if (threadIdx.x == 0) {
        barrier_init(FULL, 1);
        barrier_init(FREE, 32);
    }
    block_sync();
    if (threadIdx.x == 0 && own == 0) {
        arrive_expecting(FULL, 2 * ROWS * EACH);
        load_tile(0, (TensorMap *)&both, FULL, 0, 0, 0, 0);
    }
    if (threadIdx.x < 32)
        return;
    if (own == 0 && now_on->waits)
        wait(FULL, 0);
    for (int i = 0; i < 4 && own == 0 && now_on->turned; i++)
        warp_sync();                    /* the other block is through */
    if (own == 0 && threadIdx.x == 32) {
        for (unsigned i = 0; now_on->clears && i < ROWS * EACH; i += 16)
            clear16(TILE + i);
        load16(TILE);
    }
    warp_sync();
    fence_async();
    if (threadIdx.x == 32)
        store_tile((TensorMap *)&one[own], 4096, 0, 0, 0, 0);
    bulk_commit();
    bulk_wait();
}

/* Halves of a float32 may look like memory that nobody wrote to: where elements
 * have 4 bytes they are looked at as such. */
alignas(16) static const unsigned halves[] = { 0x3f80ffe5, 0xffe53f80 };
static unsigned each_has;               /* bytes */
static void kernel_of_parts(void *)
{
    if (threadIdx.x == 0)
        copy_bytes(0, halves, 8, 8, each_has);
}
static bool looks_new(unsigned bytes)
{
    faults = 0;
    each_has = bytes;
    launch_roles(1, 32, arena, kernel_of_parts, NULL);
    return faults != 0;
}

int main()
{
    static const Case cases[] = {
        { "own rows", true, true, false, false },
        { "own rows, behind the other block", true, true, true, false },
        { "a copy that is not waited for", false, true, false, true },
        { "rows of the other block", true, false, false, true },
        { "rows that the other block wrote", true, false, true, true },
    };
    int failed = 0;
    looks = true;
    both = map_of(memory[0], 2 * ROWS);
    for (int i = 0; i < 2; i++)
        one[i] = map_of(memory[ROWS * i], ROWS);
    for (const Case &c : cases) {
        faults = 0;
        now_on = &c;
        launch_roles(2, 64, arena, kernel_of_roles, NULL);
        if ((faults != 0) != c.wrong) {
            printf("FAIL %s: %d faults\n", c.name, faults);
            failed++;
        }
    }
    if (looks_new(4) || !looks_new(2)) {
        printf("FAIL halves of numbers that nobody wrote\n");
        failed++;
    }
    printf("%d passed, %d failed\n", 1 + (int)(sizeof cases / sizeof *cases)
           - failed, failed);
    return failed != 0;
}
