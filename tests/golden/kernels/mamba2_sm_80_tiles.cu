#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (forward), 131328 bytes a chunk and head predicted: %1 %2 %5
// %6 %8 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %23 %24 %25 %26
struct Args0 { Run run; Tensor t[6]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k0_forward(const __grid_constant__ Args0 a)
{
    float *const t0 = (float *)(arena + 19504);
    enum { SHARED0 = 1 };
    bf16 *const t2 = (bf16 *)(arena + 0);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 16);
    enum { SHARED3 = 1 };
    float *const t4 = (float *)(arena + 304);
    enum { SHARED4 = 1 };
    float *const t5 = (float *)(arena + 560);
    enum { SHARED5 = 1 };
    float *const t8 = (float *)(arena + 816);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 89136);
    enum { SHARED9 = 1 };
    float *const t10 = (float *)(arena + 32);
    enum { SHARED10 = 1 };
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
            bf16 *const t1 = (bf16 *)(arena + 48 + (0) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t6 = (bf16 *)(arena + 1072 + (0) % 2 * 9216);
            enum { SHARED6 = 1 };
            bf16 *const t7 = (bf16 *)(arena + 54320 + (0) % 2 * 17408);
            enum { SHARED7 = 1 };
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head) + block * 64 * a.t[3].sd[0];
                copy_in<64, 72, SHARED6>(t6, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
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
            {
                const bf16 *p = (const bf16 *)a.t[2].p + head_of(a.t[2], head) * a.t[2].sh;
                copy_in<1, 1, false>(t2, (const bf16 *)p, 0, 0, 1, a.t[2].wide);
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v12 = exp_(get(t2[0]));
                t3[0] = v12;
            }
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
                bf16 *const t1 = (bf16 *)(arena + 48 + (m + 1) % 2 * 128);
                enum { SHARED1 = 1 };
                bf16 *const t6 = (bf16 *)(arena + 1072 + (m + 1) % 2 * 9216);
                enum { SHARED6 = 1 };
                bf16 *const t7 = (bf16 *)(arena + 54320 + (m + 1) % 2 * 17408);
                enum { SHARED7 = 1 };
                {
                    const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                    copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head) + block * 64 * a.t[3].sd[0];
                    copy_in<64, 72, SHARED6>(t6, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                    copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
                }
            }
            copy_commit();
            bf16 *const t1 = (bf16 *)(arena + 48 + (m) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t6 = (bf16 *)(arena + 1072 + (m) % 2 * 9216);
            enum { SHARED6 = 1 };
            bf16 *const t7 = (bf16 *)(arena + 54320 + (m) % 2 * 17408);
            enum { SHARED7 = 1 };
            copy_wait<1>();
            __syncthreads();
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
            (void)n;
            (void)token;
            {
                bf16 *p = (bf16 *)(stored + 0) + block * 8192;
                copy_out<128, 136>(t0, p, 128, 1, 64, true);
            }
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v13 = get(t1[i]) * t3[0];
                const float v14 = -v13;
                const float v16 = max_(v14, bits(0xc2d00000));
                t4[i] = v16;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t4[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t5[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v20 = t5[(n - 1)] - t5[i];
                const float v21 = exp_(v20);
                t8[i] = v21;
            }
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v22 = exp_(t5[(n - 1)]);
                t10[0] = v22;
            }
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64 * 2; f < n; f += THREADS / 64) {
                const int i = f;
                const int d1 = e;
                const Pair v18 = get(t1[i]) * pair_at<1, true>(t7 + i * 136 + d1);
                const Pair v24 = v18 * t8[i];
                put_pair<1, true>(t9 + i * 136 + d1, v24);
            }
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<1, 72, SHARED6 ? 8 : 2>(t6 + 0),
                matrix<1, 136, SHARED9 ? 8 : 2>(t9 + 0),
                [&](int row, int col, Pair x) {
                const int d0 = row;
                const int d1 = col;
                const Pair v23 = pair_at<1, true>(t0 + d0 * 136 + d1) * t10[0];
                const Pair v26 = v23 + x;
                return [=] {
                    put_pair<1, true>(t0 + d0 * 136 + d1, v26);
                };
            });
            __syncthreads();
        }
        {
            if (a.t[5].p) {
                float *p = (float *)a.t[5].p + s * a.t[5].sb + head_of(a.t[5], head) * a.t[5].sh + block * 64 * a.t[5].sd[0];
                copy_out<128, 136>(t0, (float *)p, a.t[5].sd[0], a.t[5].sd[1], 64, a.t[5].wide);
            }
        }
        __syncthreads();
    }
}

// forward (token), 196872 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %6 %12 %13 %14 %15 %16 %17 %18 %27 %28 %29 %30 %31 %32 %33 %34 %35
// %36 %37 %38 %39
struct Args1 { Run run; Tensor t[7]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k1_token(const __grid_constant__ Args1 a)
{
    bf16 *const t0 = (bf16 *)(arena + 48);
    enum { SHARED0 = 1 };
    bf16 *const t1 = (bf16 *)(arena + 0);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 16);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 176);
    enum { SHARED3 = 1 };
    float *const t4 = (float *)(arena + 432);
    enum { SHARED4 = 1 };
    bf16 *const t5 = (bf16 *)(arena + 944);
    enum { SHARED5 = 1 };
    bf16 *const t6 = (bf16 *)(arena + 18352);
    enum { SHARED6 = 1 };
    float *const t7 = (float *)(arena + 688);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(arena + 87984);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 53168);
    enum { SHARED9 = 1 };
    float *const t10 = (float *)(arena + 18352);
    enum { SHARED10 = 1 };
    bf16 *const t11 = (bf16 *)(arena + 36784);
    enum { SHARED11 = 1 };
    bf16 *const t12 = (bf16 *)(arena + 70576);
    enum { SHARED12 = 1 };
    bf16 *const t13 = (bf16 *)(arena + 944);
    enum { SHARED13 = 1 };
    bf16 *const t14 = (bf16 *)(arena + 32);
    enum { SHARED14 = 1 };
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
            {
                const bf16 *p = (const bf16 *)a.t[1].p + head_of(a.t[1], head) * a.t[1].sh;
                copy_in<1, 1, false>(t1, (const bf16 *)p, 0, 0, 1, a.t[1].wide);
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v12 = exp_(get(t1[0]));
                t2[0] = v12;
            }
            {
                const bf16 *p = (const bf16 *)a.t[5].p + head_of(a.t[5], head) * a.t[5].sh;
                copy_in<1, 1, false>(t14, (const bf16 *)p, 0, 0, 1, a.t[5].wide);
            }
        }
        copy_wait<0>();
        __syncthreads();
        {
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
            (void)n;
            (void)token;
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<1, 1, SHARED0>(t0, (const bf16 *)p, a.t[0].st, 0, n, a.t[0].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED5>(t5, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(stored + 0);
                copy_in<128, 136, SHARED6>(t6, p, 128, 1, 128, true);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED12>(t12, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            copy_commit();
            copy_wait<4>();
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v13 = get(t0[i]) * t2[0];
                const float v14 = -v13;
                const float v16 = max_(v14, bits(0xc2d00000));
                t3[i] = v16;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t3[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t4[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v27 = exp_(t4[i]);
                t7[i] = v27;
            }
            copy_wait<2>();
            __syncthreads();
            product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
                matrix<136, 1, SHARED5 ? 8 : 2>(t5 + 0),
                matrix<1, 136, SHARED6 ? 8 : 2>(t6 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d1 = col;
                const Pair v29 = t7[i] * x;
                return [=] {
                    put_pair<1, true>(t8 + i * 136 + d1, v29);
                };
            });
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int j = e;
                if (j >= n)
                    continue;
                const float v32 = i >= j ? exp_(t4[i] - t4[j]) : 0.f;
                t10[i * 72 + j] = v32;
            }
            copy_wait<1>();
            __syncthreads();
            product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
                matrix<136, 1, SHARED5 ? 8 : 2>(t5 + 0),
                matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int j = col;
                const Pair v34 = pair_at<1, true>(t10 + i * 72 + j) * x;
                return [=] {
                    put_pair<1, true>(t11 + i * 72 + j, v34);
                };
            });
            copy_wait<0>();
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64 * 2; f < n; f += THREADS / 64) {
                const int i = f;
                const int d1 = e;
                const Pair v18 = get(t0[i]) * pair_at<1, true>(t12 + i * 136 + d1);
                put_pair<1, true>(t13 + i * 136 + d1, v18);
            }
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<72, 1, SHARED11 ? 8 : 2>(t11 + 0),
                matrix<1, 136, SHARED13 ? 8 : 2>(t13 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d1 = col;
                const Pair v37 = pair_at<1, true>(t8 + i * 136 + d1) + x;
                const Pair v38 = get(t14[0]) * pair_at<1, true>(t12 + i * 136 + d1);
                const Pair v39 = v37 + v38;
                return [=] {
                    put_pair<1, true>(t8 + i * 136 + d1, v39);
                };
            });
            __syncthreads();
            if (a.t[6].p) {
                bf16 *p = (bf16 *)a.t[6].p + at_token(a.t[6], q, token, head);
                copy_out<128, 136>(t8, (bf16 *)p, a.t[6].st, a.t[6].sd[0], n, a.t[6].wide);
            }
            __syncthreads();
        }
        {
        }
        __syncthreads();
    }
}

// backward (reverse), 131328 bytes a chunk and head predicted: %1 %3 %5
// %7 %9 %12 %13 %14 %15 %16 %17 %19 %22 %27 %59 %62 %74 %75
struct Args2 { Run run; Tensor t[6]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k2_reverse(const __grid_constant__ Args2 a)
{
    float *const t0 = (float *)(arena + 19504);
    enum { SHARED0 = 1 };
    bf16 *const t2 = (bf16 *)(arena + 0);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 16);
    enum { SHARED3 = 1 };
    float *const t4 = (float *)(arena + 304);
    enum { SHARED4 = 1 };
    float *const t5 = (float *)(arena + 560);
    enum { SHARED5 = 1 };
    float *const t8 = (float *)(arena + 816);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 89136);
    enum { SHARED9 = 1 };
    float *const t10 = (float *)(arena + 32);
    enum { SHARED10 = 1 };
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
            bf16 *const t1 = (bf16 *)(arena + 48 + (0) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t6 = (bf16 *)(arena + 1072 + (0) % 2 * 9216);
            enum { SHARED6 = 1 };
            bf16 *const t7 = (bf16 *)(arena + 54320 + (0) % 2 * 17408);
            enum { SHARED7 = 1 };
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head) + block * 64 * a.t[3].sd[0];
                copy_in<64, 72, SHARED6>(t6, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
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
            {
                const bf16 *p = (const bf16 *)a.t[2].p + head_of(a.t[2], head) * a.t[2].sh;
                copy_in<1, 1, false>(t2, (const bf16 *)p, 0, 0, 1, a.t[2].wide);
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v12 = exp_(get(t2[0]));
                t3[0] = v12;
            }
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
                bf16 *const t1 = (bf16 *)(arena + 48 + (m + 1) % 2 * 128);
                enum { SHARED1 = 1 };
                bf16 *const t6 = (bf16 *)(arena + 1072 + (m + 1) % 2 * 9216);
                enum { SHARED6 = 1 };
                bf16 *const t7 = (bf16 *)(arena + 54320 + (m + 1) % 2 * 17408);
                enum { SHARED7 = 1 };
                {
                    const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                    copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head) + block * 64 * a.t[3].sd[0];
                    copy_in<64, 72, SHARED6>(t6, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                    copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
                }
            }
            copy_commit();
            bf16 *const t1 = (bf16 *)(arena + 48 + (m) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t6 = (bf16 *)(arena + 1072 + (m) % 2 * 9216);
            enum { SHARED6 = 1 };
            bf16 *const t7 = (bf16 *)(arena + 54320 + (m) % 2 * 17408);
            enum { SHARED7 = 1 };
            copy_wait<1>();
            __syncthreads();
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
            (void)n;
            (void)token;
            {
                bf16 *p = (bf16 *)(later + 0) + block * 8192;
                copy_out<128, 136>(t0, p, 128, 1, 64, true);
            }
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v13 = get(t1[i]) * t3[0];
                const float v14 = -v13;
                const float v16 = max_(v14, bits(0xc2d00000));
                t4[i] = v16;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t4[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t5[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v27 = exp_(t5[i]);
                t8[i] = v27;
            }
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v22 = exp_(t5[(n - 1)]);
                t10[0] = v22;
            }
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64 * 2; f < n; f += THREADS / 64) {
                const int i = f;
                const int d1 = e;
                const Pair v59 = pair_at<1, true>(t7 + i * 136 + d1) * t8[i];
                put_pair<1, true>(t9 + i * 136 + d1, v59);
            }
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<1, 72, SHARED6 ? 8 : 2>(t6 + 0),
                matrix<1, 136, SHARED9 ? 8 : 2>(t9 + 0),
                [&](int row, int col, Pair x) {
                const int d0 = row;
                const int d1 = col;
                const Pair v74 = pair_at<1, true>(t0 + d0 * 136 + d1) * t10[0];
                const Pair v75 = x + v74;
                return [=] {
                    put_pair<1, true>(t0 + d0 * 136 + d1, v75);
                };
            });
            __syncthreads();
        }
        {
            if (a.t[5].p) {
                float *p = (float *)a.t[5].p + s * a.t[5].sb + head_of(a.t[5], head) * a.t[5].sh + block * 64 * a.t[5].sd[0];
                copy_out<128, 136>(t0, (float *)p, a.t[5].sd[0], a.t[5].sd[1], 64, a.t[5].wide);
            }
        }
        __syncthreads();
    }
}

// backward (token), 360976 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %6 %7 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %27 %30 %31 %32
// %33 %34 %35 %40 %41 %42 %43 %44 %45 %46 %47 %48 %49 %50 %51 %52 %53
// %54 %55 %56 %57 %58 %60 %61 %63 %64 %65 %66 %67 %68 %69 %70 %71 %72
// %73 %76 %77 %78 %79 %80 %81 %82 %83 %84 %85 %86 %87 %88 %89 %90 %91
// %92 %93
struct Args3 { Run run; Tensor t[11]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k3_token(const __grid_constant__ Args3 a)
{
    char *const spill = global(a.run.spill) + blockIdx.x * 34816ll;
    float *const scratch = (float *)arena;
    (void)scratch;
    bf16 *const t0 = (bf16 *)(arena + 224);
    enum { SHARED0 = 1 };
    bf16 *const t1 = (bf16 *)(arena + 128);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 144);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 352);
    enum { SHARED3 = 1 };
    float *const t4 = (float *)(arena + 608);
    enum { SHARED4 = 1 };
    float *const t5 = (float *)(arena + 864);
    enum { SHARED5 = 1 };
    bf16 *const t6 = (bf16 *)(arena + 3168);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 20576);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(arena + 160);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 37984);
    enum { SHARED9 = 1 };
    bf16 *const t10 = (bf16 *)(arena + 72800);
    enum { SHARED10 = 1 };
    float *const t11 = (float *)(arena + 176);
    enum { SHARED11 = 1 };
    bf16 *const t12 = (bf16 *)(arena + 37984);
    enum { SHARED12 = 1 };
    bf16 *const t13 = (bf16 *)(arena + 107616);
    enum { SHARED13 = 1 };
    bf16 *const t14 = (bf16 *)(arena + 125024);
    enum { SHARED14 = 1 };
    float *const t15 = (float *)(arena + 55392);
    enum { SHARED15 = 1 };
    bf16 *const t16 = (bf16 *)(arena + 142432);
    enum { SHARED16 = 1 };
    float *const t17 = (float *)(arena + 73824);
    enum { SHARED17 = 1 };
    bf16 *const t18 = (bf16 *)(arena + 151648);
    enum { SHARED18 = 1 };
    float *const t19 = (float *)(arena + 1120);
    enum { SHARED19 = 1 };
    float *const t20 = (float *)(arena + 1376);
    enum { SHARED20 = 1 };
    float *const t21 = (float *)(arena + 1632);
    enum { SHARED21 = 1 };
    float *const t22 = (float *)(arena + 20576);
    enum { SHARED22 = 1 };
    float *const t23 = (float *)(spill + 0);
    enum { SHARED23 = 0 };
    float *const t24 = (float *)(arena + 1888);
    enum { SHARED24 = 1 };
    float *const t25 = (float *)(arena + 2144);
    enum { SHARED25 = 1 };
    float *const t26 = (float *)(arena + 72800);
    enum { SHARED26 = 1 };
    float *const t27 = (float *)(spill + 0);
    enum { SHARED27 = 0 };
    bf16 *const t28 = (bf16 *)(arena + 192);
    enum { SHARED28 = 1 };
    float *const t29 = (float *)(arena + 37984);
    enum { SHARED29 = 1 };
    float *const t30 = (float *)(spill + 0);
    enum { SHARED30 = 0 };
    float *const t31 = (float *)(arena + 2400);
    enum { SHARED31 = 1 };
    float *const t32 = (float *)(arena + 2656);
    enum { SHARED32 = 1 };
    float *const t33 = (float *)(arena + 2912);
    enum { SHARED33 = 1 };
    float *const t34 = (float *)(arena + 208);
    enum { SHARED34 = 1 };
    if (a.run.ragged) {
        clear(spill_of(a.run, 34816ll), 34816);
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
            {
                const bf16 *p = (const bf16 *)a.t[1].p + head_of(a.t[1], head) * a.t[1].sh;
                copy_in<1, 1, false>(t1, (const bf16 *)p, 0, 0, 1, a.t[1].wide);
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v12 = exp_(get(t1[0]));
                t2[0] = v12;
            }
            {
                const bf16 *p = (const bf16 *)a.t[8].p + head_of(a.t[8], head) * a.t[8].sh;
                copy_in<1, 1, false>(t28, (const bf16 *)p, 0, 0, 1, a.t[8].wide);
            }
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
                    t32[i] = left;
                    (void)found;
                });
            }
        }
        copy_wait<0>();
        __syncthreads();
        {
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
            (void)n;
            (void)token;
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<1, 1, SHARED0>(t0, (const bf16 *)p, a.t[0].st, 0, n, a.t[0].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(stored + 0);
                copy_in<128, 136, SHARED9>(t9, p, 128, 1, 128, true);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(later + 0);
                copy_in<128, 136, SHARED10>(t10, p, 128, 1, 128, true);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED13>(t13, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
                copy_in<128, 136, SHARED14>(t14, (const bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
            }
            copy_commit();
            copy_wait<6>();
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v13 = get(t0[i]) * t2[0];
                const float v14 = -v13;
                const float v16 = max_(v14, bits(0xc2d00000));
                const float v88 = v14 < bits(0xc2d00000) ? 1 : 0;
                t3[i] = v16;
                t4[i] = v88;
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<1, 1, SHARED0>(t0, (const bf16 *)p, a.t[0].st, 0, n, a.t[0].wide);
            }
            copy_commit();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t3[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t5[i] = left;
                    (void)found;
                });
            }
            copy_wait<5>();
            __syncthreads();
            NO_UNROLL for (int e = 0; e < 1; e += 1) {
                float x = 0;
                UNROLL_FOUR for (int f = TID; f < n * 128; f += THREADS) {
                    const int i = f / 128;
                    const int d1 = f % 128;
                    x += get(t6[i * 136 + d1]) * get(t7[i * 136 + d1]);
                }
                x = block_sum(x, scratch);
                if (TID == 0) {
                    t8[0] = x;
                }
            }
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v22 = exp_(t5[(n - 1)]);
                t11[0] = v22;
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            {
                float *p = (float *)(later + 32768);
                NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                    put(p + 0, t8[0]);
                }
            }
            copy_wait<5>();
            __syncthreads();
            NO_UNROLL for (int e = 0; e < 1; e += 1) {
                float x = 0;
                for (int f = 4 * (TID); f < 16384; f += 4 * THREADS) {
                    const int d1 = f % 128;
                    const int d0 = f / 128 % 128;
                    x += dot_four(t9 + d0 * 136 + d1, t10 + d0 * 136 + d1);
                }
                x = block_sum(x, scratch);
                if (TID == 0) {
                    const float v77 = t11[0] * x;
                    t11[0] = v77;
                }
            }
            copy_wait<1>();
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64 * 2; f < n; f += THREADS / 64) {
                const int i = f;
                const int d1 = e;
                const Pair v18 = get(t0[i]) * pair_at<1, true>(t6 + i * 136 + d1);
                put_pair<1, true>(t12 + i * 136 + d1, v18);
            }
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int j = e;
                if (j >= n)
                    continue;
                const float v32 = i >= j ? exp_(t5[i] - t5[j]) : 0.f;
                t15[i * 72 + j] = v32;
            }
            copy_wait<0>();
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<1, 1, SHARED0>(t0, (const bf16 *)p, a.t[0].st, 0, n, a.t[0].wide);
            }
            copy_commit();
            two_products<1, 2>(64, 64,
                term<128, true>(matrix<136, 1, SHARED7 ? 8 : 2>(t7 + 0),
                matrix<136, 1, SHARED12 ? 8 : 2>(t12 + 0), 128),
                term<128, true>(matrix<136, 1, SHARED13 ? 8 : 2>(t13 + 0),
                matrix<136, 1, SHARED14 ? 8 : 2>(t14 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int j = col;
                const Pair v34 = pair_at<1, true>(t15 + i * 72 + j) * z;
                const Pair v47 = z * x;
                const Pair v48 = pair_at<1, true>(t15 + i * 72 + j) * x;
                return [=] {
                    put_pair<1, true>(t16 + i * 72 + j, v34);
                    put_pair<1, true>(t17 + i * 72 + j, v47);
                    put_pair<1, true>(t18 + i * 72 + j, v48);
                };
            });
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
                copy_in<128, 136, SHARED14>(t14, (const bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
            }
            copy_commit();
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int i = e;
                float x = 0;
                UNROLL_TWICE for (int f = 4 * (TID % 8); f < n; f += 4 * 8) {
                    const int j = f;
                    x += dot_four(t15 + i * 72 + j, t17 + i * 72 + j, n - f);
                }
                x = lane_sum<8>(x);
                if (first) {
                    t19[i] = x;
                }
            }
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int j = e;
                float x = 0;
                UNROLL_FOUR for (int f = TID % 8; f < n; f += 8) {
                    const int i = f;
                    x += t15[i * 72 + j] * t17[i * 72 + j];
                }
                x = lane_sum<8>(x);
                if (first) {
                    const float v53 = -x;
                    t20[j] = v53;
                }
            }
            __syncthreads();
            {
                bf16 *p = (bf16 *)(later + 0);
                copy_in<128, 136, SHARED10>(t10, p, 128, 1, 128, true);
            }
            copy_commit();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v20 = t5[(n - 1)] - t5[i];
                const float v21 = exp_(v20);
                const float v27 = exp_(t5[i]);
                const float v56 = t19[i] + t20[i];
                t19[i] = v21;
                t20[i] = v27;
                t21[i] = v56;
            }
            copy_wait<0>();
            __syncthreads();
            two_products<2, 2>(64, 128,
                term<64, false>(matrix<1, 72, SHARED18 ? 8 : 2>(t18 + 0),
                matrix<1, 136, SHARED13 ? 8 : 2>(t13 + 0), n),
                term<128, true>(matrix<136, 1, SHARED6 ? 8 : 2>(t6 + 0),
                matrix<136, 1, SHARED10 ? 8 : 2>(t10 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int d0 = col;
                const Pair v66 = get(t0[i]) * z;
                const Pair v67 = t19[i] * v66;
                const Pair v68 = x + v67;
                return [=] {
                    put_pair<1, true>(t22 + i * 136 + d0, z);
                    put_pair<1, true>(t23 + i * 136 + d0, v68);
                };
            });
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED13>(t13, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED6>(t6, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int i = e;
                float x = 0;
                for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
                    const int d0 = f;
                    x += dot_four(t14 + i * 136 + d0, t22 + i * 136 + d0);
                }
                x = lane_sum<8>(x);
                if (first) {
                    const float v73 = get(t0[i]) * x;
                    const float v78 = t19[i] * v73;
                    t24[i] = v73;
                    t25[i] = v78;
                }
            }
            if (a.t[6].p) {
                bf16 *p = (bf16 *)a.t[6].p + at_token(a.t[6], q, token, head);
                copy_out<128, 136>(t23, (bf16 *)p, a.t[6].st, a.t[6].sd[0], n, a.t[6].wide);
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(stored + 0);
                copy_in<128, 136, SHARED9>(t9, p, 128, 1, 128, true);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<1, 1, SHARED0>(t0, (const bf16 *)p, a.t[0].st, 0, n, a.t[0].wide);
            }
            copy_commit();
            NO_UNROLL for (int from = TID / 32, g = from; g - from < 1; g += THREADS / 32) {
                const int e = min(g, 1 - 1);
                const bool first = g == e && TID % 32 == 0;
                float x = 0;
                NO_UNROLL for (int f = 4 * (TID % 32); f < n; f += 4 * 32) {
                    const int i = f;
                    x += dot_four(t19 + i, t24 + i, n - f);
                }
                x = lane_sum<32>(x);
                if (first) {
                    const float v80 = t11[0] + x;
                    t11[0] = v80;
                }
            }
            copy_wait<1>();
            __syncthreads();
            two_products<2, 2>(64, 128,
                term<64, false>(matrix<72, 1, SHARED18 ? 8 : 2>(t18 + 0),
                matrix<1, 136, SHARED14 ? 8 : 2>(t14 + 0), n),
                term<128, true>(matrix<136, 1, SHARED7 ? 8 : 2>(t7 + 0),
                matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int d0 = col;
                const Pair v60 = t20[i] * z;
                const Pair v61 = x + v60;
                return [=] {
                    put_pair<1, true>(t26 + i * 136 + d0, z);
                    put_pair<1, true>(t27 + i * 136 + d0, v61);
                };
            });
            __syncthreads();
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int i = e;
                float x = 0;
                for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
                    const int d0 = f;
                    x += dot_four(t13 + i * 136 + d0, t26 + i * 136 + d0);
                }
                x = lane_sum<8>(x);
                if (first) {
                    const float v63 = t20[i] * x;
                    const float v64 = t21[i] + v63;
                    const float v81 = v64 - t25[i];
                    t20[i] = v81;
                }
            }
            if (a.t[7].p) {
                bf16 *p = (bf16 *)a.t[7].p + at_token(a.t[7], q, token, head);
                copy_out<128, 136>(t27, (bf16 *)p, a.t[7].st, a.t[7].sd[0], n, a.t[7].wide);
            }
            __syncthreads();
            {
                bf16 *p = (bf16 *)(later + 0);
                copy_in<128, 136, SHARED10>(t10, p, 128, 1, 128, true);
            }
            copy_commit();
            copy_wait<0>();
            __syncthreads();
            two_products<2, 2>(64, 128,
                term<64, false>(matrix<1, 72, SHARED16 ? 8 : 2>(t16 + 0),
                matrix<1, 136, SHARED7 ? 8 : 2>(t7 + 0), n),
                term<128, true>(matrix<136, 1, SHARED14 ? 8 : 2>(t14 + 0),
                matrix<1, 136, SHARED10 ? 8 : 2>(t10 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int d1 = col;
                const Pair v70 = t19[i] * z;
                const Pair v71 = x + v70;
                const Pair v85 = get(t0[i]) * v71;
                const Pair v43 = get(t28[0]) * pair_at<1, true>(t7 + i * 136 + d1);
                const Pair v86 = v43 + v85;
                return [=] {
                    put_pair<1, true>(t29 + i * 136 + d1, v71);
                    put_pair<1, true>(t30 + i * 136 + d1, v86);
                };
            });
            __syncthreads();
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int i = e;
                float x = 0;
                for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
                    const int d1 = f;
                    x += dot_four(t6 + i * 136 + d1, t29 + i * 136 + d1);
                }
                x = lane_sum<8>(x);
                if (first) {
                    t31[i] = x;
                }
            }
            if (a.t[9].p) {
                bf16 *p = (bf16 *)a.t[9].p + at_token(a.t[9], q, token, head);
                copy_out<128, 136>(t30, (bf16 *)p, a.t[9].st, a.t[9].sd[0], n, a.t[9].wide);
            }
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v82 = i == n - 1 ? t11[0] : t32[(i + 1)];
                const float v83 = t20[i] + v82;
                t20[i] = v83;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = n - 1 - at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = n - 1 - at;
                    (void)i;
                    return t20[i];
                },
                    [&](int at, float found, float left) {
                    const int i = n - 1 - at;
                    t33[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v89 = t4[i] != 0 ? 0.f : t33[i];
                const float v90 = t2[0] * v89;
                const float v91 = t31[i] - v90;
                t4[i] = v89;
                t33[i] = v91;
            }
            __syncthreads();
            NO_UNROLL for (int from = TID / 32, g = from; g - from < 1; g += THREADS / 32) {
                const int e = min(g, 1 - 1);
                const bool first = g == e && TID % 32 == 0;
                float x = 0;
                NO_UNROLL for (int f = 4 * (TID % 32); f < n; f += 4 * 32) {
                    const int i = f;
                    x += dot_four(t0 + i, t4 + i, n - f);
                }
                x = lane_sum<32>(x);
                if (first) {
                    const float v93 = t2[0] * x;
                    t34[0] = v93;
                }
            }
            if (a.t[10].p) {
                bf16 *p = (bf16 *)a.t[10].p + at_token(a.t[10], q, token, head);
                copy_out<1, 1>(t33, (bf16 *)p, a.t[10].st, 0, n, a.t[10].wide);
            }
            __syncthreads();
            {
                float *p = (float *)(later + 32784);
                NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                    put(p + 0, t34[0]);
                }
            }
            __syncthreads();
        }
        {
        }
        __syncthreads();
    }
}

// backward (reverse), 8 bytes a chunk and head predicted: %10 %11 %94 %95
struct Args4 { Run run; Tensor t[4]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k4_reverse(const __grid_constant__ Args4 a)
{
    float *const t0 = (float *)(arena + 0);
    enum { SHARED0 = 1 };
    float *const t1 = (float *)(arena + 16);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 32);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 48);
    enum { SHARED3 = 1 };
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
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
        }
        copy_commit();
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh;
                copy_in<1, 1, SHARED0>(t0, (const float *)p, 0, 0, 1, a.t[0].wide);
            } else {
                NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                    t0[0] = 0;
                }
            }
            copy_commit();
            if (a.t[1].p) {
                const float *p = (const float *)a.t[1].p + s * a.t[1].sb + head_of(a.t[1], head) * a.t[1].sh;
                copy_in<1, 1, SHARED1>(t1, (const float *)p, 0, 0, 1, a.t[1].wide);
            } else {
                NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                    t1[0] = 0;
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
            }
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
            (void)n;
            (void)token;
            {
                float *p = (float *)(later + 32784);
                NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                    copy1(t2 + 0, p + 0);
                }
            }
            {
                float *p = (float *)(later + 32768);
                NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                    copy1(t3 + 0, p + 0);
                }
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v94 = t0[0] - t2[0];
                const float v95 = t1[0] + t3[0];
                t0[0] = v94;
                t2[0] = v95;
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                t1[0] = t2[0];
            }
            __syncthreads();
        }
        {
            if (a.t[2].p) {
                float *p = (float *)a.t[2].p + s * a.t[2].sb + head_of(a.t[2], head) * a.t[2].sh;
                copy_out<1, 1>(t0, (float *)p, 0, 0, 1, a.t[2].wide);
            }
            if (a.t[3].p) {
                float *p = (float *)a.t[3].p + s * a.t[3].sb + head_of(a.t[3], head) * a.t[3].sh;
                copy_out<1, 1>(t1, (float *)p, 0, 0, 1, a.t[3].wide);
            }
        }
        __syncthreads();
    }
}
