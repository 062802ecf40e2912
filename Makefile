# scoped-lane. Two commands for a newcomer: make demo, make check. Beside them: make, make python, make wheel, make deps, make bench,
# make torture, make install PREFIX= DESTDIR=, make uninstall, make deb, make clean. V=1 shows the commands; SAN=asan, SAN=tsan and SAN=fuzz
# build further trees beside obj/release. Settings first (config.mak may set them too), rules below.
-include config.mak

PREFIX  ?= /usr/local
DESTDIR ?=
CC      ?= cc
CXX     ?= c++
MPICC   ?= mpicc
MPIFORT ?= mpifort
OBJCOPY ?= objcopy
PYTHON  ?= python3
CFLAGS  ?= -O2 -g
SETARCH ?= setarch -R
JOBS    ?= $(shell nproc)
FUZZ_SECONDS ?= 10
KILLS   ?= 1000

VERSION := 0.1.0

# What `make deps` sees to on Debian 12, and what pkg-config knows it by.
debian := build-essential pkg-config libuv1-dev libhdf5-dev libmicrohttpd-dev libjansson-dev libcurl4-openssl-dev \
	libncurses-dev libsmartcols-dev libinih-dev zlib1g-dev uthash-dev systemtap-sdt-dev libopenmpi-dev openmpi-bin \
	python3-venv python3-dev libcriterion-dev valgrind clang libclang-rt-14-dev gfortran gdb strace tmux curl jq man-db
packages := libuv libmicrohttpd jansson libcurl smartcols inih zlib ncursesw hdf5-serial

# Examples and tests' programs that are MPI programs; the others are compiled with CC.
mpi_programs := heat tasks_mpi

# What `make check` does: first what records at full speed, then the others, two at a time, the longest first. Each is a target of its own.
alone  := end-alone
others := end-beside asan python-tests unit fuzz scripts tsan
stages := $(alone) $(others)

variant  := $(or $(SAN),release)
O        := obj/$(variant)
Q        := $(if $(V),,@)
ifeq ($(SAN),fuzz)
CC       := clang
endif

warnings := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-missing-field-initializers
san_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
san_tsan := -fsanitize=thread -fno-omit-frame-pointer
san_fuzz := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
san_flags := $(san_$(SAN))
c_flags   = -std=gnu11 $(CFLAGS) $(warnings) $(san_flags) -D_GNU_SOURCE -DSL_VERSION='"$(VERSION)"' -MMD -MP
daemon_flags := $(shell pkg-config --cflags $(packages) 2>/dev/null)
daemon_libs  := $(shell pkg-config --libs $(packages) 2>/dev/null) -lm -lpthread
client_libs   = -L$(O)/lib -lscoped_lane -Wl,-rpath,$(abspath $(O)/lib) -lpthread

preload_source := client/preload.c
mpi_source     := client/mpi/calls.c
mpi_library    := $(if $(shell command -v $(MPICC) 2>/dev/null),libscoped_lane_mpi.so)
client_sources := $(filter-out $(preload_source),$(wildcard client/*.c))
client_map     := $(wildcard client/*.map)
daemon_sources := $(wildcard daemon/base/*.c daemon/core/*.c daemon/storage/*.c daemon/services/*.c)
cli_sources    := $(filter-out daemon/cli/main.c,$(wildcard daemon/cli/*.c))

# programs(DIRECTORY[,BUILT IN]): what the .c files of a directory are built to.
programs = $(patsubst %.c,$(O)/$(or $(2),$(1))/%,$(notdir $(wildcard $(1)/*.c)))
objects  = $(patsubst %.c,$(O)/%.o,$(1))

examples       := $(call programs,docs/examples,examples)
tallied        := $(call programs,docs/examples,tests/tallied)
unit_programs  := $(call programs,tests/unit)
api_programs   := $(call programs,tests/api)
bench_programs := $(call programs,tests/bench)
tsan_programs  := $(call programs,tests/tsan)
fuzz_programs  := $(call programs,tests/fuzz)
property_programs := $(call programs,tests/property)
mpi_tests      := $(call programs,tests/mpi) $(patsubst %.f90,$(O)/%,$(wildcard tests/mpi/*.f90))

all: $(O)/lib/libscoped_lane.so $(O)/lib/libscoped_lane.a $(O)/lib/libscoped_lane_run.a $(O)/lib/libscoped_lane_threads.so \
	$(mpi_library:%=$(O)/lib/%) $(O)/bin/scoped-laned $(O)/bin/scoped-lane
examples: $(examples)
programs: all $(examples) $(tallied) $(api_programs) $(bench_programs) $(mpi_tests)

# -- building --------------------------------------------------------------------------------------------------------

# compile(FLAGS), link(LIBRARIES), program(COMPILER,FLAGS): one source straight to a program that uses the library.
define compile
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(CC) $(c_flags) $(1) -c $< -o $@
endef
define link
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(CFLAGS) $(san_flags) $^ -o $@ $(1)
endef
define program
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $@")
	$(Q)$(1) $(c_flags) -I. -Iclient $(2) $< -o $@ $(client_libs) -lm
endef
define archive
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^
endef

$(O)/client/%.o: client/%.c
	$(call compile,-fPIC -fvisibility=hidden -I. -Iclient)

$(O)/daemon/%.o: daemon/%.c
	$(call compile,-I. -Idaemon $(daemon_flags))

$(O)/tests/%.o: tests/%.c
	$(call compile,-I. -Idaemon -Iclient $(daemon_flags))

$(O)/lib/libscoped_lane.so: $(call objects,$(client_sources)) $(client_map)
	@mkdir -p $(@D)
	$(if $(V),,@echo "  LD    $@")
	$(Q)$(CC) $(CFLAGS) $(san_flags) -shared -Wl,-soname,libscoped_lane.so.0 -Wl,-z,nodelete \
		$(addprefix -Wl$(comma)--version-script=,$(client_map)) $(filter %.o,$^) -o $@.0 -lpthread
	$(Q)ln -sf libscoped_lane.so.0 $@

$(O)/lib/libscoped_lane_threads.so: $(call objects,$(preload_source))
	$(call link,-shared -Wl$(comma)-z$(comma)nodelete -ldl)

# MPI's headers and not its libraries: it brings no MPI into a program that has none.
$(O)/client/mpi/%.o: client/mpi/%.c
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $<")
	$(Q)$(MPICC) $(c_flags) -fPIC -fvisibility=hidden -fexceptions -I. -Iclient -c $< -o $@

$(O)/lib/libscoped_lane_mpi.so: $(call objects,$(mpi_source)) $(O)/lib/libscoped_lane.so
	$(call link,-shared -Wl$(comma)-soname$(comma)libscoped_lane_mpi.so -Wl$(comma)-z$(comma)nodelete -Wl$(comma)-rpath$(comma)'$$ORIGIN' -ldl)

# For users: one object, in which only the public names are left. For our tests: all of them.
$(O)/lib/libscoped_lane.a: $(call objects,$(client_sources))
	@mkdir -p $(@D)
	$(Q)$(LD) -r $^ -o $(@D)/scoped_lane.o && $(OBJCOPY) --localize-hidden $(@D)/scoped_lane.o
	$(Q)rm -f $@ && ar rcs $@ $(@D)/scoped_lane.o

# The library that reads run files, for other programs: the same objects that the command has, public names only.
run_sources := $(addprefix daemon/storage/,h5.c column.c callstack.c jsonlist.c runread.c runindex.c runlegacy.c runcalls.c runcolumns.c \
	runlanes.c runowntables.c) $(addprefix daemon/base/,alloc.c buffer.c json.c utf8.c)
$(O)/lib/libscoped_lane_run.a: $(call objects,$(run_sources))
	@mkdir -p $(@D)
	$(Q)$(LD) -r $^ -o $(@D)/scoped_lane_run.o && $(OBJCOPY) --wildcard --keep-global-symbol='sl_*' $(@D)/scoped_lane_run.o
	$(Q)rm -f $@ && ar rcs $@ $(@D)/scoped_lane_run.o

$(O)/lib/libclient.a: $(call objects,$(client_sources))
	$(archive)

$(O)/lib/libdaemon.a: $(call objects,$(daemon_sources))
	$(archive)

$(O)/lib/libcli.a: $(call objects,$(cli_sources))
	$(archive)

$(O)/bin/scoped-laned: $(O)/daemon/main.o $(O)/lib/libdaemon.a
	$(call link,$(daemon_libs))

$(O)/bin/scoped-lane: $(O)/daemon/cli/main.o $(O)/lib/libcli.a $(O)/lib/libdaemon.a
	$(call link,$(daemon_libs))

$(O)/tests/unit/%: $(O)/tests/unit/%.o $(O)/lib/libcli.a $(O)/lib/libdaemon.a $(O)/lib/libclient.a
	$(call link,$(daemon_libs) -lcriterion)

# The client once more under a fake clock, and the daemon's core: random programs against an oracle.
$(O)/faked/%.o: client/%.c
	$(call compile,-fPIC -fvisibility=hidden -I. -Iclient -DSL_FAKE_TICKS=fake_ticks)

$(O)/tests/property/%.o: tests/property/%.c
	$(call compile,-I. -Idaemon -Iclient -DSL_FAKE_TICKS=fake_ticks)

$(O)/tests/property/%: $(O)/tests/property/%.o $(patsubst client/%.c,$(O)/faked/%.o,$(client_sources)) \
		$(call objects,$(wildcard daemon/base/*.c daemon/core/*.c))
	$(call link,-Wl$(comma)--wrap=facts_clock_kind$(comma)--wrap=facts_clock_ns -lpthread)

$(O)/tests/tsan/%: $(O)/tests/tsan/%.o $(O)/lib/libdaemon.a $(O)/lib/libclient.a
	$(call link,$(daemon_libs))

# Questions that would change something beyond memory change nothing.
$(O)/tests/fuzz/fuzz_query: wrapped := scan_run clients_check runs_check runs_join runs_snapshot
$(O)/tests/fuzz/%: $(O)/tests/fuzz/%.o $(O)/lib/libdaemon.a $(O)/lib/libclient.a
	$(call link,-fsanitize=fuzzer $(wrapped:%=-Wl$(comma)--wrap=%) $(daemon_libs))

$(O)/tests/api/%: tests/api/%.c $(O)/lib/libscoped_lane.so
	$(call program,$(compiler))

$(O)/tests/bench/%: tests/bench/%.c $(O)/lib/libscoped_lane.so
	$(call program,$(CC))

# Measures the reading library, not the client.
$(O)/tests/bench/callstack: $(O)/tests/bench/callstack.o $(O)/lib/libdaemon.a
	$(call link,$(daemon_libs))

# MPI programs that know nothing of us.
$(O)/tests/mpi/%: tests/mpi/%.c
	@mkdir -p $(@D)
	$(if $(V),,@echo "  CC    $@")
	$(Q)$(MPICC) -std=gnu11 -O2 -g $(warnings) -pthread $< -o $@

$(O)/tests/mpi/%: tests/mpi/%.f90
	@mkdir -p $(@D)
	$(if $(V),,@echo "  FC    $@")
	$(Q)$(MPIFORT) -O2 -g -Wall $< -o $@

compiler = $(if $(filter $(mpi_programs),$*),$(MPICC),$(CC))
$(O)/examples/%: docs/examples/%.c $(O)/lib/libscoped_lane.so
	$(call program,$(compiler))

# The same source again, with every call also counted by the program itself: what the tests compare with.
$(O)/tests/tallied/%: docs/examples/%.c tests/tally.h $(O)/lib/libscoped_lane.so
	$(call program,$(compiler),-include tests/tally.h)

# The Python module, for the interpreter that $(PYTHON) is; several lie beside one another.
python_says = $(PYTHON) -c 'import sysconfig; print($(1))'
python: $(O)/lib/libscoped_lane.so
	@mkdir -p $(O)/python/scoped_lane
	$(Q)include=$$($(call python_says,sysconfig.get_path("include"))) suffix=$$($(call python_says,sysconfig.get_config_var("EXT_SUFFIX"))) && \
		echo "  CC    $(O)/python/scoped_lane/_core$$suffix" && \
		$(CC) -std=gnu11 $(CFLAGS) $(warnings) $(san_flags) -D_GNU_SOURCE -fPIC -fno-plt -fvisibility=hidden -I. -Iclient -isystem $$include -shared \
			client/python/*.c -o $(O)/python/scoped_lane/_core$$suffix $(client_libs)
	$(Q)cp client/python/scoped_lane/*.py $(O)/python/scoped_lane/ && cp client/python/scoped_lane_pytest.py $(O)/python/

# A wheel for each CPython that is installed, the library inside: for machines that have none. WHEELS says where to, PYTHONS for which.
WHEELS  ?= $(O)/wheels
installed_pythons = for p in $(PYTHON) python3.9 python3.10 python3.11 python3.12 python3.13 $(wildcard $(HOME)/.pyenv/versions/*/bin/python3); do \
	$$p -c 'import os, sys; (3, 9) <= sys.version_info < (3, 14) and print(os.path.realpath(sys.executable))' 2>/dev/null; done | sort -u
PYTHONS ?= $(shell $(installed_pythons))
pythons:
	@echo $(PYTHONS)

wheel: $(O)/lib/libscoped_lane.so
	$(Q)for p in $(PYTHONS); do CC='$(CC)' CFLAGS='$(CFLAGS) $(warnings)' $$p client/python/wheel.py $(O)/lib/libscoped_lane.so.0 $(VERSION) $(WHEELS) || exit 1; done

# -- demo, check, bench: what is missing is installed first; pkg-config has to be asked again after that ---------------

demo check bench: deps
	@$(MAKE) --no-print-directory -j$(JOBS) run-$@

deps:
	@.ci/deps '$(PYTHON)' tests/requirements.txt $(debian)

run-demo: all examples
	@SL_BUILD=$(O) docs/demo.sh

run-check: programs $(unit_programs) $(property_programs)
	+@.ci/stages '$(MAKE)' $(O)/check '$(alone)' '$(others)'

run-bench: all $(bench_programs)
	@for b in $(bench_programs); do $(O)/bin/scoped-lane run -o $$b.h5 -- $$b || exit 1; done

# each(WORD BEFORE,PROGRAMS,ARGUMENTS): run them one after another, stop at none, fail if one failed.
each = $(Q)status=0; for t in $(2); do echo "$$t"; $(1) $$t $(3) || { status=1; echo "FAILED: $$t"; }; done; exit $$status

# Under a sanitizer a random program takes ten times as long: a tenth of them.
unit: $(unit_programs) $(property_programs)
	$(call each,,$(unit_programs))
	$(call each,,$(property_programs),$(if $(SAN),-n 1000))

scripts: programs
	$(call each,SL_BUILD=$(abspath $(O)) CC=$(CC) CXX=$(CXX),$(sort $(wildcard tests/*.sh)))

end-alone:  part = -m 'not beside'
end-beside: part = -m beside
end end-alone end-beside: programs
	$(Q)SL_BUILD=$(abspath $(O)) .venv/bin/python -m pytest -c tests/pytest.ini tests/end $(part) $(PYTEST)

# Programs, daemons and converters killed at random under load: 1,000 of them take seven minutes; make check has 50.
torture: programs
	$(Q)SL_BUILD=$(abspath $(O)) SL_TORTURE=$(KILLS) .venv/bin/python -m pytest -c tests/pytest.ini tests/end/test_torture.py $(PYTEST)

python-tests: programs
	$(Q)$(MAKE) --no-print-directory python PYTHON=.venv/bin/python
	$(Q)SL_BUILD=$(abspath $(O)) .venv/bin/python -m pytest -c tests/pytest.ini tests/python $(PYTEST)

# Criterion does not see what a test's process says when it ends: a leak. Whatever is reported fails the stage.
asan:
	$(Q)rm -f obj/asan/report.*
	$(Q)ASAN_OPTIONS=log_path=$(abspath obj/asan/report) $(MAKE) --no-print-directory SAN=asan unit; status=$$?; \
		! cat obj/asan/report.* 2>/dev/null || status=1; exit $$status
	$(Q)$(MAKE) --no-print-directory all && $(MAKE) --no-print-directory SAN=asan python PYTHON=.venv/bin/python
	$(Q)obj/release/bin/scoped-lane run -o obj/asan/python.h5 -- env ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=obj/asan/python \
		LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" .venv/bin/python tests/python/scripts/everything.py

tsan:
	$(Q)$(MAKE) --no-print-directory SAN=tsan run-tsan

fuzz:
	$(Q)$(MAKE) --no-print-directory SAN=fuzz run-fuzz

# ThreadSanitizer of GCC 12 needs its shadow addresses free, which randomised mappings of recent kernels are not.
run-tsan: $(tsan_programs)
	$(call each,$(SETARCH),$^)

run-fuzz: $(fuzz_programs)
	$(call each,mkdir -p $$t.corpus &&,$^,-max_total_time=$(FUZZ_SECONDS) -verbosity=0 -print_final_stats=1 -artifact_prefix=$$t- $$t.corpus \
		$$(ls -d tests/fuzz/seeds/$$(basename $$t) 2>/dev/null))

# -- install ---------------------------------------------------------------------------------------------------------

comma      := ,
root        = $(DESTDIR)$(PREFIX)
headers     := client/scoped_lane.h client/scoped_lane_tracker.h
wire_headers = $(filter proto/%,$(shell $(CC) -MM -I. client/scoped_lane.h))
rewritten   = sed 's|\#include "proto/|\#include "scoped_lane/|; s|\#include "client/|\#include "|'
man_pages  := $(wildcard docs/man/*.[1-8])
completion := $(wildcard docs/completion/*)
units      := $(wildcard docs/systemd/*/*)  # of the system, and of each user
installed   = bin/scoped-lane bin/scoped-laned lib/libscoped_lane.so.0 lib/libscoped_lane.so lib/libscoped_lane.a \
	lib/pkgconfig/scoped-lane.pc lib/libscoped_lane_run.a lib/pkgconfig/scoped-lane-run.pc include/scoped_lane_run.h \
	lib/libscoped_lane_threads.so $(mpi_library:%=lib/%) $(headers:client/%=include/%) $(wire_headers:proto/%=include/scoped_lane/%) \
	$(foreach m,$(man_pages),share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m))) \
	$(completion:docs/completion/%=share/bash-completion/completions/%) $(units:docs/systemd/%=lib/systemd/%)

install: all
	$(Q)install -d $(sort $(dir $(addprefix $(root)/,$(installed))))
	$(Q)install -m 755 $(O)/bin/scoped-lane $(O)/bin/scoped-laned $(root)/bin
	$(Q)install -m 644 $(O)/lib/libscoped_lane.so.0 $(O)/lib/libscoped_lane.a $(O)/lib/libscoped_lane_run.a $(root)/lib
	$(Q)ln -sf libscoped_lane.so.0 $(root)/lib/libscoped_lane.so
	$(Q)install -m 644 $(O)/lib/libscoped_lane_threads.so $(mpi_library:%=$(O)/lib/%) $(root)/lib
	$(Q)for pc in client/scoped-lane daemon/storage/scoped-lane-run; do sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|' $$pc.pc.in \
		>$(root)/lib/pkgconfig/$${pc##*/}.pc || exit 1; done
	$(Q)install -m 644 daemon/storage/scoped_lane_run.h $(root)/include
	$(Q)for h in $(headers:client/%=%); do $(rewritten) client/$$h >$(root)/include/$$h || exit 1; done
	$(Q)for h in $(wire_headers:proto/%=%); do $(rewritten) proto/$$h >$(root)/include/scoped_lane/$$h || exit 1; done
	$(Q)for m in $(man_pages); do install -m 644 $$m $(root)/share/man/man$${m##*.}/ || exit 1; done
	$(Q)$(if $(completion),install -m 644 $(completion) $(root)/share/bash-completion/completions)
	$(Q)for u in $(units:docs/systemd/%=%); do sed 's|@PREFIX@|$(PREFIX)|' docs/systemd/$$u >$(root)/lib/systemd/$$u || exit 1; done
	$(if $(DESTDIR),,-$(Q)ldconfig 2>/dev/null)

# A Debian package of what is installed, for the system that it is made on.
deb_package = $(O)/scoped-lane_$(VERSION)_$(shell dpkg --print-architecture).deb
deb: all
	$(Q)rm -rf $(O)/deb
	$(Q)$(MAKE) --no-print-directory install DESTDIR=$(abspath $(O)/deb/debian/scoped-lane) PREFIX=/usr
	$(Q)docs/debian/build $(VERSION) $(O)/deb $(abspath $(deb_package)) && echo $(deb_package)

uninstall:
	$(Q)rm -f $(addprefix $(root)/,$(installed))
	$(Q)rmdir $(root)/include/scoped_lane 2>/dev/null || true

clean:
	rm -rf obj

.PHONY: all examples programs python pythons wheel demo check bench deps run-demo run-check run-bench torture end $(stages) run-tsan run-fuzz install uninstall deb clean
.SECONDARY:
.DELETE_ON_ERROR:
-include $(shell find $(O) -name '*.d' 2>/dev/null)
