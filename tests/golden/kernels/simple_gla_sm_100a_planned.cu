#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (forward), 131328 bytes a chunk and head predicted: %2 %3 %4
// %6 %8 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18
namespace in_k0_forward {
struct Args { TensorMap map[3]; Tensor tensor[5]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k0_forward(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 90656 + 8 * i, 32);
            barrier_init(base + 90672 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 90688 + 8 * i, 1);
            barrier_init(base + 90704 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 90720 + 8 * i, 256);
            barrier_init(base + 90736 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 90752 + 8 * i, 1);
            barrier_init(base + 90768 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++)
            barrier_init(base + 90784 + 8 + 8 * i, 1);
        barrier_init_fence();
    }
    if (threadIdx.x < 32)
        tensor_alloc<64>(base + 90784);
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<48>();
        if (warp == 0 && lane == 0) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<2>(a.run, item, x);
                const int head0 = head_of(a.tensor[0], x.head);
                const int head1 = head_of(a.tensor[1], x.head);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    wait(base + 90704 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 90688 + it % 2 * 8, to = base + 0 + it % 2 * 8192;
                        arrive_expecting(full, 8192);
                        load_tile(to + 0, &a.map[0], full, x.slice * 64 + 0, x.row, head0, x.where.b);
                    }
                    wait(base + 90768 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 90752 + it % 2 * 8, to = base + 49152 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                    }
                }
            }
        }
        if (warp == 1) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<2>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    wait(base + 90720 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 16384 + it % 2 * 16384;
                        store_tile(&a.map[2], from + 0, x.slice * 64 + 0, 0, 0, (int)x.at);
                        store_tile(&a.map[2], from + 8192, x.slice * 64 + 0, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 90736 + it % 2 * 8);
                }
            }
        }
        if (warp == 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<2>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, m, x);
                    const Pair v4 = input_pair<float>(a.tensor[2], x, lane);
                    const Pair v9 = { (float)(max_(v4.a, bits(0xc2d00000))), (float)(max_(v4.b, bits(0xc2d00000))) };
                    Pair v10 = running_sum(v9, lane, x.n);
                    const float v11 = last_row(v10, x.n);
                    const Pair v12 = { (float)(v11 - v10.a), (float)(v11 - v10.b) };
                    const Pair v13 = { (float)(exp_(v12.a)), (float)(exp_(v12.b)) };
                    const float v14 = (float)(exp_(v11));
                    wait(base + 90672 + it % 2 * 8, parity(it, 2) ^ 1);
                    store_pair(base + 90112 + it % 2 * 272, v13, lane);
                    if (lane == 0)
                        store1(base + 90368 + it % 2 * 272, v14);
                    arrive(base + 90656 + it % 2 * 8);
                }
            }
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<96>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        auto col0 = [&](int share) { return group * share; };
        Products t = products_at<64>(base + 90784, group);
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            const int chunks = find_walk<2>(a.run, item, x);
            float f6[32];
            begin_state<float, 128, 32>(f6, a.tensor[3], x, 0, x.slice * 64 + 0 + col0(32), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, m, x);
                wait(base + 90688 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 0 + it % 2 * 8192, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                tensor_before();
                matrix_sync<2>();
                tensor_after();
                wait(base + 90656 + it % 2 * 8, parity(it, 2));
                {
                    u32 t3[8];
                    read_columns<2>(t3 + 0, base + 0 + it % 2 * 8192 + 0, 64, col0(32), l);
                    float r13[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r13[h] = parts_sum<1>(base + 90112 + it % 2 * 272, 64, l.row + 8 * h);
                    float f16[16];
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x16 = (e & 1 ? high(t3[e / 2]) : low(t3[e / 2])) * r13[h];
                        f16[e] = x16;
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f16 + 0, l, x.n);
                        write_columns<2>(base + 81920 + 0, p, 64, col0(32), l);
                    }
                }
                fence_async();
                arrive(base + 90704 + it % 2 * 8);
                {
                    wait(base + 90736 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[8];
                        pack_rows(p, f6 + 0, l, 64);
                        write_columns<2>(base + 16384 + it % 2 * 16384 + 0, p, 128, col0(32), l);
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f6 + 16, l, 64);
                        write_columns<2>(base + 16384 + it % 2 * 16384 + 8192, p, 128, col0(32), l);
                    }
                    const float s14 = parts_sum<1>(base + 90368 + it % 2 * 272, 1, 0);
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x15 = f6[e] * s14;
                        f6[e] = x15;
                    }
                }
                fence_async();
                arrive(base + 90720 + it % 2 * 8);
                arrive(base + 90672 + it % 2 * 8);
                wait(base + 90752 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 49152 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                tensor_before();
                matrix_sync<2>();
                tensor_after();
                write_sums(t.sums + 0, f6);
                tensor_stored();
                products_begin();
                multiply_tiles<1, 1, 4, 1, 0, 32>(t.sums + 0, base + 49152 + it % 2 * 16384, 64, 0, base + 81920, 64, col0(32) + 0);
                multiply_tiles<1, 1, 4, 1, 0, 32>(t.sums + 32, base + 49152 + it % 2 * 16384, 64, 64, base + 81920, 64, col0(32) + 0);
                products_end(t);
                read_sums(f6, t.sums + 0);
                tensor_loaded();
                keep(f6);
                arrive(base + 90768 + it % 2 * 8);
            }
            end_state<float, 128, 32>(f6, a.tensor[4], x, 0, x.slice * 64 + 0 + col0(32), l);
        }
    }
    tensor_before();
    __syncwarp();
    __syncthreads();
    tensor_after();
    if (threadIdx.x < 32)
        tensor_free<64>(tensor_at(base + 90784));
}
}  // in_k0_forward

// forward (token), 196864 bytes a chunk and head predicted: %1 %2 %3 %4
// %8 %9 %10 %19 %20 %21 %22 %23 %24 %25 %26 %27 %28 %29
namespace in_k1_token {
struct Args { TensorMap map[5]; Tensor tensor[5]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k1_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 107520 + 8 * i, 32);
            barrier_init(base + 107536 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 107552 + 8 * i, 1);
            barrier_init(base + 107568 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 107584 + 8 * i, 1);
            barrier_init(base + 107600 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 107616 + 8 * i, 1);
            barrier_init(base + 107624 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 107632 + 8 * i, 1);
            barrier_init(base + 107640 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 107648 + 8 * i, 256);
            barrier_init(base + 107656 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++)
            barrier_init(base + 107664 + 8 + 8 * i, 1);
        barrier_init_fence();
    }
    if (threadIdx.x < 32)
        tensor_alloc<64>(base + 107664);
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<48>();
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<2>(a.run, item, x))
                continue;
            if (warp == 0 && lane == 0) {
                wait(base + 107600 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 107584 + it % 2 * 8, to = base + 32768 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[0], x.head);
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 107568 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 107552 + it % 2 * 8, to = base + 0 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[1], x.head);
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 107624, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 107616, to = base + 65536;
                    arrive_expecting(full, 16384);
                    load_tile(to + 0, &a.map[2], full, x.slice * 64 + 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[2], full, x.slice * 64 + 0, 64, 0, (int)x.at);
                }
                wait(base + 107640, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 107632, to = base + 81920;
                    arrive_expecting(full, 8192);
                    const int head = head_of(a.tensor[2], x.head);
                    load_tile(to + 0, &a.map[3], full, x.slice * 64 + 0, x.row, head, x.where.b);
                }
            }
            if (warp == 1) {
                wait(base + 107648, parity(it, 1));
                if (a.tensor[3].p) {
                    const u32 from = base + 90112;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 1; i++)
                        store_chunk(a.map[4], a.tensor[3], from + 8192 * i, x.where, c, x.slice * 64 + 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 107656);
            }
            if (warp == 2) {
                const Pair v4 = input_pair<float>(a.tensor[4], x, lane);
                const Pair v9 = { (float)(max_(v4.a, bits(0xc2d00000))), (float)(max_(v4.b, bits(0xc2d00000))) };
                Pair v10 = running_sum(v9, lane, x.n);
                const Pair v19 = { (float)(exp_(v10.a)), (float)(exp_(v10.b)) };
                wait(base + 107536 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 106496 + it % 2 * 512, v10, lane);
                store_pair(base + 106752 + it % 2 * 512, v19, lane);
                arrive(base + 107520 + it % 2 * 8);
            }
            it++;
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<96>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        auto col0 = [&](int share) { return group * share; };
        Products t = products_at<64>(base + 107664, group);
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<2>(a.run, item, x))
                continue;
            float f25[16];
            float f20[16];
            float f28[16];
            wait(base + 107552 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 107584 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 32768 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            products_begin();
            multiply_tiles<0, 0, 8, 0, 0, 32>(t.sums + 0, base + 0 + it % 2 * 16384, 64, 0, base + 32768 + it % 2 * 16384, 64, col0(32) + 0);
            products_end(t);
            read_sums(f25, t.sums + 0);
            tensor_loaded();
            keep(f25);
            arrive(base + 107600 + it % 2 * 8);
            tensor_before();
            matrix_sync<2>();
            tensor_after();
            wait(base + 107520 + it % 2 * 8, parity(it, 2));
            {
                float r10[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r10[h] = LOG2E * parts_sum<1>(base + 106496 + it % 2 * 512, 64, l.row + 8 * h);
                float c10[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c10[e] = LOG2E * parts_sum<1>(base + 106496 + it % 2 * 512, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float f26[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x24 = kept_(over >= past, exp2_(r10[h] - c10[e / 4 * 2 + e % 2]));
                    const float x26 = x24 * f25[e];
                    f26[e] = x26;
                }
                {
                    u32 p[8];
                    pack_rows(p, f26 + 0, l, x.n);
                    write_columns<2>(base + 98304 + 0, p, 64, col0(32), l);
                }
            }
            wait(base + 107632, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 81920, 1, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 107616, parity(it, 1));
            multiply_tiles<0, 1, 8, 0, 0, 32>(t.sums + 0, base + 0 + it % 2 * 16384, 64, 0, base + 65536, 128, col0(32) + 0);
            fence_async();
            tensor_before();
            matrix_sync<2>();
            tensor_after();
            multiply_tiles<0, 1, 4, 0, 0, 32>(t.sums + 32, base + 98304, 64, 0, base + 81920, 64, col0(32) + 0);
            products_end(t);
            read_sums(f20, t.sums + 0);
            read_sums(f28, t.sums + 32);
            tensor_loaded();
            keep(f20);
            keep(f28);
            arrive(base + 107568 + it % 2 * 8);
            arrive(base + 107624);
            arrive(base + 107640);
            {
                wait(base + 107656, parity(it, 1) ^ 1);
                float r19[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r19[h] = parts_sum<1>(base + 106752 + it % 2 * 512, 64, l.row + 8 * h);
                float f29[16];
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x21 = r19[h] * f20[e];
                    const float x29 = x21 + f28[e];
                    f29[e] = x29;
                }
                {
                    u32 p[8];
                    pack_rows(p, f29 + 0, l, x.n);
                    write_columns<2>(base + 90112 + 0, p, 64, col0(32), l);
                }
            }
            fence_async();
            arrive(base + 107648);
            arrive(base + 107536 + it % 2 * 8);
            it++;
        }
    }
    tensor_before();
    __syncwarp();
    __syncthreads();
    tensor_after();
    if (threadIdx.x < 32)
        tensor_free<64>(tensor_at(base + 107664));
}
}  // in_k1_token

// backward (reverse), 131328 bytes a chunk and head predicted: %1 %4 %5
// %7 %8 %9 %10 %11 %14 %19 %47 %50 %60 %61
namespace in_k2_reverse {
struct Args { TensorMap map[3]; Tensor tensor[5]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 2) k2_reverse(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 90656 + 8 * i, 32);
            barrier_init(base + 90672 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 90688 + 8 * i, 1);
            barrier_init(base + 90704 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 90720 + 8 * i, 256);
            barrier_init(base + 90736 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 90752 + 8 * i, 1);
            barrier_init(base + 90768 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++)
            barrier_init(base + 90784 + 8 + 8 * i, 1);
        barrier_init_fence();
    }
    if (threadIdx.x < 32)
        tensor_alloc<64>(base + 90784);
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<48>();
        if (warp == 0 && lane == 0) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<2>(a.run, item, x);
                const int head0 = head_of(a.tensor[0], x.head);
                const int head1 = head_of(a.tensor[1], x.head);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 90704 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 90688 + it % 2 * 8, to = base + 0 + it % 2 * 8192;
                        arrive_expecting(full, 8192);
                        load_tile(to + 0, &a.map[0], full, x.slice * 64 + 0, x.row, head0, x.where.b);
                    }
                    wait(base + 90768 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        const u32 full = base + 90752 + it % 2 * 8, to = base + 49152 + it % 2 * 16384;
                        arrive_expecting(full, 16384);
                        load_tile(to + 0, &a.map[1], full, 0, x.row, head1, x.where.b);
                        load_tile(to + 8192, &a.map[1], full, 64, x.row, head1, x.where.b);
                    }
                }
            }
        }
        if (warp == 1) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<2>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    wait(base + 90720 + it % 2 * 8, parity(it, 2));
                    if (lane == 0) {
                        const u32 from = base + 16384 + it % 2 * 16384;
                        store_tile(&a.map[2], from + 0, x.slice * 64 + 0, 0, 0, (int)x.at);
                        store_tile(&a.map[2], from + 8192, x.slice * 64 + 0, 64, 0, (int)x.at);
                    }
                    bulk_commit();
                    bulk_wait_read();
                    arrive(base + 90736 + it % 2 * 8);
                }
            }
        }
        if (warp == 2) {
            u32 it = 0;
            NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
                Item x;
                const int chunks = find_walk<2>(a.run, item, x);
                NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                    find_chunk(a.run, chunks - 1 - m, x);
                    const Pair v4 = input_pair<float>(a.tensor[2], x, lane);
                    const Pair v9 = { (float)(max_(v4.a, bits(0xc2d00000))), (float)(max_(v4.b, bits(0xc2d00000))) };
                    Pair v10 = running_sum(v9, lane, x.n);
                    const float v11 = last_row(v10, x.n);
                    const float v14 = (float)(exp_(v11));
                    const Pair v19 = { (float)(exp_(v10.a)), (float)(exp_(v10.b)) };
                    wait(base + 90672 + it % 2 * 8, parity(it, 2) ^ 1);
                    if (lane == 0)
                        store1(base + 90112 + it % 2 * 272, v14);
                    store_pair(base + 90128 + it % 2 * 272, v19, lane);
                    arrive(base + 90656 + it % 2 * 8);
                }
            }
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<96>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        auto col0 = [&](int share) { return group * share; };
        Products t = products_at<64>(base + 90784, group);
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            const int chunks = find_walk<2>(a.run, item, x);
            float f7[32];
            begin_state<float, 128, 32>(f7, a.tensor[3], x, 0, x.slice * 64 + 0 + col0(32), l);
            NO_UNROLL for (int m = 0; m < chunks; m++, it++) {
                find_chunk(a.run, chunks - 1 - m, x);
                wait(base + 90688 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 0 + it % 2 * 8192, 1, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                tensor_before();
                matrix_sync<2>();
                tensor_after();
                wait(base + 90656 + it % 2 * 8, parity(it, 2));
                {
                    u32 t5[8];
                    read_columns<2>(t5 + 0, base + 0 + it % 2 * 8192 + 0, 64, col0(32), l);
                    float r19[2];
                    UNROLL for (int h = 0; h < 2; h++)
                        r19[h] = parts_sum<1>(base + 90128 + it % 2 * 272, 64, l.row + 8 * h);
                    float f47[16];
                    UNROLL for (int e = 0; e < 16; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x47 = (e & 1 ? high(t5[e / 2]) : low(t5[e / 2])) * r19[h];
                        f47[e] = x47;
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f47 + 0, l, x.n);
                        write_columns<2>(base + 81920 + 0, p, 64, col0(32), l);
                    }
                }
                fence_async();
                arrive(base + 90704 + it % 2 * 8);
                {
                    wait(base + 90736 + it % 2 * 8, parity(it, 2) ^ 1);
                    {
                        u32 p[8];
                        pack_rows(p, f7 + 0, l, 64);
                        write_columns<2>(base + 16384 + it % 2 * 16384 + 0, p, 128, col0(32), l);
                    }
                    {
                        u32 p[8];
                        pack_rows(p, f7 + 16, l, 64);
                        write_columns<2>(base + 16384 + it % 2 * 16384 + 8192, p, 128, col0(32), l);
                    }
                    const float s14 = parts_sum<1>(base + 90112 + it % 2 * 272, 1, 0);
                    UNROLL for (int e = 0; e < 32; e++) {
                        const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                        const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                        (void)h;
                        (void)row;
                        (void)col;
                        const float x60 = f7[e] * s14;
                        f7[e] = x60;
                    }
                }
                fence_async();
                arrive(base + 90720 + it % 2 * 8);
                arrive(base + 90672 + it % 2 * 8);
                wait(base + 90752 + it % 2 * 8, parity(it, 2));
                if (x.n < CHUNK_ROWS) {
                    clear_tail<256>(base + 49152 + it % 2 * 16384, 2, x.n, thread);
                    fence_async();
                    matrix_sync<2>();
                }
                tensor_before();
                matrix_sync<2>();
                tensor_after();
                write_sums(t.sums + 0, f7);
                tensor_stored();
                products_begin();
                multiply_tiles<1, 1, 4, 1, 0, 32>(t.sums + 0, base + 49152 + it % 2 * 16384, 64, 0, base + 81920, 64, col0(32) + 0);
                multiply_tiles<1, 1, 4, 1, 0, 32>(t.sums + 32, base + 49152 + it % 2 * 16384, 64, 64, base + 81920, 64, col0(32) + 0);
                products_end(t);
                read_sums(f7, t.sums + 0);
                tensor_loaded();
                keep(f7);
                arrive(base + 90768 + it % 2 * 8);
            }
            end_state<float, 128, 32>(f7, a.tensor[4], x, 0, x.slice * 64 + 0 + col0(32), l);
        }
    }
    tensor_before();
    __syncwarp();
    __syncthreads();
    tensor_after();
    if (threadIdx.x < 32)
        tensor_free<64>(tensor_at(base + 90784));
}
}  // in_k2_reverse

// backward (token), 360960 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %8 %9 %10 %11 %12 %13 %14 %19 %22 %23 %24 %25 %26 %27 %30 %31 %32
// %33 %34 %35 %36 %37 %38 %39 %40 %41 %42 %43 %44 %45 %46 %48 %49 %51
// %52 %53 %54 %55 %56 %57 %58 %59 %62 %63 %64 %65 %66 %67 %68 %69 %70
// %71 %72
namespace in_k3_token {
struct Args { TensorMap map[9]; Tensor tensor[9]; Run run; };
extern "C" __global__ void __launch_bounds__(384, 1) k3_token(const __grid_constant__ Args a)
{
    alignas(1024) extern __shared__ unsigned char raw[];
    const u32 base = shared_address(raw);
    if (threadIdx.x == 0) {
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220768 + 8 * i, 32);
            barrier_init(base + 220784 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220800 + 8 * i, 32);
            barrier_init(base + 220816 + 8 * i, 288);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220832 + 8 * i, 32);
            barrier_init(base + 220848 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220864 + 8 * i, 1);
            barrier_init(base + 220880 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220896 + 8 * i, 1);
            barrier_init(base + 220912 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220928 + 8 * i, 1);
            barrier_init(base + 220944 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 220960 + 8 * i, 1);
            barrier_init(base + 220968 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            barrier_init(base + 220976 + 8 * i, 256);
            barrier_init(base + 220992 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 221008 + 8 * i, 1);
            barrier_init(base + 221016 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 221024 + 8 * i, 256);
            barrier_init(base + 221032 + 8 * i, 32);
        }
        UNROLL for (int i = 0; i < 1; i++) {
            barrier_init(base + 221040 + 8 * i, 1);
            barrier_init(base + 221048 + 8 * i, 256);
        }
        UNROLL for (int i = 0; i < 2; i++)
            barrier_init(base + 221056 + 8 + 8 * i, 1);
        barrier_init_fence();
    }
    if (threadIdx.x < 32)
        tensor_alloc<128>(base + 221056);
    __syncthreads();
    const int warp = uniform(threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (warp < 4) {
        fewer_registers<56>();
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<1>(a.run, item, x))
                continue;
            if (warp == 0 && lane == 0) {
                wait(base + 220880 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 220864 + it % 2 * 8, to = base + 0 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[0], x.head);
                    load_tile(to + 0, &a.map[0], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[0], full, 64, x.row, head, x.where.b);
                }
                wait(base + 220944 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 220928 + it % 2 * 8, to = base + 65536 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[1], x.head);
                    load_tile(to + 0, &a.map[1], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[1], full, 64, x.row, head, x.where.b);
                }
                wait(base + 220912 + it % 2 * 8, parity(it, 2) ^ 1);
                {
                    const u32 full = base + 220896 + it % 2 * 8, to = base + 32768 + it % 2 * 16384;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[2], x.head);
                    load_tile(to + 0, &a.map[2], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[2], full, 64, x.row, head, x.where.b);
                }
                wait(base + 220968, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 220960, to = base + 98304;
                    arrive_expecting(full, 16384);
                    const int head = head_of(a.tensor[3], x.head);
                    load_tile(to + 0, &a.map[3], full, 0, x.row, head, x.where.b);
                    load_tile(to + 8192, &a.map[3], full, 64, x.row, head, x.where.b);
                }
                wait(base + 221016, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 221008, to = base + 114688;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[4], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[4], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[4], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[4], full, 64, 64, 0, (int)x.at);
                }
                wait(base + 221048, parity(it, 1) ^ 1);
                {
                    const u32 full = base + 221040, to = base + 163840;
                    arrive_expecting(full, 32768);
                    load_tile(to + 0, &a.map[5], full, 0, 0, 0, (int)x.at);
                    load_tile(to + 8192, &a.map[5], full, 0, 64, 0, (int)x.at);
                    load_tile(to + 16384, &a.map[5], full, 64, 0, 0, (int)x.at);
                    load_tile(to + 24576, &a.map[5], full, 64, 64, 0, (int)x.at);
                }
            }
            if (warp == 1) {
                wait(base + 221024, parity((it * 3 + 0), 1));
                if (a.tensor[4].p) {
                    const u32 from = base + 147456;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[6], a.tensor[4], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 221032);
                wait(base + 221024, parity((it * 3 + 1), 1));
                if (a.tensor[5].p) {
                    const u32 from = base + 147456;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[7], a.tensor[5], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 221032);
                wait(base + 221024, parity((it * 3 + 2), 1));
                if (a.tensor[6].p) {
                    const u32 from = base + 147456;
                    const int c = (x.row - x.where.start) / 64;
                    NO_UNROLL for (int i = 0; i < 2; i++)
                        store_chunk(a.map[8], a.tensor[6], from + 8192 * i, x.where, c, 0 + 64 * i, 128, x.head, lane);
                    bulk_commit();
                    bulk_wait_read();
                }
                arrive(base + 221032);
            }
            if (warp == 2) {
                const Pair v4 = input_pair<float>(a.tensor[7], x, lane);
                const Pair v9 = { (float)(max_(v4.a, bits(0xc2d00000))), (float)(max_(v4.b, bits(0xc2d00000))) };
                Pair v10 = running_sum(v9, lane, x.n);
                const float v11 = last_row(v10, x.n);
                const Pair v12 = { (float)(v11 - v10.a), (float)(v11 - v10.b) };
                const Pair v13 = { (float)(exp_(v12.a)), (float)(exp_(v12.b)) };
                const float v14 = (float)(exp_(v11));
                const Pair v19 = { (float)(exp_(v10.a)), (float)(exp_(v10.b)) };
                Pair v31 = running_sum(Pair { 0.f, 0.f }, lane, x.n);
                const Pair v71 = { (float)(v4.a < bits(0xc2d00000) ? 1 : 0), (float)(v4.b < bits(0xc2d00000) ? 1 : 0) };
                wait(base + 220784 + it % 2 * 8, parity(it, 2) ^ 1);
                wait(base + 220816 + it % 2 * 8, parity(it, 2) ^ 1);
                wait(base + 220848 + it % 2 * 8, parity(it, 2) ^ 1);
                store_pair(base + 212992 + it % 2 * 256, v10, lane);
                store_pair(base + 213504 + it % 2 * 512, v13, lane);
                if (lane == 0)
                    store1(base + 214528 + it % 2 * 528, v14);
                store_pair(base + 213760 + it % 2 * 512, v19, lane);
                store_pair(base + 214544 + it % 2 * 528, v31, lane);
                store_pair(base + 214800 + it % 2 * 528, v71, lane);
                arrive(base + 220768 + it % 2 * 8);
                arrive(base + 220800 + it % 2 * 8);
                arrive(base + 220832 + it % 2 * 8);
            }
            if (warp == 3) {
                wait(base + 220800 + it % 2 * 8, parity(it, 2));
                wait(base + 220832 + it % 2 * 8, parity(it, 2));
                wait(base + 220976 + it % 2 * 8, parity(it, 2));
                const Pair v40 = parts_pair<4>(base + 216096 + it % 2 * 2592, lane);
                const Pair v39 = parts_pair<2>(base + 215584 + it % 2 * 2592, lane);
                const Pair v19 = parts_pair<1>(base + 213760 + it % 2 * 512, lane);
                const Pair v46 = parts_pair<2>(base + 217120 + it % 2 * 2592, lane);
                const float v14 = parts_sum<1>(base + 214528 + it % 2 * 528, 1, 0);
                const float v62 = parts_sum<8>(base + 218144 + it % 2 * 2592, 1, 0);
                const Pair v13 = parts_pair<1>(base + 213504 + it % 2 * 512, lane);
                const Pair v59 = parts_pair<2>(base + 217632 + it % 2 * 2592, lane);
                const Pair v31 = parts_pair<1>(base + 214544 + it % 2 * 528, lane);
                const Pair v71 = parts_pair<1>(base + 214800 + it % 2 * 528, lane);
                arrive(base + 220816 + it % 2 * 8);
                arrive(base + 220848 + it % 2 * 8);
                arrive(base + 220992 + it % 2 * 8);
                const Pair v41 = { (float)(-v40.a), (float)(-v40.b) };
                const Pair v44 = { (float)(v39.a + v41.a), (float)(v39.b + v41.b) };
                const Pair v51 = { (float)(v19.a * v46.a), (float)(v19.b * v46.b) };
                const Pair v52 = { (float)(v44.a + v51.a), (float)(v44.b + v51.b) };
                const float v63 = (float)(v14 * v62);
                const Pair v64 = { (float)(v13.a * v59.a), (float)(v13.b * v59.b) };
                const float v65 = pair_sum({ v13.a * v59.a, v13.b * v59.b }, lane, x.n);
                const float v66 = (float)(v63 + v65);
                const Pair v67 = { (float)(v52.a - v64.a), (float)(v52.b - v64.b) };
                const Pair v68 = delayed_back(v31, v66, lane, x.n);
                const Pair v69 = { (float)(v67.a + v68.a), (float)(v67.b + v68.b) };
                Pair v70 = sum_back(v69, lane, x.n);
                const Pair v72 = { (float)(v71.a != 0 ? 0.f : v70.a), (float)(v71.b != 0 ? 0.f : v70.b) };
                output_pair<unsigned short>(a.tensor[8], x, v72, lane);
            }
            it++;
        }
        if (warp == 1)
            bulk_wait();
    }
    else {
        more_registers<224>();
        const Lane l = lane_here();
        const int thread = (int)threadIdx.x - 128, group = uniform(thread >> 7);
        auto col0 = [&](int share) { return group * share; };
        Products t = products_at<128>(base + 221056, group);
        u32 it = 0;
        NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += gridDim.x) {
            Item x;
            if (!find_item<1>(a.run, item, x))
                continue;
            float f25[16];
            float f32[16];
            float f33[32];
            float f56[32];
            float f37[32];
            float f45[32];
            float f38[32];
            float f53[32];
            wait(base + 220864 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 0 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 220896 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 32768 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 220928 + it % 2 * 8, parity(it, 2));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 65536 + it % 2 * 16384, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            wait(base + 220960, parity(it, 1));
            if (x.n < CHUNK_ROWS) {
                clear_tail<256>(base + 98304, 2, x.n, thread);
                fence_async();
                matrix_sync<2>();
            }
            products_begin();
            multiply_tiles<0, 0, 8, 0, 0, 32>(t.sums + 0, base + 0 + it % 2 * 16384, 64, 0, base + 32768 + it % 2 * 16384, 64, col0(32) + 0);
            multiply_tiles<0, 0, 8, 0, 0, 32>(t.sums + 32, base + 98304, 64, 0, base + 65536 + it % 2 * 16384, 64, col0(32) + 0);
            products_end(t);
            read_sums(f25, t.sums + 0);
            read_sums(f32, t.sums + 32);
            tensor_loaded();
            keep(f25);
            keep(f32);
            tensor_before();
            matrix_sync<2>();
            tensor_after();
            wait(base + 220768 + it % 2 * 8, parity(it, 2));
            {
                wait(base + 220992 + it % 2 * 8, parity(it, 2) ^ 1);
                float s39[2] = { 0 };
                float r10[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r10[h] = LOG2E * parts_sum<1>(base + 212992 + it % 2 * 256, 64, l.row + 8 * h);
                float c10[8];
                UNROLL for (int e = 0; e < 8; e++)
                    c10[e] = LOG2E * parts_sum<1>(base + 212992 + it % 2 * 256, 64, col0(32) + e / 2 * 8 + l.col + e % 2);
                float s40[8] = { 0 };
                float f26[16];
                float f36[16];
                const int over = l.row - l.col;
                UNROLL for (int e = 0; e < 16; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 16 * 64;
                    const int col = col0(32) + e % 16 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const int past = col0(32) + e % 16 / 4 * 8 + e % 2 - 8 * h - e / 16 * 64;
                    const float x24 = kept_(over >= past, exp2_(r10[h] - c10[e / 4 * 2 + e % 2]));
                    const float x26 = x24 * f25[e];
                    f26[e] = x26;
                    const float x35 = f25[e] * f32[e];
                    const float x36 = x24 * f32[e];
                    f36[e] = x36;
                    const float x39 = x24 * x35;
                    const float x40 = x24 * x35;
                    s39[h] += col < x.n ? x39 : 0.f;
                    s40[e / 4 * 2 + e % 2] += row < x.n ? x40 : 0.f;
                }
                put_column_sums(base + 216096 + it % 2 * 2592, 64, col0(32), s40, l);
                put_row_sums<64>(base + 215584 + it % 2 * 2592, group, s39, l);
                {
                    u32 p[8];
                    pack_rows(p, f26 + 0, l, x.n);
                    write_columns<2>(base + 196608 + 0, p, 64, col0(32), l);
                }
                {
                    u32 p[8];
                    pack_rows(p, f36 + 0, l, x.n);
                    write_columns<2>(base + 204800 + 0, p, 64, col0(32), l);
                }
            }
            arrive(base + 220784 + it % 2 * 8);
            fence_async();
            tensor_before();
            matrix_sync<2>();
            tensor_after();
            multiply_tiles<1, 1, 4, 0, 0, 64>(t.sums + 0, base + 196608, 64, 0, base + 98304, 64, col0(64) + 0);
            wait(base + 221008, parity(it, 1));
            multiply_tiles<0, 1, 8, 0, 0, 64>(t.sums + 64, base + 32768 + it % 2 * 16384, 64, 0, base + 114688, 128, col0(64) + 0);
            products_end(t);
            read_sums(f33, t.sums + 0);
            read_sums(f56, t.sums + 64);
            tensor_loaded();
            keep(f33);
            keep(f56);
            wait(base + 220800 + it % 2 * 8, parity(it, 2));
            {
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 213504 + it % 2 * 512, 64, l.row + 8 * h);
                float f58[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x57 = r13[h] * f56[e];
                    const float x58 = f33[e] + x57;
                    f58[e] = x58;
                }
                wait(base + 221032, parity((it * 3 + 0), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f58 + 0, l, x.n);
                    write_columns<4>(base + 147456 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 221024);
            }
            products_begin();
            multiply_tiles<0, 1, 4, 0, 0, 64>(t.sums + 0, base + 204800, 64, 0, base + 32768 + it % 2 * 16384, 64, col0(64) + 0);
            wait(base + 221040, parity(it, 1));
            multiply_tiles<0, 0, 8, 0, 0, 64>(t.sums + 64, base + 98304, 64, 0, base + 163840, 128, col0(64) + 0);
            products_end(t);
            read_sums(f37, t.sums + 0);
            read_sums(f45, t.sums + 64);
            tensor_loaded();
            keep(f37);
            keep(f45);
            arrive(base + 220968);
            {
                float s46[2] = { 0 };
                u32 t1[16];
                read_columns<4>(t1 + 0, base + 0 + it % 2 * 16384 + 0, 64, col0(64), l);
                float r19[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r19[h] = parts_sum<1>(base + 213760 + it % 2 * 512, 64, l.row + 8 * h);
                float f49[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x46 = (e & 1 ? high(t1[e / 2]) : low(t1[e / 2])) * f45[e];
                    const float x48 = r19[h] * f45[e];
                    const float x49 = f37[e] + x48;
                    f49[e] = x49;
                    s46[h] += x46;
                }
                put_row_sums<64>(base + 217120 + it % 2 * 2592, group, s46, l);
                wait(base + 221032, parity((it * 3 + 1), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f49 + 0, l, x.n);
                    write_columns<4>(base + 147456 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 221024);
            }
            products_begin();
            multiply_tiles<1, 1, 4, 0, 0, 64>(t.sums + 0, base + 204800, 64, 0, base + 0 + it % 2 * 16384, 64, col0(64) + 0);
            multiply_tiles<0, 0, 8, 0, 0, 64>(t.sums + 64, base + 65536 + it % 2 * 16384, 64, 0, base + 114688, 128, col0(64) + 0);
            products_end(t);
            read_sums(f38, t.sums + 0);
            read_sums(f53, t.sums + 64);
            tensor_loaded();
            keep(f38);
            keep(f53);
            fence_async();
            arrive(base + 220880 + it % 2 * 8);
            arrive(base + 220944 + it % 2 * 8);
            {
                float s59[2] = { 0 };
                float r13[2];
                UNROLL for (int h = 0; h < 2; h++)
                    r13[h] = parts_sum<1>(base + 213504 + it % 2 * 512, 64, l.row + 8 * h);
                u32 t2[16];
                read_columns<4>(t2 + 0, base + 32768 + it % 2 * 16384 + 0, 64, col0(64), l);
                float f55[32];
                UNROLL for (int e = 0; e < 32; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x54 = r13[h] * f53[e];
                    const float x55 = f38[e] + x54;
                    f55[e] = x55;
                    const float x59 = (e & 1 ? high(t2[e / 2]) : low(t2[e / 2])) * f53[e];
                    s59[h] += x59;
                }
                put_row_sums<64>(base + 217632 + it % 2 * 2592, group, s59, l);
                wait(base + 221032, parity((it * 3 + 2), 1) ^ 1);
                {
                    u32 p[16];
                    pack_rows(p, f55 + 0, l, x.n);
                    write_columns<4>(base + 147456 + 0, p, 64, col0(64), l);
                }
                fence_async();
                arrive(base + 221024);
            }
            fence_async();
            arrive(base + 220816 + it % 2 * 8);
            arrive(base + 220912 + it % 2 * 8);
            {
                float s62 = 0;
                u32 t6[32];
                read_columns<4>(t6 + 0, base + 163840 + 0, 128, col0(64), l);
                read_columns<4>(t6 + 16, base + 163840 + 8192, 128, col0(64), l);
                u32 t7[32];
                read_columns<4>(t7 + 0, base + 114688 + 0, 128, col0(64), l);
                read_columns<4>(t7 + 16, base + 114688 + 8192, 128, col0(64), l);
                UNROLL for (int e = 0; e < 64; e++) {
                    const int h = e / 2 % 2, row = l.row + 8 * h + e / 32 * 64;
                    const int col = col0(64) + e % 32 / 4 * 8 + l.col + e % 2;
                    (void)h;
                    (void)row;
                    (void)col;
                    const float x62 = (e & 1 ? high(t6[e / 2]) : low(t6[e / 2])) * (e & 1 ? high(t7[e / 2]) : low(t7[e / 2]));
                    s62 += x62;
                }
                put_sum(base + 218144 + it % 2 * 2592, warp - 4, s62, l);
            }
            arrive(base + 220976 + it % 2 * 8);
            fence_async();
            arrive(base + 221016);
            arrive(base + 221048);
            it++;
        }
    }
    tensor_before();
    __syncwarp();
    __syncthreads();
    tensor_after();
    if (threadIdx.x < 32)
        tensor_free<128>(tensor_at(base + 221056));
}
}  // in_k3_token
