/* tensor.h -- tensor memory on the host, for hopper.cc: what tcgen05.cuh does
 * in PTX. Sums are made when a product is asked for, and hidden until someone
 * has waited for the barrier that says that it has ended: until then they read
 * as NaN. What is loaded is NaN, too, until it is waited for. Faults are
 * columns that nobody asked for, or gave back; lanes that a warp does not
 * reach; descriptors of other than matrices of tiles; and races, as races.h has
 * them. After that.
 */
struct Sums {
    float x[LANES][COLUMNS];
    bool hidden[LANES][COLUMNS];
    int columns;                        /* that the block has, from `first` */
    unsigned first;
};
static Sums sums[2];

/* Products that a thread has asked for and told no barrier of; and those that
 * a barrier is told of. */
struct Asked { unsigned d, cols; };
enum { MOST_ASKED = 64 };
static Asked asked[MOST_THREADS][MOST_ASKED];
static int nasked[MOST_THREADS];
struct Told { int block; unsigned barrier; Asked of; };
static Told told[2 * MOST_ASKED];
static int ntold;

/* Loads of a thread that are not waited for; warps that have stored. */
struct Loading { float *to; int n; unsigned at; };
static Loading loading[MOST_THREADS][MOST_ASKED];
static int nloading[MOST_THREADS];
static bool storing[WARPS];

static int my_thread() { return first_fiber + threadIdx.x; }
static unsigned word_of(unsigned lane, unsigned col)
{
    return TENSOR + lane * COLUMNS + col;
}

/* All of a warp say the same. */
static void agrees(unsigned x)
{
    const auto all = warp_meets(&x, 1);
    for (int l = 0; l < 32; l++)
        if (all[l][0] != x)
            fault("tensor memory: lanes of a warp that do not agree");
}

void take_columns(int n, unsigned to)
{
    Sums *s = &sums[here];
    agrees(to);
    if (threadIdx.x % 32)
        return;
    if (n < 32 || n > COLUMNS || n & (n - 1) || s->columns) {
        fault("tensor memory: no such number of columns");
        return;
    }
    s->columns = n;
    s->first = (unsigned)(COLUMNS - n);
    memset(s->x, 0xff, sizeof s->x);
    memset(s->hidden, 0, sizeof s->hidden);
    store(to, s->first);
}
void give_columns(int n, unsigned at)
{
    Sums *s = &sums[here];
    agrees(at);
    if (threadIdx.x % 32)
        return;
    if (n != s->columns || at != s->first)
        fault("tensor memory: columns are given back that nobody has");
    for (unsigned lane = 0; lane < LANES; lane++)
        for (unsigned col = s->first; col < COLUMNS; col++)
            writes_word(known_of(TENSOR), here, my_warp(), 0,
                        word_of(lane, col));
    s->columns = 0;
}
static void end_tensor()
{
    for (int i = 0; i < 2; i++)
        if (sums[i].columns) {
            fault("tensor memory: a block that gives no columns back");
            sums[i].columns = 0;
        }
    if (ntold)
        fault("products that nobody waits for");
    ntold = 0;
    for (int i = 0; i < MOST_THREADS; i++) {
        if (nasked[i])
            fault("products that no barrier is told of");
        nasked[i] = nloading[i] = 0;
    }
}
unsigned tensor_at(unsigned from) { return load<unsigned>(from); }

/* Whether the block has these columns, from address `at` on. */
static bool has_columns(unsigned at, unsigned n)
{
    const Sums *s = &sums[here];
    const unsigned col = at & 0xffff;
    if (s->columns && col >= s->first && col + n <= s->first + s->columns)
        return true;
    fault("tensor memory: columns that the block has not");
    return false;
}

void tensor_before()
{
    if (!storing[my_warp()] && !nloading[my_thread()])
        fence_sums();
}
void tensor_after() { sums_known[my_warp()] = clocks[my_warp()]; }

/* ---- a warp's own lanes ---- */

static bool reaches(unsigned at, int n)
{
    const unsigned lane = at >> 16, own = threadIdx.x % 128 / 32 * 32;
    agrees(at);
    if (lane != own && lane != own + 16) {
        fault("tensor memory: lanes that the warp does not reach");
        return false;
    }
    return has_columns(at, 2 * (unsigned)n);
}
/* Number e of a thread's. */
static unsigned lane_of(unsigned at, int e)
{
    return (at >> 16) + threadIdx.x % 32 / 4 + e / 2 % 2 * 8;
}
static unsigned column_of(unsigned at, int e)
{
    return (at & 0xffff) + e / 4 * 8 + threadIdx.x % 4 * 2 + e % 2;
}

void load_sums(float *d, int n, unsigned at)
{
    Loading *l = loading[my_thread()];
    memset(d, 0xff, (size_t)n * sizeof *d);
    if (!reaches(at, n) || nloading[my_thread()] == MOST_ASKED)
        return;
    l[nloading[my_thread()]++] = Loading { d, n, at };
    const Clock c = known_of(TENSOR);
    const unsigned now = clocks[my_warp()].at[my_warp()];
    for (int e = 0; e < n; e++)
        reads_word(c, my_warp(), now, word_of(lane_of(at, e),
                                              column_of(at, e)));
}
void tensor_loaded()
{
    for (int i = 0; i < nloading[my_thread()]; i++) {
        const Loading l = loading[my_thread()][i];
        for (int e = 0; e < l.n; e++) {
            const unsigned lane = lane_of(l.at, e), col = column_of(l.at, e);
            l.to[e] = sums[here].hidden[lane][col] ? bits(0x7fffffff)
                    : sums[here].x[lane][col];
        }
    }
    nloading[my_thread()] = 0;
}
void store_sums(unsigned at, const float *d, int n)
{
    if (!reaches(at, n))
        return;
    storing[my_warp()] = true;
    const Clock c = known_of(TENSOR);
    const unsigned now = clocks[my_warp()].at[my_warp()];
    for (int e = 0; e < n; e++) {
        const unsigned lane = lane_of(at, e), col = column_of(at, e);
        writes_word(c, here, my_warp(), now, word_of(lane, col));
        sums[here].x[lane][col] = d[e];
        sums[here].hidden[lane][col] = false;
    }
}
void tensor_stored() { storing[my_warp()] = false; }

/* ---- products ---- */

static bool is_matrix(Descriptor d)
{
    return (d >> 46 & 7) == 1 && !(d >> 49 & 0xfff) && d >> 61 == 2
        && (d >> 32 & 0x3fff) == 1024 / 16;
}
void tensor_product(unsigned d, Descriptor a, Descriptor b, unsigned shape,
                    int add)
{
    enum { ROWS = 64, K = 16, MOST = 256 };
    static float left[ROWS][K], right[MOST][K];
    const unsigned cols = (shape >> 17 & 63) * 8, type = shape >> 7 & 7;
    const unsigned first = d >> 16, from = d & 0xffff;
    const bool across_a = shape >> 15 & 1, across_b = shape >> 16 & 1;
    const float sign = shape >> 13 & 1 ? -1.f : 1.f;
    if ((shape & ~(0x7fu << 17 | 1u << 13 | 3u << 15 | 077u << 7))
        != (1u << 4 | ROWS / 16 << 24) || type > 1
        || type != (shape >> 10 & 7) || cols < 8 || cols > MOST
        || !is_matrix(a) || !is_matrix(b)) {
        fault("tensor memory: no such product");
        return;
    }
    if (first != 0 && first != 16) {
        fault("tensor memory: sums that begin in another lane");
        return;
    }
    if (!has_columns(d, cols))
        return;
    group_reads(a, 0, ROWS, across_a);
    group_reads(b, 0, (int)cols, across_b);
    for (int k = 0; k < K; k++)
        for (unsigned i = 0; i < ROWS + cols; i++) {
            unsigned short u;
            const bool is_left = i < ROWS;
            memcpy(&u, shared_memory + (is_left ? place_of(a, i, k, across_a)
                   : place_of(b, i - ROWS, k, across_b)), 2);
            (is_left ? left[i] : right[i - ROWS])[k] = number(u, !type);
        }
    const Clock c = known_of(TENSOR);
    const unsigned party = PRODUCTS + my_warp();
    for (unsigned i = 0; i < ROWS; i++)
        for (unsigned j = 0; j < cols; j++) {
            const unsigned lane = i / 16 * 32 + i % 16 + first;
            float *x = &sums[here].x[lane][from + j], sum = add ? *x : 0;
            for (int k = 0; k < K; k++)
                sum += sign * left[i][k] * right[j][k];
            if (add)
                reads_word(c, party, begun[party], word_of(lane, from + j));
            writes_word(c, here, party, begun[party], word_of(lane, from + j));
            *x = sum;
            sums[here].hidden[lane][from + j] = true;
        }
    int *n = &nasked[my_thread()];
    Asked *list = asked[my_thread()];
    if (*n && list[*n - 1].d == d && list[*n - 1].cols == cols)
        return;
    if (*n == MOST_ASKED)
        fault("too many products");
    else
        list[(*n)++] = Asked { d, cols };
}
/* The barrier is told by the products, not by the thread. */
void tensor_commit(unsigned b)
{
    Arrivals *a = &arrivals[here][b / 8];
    const unsigned party = PRODUCTS + my_warp();
    unsigned *known = &orders[a->order].gathered.at[party];
    for (int i = 0; i < nasked[my_thread()]; i++) {
        if (ntold == 2 * MOST_ASKED)
            fault("too many products");
        else
            told[ntold++] = Told { here, b, asked[my_thread()][i] };
    }
    nasked[my_thread()] = 0;
    *known = max(*known, begun[party]++);
    if (--a->left < 0)
        fault("too many arrive at a barrier");
    check_phase(a);
}
/* Someone has waited for the barrier. */
static void sums_end(unsigned b)
{
    int left = 0;
    for (int i = 0; i < ntold; i++) {
        const Told t = told[i];
        if (t.block != here || t.barrier != b) {
            told[left++] = t;
            continue;
        }
        for (unsigned lane = t.of.d >> 16; lane < LANES; lane++)
            for (unsigned j = 0; j < t.of.cols && lane % 32 / 16
                                 == (t.of.d >> 16) / 16; j++)
                sums[here].hidden[lane][(t.of.d & 0xffff) + j] = false;
    }
    ntold = left;
}
