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
    float *const t0 = (float *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 34816);
    float *const t2 = (float *)(arena + 44032);
    float *const t3 = (float *)(arena + 62464);
    bf16 *const t4 = (bf16 *)(arena + 34816);
    bf16 *const t5 = (bf16 *)(arena + 44032);
    float *const t6 = (float *)(arena + 80896);
    bf16 *const t7 = (bf16 *)(arena + 53248);
    float *const t8 = (float *)(arena + 81152);
    float *const t9 = (float *)(arena + 115968);
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
        }
        __syncthreads();
        const i64 chunks = (q.len + 63) / 64;
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = m;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)later;
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put((float *)(stored + 0) + block * 8192 + d0 * 128 + d1, t0[d0 * 136 + d1]);
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head) + block * 64 * a.t[1].sd[0];
                copy_in<64, 72, false>(t1, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d0 = e % 64;
                const float v9 = max_(get(t1[i * 72 + d0]), bits(0xc2d00000));
                t2[i * 72 + d0] = v9;
            }
            __syncthreads();
            for (int e = TID; e < 64; e += THREADS) {
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
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                copy_in<64, 72, false>(t4, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d0 = e % 64;
                const float v12 = t3[d0 + (n - 1) * 72] - t3[i * 72 + d0];
                const float v13 = exp_(v12);
                const float v16 = get(t4[i * 72 + d0]) * v13;
                put(&t5[i * 72 + d0], v16);
            }
            for (int e = TID; e < 64; e += THREADS) {
                const int d0 = e;
                const float v14 = exp_(t3[d0 + (n - 1) * 72]);
                t6[d0] = v14;
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, false>(t7, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v15 = t0[d0 * 136 + d1] * t6[d0];
                t8[d0 * 136 + d1] = v15;
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(64, 128, n,
                matrix<1, 72, 1>(t5 + 0),
                matrix<1, 136, 1>(t7 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t9[d0 * 136 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v18 = t8[d0 * 136 + d1] + t9[d0 * 136 + d1];
                t0[d0 * 136 + d1] = v18;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[4].p) {
            float *p = (float *)a.t[4].p + s * a.t[4].sb + head_of(a.t[4], head) * a.t[4].sh + block * 64 * a.t[4].sd[0];
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put(p + d0 * a.t[4].sd[0] + d1 * a.t[4].sd[1], t0[d0 * 136 + d1]);
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
    float *const t1 = (float *)(arena + 17408);
    float *const t2 = (float *)(arena + 52224);
    bf16 *const t3 = (bf16 *)(arena + 0);
    bf16 *const t4 = (bf16 *)(arena + 17408);
    bf16 *const t5 = (bf16 *)(arena + 34816);
    float *const t6 = (float *)(arena + 87040);
    bf16 *const t7 = (bf16 *)(arena + 0);
    float *const t9 = (float *)(arena + 52224);
    float *const t10 = (float *)(arena + 17408);
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
        }
        __syncthreads();
        const int n = (int)min(q.len - at * 64, (i64)64);
        const i64 token = q.start + at * 64;
        (void)n;
        (void)token;
        char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 65536ll;
        (void)stored;
        char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
        (void)later;
        {
            const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
            copy_in<128, 136, false>(t0, p, a.t[0].st, a.t[0].sd[0], n, a.t[0].wide);
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v9 = max_(get(t0[i * 136 + d0]), bits(0xc2d00000));
            t1[i * 136 + d0] = v9;
        }
        __syncthreads();
        for (int e = TID; e < 128; e += THREADS) {
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
        {
            const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
            copy_in<128, 136, false>(t3, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
        }
        __syncthreads();
        {
            const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
            copy_in<128, 136, false>(t4, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v19 = exp_(t2[i * 136 + d0]);
            const float v20 = get(t3[i * 136 + d0]) * v19;
            put(&t5[i * 136 + d0], v20);
        }
        __syncthreads();
        gated_keys<TF32, false, 128>(n,
            matrix<136, 1, 2>(t3 + 0),
            matrix<136, 1, 2>(t4 + 0),
            matrix<136, 1, 2>(t2 + 0),
            matrix<136, 1, 2>(t2 + 0),
            [&](int i, int j, float x) {
            t6[i * 72 + j] = x;
        });
        __syncthreads();
        {
            const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
            copy_in<128, 136, false>(t7, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
        }
        const float *const t8 = (float *)(stored + 0);
        product<TF32, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t5 + 0),
            matrix<1, 128, 1>(t8 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t9[i * 136 + d1] = x;
        });
        __syncthreads();
        product<TF32, 2, 2, false, false, true>(n, 128, n,
            matrix<72, 1, 2>(t6 + 0),
            matrix<1, 136, 1>(t7 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t10[i * 136 + d1] = x;
        });
        __syncthreads();
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v27 = t9[i * 136 + d1] + t10[i * 136 + d1];
            if (a.t[4].p)
                put((bf16 *)a.t[4].p + at_token(a.t[4], q, token, fresh(head)) + i * a.t[4].st + d1 * a.t[4].sd[0], v27);
        }
        __syncthreads();
        __syncthreads();
    }
}

// backward (reverse), 163840 bytes a chunk and head predicted: %1 %4 %5
// %7 %8 %9 %10 %11 %14 %19 %20 %36 %47 %48
struct Args2 { Run run; Tensor t[5]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k2_reverse(const __grid_constant__ Args2 a)
{
    float *const t0 = (float *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 34816);
    float *const t2 = (float *)(arena + 44032);
    float *const t3 = (float *)(arena + 62464);
    bf16 *const t4 = (bf16 *)(arena + 34816);
    float *const t5 = (float *)(arena + 80896);
    bf16 *const t6 = (bf16 *)(arena + 44032);
    bf16 *const t7 = (bf16 *)(arena + 53248);
    float *const t8 = (float *)(arena + 81152);
    float *const t9 = (float *)(arena + 115968);
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
        }
        __syncthreads();
        const i64 chunks = (q.len + 63) / 64;
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = chunks - 1 - m;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)later;
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put((float *)(later + 0) + block * 8192 + d0 * 128 + d1, t0[d0 * 136 + d1]);
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head) + block * 64 * a.t[1].sd[0];
                copy_in<64, 72, false>(t1, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d0 = e % 64;
                const float v9 = max_(get(t1[i * 72 + d0]), bits(0xc2d00000));
                t2[i * 72 + d0] = v9;
            }
            __syncthreads();
            for (int e = TID; e < 64; e += THREADS) {
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
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                copy_in<64, 72, false>(t4, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            __syncthreads();
            for (int e = TID; e < 64; e += THREADS) {
                const int d0 = e;
                const float v14 = exp_(t3[d0 + (n - 1) * 72]);
                t5[d0] = v14;
            }
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d0 = e % 64;
                const float v19 = exp_(t3[i * 72 + d0]);
                const float v20 = get(t4[i * 72 + d0]) * v19;
                put(&t6[i * 72 + d0], v20);
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, false>(t7, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v47 = t0[d0 * 136 + d1] * t5[d0];
                t8[d0 * 136 + d1] = v47;
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(64, 128, n,
                matrix<1, 72, 1>(t6 + 0),
                matrix<1, 136, 1>(t7 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t9[d0 * 136 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v48 = t9[d0 * 136 + d1] + t8[d0 * 136 + d1];
                t0[d0 * 136 + d1] = v48;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[4].p) {
            float *p = (float *)a.t[4].p + s * a.t[4].sb + head_of(a.t[4], head) * a.t[4].sh + block * 64 * a.t[4].sd[0];
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put(p + d0 * a.t[4].sd[0] + d1 * a.t[4].sd[1], t0[d0 * 136 + d1]);
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
    char *const spill = global(a.run.spill) + blockIdx.x * 262144ll;
    float *const t0 = (float *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 256);
    bf16 *const t2 = (bf16 *)(arena + 17664);
    bf16 *const t3 = (bf16 *)(spill + 0);
    float *const t6 = (float *)(spill + 17408);
    float *const t7 = (float *)(spill + 52224);
    float *const t8 = (float *)(arena + 17664);
    float *const t9 = (float *)(spill + 87040);
    float *const t10 = (float *)(spill + 105472);
    float *const t11 = (float *)(spill + 140288);
    bf16 *const t12 = (bf16 *)(arena + 256);
    float *const t13 = (float *)(arena + 18176);
    bf16 *const t14 = (bf16 *)(arena + 52992);
    float *const t15 = (float *)(spill + 17408);
    bf16 *const t16 = (bf16 *)(spill + 175104);
    float *const t17 = (float *)(spill + 192512);
    float *const t18 = (float *)(spill + 227328);
    float *const t19 = (float *)(arena + 70400);
    float *const t20 = (float *)(arena + 70912);
    float *const t21 = (float *)(arena + 89344);
    float *const t22 = (float *)(arena + 124160);
    float *const t23 = (float *)(spill + 87040);
    float *const t24 = (float *)(arena + 17664);
    float *const t25 = (float *)(arena + 256);
    float *const t26 = (float *)(arena + 768);
    float *const t27 = (float *)(arena + 35584);
    float *const t28 = (float *)(arena + 768);
    float *const t29 = (float *)(arena + 35584);
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
                    t0[i] = left;
                    (void)found;
                });
            }
        }
        __syncthreads();
        const int n = (int)min(q.len - at * 64, (i64)64);
        const i64 token = q.start + at * 64;
        (void)n;
        (void)token;
        char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 65536ll;
        (void)stored;
        char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
        (void)later;
        {
            const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
            copy_in<128, 136, false>(t1, p, a.t[0].st, a.t[0].sd[0], n, a.t[0].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
            copy_in<128, 136, false>(t2, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
            copy_in<128, 136, false>(t3, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
        }
        const float *const t4 = (float *)(stored + 0);
        const float *const t5 = (float *)(later + 0);
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v9 = max_(get(t2[i * 136 + d0]), bits(0xc2d00000));
            const float v58 = get(t2[i * 136 + d0]) < bits(0xc2d00000) ? 1 : 0;
            t6[i * 136 + d0] = v9;
            t7[i * 136 + d0] = v58;
        }
        __syncthreads();
        NO_UNROLL for (int e = WARP; e < 128; e += WARPS) {
            const int d0 = e;
            float v49 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d1 = y;
                v49 += t4[d0 * 128 + d1] * t5[d0 * 128 + d1];
            }
            v49 = lane_sum<LANES>(v49);
            if (LANE == 0) {
                t8[d0] = v49;
            }
        }
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t3 + 0),
            matrix<136, 1, 2>(t1 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t9[i * 72 + j] = x;
        });
        product<TF32, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t3 + 0),
            matrix<128, 1, 2>(t4 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t10[i * 136 + d0] = x;
        });
        product<TF32, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t1 + 0),
            matrix<128, 1, 2>(t5 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t11[i * 136 + d0] = x;
        });
        __syncthreads();
        {
            const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
            copy_in<128, 136, false>(t12, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
        }
        for (int e = TID; e < 128; e += THREADS) {
            const int d0 = e;
            const float s = 0;
            scan_alone<Adding<float>>(n, s, [&](int at) {
                const int i = at;
                (void)i;
                return 0.f;
            }, [&](int at) {
                const int i = at;
                (void)i;
                return t6[i * 136 + d0];
            },
                [&](int at, float found, float left) {
                const int i = at;
                t13[i * 136 + d0] = left;
                (void)found;
            });
        }
        {
            const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
            copy_in<128, 136, false>(t14, p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v12 = t13[d0 + (n - 1) * 136] - t13[i * 136 + d0];
            const float v13 = exp_(v12);
            const float v16 = get(t12[i * 136 + d0]) * v13;
            const float v19 = exp_(t13[i * 136 + d0]);
            const float v38 = v19 * t10[i * 136 + d0];
            const float v44 = v13 * t11[i * 136 + d0];
            t15[i * 136 + d0] = v13;
            put(&t16[i * 136 + d0], v16);
            t17[i * 136 + d0] = v38;
            t18[i * 136 + d0] = v44;
        }
        for (int e = TID; e < 128; e += THREADS) {
            const int d0 = e;
            const float v14 = exp_(t13[d0 + (n - 1) * 136]);
            const float v50 = v14 * t8[d0];
            t19[d0] = v50;
        }
        gated_keys<TF32, false, 128>(n,
            matrix<136, 1, 2>(t14 + 0),
            matrix<136, 1, 2>(t12 + 0),
            matrix<136, 1, 2>(t13 + 0),
            matrix<136, 1, 2>(t13 + 0),
            [&](int i, int j, float x) {
            t20[i * 72 + j] = x;
        });
        gated_tokens<TF32, false, false, 128>(n,
            matrix<72, 1, 2>(t9 + 0),
            matrix<136, 1, 2>(t12 + 0),
            matrix<136, 1, 2>(t13 + 0),
            matrix<136, 1, 2>(t13 + 0),
            [&](int i, int d0, float x) {
            t21[i * 136 + d0] = x;
        });
        gated_tokens<TF32, false, true, 128>(n,
            matrix<1, 72, 1>(t9 + 0),
            matrix<136, 1, 2>(t14 + 0),
            matrix<136, 1, 2>(t13 + 0),
            matrix<136, 1, 2>(t13 + 0),
            [&](int j, int d0, float x) {
            t22[j * 136 + d0] = x;
        });
        __syncthreads();
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v39 = t21[i * 136 + d0] + t17[i * 136 + d0];
            const float v40 = get(t14[i * 136 + d0]) * v39;
            const float v45 = t22[i * 136 + d0] + t18[i * 136 + d0];
            const float v53 = get(t12[i * 136 + d0]) * v45;
            const float v54 = v40 - v53;
            t23[i * 136 + d0] = v54;
            if (a.t[5].p)
                put((bf16 *)a.t[5].p + at_token(a.t[5], q, token, fresh(head)) + i * a.t[5].st + d0 * a.t[5].sd[0], v39);
            if (a.t[6].p)
                put((bf16 *)a.t[6].p + at_token(a.t[6], q, token, fresh(head)) + i * a.t[6].st + d0 * a.t[6].sd[0], v45);
        }
        for (int e = TID; e < 128; e += THREADS) {
            const int d0 = e;
            float v51 = 0;
            for (int y = 0; y < n; y++) {
                const int i = y;
                const float v46 = get(t12[i * 136 + d0]) * t11[i * 136 + d0];
                v51 += t15[i * 136 + d0] * v46;
            }
            t24[d0] = v51;
        }
        __syncthreads();
        for (int e = TID; e < 128; e += THREADS) {
            const int d0 = e;
            const float v52 = t19[d0] + t24[d0];
            t25[d0] = v52;
        }
        __syncthreads();
        product<TF32, 2, 2, false, false, true>(n, 128, n,
            matrix<1, 72, 1>(t20 + 0),
            matrix<1, 136, 1>(t3 + 0),
            [&](int row, int col, float x) {
            const int j = row;
            const int d1 = col;
            t26[j * 136 + d1] = x;
        });
        product<TF32, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t16 + 0),
            matrix<1, 128, 1>(t5 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t27[i * 136 + d1] = x;
        });
        __syncthreads();
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v42 = t26[i * 136 + d1] + t27[i * 136 + d1];
            if (a.t[7].p)
                put((bf16 *)a.t[7].p + at_token(a.t[7], q, token, fresh(head)) + i * a.t[7].st + d1 * a.t[7].sd[0], v42);
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v55 = i == n - 1 ? t25[d0] : t0[(i + 1)];
            const float v56 = t23[i * 136 + d0] + v55;
            t28[i * 136 + d0] = v56;
        }
        __syncthreads();
        for (int e = TID; e < 128; e += THREADS) {
            const int d0 = e;
            const float s = 0;
            scan_alone<Adding<float>>(n, s, [&](int at) {
                const int i = n - 1 - at;
                (void)i;
                return 0.f;
            }, [&](int at) {
                const int i = n - 1 - at;
                (void)i;
                return t28[i * 136 + d0];
            },
                [&](int at, float found, float left) {
                const int i = n - 1 - at;
                t29[i * 136 + d0] = left;
                (void)found;
            });
        }
        __syncthreads();
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v59 = t7[i * 136 + d0] != 0 ? 0.f : t29[i * 136 + d0];
            if (a.t[8].p)
                put((bf16 *)a.t[8].p + at_token(a.t[8], q, token, fresh(head)) + i * a.t[8].st + d0 * a.t[8].sd[0], v59);
        }
        __syncthreads();
        __syncthreads();
    }
}
