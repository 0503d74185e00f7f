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
    Stretch so_far = { 1, 0 };
    __syncthreads();
    UNROLL
    for (int z = 0; z < N; z++)
        at[piece * D::ENTRIES + z * GROUP + lane] = own[z];
    __syncthreads();
    UNROLL
    for (int i = 0; i < D::EACH; i++) {
        Stretch *p = at + (slice * D::EACH + i) * D::ENTRIES + entry;
        const Stretch x = *p;
        *p = so_far;
        so_far = joined(so_far, x);
    }
    sum[threadIdx.x] = so_far;
    __syncthreads();
    UNROLL
    for (int z = 0; z < N; z++) {
        Stretch x = { 1, 0 };
        for (int i = 0; i < piece / D::EACH; i++)
            x = joined(x, sum[i * D::ENTRIES + z * GROUP + lane]);
        own[z] = joined(x, at[piece * D::ENTRIES + z * GROUP + lane]);
    }
    if (slice == 0) {
        so_far = { 1, 0 };
        for (int i = 0; i < D::SLICES; i++)
            so_far = joined(so_far, sum[i * D::ENTRIES + entry]);
        all[entry] = so_far;
    }
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
    UNROLL_EIGHT
    for (int i = slice * n / D::SLICES; i < end; i++)
        so_far = joined(so_far, all[(BACK ? (int)parts - 1 - i : i)
                                    * D::ENTRIES + entry]);
    __syncthreads();
    sum[threadIdx.x] = so_far;
    __syncthreads();
    UNROLL
    for (int z = 0; z < N; z++) {
        float y = 0;
        for (int i = 0; i < D::SLICES; i++)
            y = behind(sum[i * D::ENTRIES + z * GROUP + lane], y);
        x[z] = behind(own[z], y);
    }
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
