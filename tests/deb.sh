#!/bin/sh
# make deb: the package installs into an empty system, runs from there, and leaves nothing when it is purged; its scripts do with systemd
# what they should, and nothing where there is none.
set -eu
cd "$(dirname "$0")/.."
command -v dpkg-shlibdeps >/dev/null || { echo "deb: no dpkg-dev here"; exit 0; }
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/root
fail() {
    echo "deb: $*"
    exit 1
}

package=$(make --no-print-directory deb | tail -n 1)

# what is in it
dpkg-deb -c "$package" >"$stage/contents"
for file in usr/bin/scoped-lane usr/bin/scoped-laned usr/lib/libscoped_lane.so usr/lib/libscoped_lane.so.0 usr/lib/libscoped_lane.a \
    usr/lib/libscoped_lane_threads.so usr/lib/libscoped_lane_mpi.so usr/lib/libscoped_lane_run.a usr/include/scoped_lane.h \
    usr/include/scoped_lane_run.h usr/include/scoped_lane/lane.h usr/lib/pkgconfig/scoped-lane.pc usr/lib/pkgconfig/scoped-lane-run.pc \
    usr/share/man/man1/scoped-lane.1.gz usr/share/man/man3/scoped_lane.3.gz usr/share/man/man5/scoped-laned.conf.5.gz \
    usr/share/man/man8/scoped-laned.8.gz usr/share/bash-completion/completions/scoped-lane.bash usr/lib/systemd/system/scoped-laned.service \
    usr/lib/systemd/system/scoped-laned.socket usr/lib/systemd/user/scoped-laned.service usr/lib/systemd/user/scoped-laned.socket \
    usr/share/doc/scoped-lane/copyright usr/share/doc/scoped-lane/query.md etc/scoped-lane/scoped-laned.conf etc/default/scoped-laned; do
    grep -qE " \./$file( ->|$)" "$stage/contents" || fail "no $file in it"
done
! grep -vE '^[^ ]+ root/root ' "$stage/contents" || fail "not all of it is root's"
! grep -E '^.[^ ]*w[^ ]*w' "$stage/contents" | grep -v '^l' || fail "others may write to that"
dpkg-deb -e "$package" "$stage/scripts"
for file in /etc/scoped-lane/scoped-laned.conf /etc/default/scoped-laned; do
    grep -qx "$file" "$stage/scripts/conffiles" || fail "$file is no configuration file of it"
done
depends=$(dpkg-deb -f "$package" Depends)
for library in libc6 libuv1 libmicrohttpd12 libjansson4 libhdf5; do
    case $depends in *"$library"*) ;; *) fail "it does not depend on $library: $depends" ;; esac
done
for setting in $("${SL_BUILD:-obj/release}/bin/scoped-laned" --help | sed -n 's/^  .*--\([a-z][a-z-]*\)[ ,].*/\1/p'); do
    case $setting in config | version | help) continue ;; esac
    grep -q "^#$setting = " docs/scoped-laned.conf || fail "docs/scoped-laned.conf does not tell of $setting"
done

# its scripts, with a systemctl that only notes what it is told
mkdir -p "$stage/bin" "$stage/none"
printf '#!/bin/sh\necho "$*" >>"%s"\n' "$stage/told" >"$stage/bin/systemctl"
chmod 755 "$stage/bin/systemctl"
script() {  # NAME ARGUMENTS: what systemctl is told by it
    sed "s|/run/systemd|$stage/systemd|" "$stage/scripts/$1" >"$stage/script"
    shift
    : >"$stage/told"
    PATH=${path-$stage/bin:$PATH} /bin/sh "$stage/script" "$@" || fail "the script fails: $*"
    tr '\n' ';' <"$stage/told"
}
units="scoped-laned.socket scoped-laned.service"
expect() {  # WHAT IT SHOULD SAY; NAME ARGUMENTS
    wanted=$1
    shift
    got=$(script "$@")
    [ "$got" = "$wanted" ] || fail "$*: systemctl is told \"$got\", not \"$wanted\""
}
expect "enable --quiet $units;" postinst configure ""
mkdir -p "$stage/systemd/system"
expect "enable --quiet $units;daemon-reload;start $units;" postinst configure ""
expect "daemon-reload;try-restart scoped-laned.service;" postinst configure 0.0.9
expect "stop $units;disable --quiet $units;" prerm remove
expect "" prerm upgrade 0.2.0
expect "daemon-reload;" postrm remove
export DPKG_ROOT="$stage/none"
expect "" postinst configure ""
expect "" prerm remove
expect "" postrm remove
unset DPKG_ROOT
path=$stage/none
expect "" postinst configure ""
expect "" prerm remove
expect "" postrm remove
unset path

# a system of its own, which knows the packages that it depends on and nothing else
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
for name in $(echo "$depends" | tr ',' '\n' | awk '{ print $1 }'); do
    dpkg-query -s "$name"
    echo
    : >"$root/var/lib/dpkg/info/$name.list"
    : >"$root/var/lib/dpkg/info/$name:$(dpkg --print-architecture).list"
done >"$root/var/lib/dpkg/status"
as_root=
[ "$(id -u)" = 0 ] || as_root=$(command -v fakeroot) || { echo "deb: neither root nor fakeroot; not installed"; exit 0; }
in_root() {
    $as_root dpkg --root="$root" --log="$stage/log" --force-script-chrootless --force-unsafe-io --no-debsig "$@" >"$stage/said" 2>&1 ||
        { cat "$stage/said"; fail "dpkg $* fails"; }
}
in_root -i "$package"
[ "$(dpkg-query --admindir="$root/var/lib/dpkg" -W -f='${db:Status-Status}' scoped-lane)" = installed ] || fail "it is not installed"

export LD_LIBRARY_PATH="$root/usr/lib" SCOPED_LANE_RUNDIR="$stage/rundir"
mkdir -m 700 "$stage/rundir"
"$root/usr/bin/scoped-lane" --version | grep -q "^scoped-lane [0-9]" || fail "no version"
"$root/usr/bin/scoped-laned" --version | grep -q "^scoped-laned [0-9]" || fail "no version"
"$root/usr/bin/scoped-lane" doctor >"$stage/doctor" || true
grep -q "$stage/rundir" "$stage/doctor" || fail "doctor says: $(cat "$stage/doctor")"
cat >"$stage/x.c" <<'C'
#include <scoped_lane.h>

int main(void)
{
    SL_SCOPE("from the package");
    return !sl_is_active();
}
C
# shellcheck disable=SC2046 # words are wanted
"${CC:-cc}" "$stage/x.c" -o "$stage/x" $(PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_PATH="$root/usr/lib/pkgconfig" \
    pkg-config --cflags --libs scoped-lane)
: >"$stage/laned"
"$root/usr/bin/scoped-laned" --config "$root/etc/scoped-lane/scoped-laned.conf" --output "$stage" 2>"$stage/laned" &
daemon=$!
trap 'kill $daemon 2>/dev/null || true; rm -rf "$stage"' EXIT
tries=0
until grep -q ready "$stage/laned"; do
    tries=$((tries + 1))
    { [ $tries -lt 100 ] && kill -0 $daemon; } || fail "the daemon is not ready: $(cat "$stage/laned")"
    sleep 0.1
done
"$root/usr/bin/scoped-lane" run -o "$stage/x.h5" -- "$stage/x" >/dev/null 2>"$stage/run" || fail "a program is not recorded: $(cat "$stage/run")"
"$root/usr/bin/scoped-lane" report "$stage/x.h5" | grep -q "from the package" || fail "its region is not in the report"
kill $daemon
wait $daemon || fail "the daemon ends badly: $(cat "$stage/laned")"

in_root -r scoped-lane
[ -e "$root/etc/scoped-lane/scoped-laned.conf" ] || fail "removed, its configuration is gone"
[ ! -e "$root/usr/bin/scoped-lane" ] || fail "removed, it is still there"
mkdir -p "$root/run/scoped-lane/spools"
: >"$root/run/scoped-lane/lock"
in_root -P scoped-lane
left=$(cd "$root" && find . -mindepth 1 ! -path './var*' ! -path ./run)
[ -z "$left" ] || fail "purged, it leaves: $left"
