/* keep.cuh -- the states before each chunk, left in memory. After device.cuh.
 *
 * There a chunk has 64 tokens, also where it is one of RANKS here.
 */

INLINE bool is_kept(int chunk) { return chunk % RANKS == 0; }
/* Where chunk c's states lie, `bytes` in all: see tile.cuh's first_slot. */
INLINE char *kept_chunk(char *kept, const Rows &s, int seq, int c,
                        i64 tokens, int heads, int head, i64 bytes)
{
    const i64 slot = seq + s.b * ((tokens + 63) / 64) + s.start / 64
                   + c / RANKS;
    return kept + (slot * heads + head) * bytes;
}

INLINE void keep_entry(float *to, float x) { *to = x; }
INLINE void keep_entry(unsigned short *to, float x)
{
    *to = (unsigned short)pack(x, 0.f);
}
/* Entry k of a token, or of the state if that is before the first. */
INLINE float previous_entry(const Tensor &from, const Tensor &in,
                            const Rows &s, int seq, int head, int token,
                            int k)
{
    return token >= 0 ? input_entry(in, head, s, token, k)
                      : state_entry(from, seq, head, k);
}

/* Four lanes' four words, a lane's own behind one another: lane l has then
 * word l of all of them. */
INLINE void exchange(u32 (&x)[4], int lane)
{
    UNROLL for (int d = 1; d < 4; d *= 2)
        UNROLL for (int i = 0; i < 4; i++) {
            if (i & d)
                continue;
            const bool up = lane & d;
            const u32 got = bits_of(__shfl_xor_sync(~0u, bits(up ? x[i]
                                                           : x[i + d]), d));
            x[i] = up ? got : x[i];
            x[i + d] = up ? x[i + d] : got;
        }
}
/* A fragment's rows of COLS columns, from row0 on, of `rows` in all: as they
 * are ... */
template<int COLS, int N>
INLINE void keep_state(float *to, const float (&x)[N], const Lane &l,
                       int row0, int rows)
{
    each_entry<COLS>(l, row0, rows, [&](int i, int r, int c) {
        to[r * COLS + c] = x[i];
    });
}
/* ... and packed. */
template<int COLS, int N>
INLINE void keep_state(unsigned short *to, const u32 (&p)[N], const Lane &l,
                       int row0, int rows)
{
    if (COLS % 32) {
        each_entry<COLS>(l, row0, rows, [&](int i, int r, int c) {
            to[r * COLS + c] = (unsigned short)(p[i / 2] >> 16 * (i % 2));
        });
        return;
    }
    UNROLL for (int half = 0; half < 2; half++) {
        const int r = row0 + l.row + 8 * half;
        UNROLL for (int n = 0; n < COLS / 8; n += 4) {
            u32 x[4];
            UNROLL for (int i = 0; i < 4; i++)
                x[i] = p[2 * (n + i) + half];
            exchange(x, l.lane);
            if (r < rows)
                *(uint4 *)(to + r * COLS + 8 * n + 4 * l.col) =
                    { x[0], x[1], x[2], x[3] };
        }
    }
}
