/* driver.c -- libcuda by dlopen: memory, events, modules. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver_entry.h"

static const char *const entry_name[NENTRIES] = {
#define ENTRY(name, symbol, args) symbol,
#include "driver.def"
#undef ENTRY
};

enum { OUT_OF_MEMORY = 2 };

/* Errors after which every call of the context fails. */
static bool is_sticky(int result)
{
    return result == 214 || result == 220 || result == 700 || result == 702
        || result == 710 || (result >= 714 && result <= 719) || result == 721;
}

bool driver_takes(Ctx *c, const Driver *d, int result, const char *what,
                  Error *why)
{
    const char *name = NULL;
    if (!result)
        return true;
    if (result == OUT_OF_MEMORY)
        fail_code(c, ERR_MEMORY, "CUDA: %s: the GPU is out of memory", what);
    CALL(d, ERROR_NAME, error_name);
    error_name(result, &name);
    if (!name)
        name = "unknown error";
    if (!d->fault || !is_sticky(result)) {
        error_set(c, why, 0, NULL, "CUDA: %s: %s (%d)", what, name, result);
        why->code = ERR_DEVICE;
        return false;
    }
    if (!d->fault->broken[0])
        snprintf(d->fault->broken, sizeof d->fault->broken, "CUDA: %s (%d) "
                 "has ended this process's work on the GPU%s%s", name, result,
                 d->fault->running[0] ? ", in or before " : "",
                 d->fault->running);
    fail_code(c, ERR_DEVICE, "%s", d->fault->broken);
}

void driver_check(Ctx *c, const Driver *d, int result, const char *what)
{
    Error why;
    if (!driver_takes(c, d, result, what, &why))
        ctx_raise(c, &why);
}

void driver_enter(Ctx *c, const Driver *d)
{
    void *now = NULL;
    CALL(d, GET_CURRENT, get);
    CALL(d, CURRENT, set);
    if (d->fault && d->fault->broken[0])
        fail_code(c, ERR_DEVICE, "%s", d->fault->broken);
    if (get(&now) || now != d->context)
        driver_check(c, d, set(d->context), "context");
}

#define SMI "nvidia-smi says what the driver finds"

static bool refuse(Ctx *c, const char *why, const char *help)
{
    memset(&c->err, 0, sizeof c->err);
    c->err.code = ERR_DEVICE;
    snprintf(c->err.message, sizeof c->err.message, "no CUDA device: %s",
             why);
    snprintf(c->err.help, sizeof c->err.help, "%s", help);
    return false;
}

static int attribute(const Driver *d, int which)
{
    int x = 0;
    CALL(d, ATTRIBUTE, get);
    get(&x, which, d->device);
    return x;
}

/* FLIN_ARCH: that of an earlier GPU, whose kernels this one runs, too. */
static int arch_asked(int arch)
{
    enum { FIRST = 80 };
    const char *s = getenv("FLIN_ARCH");
    int asked = s ? atoi(s) : arch;
    return asked >= FIRST && asked < arch ? asked : arch;
}

bool driver_open(Ctx *c, Driver *d)
{
    memset(d, 0, sizeof *d);
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return refuse(c, "libcuda.so.1 is not there",
                      "NVIDIA's driver brings it; without a GPU, backend = "
                      "\"cpu\"");
    for (int i = 0; i < NENTRIES; i++)
        if (!(d->fn[i] = dlsym(lib, entry_name[i])))
            return refuse(c, "the driver is too old",
                          ctx_format(c, "a newer one of NVIDIA's has %s",
                                     entry_name[i]));
    CALL(d, INIT, init);
    CALL(d, OWN_DEVICE, own_device);
    CALL(d, DEVICE, device);
    CALL(d, CONTEXT, retain);
    CALL(d, CURRENT, set_current);
    CALL(d, VERSION, version);
    CALL(d, NAME, name);
    CALL(d, GET_CURRENT, get_current);
    if (init(0))
        return refuse(c, "the driver finds none", SMI);
    if (get_current(&d->context) || !d->context || own_device(&d->device))
        if (device(&d->device, 0))
            return refuse(c, "the driver finds none", SMI);
    if (retain(&d->context, d->device) || set_current(d->context))
        return refuse(c, "it gives no context", SMI);
    d->compiles = 10 * attribute(d, 75) + attribute(d, 76);
    d->arch = arch_asked(d->compiles);
    d->processors = attribute(d, 16);
    d->cache = attribute(d, 38);
    d->pageable = attribute(d, 88) != 0;
    version(&d->version);
    name(d->name, sizeof d->name, d->device);
    d->machine = machine_of_device(d->arch, d->name);
    return true;
}

void driver_close(Driver *d)
{
    CALL(d, RELEASE, release);
    if (d->context)
        release(d->device);
    d->context = NULL;
}

DevicePtr device_alloc(Ctx *c, const Driver *d, size_t bytes)
{
    DevicePtr p = 0;
    CALL(d, ALLOC, alloc);
    driver_check(c, d, alloc(&p, bytes ? bytes : 1), "memory");
    return p;
}

/* A stream that somebody records, of any thread, must not see what comes
 * between two of these: else the recording ends as invalid. What a host lets go
 * is let go whenever its collector runs. */
static void exchange_mode(const Driver *d, int *mode)
{
    CALL(d, CAPTURE_MODE, exchange);
    exchange(mode);
}

enum { RELAXED = 2 };

void device_free(const Driver *d, DevicePtr p)
{
    int mode = RELAXED;
    CALL(d, FREE, release);
    if (!p)
        return;
    exchange_mode(d, &mode);
    release(p);
    exchange_mode(d, &mode);
}

void device_put(Ctx *c, const Driver *d, DevicePtr to, const void *from,
                size_t bytes)
{
    CALL(d, PUT, put);
    driver_check(c, d, put(to, from, bytes), "copy to the device");
}

void device_get(Ctx *c, const Driver *d, void *to, DevicePtr from,
                size_t bytes)
{
    CALL(d, GET, get);
    driver_check(c, d, get(to, from, bytes), "copy from the device");
}

void device_fill(Ctx *c, const Driver *d, DevicePtr to, int byte,
                 size_t bytes)
{
    CALL(d, FILL, fill);
    driver_check(c, d, fill(to, (unsigned char)byte, bytes), "fill");
}

void device_copy(Ctx *c, const Driver *d, DevicePtr to, DevicePtr from,
                 size_t bytes)
{
    CALL(d, COPY, copy);
    driver_check(c, d, copy(to, from, bytes), "copy");
}

void device_sync(Ctx *c, const Driver *d)
{
    CALL(d, SYNC, sync);
    driver_check(c, d, sync(), "a kernel");
}

void stream_put(Ctx *c, const Driver *d, void *stream, DevicePtr to,
                const void *from, size_t bytes)
{
    CALL(d, PUT_LATER, put);
    driver_check(c, d, put(to, from, bytes, stream), "copy to the device");
}

void stream_copy(Ctx *c, const Driver *d, void *stream, const DeviceRows *r)
{
    enum { UNIFIED = 4 };
    CopyRows x = { { .kind = UNIFIED, .p = r->from, .pitch = r->pitch },
                   { .kind = UNIFIED, .p = r->to, .pitch = r->to_pitch },
                   r->width, r->rows };
    CALL(d, COPY_LATER, copy);
    driver_check(c, d, copy(&x, stream), "copy on the device");
}

void stream_fill(Ctx *c, const Driver *d, void *stream, DevicePtr to,
                 int byte, size_t bytes)
{
    CALL(d, FILL_LATER, fill);
    driver_check(c, d, fill(to, (unsigned char)byte, bytes, stream), "fill");
}

void stream_fill_floats(Ctx *c, const Driver *d, void *stream, DevicePtr to,
                        float x, size_t n)
{
    unsigned word;
    CALL(d, FILL_WORDS_LATER, fill);
    memcpy(&word, &x, sizeof word);
    driver_check(c, d, fill(to, word, n, stream), "fill");
}

bool stream_capturing(Ctx *c, const Driver *d, void *stream)
{
    int status = 0;
    CALL(d, CAPTURING, capturing);
    driver_check(c, d, capturing(stream, &status), "a stream");
    return status != 0;
}

Event *event_new(Ctx *c, const Driver *d)
{
    Event *e = NULL;
    CALL(d, EVENT, create);
    driver_check(c, d, create(&e, 0), "event");
    return e;
}

void event_free(const Driver *d, Event *e)
{
    CALL(d, EVENT_END, end);
    if (e)
        end(e);
}

void event_record(Ctx *c, const Driver *d, Event *e, void *stream)
{
    CALL(d, RECORD, record);
    driver_check(c, d, record(e, stream), "event");
}

float event_ms(Ctx *c, const Driver *d, Event *from, Event *to)
{
    float ms = 0;
    CALL(d, ELAPSED, elapsed);
    driver_check(c, d, elapsed(&ms, from, to), "event");
    return ms;
}

Module *module_load_if(Ctx *c, const Driver *d, const void *cubin, Error *why)
{
    void *module = NULL;
    CALL(d, MODULE, load);
    return driver_takes(c, d, load(&module, cubin), "loading a kernel", why)
         ? module : NULL;
}

Module *module_load(Ctx *c, const Driver *d, const void *cubin)
{
    Error why;
    Module *module = module_load_if(c, d, cubin, &why);
    if (!module)
        ctx_raise(c, &why);
    return module;
}

void module_unload(const Driver *d, Module *m)
{
    int mode = RELAXED;
    CALL(d, UNLOAD, unload);
    if (!m)
        return;
    exchange_mode(d, &mode);
    unload(m);
    exchange_mode(d, &mode);
}

Function *module_function_if(Ctx *c, const Driver *d, Module *m,
                             const char *name, int shared, Error *why)
{
    Function *f = NULL;
    CALL(d, FUNCTION, get);
    CALL(d, SET_ATTRIBUTE, set);
    return driver_takes(c, d, get(&f, m, name), "finding a kernel", why)
        && driver_takes(c, d, set(f, 8, shared), "shared memory of a kernel",
                        why) ? f : NULL;
}

Function *module_function(Ctx *c, const Driver *d, Module *m,
                          const char *name, int shared)
{
    Error why;
    Function *f = module_function_if(c, d, m, name, shared, &why);
    if (!f)
        ctx_raise(c, &why);
    return f;
}

void function_shares(Ctx *c, const Driver *d, Function *f)
{
    enum { PREFERRED = 9, ALL = 100 };  /* per cent */
    CALL(d, SET_ATTRIBUTE, set);

    driver_check(c, d, set(f, PREFERRED, ALL), "shared memory of a kernel");
}

void kernel_queue(Ctx *c, const Driver *d, Function *f, unsigned grid,
                  unsigned threads, unsigned shared, void *stream,
                  void **params, bool follows)
{
    enum { FOLLOWS = 6 };               /* "programmatic serialization" */
    CALL(d, LAUNCH, launch_kernel);
    CALL(d, LAUNCH_AS, launch_as);
    const LaunchAttribute attribute = { .id = FOLLOWS, .value.on = 1 };
    const LaunchAs how = { { grid, 1, 1 }, { threads, 1, 1 }, shared, stream,
                           &attribute, 1 };

    driver_check(c, d, follows
                 ? launch_as(&how, f, params, NULL)
                 : launch_kernel(f, grid, 1, 1, threads, 1, 1, shared, stream,
                                 params, NULL), "launching a kernel");
}

Function *kernel_load(Ctx *c, const Driver *d, const void *cubin,
                      const CudaKernel *k)
{
    return module_function(c, d, module_load(c, d, cubin), k->name,
                           k->shared);
}
