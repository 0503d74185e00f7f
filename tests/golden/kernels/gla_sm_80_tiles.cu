#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (forward), 163840 bytes a chunk and head predicted: %2 %3 %4
// %6 %8 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18
struct Args0 { Run run; Tensor t[5]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k0_forward(const __grid_constant__ Args0 a)
{
    float *const t0 = (float *)(arena + 37120);
    enum { SHARED0 = 1 };
    float *const t2 = (float *)(arena + 106752);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 125184);
    enum { SHARED3 = 1 };
    bf16 *const t6 = (bf16 *)(arena + 106752);
    enum { SHARED6 = 1 };
    float *const t7 = (float *)(arena + 0);
    enum { SHARED7 = 1 };
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 2);
        const i64 part = divided(item / 2, a.run.heads);
        const int head = (int)(item / 2 - part * a.run.heads);
        const i64 s = part;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 chunks = (q.len + 63) / 64;
        if (0 < chunks) {
            const i64 at = 0;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            bf16 *const t1 = (bf16 *)(arena + 256 + (0) % 2 * 9216);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 71936 + (0) % 2 * 17408);
            enum { SHARED4 = 1 };
            bf16 *const t5 = (bf16 *)(arena + 18688 + (0) % 2 * 9216);
            enum { SHARED5 = 1 };
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head) + block * 64 * a.t[1].sd[0];
                copy_in<64, 72, SHARED1>(t1, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head) + block * 64 * a.t[3].sd[0];
                copy_in<64, 72, SHARED5>(t5, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
        }
        copy_commit();
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[0];
                copy_in<128, 136, SHARED0>(t0, (const float *)p, a.t[0].sd[0], a.t[0].sd[1], 64, a.t[0].wide);
            } else {
                UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < 64; f += THREADS / 128) {
                    const int d0 = f;
                    const int d1 = e;
                    t0[d0 * 136 + d1] = 0;
                }
            }
            copy_commit();
        }
        copy_wait<0>();
        __syncthreads();
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = m;
            if (m + 1 < chunks) {
                const i64 at = m + 1;
                const int n = (int)min(q.len - at * 64, (i64)64);
                const i64 token = q.start + at * 64;
                (void)n;
                (void)token;
                bf16 *const t1 = (bf16 *)(arena + 256 + (m + 1) % 2 * 9216);
                enum { SHARED1 = 1 };
                bf16 *const t4 = (bf16 *)(arena + 71936 + (m + 1) % 2 * 17408);
                enum { SHARED4 = 1 };
                bf16 *const t5 = (bf16 *)(arena + 18688 + (m + 1) % 2 * 9216);
                enum { SHARED5 = 1 };
                {
                    const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head) + block * 64 * a.t[1].sd[0];
                    copy_in<64, 72, SHARED1>(t1, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                    copy_in<128, 136, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head) + block * 64 * a.t[3].sd[0];
                    copy_in<64, 72, SHARED5>(t5, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
                }
            }
            copy_commit();
            bf16 *const t1 = (bf16 *)(arena + 256 + (m) % 2 * 9216);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 71936 + (m) % 2 * 17408);
            enum { SHARED4 = 1 };
            bf16 *const t5 = (bf16 *)(arena + 18688 + (m) % 2 * 9216);
            enum { SHARED5 = 1 };
            copy_wait<1>();
            __syncthreads();
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 65536ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)n;
            (void)token;
            {
                float *p = (float *)(stored + 0) + block * 8192;
                copy_out<128, 136>(t0, p, 128, 1, 64, true);
            }
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int d0 = e;
                const float v9 = max_(get(t1[i * 72 + d0]), bits(0xc2d00000));
                t2[i * 72 + d0] = v9;
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 64; e += THREADS) {
                const int d0 = e;
                const float s = 0;
                scan_alone<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t2[i * 72 + d0];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t3[i * 72 + d0] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 64; e += THREADS) {
                const int d0 = e;
                const float v14 = exp_(t3[d0 + (n - 1) * 72]);
                t7[d0] = v14;
            }
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int d0 = e;
                const float v12 = t3[d0 + (n - 1) * 72] - t3[i * 72 + d0];
                const float v13 = exp_(v12);
                const float v16 = get(t5[i * 72 + d0]) * v13;
                put(&t6[i * 72 + d0], v16);
            }
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<1, 72, SHARED6 ? 8 : 2>(t6 + 0),
                matrix<1, 136, SHARED4 ? 8 : 2>(t4 + 0),
                [&](int row, int col, Pair x) {
                const int d0 = row;
                const int d1 = col;
                const Pair v15 = pair_at<1, true>(t0 + d0 * 136 + d1) * t7[d0];
                const Pair v18 = v15 + x;
                return [=] {
                    put_pair<1, true>(t0 + d0 * 136 + d1, v18);
                };
            });
            __syncthreads();
        }
        {
            if (a.t[4].p) {
                float *p = (float *)a.t[4].p + s * a.t[4].sb + head_of(a.t[4], head) * a.t[4].sh + block * 64 * a.t[4].sd[0];
                copy_out<128, 136>(t0, (float *)p, a.t[4].sd[0], a.t[4].sd[1], 64, a.t[4].wide);
            }
        }
        __syncthreads();
    }
}

// forward (token), 229376 bytes a chunk and head predicted: %1 %2 %3 %4
// %8 %9 %10 %19 %20 %21 %22 %23 %24 %25 %26 %27
struct Args1 { Run run; Tensor t[5]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k1_token(const __grid_constant__ Args1 a)
{
    bf16 *const t0 = (bf16 *)(arena + 0);
    enum { SHARED0 = 1 };
    float *const t1 = (float *)(arena + 17408);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 87040);
    enum { SHARED2 = 1 };
    bf16 *const t3 = (bf16 *)(arena + 52224);
    enum { SHARED3 = 1 };
    bf16 *const t4 = (bf16 *)(arena + 0);
    enum { SHARED4 = 1 };
    bf16 *const t5 = (bf16 *)(arena + 17408);
    enum { SHARED5 = 1 };
    float *const t6 = (float *)(arena + 121856);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 34816);
    enum { SHARED7 = 1 };
    bf16 *const t8 = (bf16 *)(arena + 52224);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 17408);
    enum { SHARED9 = 1 };
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        {
            const int n = 64;
            (void)n;
        }
        copy_wait<0>();
        __syncthreads();
        {
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 65536ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)n;
            (void)token;
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<128, 136, SHARED0>(t0, (const bf16 *)p, a.t[0].st, a.t[0].sd[0], n, a.t[0].wide);
            }
            copy_commit();
            {
                float *p = (float *)(stored + 0);
                copy_in<128, 136, SHARED3>(t3, p, 128, 1, 128, true);
            }
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < n; f += THREADS / 128) {
                const int i = f;
                const int d0 = e;
                const float v9 = max_(get(t0[i * 136 + d0]), bits(0xc2d00000));
                t1[i * 136 + d0] = v9;
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, SHARED4>(t4, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            copy_commit();
            NO_UNROLL for (int e = TID; e < 128; e += THREADS) {
                const int d0 = e;
                const float s = 0;
                scan_alone<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t1[i * 136 + d0];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t2[i * 136 + d0] = left;
                    (void)found;
                });
            }
            copy_wait<0>();
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < n; f += THREADS / 128) {
                const int i = f;
                const int d0 = e;
                const float v19 = exp_(t2[i * 136 + d0]);
                const float v20 = get(t4[i * 136 + d0]) * v19;
                put(&t5[i * 136 + d0], v20);
            }
            __syncthreads();
            product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
                matrix<136, 1, SHARED5 ? 8 : 2>(t5 + 0),
                matrix<1, 136, SHARED3 ? 8 : 2>(t3 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d1 = col;
                return [=] {
                    put_pair<1, true>(t6 + i * 136 + d1, x);
                };
            });
            copy_wait<0>();
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            gated_keys<TF32, false, 128, true, Paired>(n,
                matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<136, 1, SHARED7 ? 8 : 2>(t7 + 0),
                matrix<136, 1, 2>(t2 + 0),
                matrix<136, 1, 2>(t2 + 0),
                [&](int i, int j, Pair x) {
                return [=] {
                    put_pair<1, true>(t8 + i * 72 + j, x);
                };
            });
            copy_wait<0>();
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<72, 1, SHARED8 ? 8 : 2>(t8 + 0),
                matrix<1, 136, SHARED9 ? 8 : 2>(t9 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d1 = col;
                const Pair v27 = pair_at<1, true>(t6 + i * 136 + d1) + x;
                return [=] {
                    put_pair<1, true>(t6 + i * 136 + d1, v27);
                };
            });
            __syncthreads();
            if (a.t[4].p) {
                bf16 *p = (bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_out<128, 136>(t6, (bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            __syncthreads();
        }
        {
        }
        __syncthreads();
    }
}

// backward (reverse), 163840 bytes a chunk and head predicted: %1 %4 %5
// %7 %8 %9 %10 %11 %14 %19 %20 %36 %47 %48
struct Args2 { Run run; Tensor t[5]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k2_reverse(const __grid_constant__ Args2 a)
{
    float *const t0 = (float *)(arena + 37120);
    enum { SHARED0 = 1 };
    float *const t2 = (float *)(arena + 106752);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 125184);
    enum { SHARED3 = 1 };
    bf16 *const t5 = (bf16 *)(arena + 106752);
    enum { SHARED5 = 1 };
    float *const t7 = (float *)(arena + 0);
    enum { SHARED7 = 1 };
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 2);
        const i64 part = divided(item / 2, a.run.heads);
        const int head = (int)(item / 2 - part * a.run.heads);
        const i64 s = part;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 chunks = (q.len + 63) / 64;
        if (0 < chunks) {
            const i64 at = chunks - 1 - (0);
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            bf16 *const t1 = (bf16 *)(arena + 256 + (0) % 2 * 9216);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 18688 + (0) % 2 * 9216);
            enum { SHARED4 = 1 };
            bf16 *const t6 = (bf16 *)(arena + 71936 + (0) % 2 * 17408);
            enum { SHARED6 = 1 };
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head) + block * 64 * a.t[1].sd[0];
                copy_in<64, 72, SHARED1>(t1, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                copy_in<64, 72, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
        }
        copy_commit();
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[0];
                copy_in<128, 136, SHARED0>(t0, (const float *)p, a.t[0].sd[0], a.t[0].sd[1], 64, a.t[0].wide);
            } else {
                UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < 64; f += THREADS / 128) {
                    const int d0 = f;
                    const int d1 = e;
                    t0[d0 * 136 + d1] = 0;
                }
            }
            copy_commit();
        }
        copy_wait<0>();
        __syncthreads();
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = chunks - 1 - m;
            if (m + 1 < chunks) {
                const i64 at = chunks - 1 - (m + 1);
                const int n = (int)min(q.len - at * 64, (i64)64);
                const i64 token = q.start + at * 64;
                (void)n;
                (void)token;
                bf16 *const t1 = (bf16 *)(arena + 256 + (m + 1) % 2 * 9216);
                enum { SHARED1 = 1 };
                bf16 *const t4 = (bf16 *)(arena + 18688 + (m + 1) % 2 * 9216);
                enum { SHARED4 = 1 };
                bf16 *const t6 = (bf16 *)(arena + 71936 + (m + 1) % 2 * 17408);
                enum { SHARED6 = 1 };
                {
                    const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head) + block * 64 * a.t[1].sd[0];
                    copy_in<64, 72, SHARED1>(t1, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                    copy_in<64, 72, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                    copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
                }
            }
            copy_commit();
            bf16 *const t1 = (bf16 *)(arena + 256 + (m) % 2 * 9216);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 18688 + (m) % 2 * 9216);
            enum { SHARED4 = 1 };
            bf16 *const t6 = (bf16 *)(arena + 71936 + (m) % 2 * 17408);
            enum { SHARED6 = 1 };
            copy_wait<1>();
            __syncthreads();
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 65536ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)n;
            (void)token;
            {
                float *p = (float *)(later + 0) + block * 8192;
                copy_out<128, 136>(t0, p, 128, 1, 64, true);
            }
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int d0 = e;
                const float v9 = max_(get(t1[i * 72 + d0]), bits(0xc2d00000));
                t2[i * 72 + d0] = v9;
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 64; e += THREADS) {
                const int d0 = e;
                const float s = 0;
                scan_alone<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t2[i * 72 + d0];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t3[i * 72 + d0] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 64; e += THREADS) {
                const int d0 = e;
                const float v14 = exp_(t3[d0 + (n - 1) * 72]);
                t7[d0] = v14;
            }
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int d0 = e;
                const float v19 = exp_(t3[i * 72 + d0]);
                const float v20 = get(t4[i * 72 + d0]) * v19;
                put(&t5[i * 72 + d0], v20);
            }
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<1, 72, SHARED5 ? 8 : 2>(t5 + 0),
                matrix<1, 136, SHARED6 ? 8 : 2>(t6 + 0),
                [&](int row, int col, Pair x) {
                const int d0 = row;
                const int d1 = col;
                const Pair v47 = pair_at<1, true>(t0 + d0 * 136 + d1) * t7[d0];
                const Pair v48 = x + v47;
                return [=] {
                    put_pair<1, true>(t0 + d0 * 136 + d1, v48);
                };
            });
            __syncthreads();
        }
        {
            if (a.t[4].p) {
                float *p = (float *)a.t[4].p + s * a.t[4].sb + head_of(a.t[4], head) * a.t[4].sh + block * 64 * a.t[4].sd[0];
                copy_out<128, 136>(t0, (float *)p, a.t[4].sd[0], a.t[4].sd[1], 64, a.t[4].wide);
            }
        }
        __syncthreads();
    }
}

// backward (token), 425984 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %8 %9 %10 %11 %12 %13 %14 %16 %19 %22 %23 %24 %25 %28 %29 %30 %31
// %32 %33 %34 %35 %37 %38 %39 %40 %41 %42 %43 %44 %45 %46 %49 %50 %51
// %52 %53 %54 %55 %56 %57 %58 %59
struct Args3 { Run run; Tensor t[9]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k3_token(const __grid_constant__ Args3 a)
{
    char *const spill = global(a.run.spill) + blockIdx.x * 174080ll;
    bf16 *const t0 = (bf16 *)(arena + 256);
    enum { SHARED0 = 1 };
    bf16 *const t1 = (bf16 *)(arena + 17664);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 104704);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 35072);
    enum { SHARED3 = 1 };
    float *const t4 = (float *)(spill + 0);
    enum { SHARED4 = 0 };
    float *const t5 = (float *)(arena + 123136);
    enum { SHARED5 = 1 };
    bf16 *const t6 = (bf16 *)(arena + 256);
    enum { SHARED6 = 1 };
    float *const t7 = (float *)(arena + 17664);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(arena + 123648);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 52480);
    enum { SHARED9 = 1 };
    float *const t10 = (float *)(spill + 69632);
    enum { SHARED10 = 0 };
    float *const t11 = (float *)(spill + 0);
    enum { SHARED11 = 0 };
    bf16 *const t12 = (bf16 *)(arena + 256);
    enum { SHARED12 = 1 };
    float *const t13 = (float *)(arena + 17664);
    enum { SHARED13 = 1 };
    float *const t14 = (float *)(arena + 69888);
    enum { SHARED14 = 1 };
    bf16 *const t15 = (bf16 *)(arena + 104704);
    enum { SHARED15 = 1 };
    float *const t16 = (float *)(spill + 104448);
    enum { SHARED16 = 0 };
    float *const t17 = (float *)(spill + 139264);
    enum { SHARED17 = 0 };
    bf16 *const t18 = (bf16 *)(arena + 35072);
    enum { SHARED18 = 1 };
    bf16 *const t19 = (bf16 *)(arena + 44288);
    enum { SHARED19 = 1 };
    float *const t20 = (float *)(arena + 123648);
    enum { SHARED20 = 1 };
    float *const t21 = (float *)(arena + 0);
    enum { SHARED21 = 1 };
    float *const t22 = (float *)(arena + 17664);
    enum { SHARED22 = 1 };
    if (a.run.ragged) {
        clear(spill_of(a.run, 174080ll), 174080);
        __syncthreads();
    }
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        {
            const int n = 64;
            (void)n;
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t21[i] = left;
                    (void)found;
                });
            }
        }
        copy_wait<0>();
        __syncthreads();
        {
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 65536ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)n;
            (void)token;
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<128, 136, SHARED0>(t0, (const bf16 *)p, a.t[0].st, a.t[0].sd[0], n, a.t[0].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, SHARED1>(t1, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            copy_commit();
            {
                float *p = (float *)(stored + 0);
                copy_in<128, 136, SHARED3>(t3, p, 128, 1, 128, true);
            }
            copy_commit();
            {
                float *p = (float *)(later + 0);
                copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
            }
            copy_commit();
            copy_wait<2>();
            __syncthreads();
            product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
                matrix<136, 1, SHARED1 ? 8 : 2>(t1 + 0),
                matrix<136, 1, SHARED0 ? 8 : 2>(t0 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int j = col;
                return [=] {
                    put_pair<1, true>(t2 + i * 72 + j, x);
                };
            });
            copy_wait<0>();
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            NO_UNROLL for (int from = TID / 4, g = from; g - from < 128; g += THREADS / 4) {
                const int e = min(g, 128 - 1);
                const bool first = g == e && TID % 4 == 0;
                const int d0 = e;
                float x = 0;
                for (int f = 4 * (TID % 4); f < 128; f += 4 * 4) {
                    const int d1 = f;
                    x += dot_four(t3 + d0 * 136 + d1, t4 + d0 * 136 + d1);
                }
                x = lane_sum<4>(x);
                if (first) {
                    t5[d0] = x;
                }
            }
            copy_wait<0>();
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < n; f += THREADS / 128) {
                const int i = f;
                const int d0 = e;
                const float v9 = max_(get(t6[i * 136 + d0]), bits(0xc2d00000));
                t7[i * 136 + d0] = v9;
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED12>(t12, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            copy_commit();
            NO_UNROLL for (int e = TID; e < 128; e += THREADS) {
                const int d0 = e;
                const float s = 0;
                scan_alone<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t7[i * 136 + d0];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t8[i * 136 + d0] = left;
                    (void)found;
                });
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, SHARED1>(t1, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            copy_commit();
            NO_UNROLL for (int e = TID; e < 128; e += THREADS) {
                const int d0 = e;
                const float v14 = exp_(t8[d0 + (n - 1) * 136]);
                const float v50 = v14 * t5[d0];
                t5[d0] = v50;
            }
            copy_wait<2>();
            __syncthreads();
            gated_tokens<TF32, false, false, 128, true, Paired>(n,
                matrix<72, 1, 2>(t2 + 0),
                matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0),
                matrix<136, 1, 2>(t8 + 0),
                matrix<136, 1, 2>(t8 + 0),
                [&](int i, int d0, Pair x) {
                return [=] {
                    put_pair<1, true>(t10 + i * 136 + d0, x);
                };
            });
            UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < n; f += THREADS / 128) {
                const int i = f;
                const int d0 = e;
                const float v19 = exp_(t8[i * 136 + d0]);
                t11[i * 136 + d0] = v19;
            }
            __syncthreads();
            {
                float *p = (float *)(stored + 0);
                copy_in<128, 136, SHARED3>(t3, p, 128, 1, 128, true);
            }
            copy_commit();
            copy_wait<0>();
            __syncthreads();
            product<TF32, 2, 2, 0, true, true, true, Paired>(64, 128, 128,
                matrix<136, 1, SHARED1 ? 8 : 2>(t1 + 0),
                matrix<136, 1, 2>(t3 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d0 = col;
                const Pair v38 = pair_at<1, true>(t11 + i * 136 + d0) * x;
                const Pair v39 = pair_at<1, true>(t10 + i * 136 + d0) + v38;
                const Pair v40 = pair_at<1, true>(t12 + i * 136 + d0) * v39;
                return [=] {
                    put_pair<1, true>(t11 + i * 136 + d0, v39);
                    put_pair<1, true>(t10 + i * 136 + d0, v40);
                };
            });
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            if (a.t[5].p) {
                bf16 *p = (bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
                copy_out<128, 136>(t11, (bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
            }
            gated_tokens<TF32, false, true, 128, true, Paired>(n,
                matrix<1, 72, 1>(t2 + 0),
                matrix<136, 1, SHARED12 ? 8 : 2>(t12 + 0),
                matrix<136, 1, 2>(t8 + 0),
                matrix<136, 1, 2>(t8 + 0),
                [&](int j, int d0, Pair x) {
                return [=] {
                    put_pair<1, true>(t13 + j * 136 + d0, x);
                };
            });
            copy_wait<0>();
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<128, 136, SHARED0>(t0, (const bf16 *)p, a.t[0].st, a.t[0].sd[0], n, a.t[0].wide);
            }
            copy_commit();
            {
                float *p = (float *)(later + 0);
                copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
            }
            copy_commit();
            UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < n; f += THREADS / 128) {
                const int i = f;
                const int d0 = e;
                const float v12 = t8[d0 + (n - 1) * 136] - t8[i * 136 + d0];
                const float v13 = exp_(v12);
                const float v16 = get(t9[i * 136 + d0]) * v13;
                t14[i * 136 + d0] = v13;
                put(&t15[i * 136 + d0], v16);
            }
            copy_wait<0>();
            __syncthreads();
            product<TF32, 2, 2, 0, true, true, true, Paired>(64, 128, 128,
                matrix<136, 1, SHARED0 ? 8 : 2>(t0 + 0),
                matrix<136, 1, 2>(t4 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d0 = col;
                const Pair v44 = pair_at<1, true>(t14 + i * 136 + d0) * x;
                const Pair v45 = pair_at<1, true>(t13 + i * 136 + d0) + v44;
                const Pair v46 = pair_at<1, true>(t9 + i * 136 + d0) * x;
                const Pair v53 = pair_at<1, true>(t9 + i * 136 + d0) * v45;
                return [=] {
                    put_pair<1, true>(t13 + i * 136 + d0, v45);
                    put_pair<1, true>(t16 + i * 136 + d0, v46);
                    put_pair<1, true>(t17 + i * 136 + d0, v53);
                };
            });
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED12>(t12, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            copy_commit();
            NO_UNROLL for (int from = TID / 4, g = from; g - from < 128; g += THREADS / 4) {
                const int e = min(g, 128 - 1);
                const bool first = g == e && TID % 4 == 0;
                const int d0 = e;
                float x = 0;
                UNROLL_FOUR for (int f = TID % 4; f < n; f += 4) {
                    const int i = f;
                    x += t14[i * 136 + d0] * t16[i * 136 + d0];
                }
                x = lane_sum<4>(x);
                if (first) {
                    const float v52 = t5[d0] + x;
                    t5[d0] = v52;
                }
            }
            if (a.t[6].p) {
                bf16 *p = (bf16 *)a.t[6].p + at_token(a.t[6], q, token, head);
                copy_out<128, 136>(t13, (bf16 *)p, a.t[6].st, a.t[6].sd[0], n, a.t[6].wide);
            }
            copy_wait<0>();
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, SHARED1>(t1, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            copy_commit();
            gated_keys<TF32, false, 128, true, Paired>(n,
                matrix<136, 1, SHARED12 ? 8 : 2>(t12 + 0),
                matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0),
                matrix<136, 1, 2>(t8 + 0),
                matrix<136, 1, 2>(t8 + 0),
                [&](int i, int j, Pair x) {
                return [=] {
                    put_pair<1, true>(t18 + i * 72 + j, x);
                };
            });
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            narrow<128, 136, 136>(t19, t4, 128);
            copy_wait<1>();
            __syncthreads();
            two_products<2, 2>(64, 128,
                term<64, false>(matrix<1, 72, SHARED18 ? 8 : 2>(t18 + 0),
                matrix<1, 136, SHARED1 ? 8 : 2>(t1 + 0), n),
                term<128, true>(matrix<136, 1, SHARED15 ? 8 : 2>(t15 + 0),
                matrix<1, 136, SHARED19 ? 8 : 2>(t19 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int d1 = col;
                const Pair v42 = x + z;
                return [=] {
                    put_pair<1, true>(t20 + i * 136 + d1, v42);
                };
            });
            __syncthreads();
            if (a.t[7].p) {
                bf16 *p = (bf16 *)a.t[7].p + at_token(a.t[7], q, token, head);
                copy_out<128, 136>(t20, (bf16 *)p, a.t[7].st, a.t[7].sd[0], n, a.t[7].wide);
            }
            UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < n; f += THREADS / 128) {
                const int i = f;
                const int d0 = e;
                const float v54 = t10[i * 136 + d0] - t17[i * 136 + d0];
                const float v55 = i == n - 1 ? t5[d0] : t21[(i + 1)];
                const float v56 = v54 + v55;
                t10[i * 136 + d0] = v56;
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 128; e += THREADS) {
                const int d0 = e;
                const float s = 0;
                scan_alone<Adding<float>>(n, s, [&](int at) {
                    const int i = n - 1 - at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = n - 1 - at;
                    (void)i;
                    return t10[i * 136 + d0];
                },
                    [&](int at, float found, float left) {
                    const int i = n - 1 - at;
                    t22[i * 136 + d0] = left;
                    (void)found;
                });
            }
            copy_wait<0>();
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < n; f += THREADS / 128) {
                const int i = f;
                const int d0 = e;
                const float v58 = get(t6[i * 136 + d0]) < bits(0xc2d00000) ? 1 : 0;
                const float v59 = v58 != 0 ? 0.f : t22[i * 136 + d0];
                t22[i * 136 + d0] = v59;
            }
            __syncthreads();
            if (a.t[8].p) {
                bf16 *p = (bf16 *)a.t[8].p + at_token(a.t[8], q, token, head);
                copy_out<128, 136>(t22, (bf16 *)p, a.t[8].st, a.t[8].sd[0], n, a.t[8].wide);
            }
            __syncthreads();
        }
        {
        }
        __syncthreads();
    }
}
