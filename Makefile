# flin. `make demo` and `make test` also install what is missing.
#
#   make          build/flin, build/libflin.so, build/libflin.a
#   make demo     build, then run examples/recall.lua (TEXT=path: on that
#                 text); its learning curves are build/learning.svg, too
#   make test     build, then run every test
#   make asan     all tests under AddressSanitizer and UBSan
#   make tsan     states and kernels in threads, under ThreadSanitizer
#   make random   20,000 random steps on the CPU, and how many structures
#                 they were (an hour; PROGRAMS=2000 for fewer)
#   make fuzz     fuzz scripts, files, graphs, functions (FUZZ_SECONDS=600)
#   make test-cuda  the tests on a GPU (WORDS="quick gla"; "sanitize")
#   make test-nccl  ranks on two GPUs (PYTHON=python3, one with PyTorch)
#   make compile-all every variant, type and GPU, by NVRTC (JOBS=16; goes on
#                    where it was stopped)
#   make bench-cpu   speed of the chunked forward pass
#   make static   build/static/flin: Lua linked in, no GLPK
#   make rock     build/flin.so, for a Lua that brings its own library
#   make wheel    dist/flin-*.whl for manylinux, checked by auditwheel
#   make deb      dist/flin_*.deb, of what this system has
#   make docs     build/docs/index.html: tutorial, reference, variants
#   make install  to $(DESTDIR)$(PREFIX), the docs with it if they are made
#
# GLPK=0 builds without GLPK, LIBEDIT=0 a prompt of plain lines, V=1 shows the
# commands. LUA_SRC=DIR compiles Lua in, from the folder of its sources: then
# flin needs no Lua here, and is for hosts without one.

BUILD ?= build
PREFIX ?= /usr/local
GLPK ?= 1
ifndef LIBEDIT
HASH := \#
LIBEDIT := $(shell echo '$(HASH)include <histedit.h>' | \
    $(CC) -E -x c - >/dev/null 2>&1 && echo 1 || echo 0)
endif
OBJCOPY ?= objcopy
FUZZ_SECONDS ?= 600
PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CFLAGS ?= -O2 -g
LIBDIR ?= $(PREFIX)/lib
VERSION := $(shell sed -n 's/^.define FLIN_VERSION_[MP].* \([0-9]*\)$$/\1/p' \
    lang/flin.h | paste -sd.)
SONAME := libflin.so.$(firstword $(subst ., ,$(VERSION)))

ifneq ($(LUA_SRC),)
LUA_CFLAGS := -I$(LUA_SRC)
LUA_LIBS :=
LUA_OBJ := $(patsubst $(LUA_SRC)/%.c,$(BUILD)/lua/%.o,$(filter-out \
    %/lua.c %/luac.c %/onelua.c %/ltests.c,$(wildcard $(LUA_SRC)/*.c)))
else
LUA_PC := $(firstword $(foreach p,lua5.4 lua-5.4 lua54,\
    $(shell pkg-config --exists $(p) 2>/dev/null && echo $(p))))
ifneq ($(LUA_PC),)
LUA_CFLAGS := $(shell pkg-config --cflags $(LUA_PC))
LUA_LIBS := $(shell pkg-config --libs $(LUA_PC))
else
LUA_CFLAGS := -I/usr/include/lua5.4
LUA_LIBS := -llua5.4
endif
endif

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
    -pedantic
FLAGS = -std=c11 -D_POSIX_C_SOURCE=200809L -DFLIN_VERSION='"$(VERSION)"' \
    -fPIC -fvisibility=hidden -pthread $(WARN) -I. $(LUA_CFLAGS) $(CFLAGS) \
    $(SAN)
LIBS = -Wl,--as-needed $(LUA_LIBS) -lm -ldl -lpthread
ifeq ($(GLPK),0)
FLAGS += -DFLIN_NO_GLPK
else
LIBS += -lglpk
endif

LIB_SRC := $(wildcard compiler/*.c compiler/schedule/*.c lang/*.c \
    backend/cpu/*.c backend/cuda/*.c)
DEVICE := $(sort $(wildcard backend/cuda/*.cuh))
STDLIB := $(sort $(wildcard stdlib/*.lua stdlib/layers/*.lua lang/lua/*.lua))
LIB_OBJ := $(LIB_SRC:%.c=$(BUILD)/%.o) $(BUILD)/stdlib.o \
    $(BUILD)/cuda_headers.o $(LUA_OBJ)
REPL_LUA := $(sort $(wildcard repl/*.lua))
REPL_OBJ := $(patsubst %.c,$(BUILD)/%.o,$(wildcard repl/*.c)) \
    $(BUILD)/repl_lua.o
UNIT := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/unit/*.c))
HOST_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/host/*.c))
CUDA_TESTS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/cuda/*.c))
BENCH := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/*.c))
FUZZ := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/*.c))
FAKE := $(BUILD)/tests/cuda/fake
EXAMPLES := $(patsubst %.c,$(BUILD)/%,$(wildcard examples/*.c))

Q := $(if $(V),,@)
say = $(if $(V),,@echo '  $(1)')
# Sub-makes run in parallel unless the user has said how many.
PARALLEL = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(JOBS))

.PHONY: all build demo test sanitized tests test-cuda test-nccl asan tsan \
    random fuzz fuzzers fuzz-build bench-cpu compile-all static rock wheel \
    deb docs install clean FORCE

all:
	@GLPK=$(GLPK) LUA_SRC=$(LUA_SRC) sh tools/setup.sh --check
	@$(MAKE) --no-print-directory $(PARALLEL) build

build: $(BUILD)/flin $(BUILD)/libflin.so $(BUILD)/libflin.a

demo:
	@sh tools/setup.sh
	@$(MAKE) --no-print-directory $(PARALLEL) build
	@$(BUILD)/flin examples/recall.lua --svg $(BUILD)/learning.svg $(TEXT)

test:
	@sh tools/setup.sh --tests
	@$(MAKE) --no-print-directory $(PARALLEL) tests
	@BUILD=$(BUILD) CC="$(CC)" SAN="$(SAN)" MAKE="$(MAKE)" sh tests/run.sh
	@$(if $(SAN),,$(MAKE) --no-print-directory sanitized)

# The second pass of `make test`: a part of it under sanitizers; `make asan` is
# all of it. Where there is a clang, of the build that fuzzers have of it.
ASAN = BUILD=$(BUILD)/asan CFLAGS="-O1 -g" SAN="-fsanitize=address,undefined \
-fno-sanitize-recover=undefined -fno-omit-frame-pointer"
FUZZED = BUILD=$(BUILD)/fuzz CC=clang CFLAGS="-O1 -gline-tables-only" \
    SAN="-fsanitize=fuzzer-no-link,address,undefined \
-fno-sanitize-recover=undefined"
SANITIZED := text call plan rules hostile
IN = $(BUILD)/$(if $(shell command -v clang),fuzz,asan)
sanitized:
	@$(MAKE) --no-print-directory $(PARALLEL) \
	    $(if $(filter %/fuzz,$(IN)),$(FUZZED),$(ASAN)) $(IN)/flin \
	    $(SANITIZED:%=$(IN)/tests/unit/%)
	@BUILD=$(IN) SAN=1 UNIT="$(SANITIZED)" sh tests/run.sh sanitized

tests: build $(UNIT) $(HOST_TESTS) $(CUDA_TESTS) $(EXAMPLES) \
    $(FAKE)/libcuda.so.1 $(FAKE)/libnvrtc.so.13 $(FAKE)/libcublasLt.so.13 \
    $(FAKE)/libopenblas.so.0 $(FAKE)/races $(if $(SAN),,$(BUILD)/free/flin)

test-cuda: tests
	@BUILD=$(BUILD) sh tests/cuda/run.sh $(WORDS)

test-nccl: build
	@FLIN_LIB=$(abspath $(BUILD))/libflin.so PYTHON=$(PYTHON) \
	    sh tests/python/nccl.sh

asan:
	@$(MAKE) --no-print-directory test $(ASAN)

TSAN = $(BUILD)/tsan/tests/host
tsan:
	@$(MAKE) --no-print-directory $(PARALLEL) BUILD=$(BUILD)/tsan \
	    CFLAGS="-O1 -g" SAN="-fsanitize=thread" $(TSAN)/threads $(TSAN)/kernel
	$(TSAN)/threads
	$(TSAN)/kernel

random: $(BUILD)/tests/unit/random_structures
	$(BUILD)/tests/unit/random_structures 0 $(or $(PROGRAMS),20000)

fuzzers: $(FUZZ) $(BUILD)/tests/unit/hostile
fuzz-build:
	@$(MAKE) --no-print-directory $(PARALLEL) fuzzers $(FUZZED)
fuzz: fuzz-build
	@FUZZ_SECONDS=$(FUZZ_SECONDS) sh tests/fuzz/run.sh $(BUILD)/fuzz

compile-all: tests
	@RECORD=$(BUILD)/compiled $(BUILD)/tests/cuda/compile_tiles all $(WORDS)

bench-cpu:
	@sh tools/setup.sh
	@$(MAKE) --no-print-directory $(PARALLEL) build $(BENCH)
	@for b in $(BENCH); do $$b || exit 1; done

# ---- what is built ----

# Anything compiled depends on the flags it was compiled with: here those that
# all have, whichever file's turn it is.
COMPILED := $(CC) $(FLAGS) $(LIBEDIT)
$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(COMPILED)' | cmp -s - $@ || echo '$(COMPILED)' > $@

# Sanitizers take minutes over vector code at -O3, and UBSan at any level.
O3 := $(if $(SAN),,-O3)
$(BUILD)/backend/cpu/isa_%.o: FLAGS += $(if $(SAN),-fno-sanitize=undefined)
ifneq ($(filter x86_64% amd64%,$(shell $(CC) -dumpmachine)),)
$(BUILD)/%_avx512.o: FLAGS += $(O3) -ffp-contract=fast -mavx512f -mavx512bw \
    -mavx512dq -mavx512vl -mfma -mavx2 -mf16c -mprefer-vector-width=512
$(BUILD)/%_avx2.o: FLAGS += $(O3) -ffp-contract=fast -mavx2 -mfma -mf16c
endif
$(BUILD)/backend/cpu/%.o: FLAGS += $(O3)
$(BUILD)/repl/edit.o: FLAGS += $(if $(filter 0,$(LIBEDIT)),-DFLIN_NO_LIBEDIT)

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC $@)
	$(Q)$(CC) $(FLAGS) -MMD -MP -c -o $@ $<
$(BUILD)/%.o: $(BUILD)/%.c $(BUILD)/flags
	$(call say,CC $@)
	$(Q)$(CC) $(FLAGS) -MMD -MP -c -o $@ $<

# Lua as its own makefile compiles it.
$(BUILD)/lua/%.o: $(LUA_SRC)/%.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC $@)
	$(Q)$(CC) -std=gnu99 -DLUA_USE_POSIX -DLUA_USE_DLOPEN -fPIC \
	    -fvisibility=hidden $(CFLAGS) $(SAN) -c -o $@ $<

$(BUILD)/stdlib.c: $(STDLIB) stdlib stdlib/layers lang/lua tools/embed.sh
	@mkdir -p $(@D)
	@sh tools/embed.sh stdlib $(STDLIB) > $@
$(BUILD)/repl_lua.c: $(REPL_LUA) repl tools/embed.sh
	@mkdir -p $(@D)
	@sh tools/embed.sh repl $(REPL_LUA) > $@
$(BUILD)/cuda_headers.c: $(DEVICE) backend/cuda tools/embed.sh
	@mkdir -p $(@D)
	@sh tools/embed.sh headers $(DEVICE) > $@

$(BUILD)/flin: $(REPL_OBJ) $(LIB_OBJ)
	$(call say,LINK $@)
	$(Q)$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)
# Not unloaded with the Lua state that loaded it: a thread that NVRTC has left
# behind may be about to return into it.
$(BUILD)/libflin.so: $(LIB_OBJ)
	$(call say,LINK $@)
	$(Q)$(CC) $(SAN) $(LDFLAGS) -shared $(if $(SAN),,-Wl,-z,defs) \
	    -Wl,-z,nodelete -Wl,-soname,$(SONAME) -o $@ $^ $(LIBS)
	@ln -sf libflin.so $(BUILD)/$(SONAME)
# One object whose other names are local, so that a host meets only flin_*.
$(BUILD)/libflin.a: $(LIB_OBJ)
	@rm -f $@
	$(call say,AR $@)
	$(Q)$(LD) -r -o $(BUILD)/all.o $^
	$(Q)$(OBJCOPY) --wildcard --keep-global-symbol='flin_*' \
	    --keep-global-symbol=luaopen_flin $(BUILD)/all.o
	$(Q)$(AR) rcs $@ $(BUILD)/all.o

static:
	@$(MAKE) --no-print-directory $(PARALLEL) BUILD=$(BUILD)/static GLPK=0 \
	    LUA_LIBS="-Wl,-Bstatic $(LUA_LIBS) -Wl,-Bdynamic" \
	    $(BUILD)/static/flin

# Lua's names are the host's, whatever it has them from.
rock:
	@$(MAKE) --no-print-directory $(PARALLEL) LUA_LIBS= $(BUILD)/flin.so
$(BUILD)/flin.so: $(LIB_OBJ)
	$(call say,LINK $@)
	$(Q)$(CC) $(SAN) $(LDFLAGS) -shared -Wl,-z,nodelete -o $@ $^ $(LIBS)

# Without GLPK, beside the rest: what the tests compare it with.
FREE_OBJ = $(LIB_OBJ:$(BUILD)/compiler/choose_glpk.o=$(BUILD)/free/choose.o)
$(BUILD)/free/choose.o: compiler/choose_glpk.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC $@)
	$(Q)$(CC) $(FLAGS) -DFLIN_NO_GLPK -MMD -MP -c -o $@ $<
$(BUILD)/free/flin: $(REPL_OBJ) $(FREE_OBJ)
	$(call say,LINK $@)
	$(Q)$(CC) $(SAN) $(LDFLAGS) -o $@ $^ $(LIBS)

wheel:
	@sh tools/wheel.sh
deb: build
	@BUILD=$(BUILD) VERSION=$(VERSION) MAKE="$(MAKE)" sh tools/deb.sh

# Tests see the library's inside; an example only its header and library.
$(BUILD)/tests/fuzz/%: tests/fuzz/%.c $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK $@)
	$(Q)$(CC) $(FLAGS) -fsanitize=fuzzer -MMD -MP -o $@ $< $(LIB_OBJ) $(LIBS)
# A CUDA driver and compiler for machines without a GPU, and libraries.
$(FAKE)/libcuda.so.1: tests/cuda/fake/driver.c
$(FAKE)/libcublasLt.so.13: tests/cuda/fake/cublaslt.c
$(FAKE)/libnvrtc.so.13: tests/cuda/fake/nvrtc.c $(FAKE)/host.so
$(FAKE)/libopenblas.so.0: tests/cuda/fake/openblas.c
$(FAKE)/%:
	@mkdir -p $(@D)
	$(call say,LINK $@)
	$(Q)$(CC) $(FLAGS) -shared -Wl,-soname,$(@F) \
	    -DHOST_DIR='"$(CURDIR)/tests/cuda"' \
	    -DHOST_LIBRARY='"$(abspath $(FAKE))/host.so"' -o $@ $< -ldl
# What all kernels share there, where there is a compiler of C++. Its
# numbers are what they are without -march.
$(FAKE)/host.so: $(wildcard tests/cuda/*.cc) tests/cuda/host.h \
    tests/cuda/hopper.h tests/cuda/races.h tests/cuda/tensor.h
	@mkdir -p $(@D)
	$(call say,CXX $@)
	$(Q)! command -v g++ >/dev/null || g++ -std=c++17 -O3 -march=native \
	    -ffp-contract=off -fno-strict-aliasing -fPIC -Wall -shared -nostdlib \
	    -fno-semantic-interposition -Wl,-Bsymbolic,-z,nodelete \
	    -Wl,-soname,flin-$(@F) \
	    -o $@ tests/cuda/hopper.cc -lm -lc -lgcc
$(FAKE)/races: tests/cuda/races.cc $(FAKE)/host.so
	$(call say,CXX $@)
	$(Q)! command -v g++ >/dev/null || g++ -std=c++17 -O1 -ffp-contract=off \
	    -fno-strict-aliasing -fPIC -Wall -o $@ $< -lm -ldl
# Its own build_verify is the first that the linker meets.
$(BUILD)/tests/cuda/launched: FLAGS += -Wl,-z,muldefs
$(BUILD)/tests/%: tests/%.c $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK $@)
	$(Q)$(CC) $(FLAGS) -MMD -MP -o $@ $< $(LIB_OBJ) $(LIBS)
$(BUILD)/examples/%: examples/%.c $(BUILD)/libflin.so
	@mkdir -p $(@D)
	$(call say,LINK $@)
	$(Q)$(CC) -std=c11 -pthread $(WARN) $(CFLAGS) $(SAN) -Ilang $(HOST_FLAGS) \
	    -MMD -MP -o $@ $< -L$(BUILD) -lflin $(HOST_LIBS) \
	    -Wl,-rpath,'$$ORIGIN/..' -lm
$(BUILD)/examples/lua_host: HOST_FLAGS = $(LUA_CFLAGS)
$(BUILD)/examples/lua_host: HOST_LIBS = $(LUA_LIBS)

docs:
	@sh tools/setup.sh --docs
	@$(MAKE) --no-print-directory $(PARALLEL) build
	@rm -rf $(BUILD)/docs
	@BUILD=$(BUILD) CC="$(CC)" $(BUILD)/flin docs/make/site.lua $(BUILD)/docs
	@echo $(BUILD)/docs/index.html

BIN = $(DESTDIR)$(PREFIX)/bin
LIB = $(DESTDIR)$(LIBDIR)
SHARE = $(DESTDIR)$(PREFIX)/share
install: build
	install -d $(BIN) $(DESTDIR)$(PREFIX)/include $(LIB)/pkgconfig \
	    $(LIB)/lua/5.4 $(SHARE)/man/man1 $(SHARE)/doc/flin/examples \
	    $(SHARE)/flin
	install -m 755 $(BUILD)/flin $(BIN)/flin
	install -m 644 lang/flin.h $(DESTDIR)$(PREFIX)/include/flin.h
	install -m 644 $(BUILD)/libflin.a $(LIB)/libflin.a
	install -m 755 $(BUILD)/libflin.so $(LIB)/$(SONAME)
	ln -sf $(SONAME) $(LIB)/libflin.so
	ln -sf ../../$(SONAME) $(LIB)/lua/5.4/flin.so
	install -m 644 repl/flin.1 $(SHARE)/man/man1/flin.1
	install -m 644 README.md CHANGELOG.md LICENSE $(SHARE)/doc/flin
	install -m 644 $(wildcard examples/*.lua examples/*.c examples/*.py) \
	    $(SHARE)/doc/flin/examples
	if [ -f $(BUILD)/docs/index.html ]; then \
	    install -d $(SHARE)/doc/flin/html && \
	    install -m 644 $(BUILD)/docs/* $(SHARE)/doc/flin/html; \
	fi
	$(BUILD)/flin --luacats > $(SHARE)/flin/flin.d.lua
	printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'Name: flin' \
	    'Version: $(VERSION)' \
	    'Description: linear-attention and state-space layers' \
	    'Cflags: -I$${prefix}/include' 'Libs: -L$${libdir} -lflin' \
	    'Libs.private: $(LIBS)' > $(LIB)/pkgconfig/flin.pc

clean:
	rm -rf $(BUILD)

-include $(LIB_OBJ:.o=.d) $(REPL_OBJ:.o=.d) $(UNIT:=.d) $(HOST_TESTS:=.d) $(BENCH:=.d) \
    $(EXAMPLES:=.d) $(FUZZ:=.d) $(CUDA_TESTS:=.d)
