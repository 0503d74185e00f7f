/* library.c -- one of CUDA's libraries: where it may lie. */
#include "library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct Finding {
    const Library *l;
    TakeFn *take;
    void *ud;
} Finding;

static bool try_name(const Finding *f, const char *path, int flags)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    return lib && f->take(f->ud, lib, path);
}

/* The last match first: the newest, where versions are in the name. */
static bool try_glob(const Finding *f, const char *root, const char *folder)
{
    char full[512];
    glob_t g;
    bool found = false;
    if (!root)
        return false;
    snprintf(full, sizeof full, "%s%s/%s.so.*", root, folder, f->l->stem);
    if (glob(full, 0, NULL, &g) != 0)
        return false;
    for (size_t i = g.gl_pathc; i-- > 0 && !found; )
        found = try_name(f, g.gl_pathv[i], 0);
    globfree(&g);
    return found;
}

static bool try_wheels(const Finding *f)
{
    static const char *const packages[] = { "site-packages", "dist-packages" };
    const char *const of[] = { "cu*", f->l->wheel };
    char local[256], folder[256];
    const char *home = getenv("HOME");
    snprintf(local, sizeof local, "%s/.local", home ? home : "");
    const char *const root[] = {
        getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), local, "/usr/local",
        "/usr",
    };
    for (size_t r = 0; r < sizeof root / sizeof *root; r++)
        for (int i = 0; i < 4; i++) {
            snprintf(folder, sizeof folder, "/lib/python3*/%s/nvidia/%s/lib",
                     packages[i / 2], of[i % 2]);
            if (try_glob(f, root[r], folder))
                return true;
        }
    return false;
}

bool library_find(const Library *l, TakeFn *take, void *ud)
{
    const Finding f = { l, take, ud };
    for (int i = 0; l->soname[i]; i++)
        if (try_name(&f, l->soname[i], RTLD_NOLOAD))
            return true;
    if (try_wheels(&f))
        return true;
    for (int i = 0; l->soname[i]; i++)
        if (try_name(&f, l->soname[i], 0))
            return true;
    return try_glob(&f, getenv("CUDA_PATH"), "/lib*")
        || try_glob(&f, "/usr/local", "/cuda*/lib64")
        || try_glob(&f, "/usr/local", "/cuda*/lib");
}
