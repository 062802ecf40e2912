#!/bin/sh
# layers.sh [TREE]: every include line keeps to its layer.
#
#   proto                                                 C's own headers, proto
#   client                                                libc and pthreads, proto, client; client/mpi MPI's header too
#   proto <- base <- core <- storage <- services <- cli, main.c      each only what stands before it
#
# Without an argument it also proves on a copy that it sees a line that does not keep to it.
set -u
tree=${1:-$(dirname "$0")/..}
cd "$tree" || exit 2

# Which layers each may name, and which libraries beside libc.
rules='
proto     proto                                       -
client    proto client                                sys/sdt
mpi       proto client                                mpi
base      proto base                                  sys/sdt
core      proto base core                             -
storage   proto base core storage                     hdf5 zlib uthash utlist
services  proto base core storage services            uv microhttpd jansson ini uthash utlist zlib
cli       proto base core storage services cli        uv curl/curl jansson ini uthash utlist libsmartcols/libsmartcols ncurses curses
main.c    proto base core storage services            uv microhttpd jansson ini
'
libraries=' hdf5 zlib uthash utlist uv microhttpd jansson ini sys/sdt curl/curl libsmartcols/libsmartcols ncurses curses mpi criterion/criterion '
standard=' assert complex ctype errno float inttypes limits math stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib string '

includes() {  # FILE LINE NAME of each include
    grep -rnE '^[[:space:]]*#[[:space:]]*include' --include='*.[ch]' --include='*.hpp' proto client daemon |
        sed -E 's/^([^:]+):([0-9]+):[^"<]*(["<][^">]+).*/\1 \2 \3/'
}

check() {
    includes | while read -r file line name; do
        layer=${file%%/*}
        [ "$layer" = daemon ] && layer=${file#daemon/} layer=${layer%%/*}
        case $file in client/mpi/*) layer=mpi ;; esac
        rule=$(echo "$rules" | grep "^$layer ") || { echo "$file: no layer of its own"; continue; }
        # shellcheck disable=SC2086 # words are wanted
        set -- $rule
        shift
        own=
        while case $1 in proto | client | base | core | storage | services | cli) true ;; *) false ;; esac; do
            own="$own $1"
            shift
        done
        case $name in
            '"'*)
                case "$own " in
                    *" $(echo "${name#?}" | cut -d/ -f1) "*) ;;
                    *) echo "$file:$line: $layer may not include \"${name#?}\"" ;;
                esac ;;
            '<'*)
                name=${name#?} word=${name%.h}
                case $libraries in
                    *" $word "*)
                        case " $* " in
                            *" $word "*) ;;
                            *) echo "$file:$line: $layer may not include <$name>" ;;
                        esac ;;
                esac
                if [ "$layer" = proto ]; then
                    case $standard in
                        *" $word "*) ;;
                        *) echo "$file:$line: proto may not include <$name>" ;;
                    esac
                fi ;;
        esac
    done
    users=$(grep -rlE 'include *<hdf5' --include='*.[ch]' proto client daemon | sed 's/\.[ch]$//' | sort -u)
    [ "$(echo "$users" | wc -l)" -le 1 ] || echo "hdf5.h in more than one place:" $users
}

wrong=$(check)
[ -z "$wrong" ] || { echo "$wrong"; exit 1; }

if [ $# = 0 ]; then
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    mkdir -p "$copy/proto" "$copy/client" "$copy/daemon/base" "$copy/daemon/core" "$copy/daemon/storage"
    for bad in 'proto/a.h "client/b.h"' 'proto/a.h <unistd.h>' 'client/a.c "base/b.h"' 'client/a.c <uv.h>' 'client/a.c <mpi.h>' 'client/a.c "b.h"' \
        'daemon/base/a.c "core/b.h"' 'daemon/core/a.c <uv.h>' 'daemon/core/a.c "client/scoped_lane.h"' 'daemon/storage/a.c <uv.h>'; do
        find "$copy" -type f -delete
        echo "#include ${bad#* }" >"$copy/${bad%% *}"
        "$0" "$copy" >/dev/null && { echo "layers.sh does not see $bad"; exit 1; }
    done
fi
exit 0
