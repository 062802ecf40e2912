#!/bin/sh
# Each public header, compiled alone: as C11 and as C++17, without a warning.
set -u
cd "$(dirname "$0")/.."
status=0
for header in proto/*.h client/scoped_lane*.h; do
    [ -e "$header" ] || { echo "headers: $header is missing"; status=1; continue; }
    for language in "${CC:-cc} -std=c11 -x c" "${CXX:-c++} -std=c++17 -x c++"; do
        echo "#include \"$header\"" | $language -Wall -Wextra -Werror -pedantic -I. -fsyntax-only - ||
            { echo "headers: $header does not stand alone: $language"; status=1; }
    done
done
exit $status
