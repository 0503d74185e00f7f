/* gpu.h -- tensors on the state's GPU. */
#ifndef FLIN_LANG_GPU_H
#define FLIN_LANG_GPU_H

#include "../backend/cuda/gpu.h"
#include "tensor.h"

/* A new tensor on it; what is in it is undefined. */
Tensor *tensor_push_gpu(lua_State *L, DType d, int rank, const int64_t *shape);
/* Pushes the tensor, copied there or back; row-major. */
Tensor *tensor_to_gpu(lua_State *L, const Tensor *t);
Tensor *tensor_to_host(lua_State *L, const Tensor *t);

void gpu_open(lua_State *L);            /* flin.cuda */

#endif
