/* raster.c -- drawings as pixels: PNG, and what terminals that show pictures
 * take (kitty's protocol, sixel).
 *
 * librsvg and the cairo below it do it, opened when they are first needed. They
 * are the program's and not the library's: GLib ends a process that has no
 * memory left, which a host need not put up with.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "repl.h"

#define MISSING "help: install it (Debian: librsvg2-2), or save a .svg, " \
    "which browsers and editors show"

enum { SIDE_MOST = 8192, FORMAT_RGB24 = 1 };

typedef struct Rectangle { double x, y, width, height; } Rectangle;
typedef struct Fault { uint32_t domain; int code; char *message; } Fault;
typedef int WriteFn(void *ud, const unsigned char *data, unsigned n);

/* What is taken of librsvg, cairo and GLib, by their own names. */
typedef struct Drawer {
    void *lib;
    void *(*rsvg_handle_new_from_data)(const char *, size_t, Fault **);
    int (*rsvg_handle_get_intrinsic_size_in_pixels)(void *, double *,
                                                    double *);
    int (*rsvg_handle_render_document)(void *, void *, const Rectangle *,
                                       Fault **);
    void (*g_object_unref)(void *);
    void (*g_error_free)(Fault *);
    void *(*cairo_image_surface_create)(int, int, int);
    void *(*cairo_create)(void *);
    void (*cairo_destroy)(void *);
    void (*cairo_surface_destroy)(void *);
    void (*cairo_surface_flush)(void *);
    int (*cairo_surface_status)(void *);
    int (*cairo_surface_write_to_png_stream)(void *, WriteFn *, void *);
    unsigned char *(*cairo_image_surface_get_data)(void *);
    int (*cairo_image_surface_get_stride)(void *);
} Drawer;

/* A drawing at work; what is not NULL is given back. */
typedef struct Raster {
    Drawer d;
    void *handle, *surface, *cairo;
    Fault *fault;
    int width, height;
    luaL_Buffer *out;
} Raster;

#define RASTER_META "flin.raster"

static int raster_gc(lua_State *L)
{
    Raster *r = luaL_checkudata(L, 1, RASTER_META);

    if (r->cairo)
        r->d.cairo_destroy(r->cairo);
    if (r->surface)
        r->d.cairo_surface_destroy(r->surface);
    if (r->handle)
        r->d.g_object_unref(r->handle);
    if (r->fault)
        r->d.g_error_free(r->fault);
    memset(r, 0, sizeof *r);
    return 0;
}

/* The library stays open: GLib cannot be unloaded. */
static void open_drawer(lua_State *L, Drawer *d)
{
    static const char *const names[] = { "librsvg-2.so.2",
                                         "librsvg-2.2.dylib" };

    for (int i = 0; i < 2 && !d->lib; i++)
        d->lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!d->lib)
        luaL_error(L, "drawing pixels takes librsvg, which is not here\n  "
                   MISSING);
#define TAKE(name) \
    do { \
        void *at = dlsym(d->lib, #name); \
        if (!at) \
            luaL_error(L, "this librsvg is too old: it has no " #name \
                       "\n  " MISSING); \
        memcpy(&d->name, &at, sizeof at); \
    } while (0)
    TAKE(rsvg_handle_new_from_data);
    TAKE(rsvg_handle_get_intrinsic_size_in_pixels);
    TAKE(rsvg_handle_render_document);
    TAKE(g_object_unref);
    TAKE(g_error_free);
    TAKE(cairo_image_surface_create);
    TAKE(cairo_create);
    TAKE(cairo_destroy);
    TAKE(cairo_surface_destroy);
    TAKE(cairo_surface_flush);
    TAKE(cairo_surface_status);
    TAKE(cairo_surface_write_to_png_stream);
    TAKE(cairo_image_surface_get_data);
    TAKE(cairo_image_surface_get_stride);
#undef TAKE
}

static void refuse(lua_State *L, const Raster *r)
{
    luaL_error(L, "the drawing cannot be read: %s", r->fault
               ? r->fault->message : "it is no SVG with a width and a height");
}

/* Pushes the drawing of the SVG text at index 1, `scale` pixels a unit. */
static Raster *draw(lua_State *L, double scale)
{
    size_t n;
    const char *text = luaL_checklstring(L, 1, &n);
    Raster *r = lua_newuserdatauv(L, sizeof *r, 0);
    double w = 0, h = 0;

    memset(r, 0, sizeof *r);
    if (luaL_newmetatable(L, RASTER_META)) {
        lua_pushcfunction(L, raster_gc);
        lua_pushvalue(L, -1);
        lua_setfield(L, -3, "__gc");
        lua_setfield(L, -2, "__close");
    }
    lua_setmetatable(L, -2);
    lua_toclose(L, -1);
    open_drawer(L, &r->d);
    r->handle = r->d.rsvg_handle_new_from_data(text, n, &r->fault);
    if (!r->handle || !r->d.rsvg_handle_get_intrinsic_size_in_pixels(
                          r->handle, &w, &h))
        refuse(L, r);
    w = ceil(w * scale), h = ceil(h * scale);
    if (!(w >= 1 && h >= 1 && w <= SIDE_MOST && h <= SIDE_MOST))
        luaL_error(L, "a drawing of %f x %f pixels: from 1 to %d can be had; "
                   "scale = 1 makes fewer", w, h, SIDE_MOST);
    r->width = (int)w, r->height = (int)h;
    r->surface = r->d.cairo_image_surface_create(FORMAT_RGB24, r->width,
                                                 r->height);
    if (r->d.cairo_surface_status(r->surface))
        luaL_error(L, "out of memory");
    r->cairo = r->d.cairo_create(r->surface);
    if (!r->d.rsvg_handle_render_document(r->handle, r->cairo,
            &(Rectangle){ 0, 0, w, h }, &r->fault))
        refuse(L, r);
    r->d.cairo_surface_flush(r->surface);
    return r;
}

static int append(void *ud, const unsigned char *data, unsigned n)
{
    luaL_addlstring(((Raster *)ud)->out, (const char *)data, n);
    return 0;
}

/* raster.png(svg, scale): the picture as PNG. */
static int to_png(lua_State *L)
{
    double scale = luaL_optnumber(L, 2, 2);
    luaL_Buffer b;

    lua_settop(L, 2);
    Raster *r = draw(L, scale);
    luaL_buffinit(L, &b);
    r->out = &b;
    if (r->d.cairo_surface_write_to_png_stream(r->surface, append, r))
        return luaL_error(L, "the drawing does not become a PNG");
    luaL_pushresult(&b);
    return 1;
}

/* ---- sixel ---- */

/* Colours of the palette: LEVELS steps of red, green and blue. */
enum { LEVELS = 6, COLOURS = LEVELS * LEVELS * LEVELS, BAND = 6 };

static int level(unsigned char x)
{
    return (x * (LEVELS - 1) + 127) / 255;
}

static int colour_at(const Raster *r, int x, int y)
{
    const unsigned char *row = r->d.cairo_image_surface_get_data(r->surface)
        + (ptrdiff_t)y * r->d.cairo_image_surface_get_stride(r->surface);
    uint32_t pixel;

    memcpy(&pixel, row + 4 * (ptrdiff_t)x, sizeof pixel);
    return (level((unsigned char)(pixel >> 16)) * LEVELS
            + level((unsigned char)(pixel >> 8))) * LEVELS
        + level((unsigned char)pixel);
}

/* The same character `n` times. */
static void add_run(luaL_Buffer *b, int n, char c)
{
    char text[24];

    if (n > 3) {
        snprintf(text, sizeof text, "!%d%c", n, c);
        luaL_addstring(b, text);
        return;
    }
    while (n-- > 0)
        luaL_addchar(b, c);
}

/* The pixels of one colour in six rows from `top` on: a character a column. */
static void add_colour(luaL_Buffer *b, const Raster *r, const uint8_t *cell,
                       int colour)
{
    int run = 0, before = 0;
    char text[16];

    snprintf(text, sizeof text, "#%d", colour);
    luaL_addstring(b, text);
    for (int x = 0; x < r->width; x++) {
        int bits = 0;
        for (int i = 0; i < BAND; i++)
            bits |= (cell[i * r->width + x] == colour) << i;
        if (bits != before) {
            add_run(b, run, (char)('?' + before));
            run = 0, before = bits;
        }
        run++;
    }
    add_run(b, run, (char)('?' + before));
    luaL_addchar(b, '$');
}

static void add_band(luaL_Buffer *b, const Raster *r, int top, uint8_t *cell)
{
    bool used[256] = { false };

    for (int i = 0; i < BAND; i++)
        for (int x = 0; x < r->width; x++) {
            int y = top + i;
            int c = y < r->height ? colour_at(r, x, y) : 255;
            cell[i * r->width + x] = (uint8_t)c;
            used[c] = true;
        }
    for (int c = 0; c < COLOURS; c++)
        if (used[c])
            add_colour(b, r, cell, c);
    luaL_addchar(b, '-');
}

/* raster.sixel(svg, scale) */
static int to_sixel(lua_State *L)
{
    double scale = luaL_optnumber(L, 2, 1);
    char text[48];
    luaL_Buffer b;

    lua_settop(L, 2);
    Raster *r = draw(L, scale);
    uint8_t *cell = lua_newuserdatauv(L, (size_t)r->width * BAND, 0);
    luaL_buffinit(L, &b);
    snprintf(text, sizeof text, "\033Pq\"1;1;%d;%d", r->width, r->height);
    luaL_addstring(&b, text);
    for (int c = 0; c < COLOURS; c++) {
        snprintf(text, sizeof text, "#%d;2;%d;%d;%d", c,
                 c / (LEVELS * LEVELS) * 100 / (LEVELS - 1),
                 c / LEVELS % LEVELS * 100 / (LEVELS - 1),
                 c % LEVELS * 100 / (LEVELS - 1));
        luaL_addstring(&b, text);
    }
    for (int top = 0; top < r->height; top += BAND)
        add_band(&b, r, top, cell);
    luaL_addstring(&b, "\033\\");
    luaL_pushresult(&b);
    return 1;
}

/* ---- kitty ---- */

enum { KITTY_PART = 4096 };

static void add_base64(luaL_Buffer *b, const unsigned char *s, size_t n)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
        "abcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < n; i += 3) {
        uint32_t x = (uint32_t)s[i] << 16
            | (i + 1 < n ? (uint32_t)s[i + 1] << 8 : 0)
            | (i + 2 < n ? s[i + 2] : 0);
        luaL_addchar(b, digit[x >> 18]);
        luaL_addchar(b, digit[x >> 12 & 63]);
        luaL_addchar(b, i + 1 < n ? digit[x >> 6 & 63] : '=');
        luaL_addchar(b, i + 2 < n ? digit[x & 63] : '=');
    }
}

/* raster.kitty(svg, scale): PNG in base64, in parts of 4096 characters. */
static int to_kitty(lua_State *L)
{
    size_t n, part = KITTY_PART / 4 * 3;
    luaL_Buffer b;

    to_png(L);
    const char *png = lua_tolstring(L, -1, &n);
    luaL_buffinit(L, &b);
    for (size_t at = 0; at < n; at += part) {
        size_t some = n - at < part ? n - at : part;
        luaL_addstring(&b, at ? "\033_G" : "\033_Ga=T,f=100,q=2,");
        luaL_addstring(&b, at + some < n ? "m=1;" : "m=0;");
        add_base64(&b, (const unsigned char *)png + at, some);
        luaL_addstring(&b, "\033\\");
    }
    luaL_pushresult(&b);
    return 1;
}

void push_raster(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "png", to_png }, { "sixel", to_sixel }, { "kitty", to_kitty },
        { NULL, NULL }
    };

    luaL_newlib(L, functions);
}
