/* rows_scan.cuh -- numbers that rows carry from token to token, where pieces of
 * a sequence are walked side by side. A lane has N of a piece's numbers; pieces
 * are groups of lanes, one after another, or, going BACK, the other way round.
 * What they leave is always put together in the same order. After rows.cuh.
 */
enum { ROW_THREADS = 256 };

/* What a stretch of tokens makes of x: p x + s. Where p is 0 nothing of x is
 * left, whatever it is. */
struct alignas(8) Stretch { float p, s; };
INLINE float behind(Stretch a, float x)
{
    return a.p == 0 ? a.s : a.p * x + a.s;
}
INLINE Stretch joined(Stretch first, Stretch then)
{
    return { then.p == 0 || first.p == 0 ? 0 : then.p * first.p,
             behind(then, first.s) };
}

/* How a block's numbers lie, and who puts them together: slices of EACH
 * pieces, an entry a thread. */
template<int N, int GROUP> struct Deal {
    enum { ENTRIES = N * GROUP, PIECES = ROW_THREADS / GROUP,
           SLICES = ROW_THREADS / ENTRIES, EACH = PIECES / SLICES };
};

/* `own`, what each piece makes, becomes what those of the block before it make;
 * *all: all of them. */
template<int N, int GROUP, bool BACK>
INLINE void gather(Stretch *own, Stretch *all)
{
    typedef Deal<N, GROUP> D;
    Stretch *at = (Stretch *)arena, *sum = at + D::PIECES * D::ENTRIES;
    const int lane = threadIdx.x % GROUP, place = threadIdx.x / GROUP;
    const int piece = BACK ? D::PIECES - 1 - place : place;
    const int entry = threadIdx.x % D::ENTRIES;
    const int slice = threadIdx.x / D::ENTRIES;
    Stretch *mine = at + piece * D::ENTRIES + lane;
    Stretch *first = at + slice * D::EACH * D::ENTRIES + entry;
    Stretch so_far = { 1, 0 };
    __syncthreads();
    UNROLL
    for (int z = 0; z < N; z++)
        mine[z * GROUP] = own[z];
    __syncthreads();
    NO_UNROLL
    for (int i = 0; i < D::EACH; i++)
        so_far = joined(so_far, first[i * D::ENTRIES]);
    sum[threadIdx.x] = so_far;
    __syncthreads();
    so_far = { 1, 0 };
    NO_UNROLL
    for (int i = 0; i < slice; i++)
        so_far = joined(so_far, sum[i * D::ENTRIES + entry]);
    NO_UNROLL
    for (int i = 0; i < D::EACH; i++) {
        const Stretch x = first[i * D::ENTRIES];
        first[i * D::ENTRIES] = so_far;
        so_far = joined(so_far, x);
    }
    if (slice == D::SLICES - 1)
        all[entry] = so_far;
    __syncthreads();
    UNROLL
    for (int z = 0; z < N; z++)
        own[z] = mine[z * GROUP];
}

/* x as it is where the piece begins, whose block is number `part` of those of
 * the sequence: all of them have left what they make, and gather has left
 * `own`. */
template<int N, int GROUP, bool BACK>
INLINE void carry_on(const Stretch *all, i64 part, i64 parts,
                     const Stretch *own, float *x)
{
    typedef Deal<N, GROUP> D;
    Stretch *sum = (Stretch *)arena, so_far = { 1, 0 };
    const int lane = threadIdx.x % GROUP;
    const int entry = threadIdx.x % D::ENTRIES;
    const int slice = threadIdx.x / D::ENTRIES;
    const int n = (int)(BACK ? parts - 1 - part : part);
    const int end = (slice + 1) * n / D::SLICES;
    UNROLL_FOUR
    for (int i = slice * n / D::SLICES; i < end; i++)
        so_far = joined(so_far, all[(BACK ? (int)parts - 1 - i : i)
                                    * D::ENTRIES + entry]);
    __syncthreads();
    sum[threadIdx.x] = so_far;
    __syncthreads();
    float y = 0, *start = (float *)(sum + ROW_THREADS);
    if (slice == 0) {
        NO_UNROLL
        for (int i = 0; i < D::SLICES; i++)
            y = behind(sum[i * D::ENTRIES + entry], y);
        start[entry] = y;
    }
    __syncthreads();
    UNROLL
    for (int z = 0; z < N; z++)
        x[z] = behind(own[z], start[z * GROUP + lane]);
}

/* A lane's numbers in memory: `step` threads have their own. */
template<int N, class T>
INLINE void leave(T *to, i64 step, const T *x)
{
    UNROLL
    for (int z = 0; z < N; z++)
        to[z * step] = x[z];
}
template<int N, class T>
INLINE void find_left(const T *from, i64 step, T *x)
{
    UNROLL
    for (int z = 0; z < N; z++)
        x[z] = from[z * step];
}
