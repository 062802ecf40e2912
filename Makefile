# scoped-lane: make, make demo, make check, make bench, make install PREFIX= DESTDIR=, make clean.
# Settings first (config.mak may override them), rules below. V=1 shows the commands; SAN=asan or SAN=tsan builds a
# second tree beside the first.
-include config.mak

PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
CXX     ?= c++
CFLAGS  ?= -O2 -g
MPICC   ?= mpicc

VERSION := 0.1.0
variant := $(or $(SAN),release)
O       := obj/$(variant)
Q       := $(if $(V),,@)

warnings   := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-missing-field-initializers
san_asan   := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
san_tsan   := -fsanitize=thread -fno-omit-frame-pointer
san_flags  := $(san_$(SAN))
c_flags     = -std=gnu11 $(CFLAGS) $(warnings) $(san_flags) -D_GNU_SOURCE -DSL_VERSION='"$(VERSION)"' -MMD -MP
packages   := libuv libmicrohttpd jansson libcurl smartcols zlib ncursesw
daemon_pkg := $(shell pkg-config --cflags $(packages) 2>/dev/null) -I/usr/include/hdf5/serial
daemon_libs = $(shell pkg-config --libs $(packages)) -L/usr/lib/x86_64-linux-gnu/hdf5/serial -lhdf5 -linih -lm -lpthread

client_sources := $(wildcard client/*.c)
daemon_sources := $(filter-out daemon/main.c,$(wildcard daemon/base/*.c daemon/core/*.c daemon/storage/*.c daemon/services/*.c))
cli_sources    := $(wildcard daemon/cli/*.c)
unit_sources   := $(wildcard tests/unit/*.c)

objects = $(patsubst %.c,$(O)/%.o,$(1))

all: $(O)/lib/libscoped_lane.so $(O)/lib/libscoped_lane.a $(O)/bin/scoped-laned $(O)/bin/scoped-lane

$(O)/client/%.o: client/%.c
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(CC) $(c_flags) -fPIC -fvisibility=hidden -I. -Iclient -c $< -o $@

$(O)/daemon/%.o: daemon/%.c
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(CC) $(c_flags) -I. -Idaemon $(daemon_pkg) -c $< -o $@

$(O)/tests/unit/%.o: tests/unit/%.c
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(CC) $(c_flags) -I. -Idaemon -Iclient $(daemon_pkg) -c $< -o $@

$(O)/lib/libscoped_lane.so: $(call objects,$(client_sources))
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(CFLAGS) $(san_flags) -shared -Wl,-soname,libscoped_lane.so.0 -Wl,-z,nodelete $^ -o $@.0 -lpthread
	$(Q)ln -sf libscoped_lane.so.0 $@

$(O)/lib/libscoped_lane.a: $(call objects,$(client_sources))
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^

$(O)/lib/libdaemon.a: $(call objects,$(daemon_sources))
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^

$(O)/bin/scoped-laned: $(O)/daemon/main.o $(O)/lib/libdaemon.a
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(CFLAGS) $(san_flags) $^ -o $@ $(daemon_libs)

$(O)/bin/scoped-lane: $(call objects,$(cli_sources)) $(O)/lib/libdaemon.a
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(CFLAGS) $(san_flags) $^ -o $@ $(daemon_libs)

$(O)/tests/unit/%: $(O)/tests/unit/%.o $(O)/lib/libdaemon.a $(O)/lib/libscoped_lane.a
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(CFLAGS) $(san_flags) $^ -o $@ $(daemon_libs) -lcriterion

unit: $(patsubst tests/unit/%.c,$(O)/tests/unit/%,$(unit_sources))
	$(Q)for t in $^; do $$t || exit 1; done

clean:
	rm -rf obj

.PHONY: all unit clean
.SECONDARY:
-include $(shell find obj -name '*.d' 2>/dev/null)
