#!/bin/sh
# docs/design.md names only source files, functions and words that are there, so that a newcomer who follows it gets somewhere; and
# docs/reliability.md only tests that are there.
set -eu
cd "$(dirname "$0")/.."
page=docs/design.md
status=0

# shellcheck disable=SC2013 # they are words
for file in $(grep -oE '[a-z_0-9-]+\.(c|h|sh|md)\b' $page | sort -u); do
    find proto client daemon tests docs -name "$file" | grep -q . || { echo "tour: $page names $file, which is not there"; status=1; }
done
# words in code marks that look like names of ours; those with a slash, a blank or an ellipsis are no names
# shellcheck disable=SC2013,SC2016 # words, in code marks
for word in $(grep -oE '`[A-Za-z_][A-Za-z_0-9]+`' $page | tr -d '`' | sort -u); do
    grep -rqw --include='*.[ch]' -e "$word" proto client daemon || { echo "tour: $page names $word, which is not there"; status=1; }
done
# each line of docs/reliability.md names the tests that show it, as file::name
# shellcheck disable=SC2013 # they are words
for test in $(grep -oE 'test_[a-z_]+\.(py|c)::[a-z_0-9]+' docs/reliability.md | sort -u); do
    file=$(find tests -name "${test%%::*}")
    { [ -n "$file" ] && grep -qE "^(def ${test##*::}\(|Test\([a-z_]+, ${test##*::}[,)])" "$file"; } ||
        { echo "tour: docs/reliability.md names $test, which is not there"; status=1; }
done
untested=$(sed '/^## .make torture/,$d' docs/reliability.md | sed -n '/^| what happens/,$ { /^|/ { /^| what happens/d; /^|-/d; /::/d; p } }')
[ -z "$untested" ] || { echo "tour: docs/reliability.md promises what no test shows: $untested"; status=1; }
exit $status
