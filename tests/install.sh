#!/bin/sh
# make install: pkg-config alone builds C, C++ and static programs from what was installed; uninstall leaves nothing.
set -eu
cd "$(dirname "$0")/.."
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
prefix=/opt/scoped-lane root=$stage/opt/scoped-lane

make --no-print-directory install DESTDIR="$stage" PREFIX=$prefix
for file in bin/scoped-lane bin/scoped-laned lib/libscoped_lane.so.0 lib/libscoped_lane.so lib/libscoped_lane.a lib/libscoped_lane_threads.so \
    lib/libscoped_lane_mpi.so include/scoped_lane.h include/scoped_lane_tracker.h lib/pkgconfig/scoped-lane.pc; do
    [ -e "$root/$file" ] || { echo "install: no $file"; exit 1; }
done
readelf -d "$root/lib/libscoped_lane.so" | grep -q 'SONAME.*\[libscoped_lane.so.0\]' || { echo "install: soname"; exit 1; }
stray=$(nm -g --defined-only "$root/lib/libscoped_lane.a" | awk 'NF == 3 && $3 !~ /^sl_/ { print $3 }')
[ -z "$stray" ] || { echo "install: the static library takes names that are the program's: $stray"; exit 1; }
! grep -rnE '"(proto|client)/' "$root/include" || { echo "install: a header names the source tree"; exit 1; }

cat >"$stage/x.c" <<'C'
#include <scoped_lane.h>

int main(void)
{
    SL_SCOPE("main");
    sl_region_t region = sl_region("inner");
    sl_enter(region);
    sl_exit(region);
    return sl_is_active();
}
C
cp "$stage/x.c" "$stage/x.cpp"
export PKG_CONFIG_SYSROOT_DIR="$stage" PKG_CONFIG_PATH="$root/lib/pkgconfig" LD_LIBRARY_PATH="$root/lib" SCOPED_LANE=off
flags=$(pkg-config --cflags --libs scoped-lane)
static=$(pkg-config --static --cflags --libs scoped-lane)
# shellcheck disable=SC2086 # words are wanted
build() {  # COMPILER SOURCE FLAGS...
    "$1" -Wall -Werror "$2" $3 -o "$stage/x"
    "$stage/x"
}
build "${CC:-cc}" "$stage/x.c" "$flags"
build "${CXX:-c++}" "$stage/x.cpp" "$flags"
build "${CC:-cc}" "$stage/x.c" "-static $static"

# the reading library
cat >"$stage/read.c" <<'C'
#include <scoped_lane_run.h>

int main(int count, char **words)
{
    char error[SL_RUN_ERROR_MAX];
    struct sl_run *run;
    if (count != 2 || sl_run_open(&run, words[1], error) < 0)
        return 1;
    int rows = (int)sl_run_row_count(run);
    sl_run_close(run);
    return rows != 4;
}
C
unset PKG_CONFIG_SYSROOT_DIR  # HDF5 and jansson are the system's own
# shellcheck disable=SC2046
"${CC:-cc}" -Wall -Werror "$stage/read.c" -I"$root/include" -L"$root/lib" $(pkg-config --libs-only-l scoped-lane-run) \
    $(pkg-config --libs --cflags hdf5-serial jansson) -o "$stage/read"
"$stage/read" tests/reference/threads.h5
export PKG_CONFIG_SYSROOT_DIR="$stage"

# the README's program, word for word
{ echo 'static void exchange(void) {}'; sed -n '/^```c$/,/^```$/{/^```/d;p}' README.md; } >"$stage/readme.c"
OMPI_CC=${CC:-cc} build mpicc "$stage/readme.c" "$flags"

# systemd takes the units as they are installed, with the program in its place
if command -v systemd-analyze >/dev/null; then
    units=$stage/units
    for kind in system user; do
        mkdir -p "$units/$kind"
        for unit in "$root/lib/systemd/$kind"/*; do
            ! grep -q @PREFIX@ "$unit" || { echo "install: $unit is not filled in"; exit 1; }
            sed "s|$prefix/bin|$root/bin|" "$unit" >"$units/$kind/${unit##*/}"
        done
        found=$(XDG_RUNTIME_DIR=$stage systemd-analyze --"$kind" --man=no verify "$units/$kind"/scoped-laned.* 2>&1 | grep -F "$units" || true)
        [ -z "$found" ] || { echo "install: systemd finds fault: $found"; exit 1; }
    done
fi

make --no-print-directory uninstall DESTDIR="$stage" PREFIX=$prefix
left=$(find "$root" ! -type d)
[ -z "$left" ] || { echo "uninstall leaves: $left"; exit 1; }
