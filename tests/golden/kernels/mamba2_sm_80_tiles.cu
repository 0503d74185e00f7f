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
    float *const t0 = (float *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 34816);
    float *const t2 = (float *)(arena + 34832);
    bf16 *const t3 = (bf16 *)(arena + 34848);
    bf16 *const t4 = (bf16 *)(arena + 34976);
    float *const t5 = (float *)(arena + 52384);
    float *const t6 = (float *)(arena + 52640);
    float *const t7 = (float *)(arena + 87456);
    float *const t8 = (float *)(arena + 87712);
    float *const t9 = (float *)(arena + 87968);
    float *const t10 = (float *)(arena + 87984);
    bf16 *const t11 = (bf16 *)(arena + 34976);
    bf16 *const t12 = (bf16 *)(arena + 52640);
    float *const t13 = (float *)(arena + 122800);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 2);
        const i64 s = divided(item / 2, a.run.heads);
        const int head = (int)(item / 2 - s * a.run.heads);
        (void)block;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[0];
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 128;
                    const int d1 = e % 128;
                    t0[d0 * 136 + d1] = get(p[0 + d0 * a.t[0].sd[0] + d1 * a.t[0].sd[1]]);
                }
            } else {
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 128;
                    const int d1 = e % 128;
                    t0[d0 * 136 + d1] = 0;
                }
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + head_of(a.t[1], head) * a.t[1].sh;
                for (int e = TID; e < 1; e += THREADS) {
                    copy1(t1 + 0, p);
                }
            }
            __syncthreads();
            if (WARP == 3 && LANE == 0) {
                const float v12 = exp_(get(t1[0]));
                t2[0] = v12;
            }
        }
        __syncthreads();
        const i64 chunks = (q.len + 63) / 64;
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = m;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
            (void)later;
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put((bf16 *)(stored + 0) + block * 8192 + d0 * 128 + d1, t0[d0 * 136 + d1]);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                for (int e = TID; e < n; e += THREADS) {
                    const int i = e;
                    copy1(t3 + i, p + i * a.t[2].st);
                }
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, false>(t4, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v13 = get(t3[i]) * t2[0];
                const float v14 = -v13;
                const float v16 = max_(v14, bits(0xc2d00000));
                t5[i] = v16;
            }
            for (int e = TID; e < n * 128; e += THREADS) {
                const int i = e / 128;
                const int d1 = e % 128;
                const float v18 = get(t3[i]) * get(t4[i * 136 + d1]);
                t6[i * 136 + d1] = v18;
            }
            __syncthreads();
            for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t5[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t7[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v20 = t7[(n - 1) * 1] - t7[i];
                const float v21 = exp_(v20);
                t8[i] = v21;
            }
            if (WARP == 14 && LANE == 0) {
                const float v22 = exp_(t7[(n - 1) * 1]);
                t9[0] = v22;
            }
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v23 = t0[d0 * 136 + d1] * t9[0];
                t10[d0 * 136 + d1] = v23;
            }
            for (int e = TID; e < n * 128; e += THREADS) {
                const int i = e / 128;
                const int d1 = e % 128;
                const float v24 = t6[i * 136 + d1] * t8[i];
                put(&t11[i * 136 + d1], v24);
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head) + block * 64 * a.t[4].sd[0];
                copy_in<64, 72, false>(t12, p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(64, 128, n,
                matrix<1, 72, 1>(t12 + 0),
                matrix<1, 136, 1>(t11 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t13[d0 * 136 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v26 = t10[d0 * 136 + d1] + t13[d0 * 136 + d1];
                t0[d0 * 136 + d1] = v26;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[5].p) {
            float *p = (float *)a.t[5].p + s * a.t[5].sb + head_of(a.t[5], head) * a.t[5].sh + block * 64 * a.t[5].sd[0];
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put(p + d0 * a.t[5].sd[0] + d1 * a.t[5].sd[1], t0[d0 * 136 + d1]);
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
    char *const spill = global(a.run.spill) + blockIdx.x * 34816ll;
    bf16 *const t0 = (bf16 *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 16);
    float *const t2 = (float *)(arena + 32);
    bf16 *const t3 = (bf16 *)(arena + 48);
    bf16 *const t4 = (bf16 *)(arena + 17456);
    bf16 *const t5 = (bf16 *)(arena + 34864);
    bf16 *const t6 = (bf16 *)(arena + 34992);
    bf16 *const t7 = (bf16 *)(arena + 52400);
    float *const t8 = (float *)(arena + 87216);
    bf16 *const t9 = (bf16 *)(arena + 87472);
    float *const t10 = (float *)(spill + 0);
    float *const t11 = (float *)(arena + 104880);
    float *const t12 = (float *)(arena + 34864);
    float *const t13 = (float *)(arena + 48);
    float *const t14 = (float *)(arena + 304);
    bf16 *const t15 = (bf16 *)(arena + 560);
    float *const t16 = (float *)(arena + 9776);
    float *const t17 = (float *)(arena + 44592);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        (void)block;
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        {
            const int n = 64;
            (void)n;
            {
                const bf16 *p = (const bf16 *)a.t[0].p + head_of(a.t[0], head) * a.t[0].sh;
                for (int e = TID; e < 1; e += THREADS) {
                    copy1(t0 + 0, p);
                }
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + head_of(a.t[1], head) * a.t[1].sh;
                for (int e = TID; e < 1; e += THREADS) {
                    copy1(t1 + 0, p);
                }
            }
            __syncthreads();
            if (WARP == 3 && LANE == 0) {
                const float v12 = exp_(get(t0[0]));
                t2[0] = v12;
            }
        }
        __syncthreads();
        const int n = (int)min(q.len - at * 64, (i64)64);
        const i64 token = q.start + at * 64;
        (void)n;
        (void)token;
        char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
        (void)stored;
        char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
        (void)later;
        {
            const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
            copy_in<128, 136, false>(t3, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
            copy_in<128, 136, false>(t4, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                copy1(t5 + i, p + i * a.t[4].st);
            }
        }
        {
            const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
            copy_in<128, 136, false>(t6, p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
        }
        {
            const bf16 *p = (bf16 *)(stored + 0);
            for (int e = TID; e < 16384; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                copy1(t7 + d0 * 136 + d1, p + d0 * 128 + d1);
            }
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v13 = get(t5[i]) * t2[0];
            const float v14 = -v13;
            const float v16 = max_(v14, bits(0xc2d00000));
            t8[i] = v16;
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v18 = get(t5[i]) * get(t6[i * 136 + d1]);
            const float v38 = get(t1[0]) * get(t6[i * 136 + d1]);
            put(&t9[i * 136 + d1], v18);
            t10[i * 136 + d1] = v38;
        }
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t4 + 0),
            matrix<1, 136, 1>(t7 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t11[i * 136 + d1] = x;
        });
        __syncthreads();
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t4 + 0),
            matrix<136, 1, 2>(t3 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t12[i * 72 + j] = x;
        });
        __syncthreads();
        for (int e = WARP; e < 1; e += WARPS) {
            const float s = 0;
            scan_lanes<Adding<float>>(n, s, [&](int at) {
                const int i = at;
                (void)i;
                return 0.f;
            }, [&](int at) {
                const int i = at;
                (void)i;
                return t8[i];
            },
                [&](int at, float found, float left) {
                const int i = at;
                t13[i] = left;
                (void)found;
            });
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v27 = exp_(t13[i]);
            t14[i] = v27;
        }
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v32 = i >= j ? exp_(t13[i] - t13[j]) : 0.f;
            const float v34 = v32 * t12[i * 72 + j];
            put(&t15[i * 72 + j], v34);
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v29 = t14[i] * t11[i * 136 + d1];
            t16[i * 136 + d1] = v29;
        }
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<72, 1, 2>(t15 + 0),
            matrix<1, 136, 1>(t9 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t17[i * 136 + d1] = x;
        });
        __syncthreads();
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v37 = t16[i * 136 + d1] + t17[i * 136 + d1];
            const float v39 = v37 + t10[i * 136 + d1];
            if (a.t[6].p)
                put((bf16 *)a.t[6].p + at_token(a.t[6], q, token, fresh(head)) + i * a.t[6].st + d1 * a.t[6].sd[0], v39);
        }
        __syncthreads();
        __syncthreads();
    }
}

// backward (reverse), 131328 bytes a chunk and head predicted: %1 %3 %5
// %7 %9 %12 %13 %14 %15 %16 %17 %19 %22 %27 %59 %62 %74 %75
struct Args2 { Run run; Tensor t[6]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k2_reverse(const __grid_constant__ Args2 a)
{
    float *const t0 = (float *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 34816);
    float *const t2 = (float *)(arena + 34832);
    bf16 *const t3 = (bf16 *)(arena + 34848);
    float *const t4 = (float *)(arena + 34976);
    float *const t5 = (float *)(arena + 35232);
    float *const t6 = (float *)(arena + 35488);
    float *const t7 = (float *)(arena + 35504);
    bf16 *const t8 = (bf16 *)(arena + 35760);
    bf16 *const t9 = (bf16 *)(arena + 53168);
    float *const t10 = (float *)(arena + 70576);
    bf16 *const t11 = (bf16 *)(arena + 35760);
    float *const t12 = (float *)(arena + 105392);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 2);
        const i64 s = divided(item / 2, a.run.heads);
        const int head = (int)(item / 2 - s * a.run.heads);
        (void)block;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[0];
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 128;
                    const int d1 = e % 128;
                    t0[d0 * 136 + d1] = get(p[0 + d0 * a.t[0].sd[0] + d1 * a.t[0].sd[1]]);
                }
            } else {
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 128;
                    const int d1 = e % 128;
                    t0[d0 * 136 + d1] = 0;
                }
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + head_of(a.t[1], head) * a.t[1].sh;
                for (int e = TID; e < 1; e += THREADS) {
                    copy1(t1 + 0, p);
                }
            }
            __syncthreads();
            if (WARP == 3 && LANE == 0) {
                const float v12 = exp_(get(t1[0]));
                t2[0] = v12;
            }
        }
        __syncthreads();
        const i64 chunks = (q.len + 63) / 64;
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = chunks - 1 - m;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
            (void)later;
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put((bf16 *)(later + 0) + block * 8192 + d0 * 128 + d1, t0[d0 * 136 + d1]);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                for (int e = TID; e < n; e += THREADS) {
                    const int i = e;
                    copy1(t3 + i, p + i * a.t[2].st);
                }
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v13 = get(t3[i]) * t2[0];
                const float v14 = -v13;
                const float v16 = max_(v14, bits(0xc2d00000));
                t4[i] = v16;
            }
            __syncthreads();
            for (int e = WARP; e < 1; e += WARPS) {
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
            if (WARP == 11 && LANE == 0) {
                const float v22 = exp_(t5[(n - 1) * 1]);
                t6[0] = v22;
            }
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v27 = exp_(t5[i]);
                t7[i] = v27;
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, false>(t8, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            __syncthreads();
            for (int e = TID; e < n * 128; e += THREADS) {
                const int i = e / 128;
                const int d1 = e % 128;
                const float v59 = get(t8[i * 136 + d1]) * t7[i];
                put(&t9[i * 136 + d1], v59);
            }
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v74 = t0[d0 * 136 + d1] * t6[0];
                t10[d0 * 136 + d1] = v74;
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head) + block * 64 * a.t[4].sd[0];
                copy_in<64, 72, false>(t11, p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(64, 128, n,
                matrix<1, 72, 1>(t11 + 0),
                matrix<1, 136, 1>(t9 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t12[d0 * 136 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v75 = t12[d0 * 136 + d1] + t10[d0 * 136 + d1];
                t0[d0 * 136 + d1] = v75;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[5].p) {
            float *p = (float *)a.t[5].p + s * a.t[5].sb + head_of(a.t[5], head) * a.t[5].sh + block * 64 * a.t[5].sd[0];
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put(p + d0 * a.t[5].sd[0] + d1 * a.t[5].sd[1], t0[d0 * 136 + d1]);
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
    char *const spill = global(a.run.spill) + blockIdx.x * 279552ll;
    bf16 *const t0 = (bf16 *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 16);
    float *const t2 = (float *)(arena + 32);
    float *const t3 = (float *)(arena + 48);
    bf16 *const t4 = (bf16 *)(spill + 0);
    bf16 *const t5 = (bf16 *)(spill + 17408);
    bf16 *const t6 = (bf16 *)(arena + 304);
    bf16 *const t7 = (bf16 *)(spill + 34816);
    bf16 *const t8 = (bf16 *)(arena + 432);
    bf16 *const t9 = (bf16 *)(arena + 17840);
    bf16 *const t10 = (bf16 *)(arena + 52656);
    float *const t11 = (float *)(arena + 87472);
    float *const t12 = (float *)(arena + 87728);
    bf16 *const t13 = (bf16 *)(arena + 87984);
    float *const t14 = (float *)(spill + 52224);
    float *const t15 = (float *)(arena + 105392);
    float *const t16 = (float *)(arena + 105456);
    float *const t17 = (float *)(arena + 105520);
    float *const t18 = (float *)(spill + 87040);
    float *const t19 = (float *)(spill + 105472);
    float *const t20 = (float *)(arena + 17840);
    float *const t21 = (float *)(spill + 140288);
    float *const t22 = (float *)(arena + 52656);
    float *const t23 = (float *)(arena + 52912);
    float *const t24 = (float *)(spill + 175104);
    float *const t25 = (float *)(arena + 17840);
    float *const t26 = (float *)(arena + 18096);
    float *const t27 = (float *)(arena + 18352);
    float *const t28 = (float *)(arena + 36784);
    float *const t29 = (float *)(arena + 37040);
    float *const t30 = (float *)(arena + 37296);
    float *const t31 = (float *)(arena + 37552);
    float *const t32 = (float *)(arena + 37808);
    float *const t33 = (float *)(arena + 37824);
    bf16 *const t34 = (bf16 *)(arena + 56256);
    float *const t35 = (float *)(arena + 65472);
    bf16 *const t36 = (bf16 *)(arena + 87984);
    float *const t37 = (float *)(arena + 18096);
    float *const t38 = (float *)(arena + 18352);
    float *const t39 = (float *)(arena + 18608);
    float *const t40 = (float *)(spill + 209920);
    float *const t41 = (float *)(spill + 244736);
    float *const t42 = (float *)(spill + 87040);
    float *const t43 = (float *)(arena + 18352);
    float *const t44 = (float *)(arena + 17840);
    float *const t45 = (float *)(arena + 97200);
    float *const t46 = (float *)(arena + 37808);
    float *const t47 = (float *)(arena + 132016);
    float *const t48 = (float *)(arena + 432);
    float *const t49 = (float *)(arena + 688);
    float *const t50 = (float *)(arena + 35504);
    float *const t51 = (float *)(arena + 688);
    float *const t52 = (float *)(arena + 432);
    float *const t53 = (float *)(arena + 688);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        (void)block;
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        {
            const int n = 64;
            (void)n;
            {
                const bf16 *p = (const bf16 *)a.t[0].p + head_of(a.t[0], head) * a.t[0].sh;
                for (int e = TID; e < 1; e += THREADS) {
                    copy1(t0 + 0, p);
                }
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + head_of(a.t[1], head) * a.t[1].sh;
                for (int e = TID; e < 1; e += THREADS) {
                    copy1(t1 + 0, p);
                }
            }
            __syncthreads();
            if (WARP == 3 && LANE == 0) {
                const float v12 = exp_(get(t0[0]));
                t2[0] = v12;
            }
            for (int e = WARP; e < 1; e += WARPS) {
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
                    t3[i] = left;
                    (void)found;
                });
            }
        }
        __syncthreads();
        const int n = (int)min(q.len - at * 64, (i64)64);
        const i64 token = q.start + at * 64;
        (void)n;
        (void)token;
        char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
        (void)stored;
        char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
        (void)later;
        {
            const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
            copy_in<128, 136, false>(t4, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
            copy_in<128, 136, false>(t5, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                copy1(t6 + i, p + i * a.t[4].st);
            }
        }
        {
            const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
            copy_in<128, 136, false>(t7, p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[6].p + at_token(a.t[6], q, token, head);
            copy_in<128, 136, false>(t8, p, a.t[6].st, a.t[6].sd[0], n, a.t[6].wide);
        }
        {
            const bf16 *p = (bf16 *)(stored + 0);
            for (int e = TID; e < 16384; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                copy1(t9 + d0 * 136 + d1, p + d0 * 128 + d1);
            }
        }
        {
            const bf16 *p = (bf16 *)(later + 0);
            for (int e = TID; e < 16384; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                copy1(t10 + d0 * 136 + d1, p + d0 * 128 + d1);
            }
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v13 = get(t6[i]) * t2[0];
            const float v14 = -v13;
            const float v16 = max_(v14, bits(0xc2d00000));
            const float v88 = v14 < bits(0xc2d00000) ? 1 : 0;
            t11[i] = v16;
            t12[i] = v88;
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v18 = get(t6[i]) * get(t7[i * 136 + d1]);
            const float v43 = get(t1[0]) * get(t8[i * 136 + d1]);
            put(&t13[i * 136 + d1], v18);
            t14[i * 136 + d1] = v43;
        }
        {
            float v42 = 0;
            for (int y = TID; y < n * 128; y += THREADS) {
                const int d1 = y % 128;
                const int i = y / 128;
                v42 += get(t7[i * 136 + d1]) * get(t8[i * 136 + d1]);
            }
            v42 = block_sum(v42, t15);
            float v76 = 0;
            for (int y = TID; y < 16384; y += THREADS) {
                const int d1 = y % 128;
                const int d0 = y / 128;
                v76 += get(t9[d0 * 136 + d1]) * get(t10[d0 * 136 + d1]);
            }
            v76 = block_sum(v76, t16);
            if (TID == 0) {
                t17[0] = v76;
                put((float *)(later + 32768) + 0, v42);
            }
        }
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t5 + 0),
            matrix<136, 1, 2>(t4 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t18[i * 72 + j] = x;
        });
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t8 + 0),
            matrix<136, 1, 2>(t9 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t19[i * 136 + d0] = x;
        });
        __syncthreads();
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t7 + 0),
            matrix<136, 1, 2>(t10 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t20[i * 136 + d0] = x;
        });
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t4 + 0),
            matrix<1, 136, 1>(t10 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t21[i * 136 + d1] = x;
        });
        __syncthreads();
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v58 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v58 += get(t5[i * 136 + d0]) * t19[i * 136 + d0];
            }
            v58 = lane_sum<LANES>(v58);
            float v72 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v72 += get(t4[i * 136 + d0]) * t20[i * 136 + d0];
            }
            v72 = lane_sum<LANES>(v72);
            if (LANE == 0) {
                t22[i] = v58;
                t23[i] = v72;
            }
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v66 = get(t6[i]) * t20[i * 136 + d0];
            t24[i * 136 + d0] = v66;
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v73 = get(t6[i]) * t23[i];
            t25[i] = v73;
        }
        for (int e = WARP; e < 1; e += WARPS) {
            const float s = 0;
            scan_lanes<Adding<float>>(n, s, [&](int at) {
                const int i = at;
                (void)i;
                return 0.f;
            }, [&](int at) {
                const int i = at;
                (void)i;
                return t11[i];
            },
                [&](int at, float found, float left) {
                const int i = at;
                t26[i] = left;
                (void)found;
            });
        }
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t8 + 0),
            matrix<136, 1, 2>(t13 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t27[i * 72 + j] = x;
        });
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v20 = t26[(n - 1) * 1] - t26[i];
            const float v21 = exp_(v20);
            const float v27 = exp_(t26[i]);
            const float v63 = v27 * t22[i];
            const float v78 = v21 * t25[i];
            t28[i] = v21;
            t29[i] = v27;
            t30[i] = v63;
            t31[i] = v78;
        }
        if (WARP == 14 && LANE == 0) {
            const float v22 = exp_(t26[(n - 1) * 1]);
            const float v77 = v22 * t17[0];
            t32[0] = v77;
        }
        __syncthreads();
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v32 = i >= j ? exp_(t26[i] - t26[j]) : 0.f;
            const float v34 = v32 * t18[i * 72 + j];
            const float v47 = t18[i * 72 + j] * t27[i * 72 + j];
            const float v48 = v32 * t27[i * 72 + j];
            t33[i * 72 + j] = v32;
            put(&t34[i * 72 + j], v34);
            t35[i * 72 + j] = v47;
            put(&t36[i * 72 + j], v48);
        }
        __syncthreads();
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v51 = 0;
            for (int y = LANE; y < n; y += LANES) {
                const int j = y;
                v51 += t33[i * 72 + j] * t35[i * 72 + j];
            }
            v51 = lane_sum<LANES>(v51);
            if (LANE == 0) {
                t37[i] = v51;
            }
        }
        for (int e = TID; e < n; e += THREADS) {
            const int j = e;
            float v52 = 0;
            for (int y = 0; y < n; y++) {
                const int i = y;
                v52 += t33[i * 72 + j] * t35[i * 72 + j];
            }
            t38[j] = v52;
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int j = e;
            const float v53 = -t38[j];
            t39[j] = v53;
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v60 = t29[i] * t19[i * 136 + d0];
            const float v67 = t28[i] * t24[i * 136 + d0];
            t40[i * 136 + d0] = v60;
            t41[i * 136 + d0] = v67;
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v70 = t28[i] * t21[i * 136 + d1];
            t42[i * 136 + d1] = v70;
        }
        if (WARP == 9) {
            float v79 = 0;
            for (int y = LANE; y < n; y += LANES) {
                const int i = y;
                v79 += t28[i] * t25[i];
            }
            v79 = lane_sum<LANES>(v79);
            if (LANE == 0) {
                t43[0] = v79;
            }
        }
        __syncthreads();
        if (WARP == 11 && LANE == 0) {
            const float v80 = t32[0] + t43[0];
            t44[0] = v80;
        }
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<1, 72, 1>(t34 + 0),
            matrix<1, 136, 1>(t8 + 0),
            [&](int row, int col, float x) {
            const int j = row;
            const int d1 = col;
            t45[j * 136 + d1] = x;
        });
        __syncthreads();
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<72, 1, 2>(t36 + 0),
            matrix<1, 136, 1>(t4 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t46[i * 136 + d0] = x;
        });
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<1, 72, 1>(t36 + 0),
            matrix<1, 136, 1>(t5 + 0),
            [&](int row, int col, float x) {
            const int j = row;
            const int d0 = col;
            t47[j * 136 + d0] = x;
        });
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v56 = t37[i] + t39[i];
            const float v64 = v56 + t30[i];
            const float v81 = v64 - t31[i];
            const float v82 = i == n - 1 ? t44[0] : t3[(i + 1)];
            const float v83 = v81 + v82;
            t48[i] = v83;
        }
        __syncthreads();
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v61 = t46[i * 136 + d0] + t40[i * 136 + d0];
            const float v68 = t47[i * 136 + d0] + t41[i * 136 + d0];
            if (a.t[7].p)
                put((bf16 *)a.t[7].p + at_token(a.t[7], q, token, fresh(head)) + i * a.t[7].st + d0 * a.t[7].sd[0], v68);
            if (a.t[8].p)
                put((bf16 *)a.t[8].p + at_token(a.t[8], q, token, fresh(head)) + i * a.t[8].st + d0 * a.t[8].sd[0], v61);
        }
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v71 = t45[i * 136 + d1] + t42[i * 136 + d1];
            const float v85 = get(t6[i]) * v71;
            const float v86 = t14[i * 136 + d1] + v85;
            t49[i * 136 + d1] = v71;
            if (a.t[9].p)
                put((bf16 *)a.t[9].p + at_token(a.t[9], q, token, fresh(head)) + i * a.t[9].st + d1 * a.t[9].sd[0], v86);
        }
        __syncthreads();
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v84 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d1 = y;
                v84 += get(t7[i * 136 + d1]) * t49[i * 136 + d1];
            }
            v84 = lane_sum<LANES>(v84);
            if (LANE == 0) {
                t50[i] = v84;
            }
        }
        __syncthreads();
        for (int e = WARP; e < 1; e += WARPS) {
            const float s = 0;
            scan_lanes<Adding<float>>(n, s, [&](int at) {
                const int i = n - 1 - at;
                (void)i;
                return 0.f;
            }, [&](int at) {
                const int i = n - 1 - at;
                (void)i;
                return t48[i];
            },
                [&](int at, float found, float left) {
                const int i = n - 1 - at;
                t51[i] = left;
                (void)found;
            });
        }
        __syncthreads();
        for (int e = fresh(TID); e < n; e += THREADS) {
            const int i = e;
            const float v89 = t12[i] != 0 ? 0.f : t51[i];
            const float v90 = t2[0] * v89;
            const float v91 = t50[i] - v90;
            t52[i] = v89;
            if (a.t[10].p)
                put((bf16 *)a.t[10].p + at_token(a.t[10], q, token, fresh(head)) + i * a.t[10].st, v91);
        }
        __syncthreads();
        if (WARP == 11) {
            float v92 = 0;
            for (int y = LANE; y < n; y += LANES) {
                const int i = y;
                v92 += get(t6[i]) * t52[i];
            }
            v92 = lane_sum<LANES>(v92);
            if (LANE == 0) {
                t53[0] = v92;
            }
        }
        __syncthreads();
        if (WARP == 13 && LANE == 0) {
            const float v93 = t2[0] * t53[0];
            put((float *)(later + 32784) + 0, v93);
        }
        __syncthreads();
        __syncthreads();
    }
}

// backward (reverse), 8 bytes a chunk and head predicted: %10 %11 %94 %95
struct Args4 { Run run; Tensor t[4]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k4_reverse(const __grid_constant__ Args4 a)
{
    float *const t0 = (float *)(arena + 0);
    float *const t1 = (float *)(arena + 16);
    float *const t2 = (float *)(arena + 32);
    float *const t3 = (float *)(arena + 48);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 s = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - s * a.run.heads);
        (void)block;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh;
                for (int e = TID; e < 1; e += THREADS) {
                    t0[0] = get(p[0]);
                }
            } else {
                for (int e = TID; e < 1; e += THREADS) {
                    t0[0] = 0;
                }
            }
            if (a.t[1].p) {
                const float *p = (const float *)a.t[1].p + s * a.t[1].sb + head_of(a.t[1], head) * a.t[1].sh;
                for (int e = TID; e < 1; e += THREADS) {
                    t1[0] = get(p[0]);
                }
            } else {
                for (int e = TID; e < 1; e += THREADS) {
                    t1[0] = 0;
                }
            }
        }
        __syncthreads();
        const i64 chunks = (q.len + 63) / 64;
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = chunks - 1 - m;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32800ll;
            (void)later;
            {
                const float *p = (float *)(later + 32768);
                for (int e = TID; e < 1; e += THREADS) {
                    copy1(t2 + 0, p + 0);
                }
            }
            {
                const float *p = (float *)(later + 32784);
                for (int e = TID; e < 1; e += THREADS) {
                    copy1(t3 + 0, p + 0);
                }
            }
            __syncthreads();
            if (WARP == 5 && LANE == 0) {
                const float v94 = t0[0] - t3[0];
                const float v95 = t1[0] + t2[0];
                t0[0] = v94;
                t1[0] = v95;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[2].p) {
            float *p = (float *)a.t[2].p + s * a.t[2].sb + head_of(a.t[2], head) * a.t[2].sh;
            for (int e = TID; e < 1; e += THREADS) {
                put(p, t0[0]);
            }
        }
        if (a.t[3].p) {
            float *p = (float *)a.t[3].p + s * a.t[3].sb + head_of(a.t[3], head) * a.t[3].sh;
            for (int e = TID; e < 1; e += THREADS) {
                put(p, t1[0]);
            }
        }
        __syncthreads();
    }
}
